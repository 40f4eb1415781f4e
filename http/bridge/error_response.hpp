#pragma once

#include "base/error.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/transport/exchange.hpp"

#include <string_view>

namespace insula::http::bridge {

/// What was being done when it failed; the bridge names the same failure differently.
enum class step : std::uint8_t {
  request,
  find_sandbox, ///< Or the pool.
  exec,
  read_file,
  write_file,
  read_tree,
  write_tree,
  create_session,
  delete_session,
  terminal,
  network,
  snapshot,
  mount,
  unmount
};

/// What was being done when a question to a sandbox failed: finding it, or `during`.
inline step step_of(question_stage at, step during) {
  return at == question_stage::find ? step::find_sandbox : during;
}

/// The bridge's answer to a failure. The only place where an errc becomes a status.
response error_response(step during, const error& why);

/// The same for a question to a sandbox that fails on the way to `during`.
inline auto failing(step during) {
  return [during](question_stage at, const error& why) {
    return error_response(step_of(at, during), why);
  };
}

/// The answer when there has been none in time.
inline response overdue(step during,
                        const std::string& why = "the sandbox did not answer in time") {
  return error_response(during, {errc::deadline_exceeded, why});
}

inline constexpr auto not_ready = "the sandbox was not ready in time";

/// The answer to an archive that could not be made or unpacked, as GNU tar would have told it.
/// `during`: read_tree or write_tree.
response tar_failure(step during, int exit_code, std::string_view text);

} // namespace insula::http::bridge
