#pragma once

#include "base/limits.hpp"
#include "http/api/route.hpp"
#include "http/opensandbox/commands.hpp"
#include "http/opensandbox/execd_json.hpp"
#include "http/sandboxes/services.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

/// What the files of execd's routes share.
namespace insula::http::opensandbox {

/// A request to execd: its path, and what its handlers need of its header.
struct execd_call : request_path {
  explicit execd_call(const matched_request& what);

  std::string user_agent, range, if_range; ///< A HEAD has no range.
  web_socket_offer offer;
};

/// Whose execd it is.
struct execd_target {
  std::shared_ptr<const services> with;
  std::string fixed_id; ///< Empty: the path says it, and the sandbox has to be there.

  std::string id(const request_path& what) const { return fixed_id.empty() ? what.id() : fixed_id; }
  bool makes_sandbox() const { return !fixed_id.empty(); }
};

using execd_answer = std::function<void(const execd_target&, const execd_call&,
                                        const std::string& body, const reply&)>;

/// One that answers a whole request. `document`: without an id for what is refused, whatever it
/// asks for.
route execd_route(verb method, std::string pattern, const execd_target& target, body_use body,
                  execd_answer answer, operation document,
                  std::uint64_t body_limit = limits::exec_body_bytes);

/// One that takes a body as it comes. `make` makes what takes it.
route execd_sink_route(
  verb method, std::string pattern, const execd_target& target, std::uint64_t body_limit,
  std::function<std::shared_ptr<body_sink>(const execd_target&, const matched_request&)> make,
  operation document);

/// What a route says that has nothing to say.
inline const documented_answer done_answer{"200", "Done; the body is empty."};

/// What a route says of a body or a query that it cannot read.
inline const documented_answer bad_answer{"400", "The body or the query is wrong.",
                                          "application/json", "OpenSandboxError"};

/// And the output of a command, as it comes.
inline const documented_answer events_answer{"200",
                                             "Events, each a line `data: {...}` of type ExecdEvent "
                                             "and a blank line: init, then stdout, stderr "
                                             "and ping, and at last execution_complete or error.",
                                             "text/event-stream"};

/// 32 hexadecimal digits, from the kernel's random source.
std::string new_command_id();

/// A command that is to run, and be remembered by an id of its own.
execd_job make_job(const execd_target& target, const execd_call& what, command_body wanted,
                   const reply& to);

/// Files and directories. Paths follow `prefix`.
void add_file_routes(std::vector<route>& table, const execd_target& target,
                     const std::string& prefix);
/// Bash sessions.
void add_session_routes(std::vector<route>& table, const execd_target& target,
                        const std::string& prefix);
/// What its sandbox uses.
void add_metrics_routes(std::vector<route>& table, const execd_target& target,
                        const std::string& prefix);
/// Terminals. Paths follow `prefix`.
void add_pty_routes(std::vector<route>& table, const execd_target& target,
                    const std::string& prefix);
/// Code and its contexts, which nothing here interprets.
void add_code_routes(std::vector<route>& table, const execd_target& target,
                     const std::string& prefix);
/// Isolated sessions, of which there are none.
void add_isolated_routes(std::vector<route>& table, const execd_target& target,
                         const std::string& prefix);

} // namespace insula::http::opensandbox
