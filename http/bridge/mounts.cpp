#include "http/bridge/api.hpp"
#include "http/bridge/error_response.hpp"
#include "http/bridge/mount_json.hpp"
#include "http/json/json.hpp"
#include "http/sandboxes/ask_sandbox.hpp"

#include <chrono>

namespace insula::http::bridge {

namespace {

using namespace std::chrono_literals;

/// Beyond what the sandbox itself waits for, so that its own words are heard first.
constexpr auto more = 10s;

/// Mounts of one sandbox take turns: one waits for an unmount before it, and the other way round.
constexpr auto mount_patience =
  sandbox_patience + limits::mount_patience + limits::unmount_patience;
constexpr auto unmount_patience = limits::unmount_patience + limits::mount_patience + more;

std::function<void(caf::ok_atom)> ok(const reply& to) {
  return [to](caf::ok_atom) { to->respond({200, json::write_ok()}); };
}

void mount(const services& with, const std::string& id, std::string_view body, const reply& to) {
  auto wanted = json::read_mount_body(body);
  if (!wanted)
    return to->respond(error_response(step::request, wanted.reason()));
  question{with, id, std::move(*wanted), to}
    .within(mount_patience, overdue(step::mount))
    .or_else(failing(step::mount))
    .then<caf::ok_atom>(ok(to));
}

void unmount(const services& with, const std::string& id, std::string_view body, const reply& to) {
  auto wanted = json::read_unmount_body(body);
  if (!wanted)
    return to->respond(error_response(step::request, wanted.reason()));
  question{with, id, std::move(*wanted), to}
    .within(unmount_patience, overdue(step::unmount))
    .starts(false)
    .or_else(failing(step::unmount))
    .then<caf::ok_atom>(ok(to));
}

void list(const services& with, const std::string& id, const reply& to) {
  question{with, id, list_mounts_request{}, to}
    .within(unmount_patience, overdue(step::find_sandbox))
    .starts(false)
    .or_else(failing(step::find_sandbox))
    .then<std::vector<mounted_bucket>>([to](const std::vector<mounted_bucket>& are) {
      to->respond({200, json::write_mounts(are)});
    });
}

} // namespace

void add_mount_routes(std::vector<route>& table, const shared_services& with) {
  table.push_back(
    {verb::post,
     "/v1/sandbox/:id/mount",
     access::key,
     body_use::buffered,
     limits::mount_body_bytes,
     [with](const matched_request& what) {
       return answered_by([with, id = what.id()](const std::string& body, const reply& to) {
         mount(*with, id, body, to);
       });
     },
     {.id = "mountBucket",
      .summary = "Make an S3 bucket, or what is below a prefix in it, a directory of the sandbox; "
                 "again after each of its starts. It can be used once this is answered.",
      .body_type = "application/json",
      .body_schema = "MountBucketRequest",
      .answers = {
        {"200", "It is mounted.", "application/json", "OkResponse"},
        {"400", "", "", "InvalidRequest"},
        {"413", "The body is too large.", "application/json", "ErrorResponse"},
        {"502", "It cannot be mounted; the text says why.", "application/json", "ErrorResponse"},
        {"503", "No room for another sandbox.", "application/json", "ErrorResponse"}}}});
  table.push_back(
    {verb::post,
     "/v1/sandbox/:id/unmount",
     access::key,
     body_use::buffered,
     limits::mount_body_bytes,
     [with](const matched_request& what) {
       return answered_by([with, id = what.id()](const std::string& body, const reply& to) {
         unmount(*with, id, body, to);
       });
     },
     {.id = "unmountBucket",
      .summary = "Take a bucket out of the sandbox; its directory goes if it is empty. Starts "
                 "nothing.",
      .body_type = "application/json",
      .body_schema = "UnmountBucketRequest",
      .answers = {{"200", "It is gone.", "application/json", "OkResponse"},
                  {"400", "", "", "InvalidRequest"},
                  {"413", "The body is too large.", "application/json", "ErrorResponse"},
                  {"502", "Nothing is mounted there, or it cannot be unmounted.",
                   "application/json", "ErrorResponse"}}}});
  table.push_back(
    {verb::get,
     "/v1/sandbox/:id/mounts",
     access::key,
     body_use::ignored,
     0,
     [with](const matched_request& what) {
       return answered_by(
         [with, id = what.id()](const std::string&, const reply& to) { list(*with, id, to); });
     },
     {.id = "listMounts",
      .summary = "The buckets that are directories of the sandbox, or will be at its next start. "
                 "Starts nothing.",
      .answers = {{"200", "The mounts.", "application/json", "Mounts"},
                  {"400", "", "", "InvalidRequest"},
                  {"502", "It does not answer.", "application/json", "ErrorResponse"}},
      .own = true}});
}

} // namespace insula::http::bridge
