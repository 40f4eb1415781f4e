#include "base/limits.hpp"
#include "http/bridge/file_download.hpp"
#include "http/bridge/file_upload.hpp"
#include "http/bridge/workspace_path.hpp"
#include "http/sandboxes/ask_sandbox.hpp"

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

/// None: all of it. A Range that makes no sense, or names several parts, counts for nothing, and
/// neither does one that is for a certain state of the file: no answer has told one.
std::optional<byte_range> part_wanted(const call& what) {
  if (what.range.empty() || !what.if_range.empty())
    return std::nullopt;
  auto asked = read_range(what.range);
  return asked.several || (asked.first && is_backwards(*asked.first)) ? std::nullopt
                                                                      : std::move(asked.first);
}

/// `range`: none of it is all.
void ask_for(const std::shared_ptr<const services>& with, const call& what, const std::string& path,
             const std::optional<byte_range>& range, const reply& to) {
  read_file_request wanted{path, what.session_id, to->context()};
  std::optional<wanted_part> part;
  if (range) {
    wanted.part = {range->first, range->last};
    part = {*range, [with, what, path, to] { ask_for(with, what, path, std::nullopt, to); }};
  }
  ask_sandbox<read_file_request, file_channel>(
    *with,
    {with->directory, what.id, std::move(wanted),
     [path, part, to](const file_channel& channel) { start_download(channel, path, part, to); },
     [to](step at, const error& why) { to->respond(error_response(at, why)); }, step::read_file});
}

void read(const std::shared_ptr<const services>& with, const call& what, const std::string& path,
          const reply& to) {
  to->answer_within(sandbox_patience,
                    error_response(step::find_sandbox,
                                   {errc::deadline_exceeded, "the sandbox was not ready in time"}));
  ask_for(with, what, path, part_wanted(what), to);
}

std::vector<parameter> with_range(std::vector<parameter> all) {
  all.push_back({"Range", "header", "One part of it: `bytes=0-99`, `bytes=100-` or `bytes=-100`."});
  return all;
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
         read(with, what, path, to);
       };
       return plan;
     },
     {.id = "readFile",
      .summary = "Read a file, or a part of it.",
      .parameters = with_range(parameters),
      .answers = {{"200", "Its bytes.", "application/octet-stream", ""},
                  {"206", "Those that Range names.", "application/octet-stream", ""},
                  {"400", "", "", "InvalidRequest"},
                  {"403", "Outside the workspace.", "application/json", "ErrorResponse"},
                  {"404", "No such file.", "application/json", "ErrorResponse"},
                  {"416", "It has no such bytes.", "application/json", "ErrorResponse"},
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
