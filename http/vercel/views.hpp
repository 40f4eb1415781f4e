#pragma once

#include "http/sandboxes/services.hpp"
#include "http/vercel/objects_json.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::http::vercel {

/// None: the sandbox is not this API's, or has never had a run. `run`: another one than the latest.
std::optional<sandbox_view> view_of(const std::string& id, const sandbox_description& is,
                                    const std::optional<sandbox_run>& run = std::nullopt);

/// It is no drive, either.
bool is_of_another_api(const sandbox_description& is);

/// A sandbox that another API has made, as this one sees it: with one session, whose number is 0
/// and which goes on unless the sandbox is paused. `project`: as the client calls it. None: there
/// is no such sandbox.
std::optional<sandbox_view> view_of_other(const std::string& id, const std::string& project,
                                          const sandbox_description& is);

/// Where its ports are reached from outside. `host`: what the client calls this node.
std::vector<route_view> routes_of(const services& with, const sandbox_view& of,
                                  std::string_view host);

} // namespace insula::http::vercel
