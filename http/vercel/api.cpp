#include "http/vercel/api.hpp"

#include "http/vercel/failures.hpp"
#include "http/vercel/operations.hpp"

extern "C" {
extern const char insula_vercel_preload_begin[]; ///< All of insula-vercel.mjs.
extern const char insula_vercel_preload_end[];
extern const char insula_vercel_document_begin[]; ///< All of document.json.
extern const char insula_vercel_document_end[];
}

namespace insula::http::vercel {

namespace {

/// The module with which programs find this server.
route preload_route() {
  return {
    verb::get,
    "/insula-vercel.mjs",
    http::access::everybody,
    body_use::ignored,
    0,
    [](const matched_request&) {
      return answered_by([](const std::string&, const reply& to) {
        to->respond({200,
                     {insula_vercel_preload_begin, insula_vercel_preload_end},
                     "text/javascript; charset=utf-8"});
      });
    },
    {.id = "getVercelPreload",
     .summary = "The module with which programs for the Vercel Sandbox service use this server.",
     .answers = {{"200", "The module.", "text/javascript"}},
     .tag = "Vercel Sandbox"}};
}

class vercel_api final : public public_api {
public:
  explicit vercel_api(shared_services with)
      : with_(std::move(with)) {}

  std::string_view name() const override { return "vercel"; }
  std::vector<route> routes() const override {
    auto table = routes_below("");
    for (auto& each : routes_below("/api")) {
      each.document = {}; // It is listed once.
      table.push_back(std::move(each));
    }
    table.push_back(preload_route());
    return table;
  }

  bool claims(std::string_view path) const override {
    if (path.starts_with("/api/"))
      path.remove_prefix(4);
    for (const std::string_view root : {"/v2/sandboxes", "/v3/sandboxes", "/v2/user", "/v2/teams",
                                        "/v2/projects", "/v11/projects"})
      if (path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/'))
        return true;
    return false;
  }

  response no_route(const std::string& methods) const override {
    return failure(
      refusal{404, "not_found",
              methods.empty() ? "There is no such route." : "This path takes " + methods + "."});
  }

  std::vector<std::string_view> key_fields() const override { return {}; }

  std::string_view document_parts() const override {
    return {insula_vercel_document_begin, insula_vercel_document_end};
  }

  const parameter* path_parameter(std::string_view name) const override {
    return vercel::path_parameter(name);
  }

private:
  std::vector<route> routes_below(const std::string& prefix) const {
    std::vector<route> table;
    // Words that are no names come first.
    add_snapshot_routes(table, with_, prefix);
    add_drive_routes(table, with_, prefix);
    add_session_routes(table, with_, prefix);
    add_command_routes(table, with_, prefix);
    add_terminal_routes(table, with_, prefix);
    add_file_routes(table, with_, prefix);
    add_sandbox_routes(table, with_, under_way_, prefix);
    add_scope_routes(table, with_, prefix);
    return table;
  }

  const shared_services with_;
  const std::shared_ptr<creations> under_way_ = std::make_shared<creations>();
};

} // namespace

std::shared_ptr<const public_api> make_api(shared_services with) {
  return std::make_shared<vercel_api>(std::move(with));
}

} // namespace insula::http::vercel
