#include "http/vercel/failures.hpp"

#include "http/json/writer.hpp"
#include "http/transport/retry_after.hpp"

namespace insula::http::vercel {

response failure(const refusal& why) {
  json::ascii_writer out;
  out.begin_object().key("error").begin_object();
  out.member("code", why.code).member("message", why.message);
  out.end_object().end_object();
  return {why.status, out.str()};
}

refusal refusal_of(const error& why) {
  switch (why.code) {
    case errc::invalid_request:
    case errc::outside_workspace: return {400, "bad_request", why.message};
    case errc::unauthorized: return {401, "unauthorized", why.message};
    case errc::forbidden: return {403, "forbidden", why.message};
    case errc::drive_gone:
    case errc::not_found: return {404, "not_found", why.message};
    case errc::payload_too_large: return {413, "payload_too_large", why.message};
    case errc::already_exists:
    case errc::drive_in_use:
    case errc::idempotency_conflict:
    case errc::request_known:
    case errc::sandbox_mismatch: return {409, "conflict", why.message};
    case errc::run_over: return {410, "sandbox_stopped", "The sandbox session has stopped."};
    case errc::run_stopping: return {422, "sandbox_stopping", "The sandbox session is stopping."};
    case errc::run_snapshotting:
      return {422, "sandbox_snapshotting", "A snapshot of the sandbox session is being taken."};
    case errc::snapshot_gone:
      return {410, "snapshot_not_found", "Cannot resume sandbox: " + why.message + '.'};
    case errc::sandbox_not_running:
    case errc::session_ended: return {410, "sandbox_stopped", why.message};
    case errc::result_gone: return {410, "gone", why.message};
    case errc::image_refused: return {400, "not_found", why.message};
    case errc::image_pending: return {400, "image_not_ready", why.message};
    case errc::launch_failed:
    case errc::limit_reached: return {400, "bad_request", why.message};
    case errc::io_failed: return {400, "file_error", why.message};
    case errc::capacity_exceeded:
    case errc::machine_full:
    case errc::key_ceiling: return {429, "rate_limited", why.message};
    case errc::disk_full: return {507, "internal_server_error", "the node's disk is full"};
    case errc::deadline_exceeded:
    case errc::stale_epoch:
    case errc::node_unreachable:
    case errc::store_failed: return {503, "internal_server_error", why.message};
    case errc::internal: return {500, "internal_server_error", "internal error"};
  }
  return {500, "internal_server_error", "internal error"};
}

response failure(const error& why) {
  auto answer = with_retry_after(failure(refusal_of(why)), why);
  // Room at the node may come at any moment; nobody knows when a key's ceiling has some.
  if (why.code == errc::capacity_exceeded && why.retry_s == 0)
    answer.fields.push_back({"Retry-After", "2"});
  return answer;
}

response no_length() {
  return failure(refusal{411, "length_required", "The request needs a Content-Length."});
}

response too_large(std::uint64_t, std::uint64_t limit) {
  return failure(
    refusal{413, "payload_too_large", "The body may have " + std::to_string(limit) + " bytes."});
}

} // namespace insula::http::vercel
