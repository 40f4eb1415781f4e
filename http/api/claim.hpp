#pragma once

#include "http/api/access.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace insula::http {

/// A request that goes on to a server in a sandbox, whatever its path means here.
struct claimed_request {
  std::string sandbox;
  std::size_t pattern;         ///< Which of claims::patterns() it is counted as.
  const access_scheme* scheme; ///< How the key is shown for it.
  bool needs_scheme = false;   ///< The scheme has to allow it. Otherwise admit() decides.
  /// By public_api::name(): a named key for one of them counts as the key.
  std::vector<std::string_view> apis = {};
  /// `knows_key`: the scheme allows it.
  std::function<admission(bool knows_key, const std::string& request_id)> admit;
  std::function<response()> unknown; ///< What is answered where no node has the sandbox.
};

/// Hosts and paths that belong to servers in sandboxes, and are looked at before there are routes.
/// Any thread.
class claims {
public:
  virtual ~claims() = default;

  /// As requests are counted.
  virtual std::vector<std::string> patterns() const = 0;

  /// None: the request is for this node itself. `head` outlives the answer's functions but unknown.
  virtual std::optional<claimed_request> find(const request_head& head) const = 0;
};

} // namespace insula::http
