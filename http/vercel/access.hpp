#pragma once

#include "http/api/access.hpp"
#include "http/api/route.hpp"
#include "http/sandboxes/services.hpp"
#include "http/vercel/tokens.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::http::vercel::access {

/// As a bearer token: the key, a named key, or a token that is signed with one of them.
extern const access_scheme* const bearer;

/// What a request may be about, once it has been let in.
class reach {
public:
  /// The query names the team as `teamId`.
  reach(const services& with, const matched_request& what);
  /// `asked`: the team that it names. Empty: none.
  reach(const services& with, const matched_request& what, std::string asked);

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
  /// The sandboxes of other APIs, which are no project's, are within reach.
  bool has_other_apis() const {
    return !is_.is_one &&
           (!key_ || (key_->apis.empty() && key_->teams.empty() && key_->projects.empty()));
  }
  /// Those that the client's token or key names. Empty: it names none.
  std::vector<std::string> teams() const;
  /// The same, which the server has as well. Empty: any, or none that both have.
  std::vector<std::string> projects() const;
  bool may_name_team(std::string_view team) const;

private:
  std::vector<std::string> projects_; ///< Of the server. Empty: any.
  std::string asked_;                 ///< The request's team.
  token_standing is_;
  shared_named_key key_;   ///< The client's; null: the main one, or none.
  bool names_team_ = true; ///< The query names a team of the key's, which is the token's if any.
};

} // namespace insula::http::vercel::access
