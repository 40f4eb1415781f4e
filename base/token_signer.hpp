#pragma once

#include "base/error.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace insula {

/// Names and values of a token's claims.
using token_claims = std::vector<std::pair<std::string, std::string>>;

/// Makes a signed token with these claims for one audience. Any thread; it takes about a
/// millisecond and waits for nothing. Errors: as http::oidc::issuer::sign().
using token_signer =
  std::function<result<std::string>(const token_claims& claims, const std::string& audience)>;

} // namespace insula
