#pragma once

#include "http/api/dispatcher.hpp"
#include "http/api/router.hpp"

#include <memory>
#include <string>
#include <vector>

/// execd, as OpenSandbox's clients know it: commands in a sandbox, over HTTP. Only the words are
/// here; sandboxes and commands are those of every API.
namespace insula::http::opensandbox {

/// Where clients look for it in a sandbox.
inline constexpr std::uint16_t execd_port = 44772;
/// And the same of what the sandbox may reach.
inline constexpr std::uint16_t egress_port = 18080;

/// Which sandbox is meant: that of the path, which has to be there; or one and the same, which is
/// made with its first use.
struct execd_place {
  std::string prefix; ///< Of every path: empty, or with `:id`, without a last slash.
  std::string id;     ///< Empty: the path says it.
};

std::vector<route> execd_routes(std::shared_ptr<const bridge::services> with,
                                const execd_place& where);

} // namespace insula::http::opensandbox
