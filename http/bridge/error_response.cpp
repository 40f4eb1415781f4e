#include "http/bridge/error_response.hpp"

#include "actors/protocol/lost_files.hpp"
#include "base/log.hpp"
#include "http/json/json.hpp"
#include "http/transport/retry_after.hpp"

#include <cstdlib>
#include <utility>

namespace insula::http::bridge {

namespace {

struct wire_error {
  int status;
  std::string_view code;
  std::string_view prefix = {};
};

/// Failures that are told by what was being done. A status of 503 invites a retry, so it is kept
/// for what will pass.
wire_error failed(step during) {
  switch (during) {
    case step::request: return {500, "internal_error"};
    case step::find_sandbox: return {502, "pool_error", "pool error: "};
    case step::exec: return {502, "exec_transport_error", "exec failed: "};
    case step::read_file: return {502, "exec_transport_error", "read failed: "};
    case step::write_file: return {502, "workspace_archive_write_error", "write failed: "};
    case step::read_tree: return {502, "workspace_archive_read_error", "persist failed: "};
    case step::write_tree: return {502, "workspace_archive_write_error", "hydrate failed: "};
    case step::create_session: return {502, "session_error", "session create failed: "};
    case step::delete_session: return {502, "session_error", "session delete failed: "};
    case step::terminal: return {502, "exec_transport_error", "terminal failed: "};
    case step::network: return {502, "network_error", "network: "};
    case step::snapshot: return {502, "snapshot_error", "snapshot failed: "};
    case step::mount: return {502, "mount_error", "mount failed: "};
    case step::unmount: return {502, "unmount_error", "unmount failed: "};
  }
  std::abort(); // Not a step at all: memory is damaged.
}

/// What is wrong with what was asked for is told as any other failure of the step: the request was
/// read without an objection before.
bool tells_requests_apart(step during) {
  return during != step::find_sandbox && during != step::mount && during != step::unmount;
}

wire_error classify(step during, errc code) {
  switch (code) {
    case errc::invalid_request:
      return tells_requests_apart(during) ? wire_error{400, "invalid_request"} : failed(during);
    case errc::outside_workspace:
      return tells_requests_apart(during) ? wire_error{403, "invalid_request"} : failed(during);
    case errc::unauthorized: return {401, "unauthorized"};
    case errc::not_found:
      return during == step::read_file  ? wire_error{404, "workspace_read_not_found"}
             : during == step::snapshot ? wire_error{404, "not_found"}
                                        : failed(during);
    case errc::payload_too_large: return {413, "payload_too_large"};
    case errc::capacity_exceeded:
    case errc::machine_full: return {503, "capacity_exceeded"};
    case errc::disk_full: return {507, "insufficient_storage"};
    case errc::store_failed: return {503, "storage_unavailable"};
    case errc::idempotency_conflict: return {409, "idempotency_conflict"};
    case errc::result_gone: return {410, "result_gone"};
    case errc::forbidden: return {403, "forbidden"};
    case errc::sandbox_mismatch: return {409, "sandbox_mismatch"};
    case errc::image_refused: return {400, "image_refused"};
    case errc::image_pending: return {503, "image_pending"};
    case errc::run_over:
    case errc::run_stopping:
    case errc::run_snapshotting:
    case errc::snapshot_gone: return {409, "run_over"};
    case errc::drive_in_use: return {409, "drive_in_use"};
    case errc::drive_gone: return {409, "drive_gone"};
    case errc::key_ceiling: return {429, "key_limit_reached"};
    case errc::stale_epoch: // It has become another node's.
    case errc::node_unreachable: return {503, "node_unreachable"};
    case errc::limit_reached:
      return during == step::snapshot ? wire_error{429, "limit_reached"} : failed(during);
    case errc::already_exists:
      return during == step::snapshot ? wire_error{409, "already_exists"} : failed(during);
    case errc::sandbox_not_running:
    case errc::deadline_exceeded:
    case errc::launch_failed:
    case errc::io_failed:
    case errc::internal:
    case errc::request_known:
    case errc::session_ended: return failed(during);
  }
  std::abort();
}

/// What clients are shown; the actors tell bare numbers.
std::string message_of(const error& why) {
  if (why.code == errc::internal)
    return "internal error";
  if (why.code == errc::disk_full)
    return "the node's disk is full, so nothing was done; it goes on by itself when there is room "
           "again";
  const bool is_of_disk = why.retry_s == 0 && !why.message.starts_with(files_unavailable);
  if (why.code == errc::store_failed && is_of_disk)
    return "the node's disk does not take what has to be remembered, so nothing was done; it goes "
           "on by itself when the disk does";
  if (why.code == errc::machine_full)
    return "Cannot start container: " + why.message + ". Wait for existing containers to stop.";
  if (why.code == errc::capacity_exceeded)
    return "Cannot start container: instance limit reached (" + why.message +
           "). All container slots are in use. Wait for existing containers to stop.";
  return why.message;
}

} // namespace

response error_response(step during, const error& why) {
  const auto wire = classify(during, why.code);
  if (why.code == errc::internal)
    log::error("http.internal_error", {{"why", why.message}});
  response answer{wire.status,
                  json::write_error(std::string{wire.prefix} + message_of(why), wire.code)};
  return with_retry_after(std::move(answer), why);
}

response tar_failure(step during, int exit_code, std::string_view text) {
  const std::string what = during == step::read_tree ? "tar failed" : "tar extract failed";
  return {
    502, json::write_error(what + " (exit " + std::to_string(exit_code) + "): " + std::string{text},
                           failed(during).code)};
}

} // namespace insula::http::bridge
