#include "base/limits.hpp"
#include "http/bridge/api.hpp"
#include "http/bridge/error_response.hpp"
#include "http/bridge/file_download.hpp"
#include "http/bridge/file_upload.hpp"
#include "http/bridge/workspace_path.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/sandboxes/session_id.hpp"

#include <cerrno>
#include <climits>
#include <system_error>

namespace insula::http::bridge {

namespace {

/// The file that a request names, or why it names none; in the contract's order.
result<std::string> file_of(const matched_request& what) {
  if (what.tail.empty())
    return error{errc::invalid_request, "file path must not be empty"};
  const auto path = decode_file_path(what.tail);
  if (path.find('\0') != std::string::npos)
    return error{errc::invalid_request, "file path must not contain NUL"};
  auto resolved = resolve_in_workspace(path);
  if (!resolved)
    return error{errc::outside_workspace, "path must resolve to a location within /workspace"};
  const auto session = what.head().field("Session-Id");
  if (!session.empty() && !is_session_id(session))
    return error{errc::invalid_request, "Invalid session ID format"};
  if (resolved->size() >= PATH_MAX)
    return error{errc::io_failed, std::generic_category().message(ENAMETOOLONG)};
  return std::move(*resolved);
}

admission refused(step during, const error& why) {
  return http::refused(error_response(during, why));
}

/// None: all of it. A Range that makes no sense, or names several parts, counts for nothing, and
/// neither does one that is for a certain state of the file: no answer has told one.
std::optional<byte_range> part_wanted(const request_head& head) {
  const auto range = head.field("Range");
  if (head.head_only || range.empty() || !head.field("If-Range").empty())
    return std::nullopt;
  auto asked = read_range(range);
  return asked.several || (asked.first && is_backwards(*asked.first)) ? std::nullopt
                                                                      : std::move(asked.first);
}

struct wanted_file {
  std::string id;
  std::string session;
  std::string path;
  std::optional<byte_range> part; ///< None: all of it.
};

void ask_for(const shared_services& with, wanted_file file, const reply& to) {
  read_file_request wanted{file.path, file.session, {}};
  std::optional<wanted_part> part;
  if (file.part) {
    wanted.part = {file.part->first, file.part->last};
    auto whole = file;
    whole.part = std::nullopt;
    part = {*file.part, [with, whole, to] { ask_for(with, whole, to); }};
  }
  question{*with, file.id, std::move(wanted), to}
    .or_else(failing(step::read_file))
    .then<file_channel>([path = file.path, part, to](const file_channel& channel) {
      start_download(channel, path, part, to);
    });
}

void read(const shared_services& with, const wanted_file& file, const reply& to) {
  to->answer_within(sandbox_patience, overdue(step::find_sandbox, not_ready));
  ask_for(with, file, to);
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

void add_file_routes(std::vector<route>& table, const shared_services& with) {
  table.push_back(
    {verb::get,
     "/v1/sandbox/:id/file/*",
     access::key,
     body_use::ignored,
     0,
     [with](const matched_request& what) {
       const auto path = file_of(what);
       if (!path)
         return refused(step::read_file, path.reason());
       return answered_by([with, file = wanted_file{what.id(), what.field("Session-Id"), *path,
                                                    part_wanted(what.head())}](
                            const std::string&, const reply& to) { read(with, file, to); });
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
     [with](const matched_request& what) {
       const auto path = file_of(what);
       if (!path)
         return refused(step::write_file, path.reason());
       admission plan;
       plan.sink =
         make_upload(with, what.id(), what.field("Session-Id"), *path, limits::file_body_bytes);
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
