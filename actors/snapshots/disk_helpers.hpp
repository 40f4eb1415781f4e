#pragma once

#include "actors/image_catalogue.hpp"
#include "actors/protocol/snapshots.hpp"
#include "runtime/engine.hpp"

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace insula::actors::snapshots {

/// What the snapshot lies over. Null: it is not on this node, or was changed since.
shared_image image_under(const image_catalogue& images, const snapshot_description& is);

inline const error image_gone{
  errc::image_refused, "what the snapshot lies over is not on this node, or was changed since"};

/// What is told while the only copy of a snapshot's bytes is still made.
error copy_comes_later(const std::string& id);
bool is_pending(const error& why); ///< It is that.

/// What such a sandbox is made as, over that image. `disk_bytes`: of its own disk.
runtime::sandbox_spec helper_spec(const sandbox_image& image, std::uint64_t disk_bytes = 16u << 20);

/// Sandboxes of the node's own, without a network, that look at disks: what a sandbox has written
/// is read in a sandbox alone, and under its limits. Each is made for one job, and has no name, so
/// that none outlives its server.
///
/// Threads: any. Owner: each job keeps it until the answer; the engine outlives it.
class disk_helpers : public std::enable_shared_from_this<disk_helpers> {
public:
  explicit disk_helpers(runtime::engine& of)
      : engine_(of) {}

  using changes_function = std::function<void(const result<disk_changes>&)>;

  /// Two snapshots over that image. `tell` is called once, on a thread of the engine's or, of what
  /// is refused, before this returns. Errors: those of engine::create() and
  /// sandbox::compare_disks(); limit_reached, as many wait as may; deadline_exceeded, also for one
  /// whose turn does not come.
  void compare(shared_image image, const runtime::compare_request& wanted, changes_function tell);

private:
  struct job {
    shared_image image;
    runtime::compare_request wanted;
    changes_function tell;
    std::chrono::steady_clock::time_point until; ///< For its turn.
  };
  void begin(const std::shared_ptr<job>& what);
  void one_less();

  runtime::engine& engine_;
  std::mutex guard_; ///< For what follows.
  std::deque<std::shared_ptr<job>> waiting_;
  std::size_t running_ = 0;
};

} // namespace insula::actors::snapshots
