#include "http/bridge/api.hpp"
#include "http/bridge/bridge_json.hpp"
#include "http/bridge/error_response.hpp"
#include "http/json/json.hpp"
#include "http/sandboxes/cluster_control.hpp"

namespace insula::http::bridge {

namespace {

using namespace std::chrono_literals;

constexpr auto patience = 15s;

response no_cluster() {
  return {404, json::write_error("this node is no member of a cluster", "not_found")};
}

void drain(const services& with, const std::string& node, const reply& to) {
  if (with.cluster == nullptr)
    return to->respond(no_cluster());
  to->answer_within(
    patience, error_response(step::request, {errc::deadline_exceeded, "the node does not answer"}));
  with.cluster->drain(node, [to](const result<void>& said) {
    if (said)
      to->respond({202, json::write_ok()});
    else if (said.reason().code == errc::not_found)
      to->respond({404, json::write_error(said.reason().message, "not_found")});
    else
      to->respond(error_response(step::request, {errc::node_unreachable, said.reason().message}));
  });
}

} // namespace

void add_cluster_routes(std::vector<route>& table, const shared_services& with) {
  table.push_back(
    {verb::get,
     "/v1/cluster",
     access::key,
     body_use::ignored,
     0,
     [with](const matched_request&) {
       return answered_by([with](const std::string&, const reply& to) {
         to->respond(with->cluster == nullptr
                       ? no_cluster()
                       : response{200, write_cluster(with->cluster->look())});
       });
     },
     {.id = "getCluster",
      .summary = "The nodes of this cluster, and which of them has which sandbox.",
      .answers = {{"200", "As this node sees it.", "application/json", "Cluster"},
                  {"404", "This is a node by itself.", "application/json", "ErrorResponse"}}}});
  table.push_back(
    {verb::post,
     "/v1/cluster/drain/:node",
     access::key,
     body_use::ignored,
     0,
     [with](const matched_request& what) {
       return answered_by([with, node = what["node"]](const std::string&, const reply& to) {
         drain(*with, node, to);
       });
     },
     {.id = "drainNode",
      .summary = "Have a node hand over its sandboxes, and take no others until it starts anew.",
      .answers = {{"202", "It has begun.", "application/json", "OkResponse"},
                  {"404", "There is no such node.", "application/json", "ErrorResponse"},
                  {"503", "It cannot be told.", "application/json", "ErrorResponse"}}}});
}

} // namespace insula::http::bridge
