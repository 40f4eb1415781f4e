#include "http/bridge/api.hpp"

#include "base/id.hpp"
#include "http/bridge/error_response.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

extern "C" {
extern const char insula_bridge_document_begin[]; ///< All of document.json.
extern const char insula_bridge_document_end[];
}

namespace insula::http::bridge {

namespace {

constexpr std::string_view sandboxes = "/v1/sandbox";
constexpr std::string_view pool = "/v1/pool/";
constexpr std::string_view documents = "/v1/openapi";
constexpr std::string_view shown_pages[] = {"/", "/v1/openapi", "/v1/openapi.html"};
constexpr std::string_view health = "/health";

bool is_below_sandboxes(std::string_view path) {
  return path.starts_with(sandboxes) &&
         (path.size() == sandboxes.size() || path[sandboxes.size()] == '/');
}

/// Below the pool, the word Bearer is compared letter by letter.
class by_exact_bearer final : public access_scheme {
public:
  bool allows(const request_head& head, const std::string&,
              const credentials& known) const override {
    return known.shows_key(head, false);
  }
};
const by_exact_bearer exact_bearer;

struct route_group {
  std::string_view tag;
  void (*add)(std::vector<route>&, const shared_services&);
  bool own = false;     ///< As of operation.
  bool of_node = false; ///< As route::main_key_alone.
};

constexpr route_group groups[] = {
  {"Sandboxes", add_sandbox_routes},          {"Commands", add_exec_routes},
  {"Commands", add_exec_input_route, true},   {"Files", add_file_routes},
  {"Archives", add_archive_routes},           {"Sessions", add_session_routes},
  {"Snapshots", add_snapshot_routes, true},   {"Snapshots", add_diff_routes, true},
  {"Terminals", add_terminal_routes},         {"Buckets", add_mount_routes},
  {"Network", add_network_routes, true},      {"Previews", add_preview_routes, true},
  {"Images", add_image_routes, true, true},   {"Pool", add_pool_routes, false, true},
  {"Cluster", add_cluster_routes, true, true}};

const parameter sandbox_parameter{"id",
                                  "path",
                                  "The sandbox's id, issued by createSandbox or chosen by you: 1 "
                                  "to 128 characters of a-z and 2-7.",
                                  true,
                                  {},
                                  R"({"$ref":"#/components/schemas/SandboxId"})"};

/// What both have of the bridge.
class bridge_words : public public_api {
public:
  std::string_view name() const override { return "bridge"; }
  response no_route(const std::string& methods) const override { return http::no_route(methods); }
  std::vector<std::string_view> key_fields() const override { return {"Authorization"}; }
};

/// The node's own API: every path that no other one claims.
class bridge_api final : public bridge_words {
public:
  bridge_api(shared_services with, std::function<std::string()> document)
      : with_(std::move(with))
      , document_(std::move(document)) {}

  std::vector<route> routes() const override {
    std::vector<route> table;
    const auto tagged = [&](std::size_t first, const route_group& group) {
      for (auto row = first; row < table.size(); ++row) {
        table[row].document.tag = group.tag;
        table[row].document.own = table[row].document.own || group.own;
        table[row].main_key_alone = table[row].main_key_alone || group.of_node;
      }
    };
    for (const auto& group : groups) {
      const auto first = table.size();
      group.add(table, with_);
      tagged(first, group);
    }
    const auto first = table.size();
    add_service_routes(table, with_, document_);
    tagged(first, {"Node", nullptr});
    return table;
  }

  bool claims(std::string_view) const override { return true; }

  const access_scheme* gate(std::string_view path) const override {
    if (is_below_sandboxes(path))
      return access::key;
    if (path.starts_with(pool))
      return &exact_bearer;
    return path.starts_with(documents) ? access::key_or_token : nullptr;
  }

  std::optional<response> objection(const request_head& head, const route* row) const override {
    if (!is_below_sandboxes(head.path))
      return std::nullopt;
    const auto rest = head.path.substr(std::min(head.path.size(), sandboxes.size() + 1));
    if (rest.empty() || sandbox_id::parse(rest.substr(0, rest.find('/'))))
      return std::nullopt;
    // The contract has words for this. A route that it does not know says more.
    std::string why = "Invalid sandbox ID format";
    if (row != nullptr && row->document.own)
      why += ": an id is 1 to 128 characters of a-z and 2-7";
    return error_response(step::request, {errc::invalid_request, why});
  }

  page_rule rule(std::string_view path) const override {
    if (path == health)
      return page_rule::open;
    const bool is_page =
      std::find(std::begin(shown_pages), std::end(shown_pages), path) != std::end(shown_pages);
    return is_page ? page_rule::shown : page_rule::guarded;
  }

  std::string_view document_parts() const override {
    return {insula_bridge_document_begin, insula_bridge_document_end};
  }

  const parameter* path_parameter(std::string_view name) const override {
    return name == sandbox_parameter.name ? &sandbox_parameter : nullptr;
  }

private:
  const shared_services with_;
  const std::function<std::string()> document_;
};

class metrics_api final : public bridge_words {
public:
  explicit metrics_api(shared_services with)
      : with_(std::move(with)) {}

  std::vector<route> routes() const override { return {metrics_route(with_)}; }
  bool claims(std::string_view) const override { return true; }

private:
  const shared_services with_;
};

} // namespace

std::shared_ptr<const public_api> make_api(shared_services with,
                                           std::function<std::string()> document) {
  return std::make_shared<bridge_api>(std::move(with), std::move(document));
}

std::shared_ptr<const public_api> make_metrics_api(shared_services with) {
  return std::make_shared<metrics_api>(std::move(with));
}

} // namespace insula::http::bridge
