#pragma once

#include "base/unique_fd.hpp"
#include "runtime/cgroup.hpp"

#include <cstdint>
#include <mutex>
#include <thread>

namespace insula::runtime::spawner {

/// Until when the sandboxes of this node may run. Whoever serves renews that; once it has run out
/// all of them stand still, whatever else hangs, and go on when it is renewed. As long as none has
/// been given, nothing of this happens.
///
/// A thread of its own watches, because a disk or a server that does not answer holds the spawner's
/// loop up. It does nothing but wait, and write into the freezer.
///
/// Threads: the spawner's own.
class permission {
public:
  /// In nanoseconds of CLOCK_BOOTTIME, which goes on while the machine sleeps.
  static constexpr std::uint64_t without_end = ~std::uint64_t{0};

  explicit permission(const cgroup_tree& groups)
      : groups_(groups) {}
  ~permission();

  /// Once the cgroups are there, and signals are blocked. False: errno says why.
  bool start();

  /// In place of what was given before, also if that lasts longer. At once: if it has run out
  /// already all stand still, else they go on.
  void renew(std::uint64_t until);

  std::uint64_t until() const { return until_; } ///< 0: none has been given.
  bool over() const;

  /// Readable when it has run out; take_news() says so once.
  int news() const { return news_.get(); }
  bool take_news() const;

private:
  void watch();
  bool has_run_out() const;
  void stop_all();

  const cgroup_tree& groups_;
  unique_fd freezer_; ///< None: this machine has none.
  unique_fd timer_, stop_, news_;
  mutable std::mutex guard_; ///< For what follows.
  std::uint64_t until_ = 0;  ///< Changed by the spawner's thread only.
  bool over_ = false;
  std::thread watcher_;
};

} // namespace insula::runtime::spawner
