#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "storage/store.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace insula::actors {

/// Work that somebody may not want any more. Any thread.
class work_token {
public:
  work_token() = default;
  work_token(const work_token&) = delete;
  work_token& operator=(const work_token&) = delete;
  virtual ~work_token() = default;

  void cancel() { cancelled_ = true; }
  virtual bool cancelled() const { return cancelled_; }

private:
  std::atomic<bool> cancelled_ = false;
};

/// Where a snapshot is, and how it is known that it is that one. One line of text.
using snapshot_reference = std::string;

/// Opens a tree of the sandbox: base/tree_frames.hpp says what travels through the socket. Called
/// on a thread that may wait.
using open_tree_function = std::function<result<unique_fd>()>;

/// Snapshots of whole disks, in a place that outlives the node. An earlier version has left some of
/// /workspace there.
///
/// Threads: any; answers come on threads of its own, each once. What is asked for waits for its
///          turn.
/// Owner:   outlives the actors that use it.
class snapshot_archive {
public:
  virtual ~snapshot_archive() = default;

  struct keep_request {
    std::string sandbox;       ///< Or what else it is of.
    storage::epoch epoch = 0;  ///< At which its owner writes.
    std::int64_t taken_ms = 0; ///< Larger than that of any earlier snapshot of the sandbox.
    snapshot_reference
      earlier;               ///< What it shares with this one is not written again. May be empty.
    open_tree_function open; ///< For reading.
    std::shared_ptr<work_token> token;
    bool waited_for = false; ///< By a client: it goes before those that nobody waits for.
  };
  /// Answers when all of it is durable. It is nothing to anybody until its reference is remembered,
  /// and is removed some day if it never is. Errors: store_failed (the place does not take it),
  /// io_failed (the sandbox does not give its files), limit_reached (they are too many, or too
  /// large), capacity_exceeded (as many wait as may), sandbox_not_running (cancelled),
  /// and those of `open`.
  virtual void keep(keep_request what, std::function<void(result<snapshot_reference>)> on_kept) = 0;

  struct put_back_request {
    std::string sandbox;
    snapshot_reference from;
    open_tree_function open; ///< For writing, in place of all that is there.
    std::shared_ptr<work_token> token;
    bool whole = false; ///< The tree is a disk's, and not that of /workspace.
  };
  /// Errors: store_failed (it cannot be had, or is damaged), io_failed (the sandbox does not take
  /// it), sandbox_not_running (cancelled), and those of `open`.
  virtual void put_back(put_back_request what, std::function<void(result<void>)> on_back) = 0;

  /// All snapshots of the sandbox that are older than `newest`; if that is empty, all that were
  /// written at `last` or before. Nobody is told; what is left goes some day.
  virtual void forget(const std::string& sandbox, storage::epoch last,
                      const snapshot_reference& newest) = 0;
};

} // namespace insula::actors
