#pragma once

#include "http/api/access.hpp"
#include "http/api/route.hpp"
#include "http/sandboxes/services.hpp"
#include "http/vercel/tokens.hpp"

#include <optional>
#include <string_view>

namespace insula::http::vercel::access {

/// As a bearer token: the key, a named key, or a token that is signed with one of them.
extern const access_scheme* const bearer;

/// What a request may be about, once it has been let in.
class reach {
public:
  reach(const services& with, const matched_request& what);

  /// What is told instead, of what belongs to `project`; none: it is within reach.
  std::optional<response> objection(std::string_view project) const;
  /// The team that the request names, or its token if the request names none. Empty: neither does,
  /// or the name is no name of a team: 1 to 128 letters, digits, '_', '-' and '.'.
  std::string team() const;
  /// Every project is.
  bool is_whole() const {
    return projects_.empty() && !is_.is_one &&
           (!key_ || (key_->teams.empty() && key_->projects.empty()));
  }

private:
  std::vector<std::string> projects_; ///< Of the server. Empty: any.
  std::string asked_;                 ///< The query's team.
  token_standing is_;
  shared_named_key key_;   ///< The client's; null: the main one, or none.
  bool names_team_ = true; ///< The query names a team of the key's, which is the token's if any.
};

} // namespace insula::http::vercel::access
