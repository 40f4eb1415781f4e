#pragma once

#include "base/unique_fd.hpp"

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace insula::runtime::spawner {

/// Work that waits for the machine's disk, so that the spawner's loop does not wait. It begins in
/// the order in which it comes.
///
/// Threads: some of its own for the work; all calls, and what follows the work, are the spawner's.
/// Ceiling: `most`.
class disk_jobs {
public:
  static constexpr std::size_t most = 4096;

  /// What is to be done by the spawner once the work is done.
  using finish = std::function<void()>;
  using work = std::function<finish()>;

  disk_jobs() = default;
  disk_jobs(const disk_jobs&) = delete;
  disk_jobs& operator=(const disk_jobs&) = delete;
  ~disk_jobs() { end(); }

  /// Once signals are blocked. So many are done at once. False: errno says why.
  bool start(std::size_t threads);

  /// Waits for the work that is under way; what waits is not done, and nothing follows any more.
  void end();

  /// False: too much waits.
  bool add(work what);

  /// Readable when work is done; finish_done() does what follows it.
  int news() const { return news_.get(); }
  void finish_done();

private:
  void run();

  unique_fd news_;
  std::mutex guard_; ///< For the next four.
  std::condition_variable changed_;
  std::deque<work> waiting_;
  std::vector<finish> done_;
  bool ends_ = false;
  std::vector<std::thread> workers_;
};

} // namespace insula::runtime::spawner
