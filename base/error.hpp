#pragma once

#include <cassert>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

namespace insula {

/// Every way a request can fail, whichever folder notices. Each public API has one table that gives
/// each its status and body. The numbers travel between nodes: append, never renumber.
enum class errc : std::uint8_t {
  invalid_request = 1, ///< Malformed. Sending it again will not help.
  outside_workspace,   ///< A path that does not resolve to a place below /workspace.
  unauthorized,        ///< The key is missing or wrong.
  not_found,           ///< No such sandbox, file or process.
  payload_too_large,   ///< The body is over the route's limit.
  sandbox_not_running, ///< It exists, but it is being deleted, has ended or cannot run programs.
  capacity_exceeded,   ///< The node holds as many sandboxes as it may. Trying later may help.
  limit_reached,       ///< Another stated ceiling is used up. Trying later may help.
  deadline_exceeded,   ///< The caller's time ran out; the work was cancelled.
  launch_failed,       ///< The sandbox or the command could not be started.
  io_failed,           ///< Reading or writing failed in the sandbox or on the node's disk.
  stale_epoch,         ///< Somebody else owns the object by now; the write was refused.
  node_unreachable,    ///< The node that holds the sandbox does not answer.
  internal,            ///< A bug in Insula. The message is for the log only.
  already_exists,      ///< There is one of that name.
  session_ended,       ///< The session that it ran in was deleted.
  disk_full,           ///< The node's own disk has no room for what it has to remember.
  store_failed, ///< The node's own disk refuses to remember or to tell it for another reason.
  idempotency_conflict, ///< The key has been used for another request.
  result_gone,          ///< The result, or the part of it that is asked for, is not there any more.
  machine_full, ///< The whole machine has no room for another sandbox: in its memory, or in a table
                ///< of the kernel's. Trying later may help.
  forbidden,    ///< The configuration of the node does not allow it.
  sandbox_mismatch, ///< The sandbox is there, and was made otherwise than the request asks for.
  image_refused,    ///< The image that is named is not to be had.
  image_pending,    ///< The image is on its way to the node. Trying later helps.
  run_over,         ///< The run of the sandbox that is asked for is over, or none is alive.
  key_ceiling,      ///< A ceiling of the API key with which the sandbox was made is used up. Trying
                    ///< later may help.
  request_known,    ///< The request came before, by another key. See idempotency_key::by_digest.
  run_stopping,     ///< The run of the sandbox that is asked for stops.
  run_snapshotting, ///< The same, and its client has asked for a snapshot of its disk.
  snapshot_gone,    ///< There is no snapshot that the sandbox could begin its next run with.
  drive_in_use,     ///< Another sandbox writes to the drive, or has it attached.
  drive_gone,       ///< There is no drive that the sandbox is to have.
};

/// No run is alive, or the one that is asked for goes on no more.
constexpr bool is_run_end(errc code) {
  return code == errc::run_over || code == errc::run_stopping || code == errc::run_snapshotting;
}

/// A failure, and the sentence a person would want to read about it.
struct error {
  errc code;
  std::string message;
  std::uint32_t retry_s =
    0; ///< Trying again so many seconds later helps. 0: nothing is known of that.
};

/// A value, or the reason why there is none. Reading the wrong one is a programming error.
template <class T>
class [[nodiscard]] result {
public:
  result(T value)
      : held_(std::in_place_index<0>, std::move(value)) {}
  result(error why)
      : held_(std::in_place_index<1>, std::move(why)) {}

  explicit operator bool() const noexcept { return held_.index() == 0; }

  T& operator*() { return value(); }
  const T& operator*() const { return const_cast<result*>(this)->value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &const_cast<result*>(this)->value(); }

  const error& reason() const {
    assert(held_.index() == 1);
    return *std::get_if<1>(&held_);
  }

private:
  T& value() {
    assert(held_.index() == 0);
    return *std::get_if<0>(&held_);
  }

  std::variant<T, error> held_;
};

/// Success without a value.
struct done {};

template <>
class [[nodiscard]] result<void> : public result<done> {
public:
  result()
      : result<done>(done{}) {}
  result(error why)
      : result<done>(std::move(why)) {}
};

} // namespace insula
