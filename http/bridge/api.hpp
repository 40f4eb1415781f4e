#pragma once

#include "http/api/public_api.hpp"
#include "http/sandboxes/services.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

/// The sandbox bridge: /v1/... and /health.
namespace insula::http::bridge {

using shared_services = std::shared_ptr<const services>;

/// `document`: makes the OpenAPI document of every API of the node; asked once. Without services
/// the routes can be listed but not called.
std::shared_ptr<const public_api> make_api(shared_services with,
                                           std::function<std::string()> document = nullptr);

/// GET /metrics alone, for a door of its own.
std::shared_ptr<const public_api> make_metrics_api(shared_services with);

// One file per group.
void add_sandbox_routes(std::vector<route>& table, const shared_services& with);
void add_exec_routes(std::vector<route>& table, const shared_services& with);
void add_exec_input_route(std::vector<route>& table, const shared_services& with);
void add_file_routes(std::vector<route>& table, const shared_services& with);
void add_archive_routes(std::vector<route>& table, const shared_services& with);
void add_snapshot_routes(std::vector<route>& table, const shared_services& with);
void add_diff_routes(std::vector<route>& table, const shared_services& with);
void add_session_routes(std::vector<route>& table, const shared_services& with);
void add_terminal_routes(std::vector<route>& table, const shared_services& with);
void add_mount_routes(std::vector<route>& table, const shared_services& with);
void add_network_routes(std::vector<route>& table, const shared_services& with);
void add_preview_routes(std::vector<route>& table, const shared_services& with);
void add_image_routes(std::vector<route>& table, const shared_services& with);
void add_pool_routes(std::vector<route>& table, const shared_services& with);
void add_cluster_routes(std::vector<route>& table, const shared_services& with);
void add_service_routes(std::vector<route>& table, const shared_services& with,
                        std::function<std::string()> document);
route metrics_route(const shared_services& with);

} // namespace insula::http::bridge
