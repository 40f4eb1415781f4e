#pragma once

#include "http/api/access.hpp"
#include "http/sandboxes/services.hpp"
#include "http/vercel/tokens.hpp"

#include <optional>
#include <string_view>

namespace insula::http::vercel::access {

/// As a bearer token: the key, or a token that is signed with it.
extern const access_scheme* const bearer;

/// What a request may be about, once it has been let in.
class reach {
public:
  reach(const services& with, const request_head& head);

  /// What is told instead, of what belongs to `project`; none: it is within reach.
  std::optional<response> objection(std::string_view project) const;
  /// Every project is.
  bool is_whole() const { return !is_.is_one; }

private:
  token_standing is_;
  bool names_team_ = true; ///< The query names the token's team, or no team.
};

} // namespace insula::http::vercel::access
