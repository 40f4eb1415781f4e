#pragma once

#include "http/opensandbox/api.hpp"

#include <memory>
#include <string>
#include <vector>

/// execd, as OpenSandbox's clients know it: commands in a sandbox, over HTTP. Only the words are
/// here; sandboxes and commands are those of every API.
namespace insula::http::opensandbox {

/// Which sandbox is meant: that of the path, which has to be there; or one and the same, which is
/// made with its first use.
struct execd_place {
  std::string prefix; ///< Of every path: empty, or with `:id`, without a last slash.
  std::string id;     ///< Empty: the path says it.
};

std::vector<route> execd_routes(shared_services with, const execd_place& where);

} // namespace insula::http::opensandbox
