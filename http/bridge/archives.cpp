#include "http/bridge/archives.hpp"

#include "base/limits.hpp"
#include "http/bridge/error_response.hpp"
#include "http/bridge/idempotency.hpp"
#include "http/bridge/workspace_path.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/text/percent.hpp"

#include <algorithm>

namespace insula::http::bridge {

namespace {

void persist(const services& with, const std::string& id, std::vector<std::string> excludes,
             archive_wish wish, const reply& to) {
  question{with, id,
           read_tree_request{
             std::string{workspace}, std::move(excludes), {}, wish == archive_wish::hydrating},
           to}
    .within(sandbox_patience, overdue(step::find_sandbox, not_ready))
    .or_else(failing(step::read_tree))
    .then<file_channel>(
      [to, wish](const file_channel& channel) { start_persist(channel, wish, to); });
}

/// Errors: invalid_request.
result<archive_wish> wish_of(const matched_request& what) {
  const auto wanted = what.head().field("Insula-For-Hydrate");
  if (wanted.empty())
    return archive_wish::nothing;
  if (wanted == "true")
    return archive_wish::hydrating;
  if (wanted == "false")
    return archive_wish::warning;
  return error{errc::invalid_request, "Insula-For-Hydrate: expected true or false"};
}

} // namespace

result<std::vector<std::string>> read_excludes(std::string_view query) {
  std::vector<std::string> patterns;
  const auto value = form_value(query, "excludes");
  for (std::string_view left = value; !left.empty();) {
    auto piece = left.substr(0, left.find(','));
    left.remove_prefix(std::min(left.size(), piece.size() + 1));
    if (piece.find("..") != std::string_view::npos)
      return error{errc::invalid_request, "exclude paths must not contain \"..\""};
    if (piece.find('\0') != std::string_view::npos)
      return error{errc::invalid_request, "exclude paths must not contain NUL"};
    if (piece.empty())
      continue;
    if (piece.substr(0, 2) == "./")
      piece.remove_prefix(2);
    patterns.push_back("./" + std::string{piece});
  }
  return patterns;
}

response archive_too_large(std::uint64_t bytes, std::uint64_t limit) {
  return error_response(step::request,
                        {errc::invalid_request, "tar payload too large: " + std::to_string(bytes) +
                                                  " bytes exceeds the " + std::to_string(limit) +
                                                  "-byte limit"});
}

void add_archive_routes(std::vector<route>& table, const shared_services& with) {
  table.push_back(
    {verb::post,
     "/v1/sandbox/:id/persist",
     access::key,
     body_use::ignored,
     0,
     [with](const matched_request& what) {
       admission plan;
       auto excludes = read_excludes(what.query);
       if (!excludes) {
         plan.refusal = error_response(step::read_tree, excludes.reason());
         return plan;
       }
       const auto wish = wish_of(what);
       if (!wish) {
         plan.refusal = error_response(step::request, wish.reason());
         return plan;
       }
       plan.answer = [with, id = what.id(), excludes = std::move(*excludes),
                      wish = *wish](const std::string&, const reply& to) {
         persist(*with, id, excludes, wish, to);
       };
       return plan;
     },
     {.id = "persistWorkspace",
      .summary = "The workspace as a tar archive.",
      .parameters =
        {{"excludes", "query",
          "What to leave out: names below the workspace, as shell patterns, with commas "
          "between."},
         {"Insula-For-Hydrate", "header",
          "true: hard links are links and holes are holes in the archive, as GNU tar has them, and "
          "an archive that hydrate would refuse is refused. false: the archive is the same as "
          "without this header, and if it has more bytes than hydrate takes, the header "
          "Insula-Too-Large-To-Hydrate of the answer says how many."}},
      .answers = {
        {"200", "The archive, not compressed.", "application/octet-stream", ""},
        {"400", "", "", "InvalidRequest"},
        {"413", "Asked for with Insula-For-Hydrate: true, and larger than hydrate takes.",
         "application/json", "ErrorResponse"},
        {"502", "Something in it could not be read.", "application/json", "ErrorResponse"},
        {"503", "No room for another sandbox.", "application/json", "ErrorResponse"}}}});
  table.push_back(
    {verb::post,
     "/v1/sandbox/:id/hydrate",
     access::key,
     body_use::streamed,
     limits::archive_body_bytes,
     [with](const matched_request& what) {
       admission plan;
       auto header = idempotency_header_of(what);
       if (const auto keyed = has_idempotency_key(header))
         plan.sink = make_hydrate(with, what.id(), std::move(header));
       else
         plan.refusal = error_response(step::request, keyed.reason());
       return plan;
     },
     {.id = "hydrateWorkspace",
      .summary = "Unpack a tar archive into the workspace, over what is there. At most 32 MiB.",
      .parameters = {idempotency_parameter},
      .body_type = "application/octet-stream",
      .answers = {{"200", "All of it is unpacked.", "application/json", "OkResponse"},
                  {"400", "", "", "InvalidRequest"},
                  {"409", "The Idempotency-Key was used for another archive.", "application/json",
                   "ErrorResponse"},
                  {"502", "Not all of it could be unpacked.", "application/json", "ErrorResponse"},
                  {"503", "No room for another sandbox.", "application/json", "ErrorResponse"}}},
     &archive_too_large});
}

} // namespace insula::http::bridge
