#include "http/opensandbox/api.hpp"

#include "base/id.hpp"
#include "http/opensandbox/access.hpp"
#include "http/opensandbox/commands.hpp"
#include "http/opensandbox/execd.hpp"
#include "http/opensandbox/fork_table.hpp"

#include <string_view>
#include <utility>

extern "C" {
extern const char insula_opensandbox_document_begin[]; ///< All of document.json.
extern const char insula_opensandbox_document_end[];
}

namespace insula::http::opensandbox {

namespace {

/// What names a port that there cannot be; all others go on to the sandbox before there are routes.
route no_port_route(verb method, const std::string& pattern) {
  operation document{.needs_disk = false};
  if (method == verb::get)
    document = {
      .id = pattern.ends_with('*') ? "proxyToSandboxPath" : "proxyToSandbox",
      .summary = "What a server in the sandbox answers at this port, by any method, "
                 "WebSockets included.",
      .answers = {{"200", "The server's answer, whatever its status.", "*/*"},
                  {"400", "There is no such port.", "application/json", "OpenSandboxError"},
                  {"404", "", "", "SandboxNotFound"},
                  {"502", "Nothing listens there.", "application/json", "ErrorResponse"}},
      .tag = "Previews",
      .needs_disk = false};
  return {method,
          pattern,
          access::key,
          body_use::ignored,
          0,
          [](const matched_request& asked) {
            admission plan;
            if (!sandbox_id::parse(asked.id()))
              plan.refusal = unknown_sandbox(asked.id());
            else if (asked["port"] == std::to_string(egress_port))
              plan.refusal = no_route();
            else
              plan.refusal =
                execd_failure(400, "DOCKER::INVALID_PORT", "the port must be from 1 to 65535");
            return plan;
          },
          std::move(document),
          nullptr,
          nullptr,
          [](const request_path& asked) { return unknown_sandbox(asked.id()); }};
}

/// All that is there under one prefix, empty or /v1.
std::vector<route> routes_below(const std::string& prefix, const shared_services& with,
                                const std::shared_ptr<fork_table>& forks) {
  const auto proxy = prefix + "/sandboxes/:id/proxy/";
  auto table = egress_routes(with, prefix);
  for (auto& each : lifecycle_routes(with, forks, prefix))
    table.push_back(std::move(each));
  for (auto& each : execd_routes(with, {proxy + std::to_string(execd_port), {}}))
    table.push_back(std::move(each));
  for (const auto method : all_verbs)
    for (const auto* path : {":port", ":port/*"})
      table.push_back(no_port_route(method, proxy + path));
  return table;
}

/// What both have of OpenSandbox.
class opensandbox_words : public public_api {
public:
  explicit opensandbox_words(shared_services with)
      : with_(std::move(with)) {}

  std::string_view name() const override { return "opensandbox"; }

  bool claims(std::string_view path) const override {
    if (path.starts_with("/v1/"))
      path.remove_prefix(3);
    for (const std::string_view root : {"/sandboxes", "/snapshots", "/forks"})
      if (path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/'))
        return true;
    return false;
  }

  response no_route(const std::string& methods) const override {
    return opensandbox::no_route(methods);
  }

  std::vector<std::string_view> key_fields() const override { return {key_field, token_field}; }

protected:
  const shared_services with_;
};

class opensandbox_api final : public opensandbox_words {
public:
  using opensandbox_words::opensandbox_words;

  std::vector<route> routes() const override {
    auto table = routes_below("/v1", with_, forks_);
    for (auto& each : routes_below("", with_, forks_)) {
      each.document = {}; // It is listed once.
      table.push_back(std::move(each));
    }
    return table;
  }

  std::string_view document_parts() const override {
    return {insula_opensandbox_document_begin, insula_opensandbox_document_end};
  }

private:
  const std::shared_ptr<fork_table> forks_ = std::make_shared<fork_table>();
};

class execd_api final : public opensandbox_words {
public:
  execd_api(shared_services with, std::string id)
      : opensandbox_words(std::move(with))
      , id_(std::move(id)) {}

  std::vector<route> routes() const override { return execd_routes(with_, {{}, id_}); }

private:
  const std::string id_;
};

} // namespace

std::shared_ptr<const public_api> make_api(shared_services with) {
  return std::make_shared<opensandbox_api>(std::move(with));
}

std::shared_ptr<const public_api> make_execd_api(shared_services with, std::string id) {
  return std::make_shared<execd_api>(std::move(with), std::move(id));
}

response no_route(const std::string& methods) {
  return execd_failure(404, "GENERAL::NOT_FOUND",
                       methods.empty() ? "there is no such route" : "this path takes " + methods);
}

response unknown_sandbox(const std::string& id) {
  return execd_failure(404, "DOCKER::SANDBOX_NOT_FOUND", "Sandbox " + id + " not found.");
}

} // namespace insula::http::opensandbox
