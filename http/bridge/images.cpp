#include "http/bridge/api.hpp"
#include "http/bridge/bridge_json.hpp"
#include "http/bridge/error_response.hpp"
#include "http/json/document.hpp"
#include "http/json/json.hpp"
#include "http/sandboxes/node_images.hpp"

namespace insula::http::bridge {

namespace {

using namespace std::chrono_literals;

/// A pull that takes longer goes on, and the list tells how far it is.
constexpr auto pull_patience = 20s;
constexpr auto remove_patience = 60s;
constexpr std::uint64_t pull_body_bytes = 4096;
constexpr std::string_view json_type = "application/json";

response no_images() {
  return {404, json::write_error("this server has no images", "not_found")};
}

response refused_image(const error& why) {
  switch (why.code) {
    case errc::not_found: return {404, json::write_error(why.message, "not_found")};
    case errc::limit_reached: return {409, json::write_error(why.message, "image_in_use")};
    default: return error_response(step::request, why);
  }
}

std::string described(const node_images& all, const std::string& name) {
  for (const auto& each : all.list())
    if (each.name == name)
      return write_image(each);
  return json::write_ok(); // It is gone again.
}

void pull(const services& with, const std::string& body, const reply& to) {
  json::document text;
  const auto* reference = json::parse(body, text) ? json::find(text, "reference") : nullptr;
  if (reference == nullptr || !reference->IsString())
    return to->respond(error_response(
      step::request, {errc::invalid_request, R"(expected {"reference":"HOST/NAME:TAG"})"}));
  const auto wanted = json::string_of(*reference);
  to->answer_within(pull_patience, {202, write_pull({wanted})});
  with.images->pull(wanted, [to, all = with.images](const result<std::string>& name) {
    to->respond(name ? response{200, described(*all, *name)} : refused_image(name.reason()));
  });
}

void remove(const services& with, const std::string& name, const reply& to) {
  to->answer_within(remove_patience, overdue(step::request, "the image was not removed in time"));
  with.images->remove(name, [to](const result<std::string>& gone) {
    to->respond(gone ? response{204, {}} : refused_image(gone.reason()));
  });
}

using image_call = void (*)(const services&, const std::string&, const reply&);

/// `text`: empty for the body of the request.
admission answered_by_images(const shared_services& with, image_call call, std::string text = {}) {
  return answered_by([with, call, text](const std::string& body, const reply& to) {
    if (with->images == nullptr)
      return to->respond(no_images());
    call(*with, text.empty() ? body : text, to);
  });
}

} // namespace

void add_image_routes(std::vector<route>& table, const shared_services& with) {
  table.push_back({verb::get,
                   "/v1/images",
                   access::key,
                   body_use::ignored,
                   0,
                   [with](const matched_request&) {
                     return answered_by_images(
                       with, [](const services& of, const std::string&, const reply& to) {
                         to->respond({200, write_images(*of.images)});
                       });
                   },
                   {.id = "listImages",
                    .summary = "The images of this node, and those that are on their way.",
                    .answers = {{"200", "The images.", json_type, "Images"}}}});
  table.push_back(
    {verb::post,
     "/v1/images/pull",
     access::key,
     body_use::buffered,
     pull_body_bytes,
     [with](const matched_request&) { return answered_by_images(with, pull); },
     {.id = "pullImage",
      .summary = "Bring an image from a registry, as far as images.allow says. A pull that takes "
                 "longer than 20 seconds goes on: the list of images says how far it is.",
      .body_type = json_type,
      .body_schema = "ImagePull",
      .answers = {{"200", "The image is here.", json_type, "Image"},
                  {"202", "The image is on its way.", json_type, "ImageOnItsWay"},
                  {"400", "The image is not to be had, or the body makes no sense.", json_type,
                   "ErrorResponse"},
                  {"403", "images.allow does not name it.", json_type, "ErrorResponse"},
                  {"503", "Too many images are being fetched.", json_type, "ErrorResponse"},
                  {"507", "", "", "DiskFull"}}}});
  table.push_back(
    {verb::del,
     "/v1/images/:name",
     access::key,
     body_use::ignored,
     0,
     [with](const matched_request& what) { return answered_by_images(with, remove, what["name"]); },
     {.id = "removeImage",
      .summary = "Remove an image that no sandbox needs.",
      .answers = {{"204", "The image is gone.", {}, {}},
                  {"404", "There is no such image.", json_type, "ErrorResponse"},
                  {"409",
                   "Sandboxes or the configuration need it, or another image is being "
                   "unpacked.",
                   json_type, "ErrorResponse"}}}});
}

} // namespace insula::http::bridge
