#pragma once

#include "http/api/public_api.hpp"
#include "http/sandboxes/services.hpp"
#include "http/vercel/creations.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

/// What clients of the Vercel Sandbox service ask for, below /v2, /v3 and /api: sandboxes that have
/// names in projects, their runs ("sessions" there), commands and files.
namespace insula::http::vercel {

using shared_services = std::shared_ptr<const services>;

/// Without services its routes can be listed but not called.
std::shared_ptr<const public_api> make_api(shared_services with);

/// Below `prefix`, which is empty or /api.
void add_sandbox_routes(std::vector<route>& table, const shared_services& with,
                        const std::shared_ptr<creations>& under_way, const std::string& prefix);
void add_session_routes(std::vector<route>& table, const shared_services& with,
                        const std::string& prefix);
void add_snapshot_routes(std::vector<route>& table, const shared_services& with,
                         const std::string& prefix);
void add_drive_routes(std::vector<route>& table, const shared_services& with,
                      const std::string& prefix);
void add_command_routes(std::vector<route>& table, const shared_services& with,
                        const std::string& prefix);
void add_terminal_routes(std::vector<route>& table, const shared_services& with,
                         const std::string& prefix);
void add_file_routes(std::vector<route>& table, const shared_services& with,
                     const std::string& prefix);
void add_scope_routes(std::vector<route>& table, const shared_services& with,
                      const std::string& prefix);

} // namespace insula::http::vercel
