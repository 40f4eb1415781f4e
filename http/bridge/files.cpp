#include "base/limits.hpp"
#include "http/bridge/ask_sandbox.hpp"
#include "http/bridge/file_download.hpp"
#include "http/bridge/file_upload.hpp"
#include "http/bridge/workspace_path.hpp"

#include <cerrno>
#include <climits>
#include <system_error>

namespace insula::http::bridge {

namespace {

/// The file that a request names, or why it names none; in the contract's order.
result<std::string> file_of(const call& what) {
  if (what.tail.empty())
    return error{errc::invalid_request, "file path must not be empty"};
  const auto path = decode_file_path(what.tail);
  if (path.find('\0') != std::string::npos)
    return error{errc::invalid_request, "file path must not contain NUL"};
  auto resolved = resolve_in_workspace(path);
  if (!resolved)
    return error{errc::outside_workspace, "path must resolve to a location within /workspace"};
  if (!what.session_id.empty() && !is_session_id(what.session_id))
    return error{errc::invalid_request, "Invalid session ID format"};
  if (resolved->size() >= PATH_MAX)
    return error{errc::io_failed, std::generic_category().message(ENAMETOOLONG)};
  return std::move(*resolved);
}

admission refused(step during, const error& why) {
  admission plan;
  plan.refusal = error_response(during, why);
  return plan;
}

void read(const services& with, const call& what, const std::string& path, const reply& to) {
  to->answer_within(sandbox_patience,
                    error_response(step::find_sandbox,
                                   {errc::deadline_exceeded, "the sandbox was not ready in time"}));
  ask_sandbox<read_file_request, file_channel>(
    with,
    {with.directory, what.id, read_file_request{path, what.session_id, to->context()},
     [path, to](const file_channel& channel) { start_download(channel, path, to); },
     [to](step at, const error& why) { to->respond(error_response(at, why)); }, step::read_file});
}

const std::vector<parameter> parameters = {
  {"path", "path", "The file, without the leading slash; each segment percent-encoded.", true,
   "workspace/notes.txt"},
  {"Session-Id", "header", "This session is made if it is not there."}};

} // namespace

void add_file_routes(std::vector<route>& table, std::shared_ptr<const services> with) {
  table.push_back(
    {verb::get,
     "/v1/sandbox/:id/file/*",
     access::key,
     body_use::ignored,
     0,
     [with](const call& what) {
       const auto path = file_of(what);
       if (!path)
         return refused(step::read_file, path.reason());
       admission plan;
       plan.answer = [with, what, path = *path](const std::string&, const reply& to) {
         read(*with, what, path, to);
       };
       return plan;
     },
     {.id = "readFile",
      .summary = "Read a file.",
      .parameters = parameters,
      .answers = {{"200", "Its bytes.", "application/octet-stream", ""},
                  {"400", "", "", "InvalidRequest"},
                  {"403", "Outside the workspace.", "application/json", "ErrorResponse"},
                  {"404", "No such file.", "application/json", "ErrorResponse"},
                  {"502", "It could not be read.", "application/json", "ErrorResponse"},
                  {"503", "No room for another sandbox.", "application/json", "ErrorResponse"}}}});
  table.push_back(
    {verb::put,
     "/v1/sandbox/:id/file/*",
     access::key,
     body_use::streamed,
     limits::file_body_bytes,
     [with](const call& what) {
       const auto path = file_of(what);
       if (!path)
         return refused(step::write_file, path.reason());
       admission plan;
       plan.sink = make_upload(with, what.id, what.session_id, *path, limits::file_body_bytes);
       return plan;
     },
     {.id = "writeFile",
      .summary = "Write a file, with the directories above it. At most 32 MiB.",
      .parameters = parameters,
      .body_type = "application/octet-stream",
      .answers = {{"200", "It can be read back.", "application/json", "WriteResponse"},
                  {"400", "", "", "InvalidRequest"},
                  {"403", "Outside the workspace.", "application/json", "ErrorResponse"},
                  {"413", "The body is too large.", "application/json", "ErrorResponse"},
                  {"502", "It could not be written.", "application/json", "ErrorResponse"},
                  {"503", "No room for another sandbox.", "application/json", "ErrorResponse"}}}});
}

} // namespace insula::http::bridge
