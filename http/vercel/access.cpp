#include "http/vercel/access.hpp"

#include "base/clock.hpp"
#include "http/text/header_text.hpp"
#include "http/text/percent.hpp"
#include "http/vercel/failures.hpp"

namespace insula::http::vercel::access {

namespace {

std::string_view token_in(const request_head& head) {
  constexpr std::string_view scheme = "Bearer ";
  const auto field = head.field("Authorization");
  return same_letters(field.substr(0, scheme.size()), scheme) ? field.substr(scheme.size())
                                                              : std::string_view{};
}

token_standing standing(const key_check& key, const request_head& head) {
  auto is = standing_of(key, token_in(head), system_clock{}.unix_ms() / 1000);
  // Such a field goes to no other node, which would take the request for one with the key.
  if (key.is_in(head.field("Authorization")))
    is.allowed.reset();
  return is;
}

response no_token_of_this_server() {
  return failure(
    refusal{403, "forbidden", "The token is not one of this server's, or has expired."});
}

bool has_main_token(const token_standing& is) {
  return is.allowed && is.allowed->key.empty();
}

class by_bearer final : public access_scheme {
public:
  bool allows(const request_head& head, const std::string&,
              const credentials& known) const override {
    return known.key().open() || known.shows_key(head, true) ||
           has_main_token(standing(known.key(), head));
  }
  shared_named_key named_key_in(const request_head& head, const credentials& known) const override {
    if (auto shown = known.key().named_in_header(head.field("Authorization"), true))
      return shown;
    const auto is = standing(known.key(), head);
    return is.allowed && !is.allowed->key.empty() ? known.key().by_name(is.allowed->key) : nullptr;
  }
  response forbidden(std::string_view why) const override {
    return failure(refusal{403, "forbidden", std::string{why}});
  }
  response unauthorized(const request_head& head) const override {
    return head.field("Authorization").empty()
             ? failure(
                 refusal{401, "unauthorized", "The request has no Authorization: Bearer token."})
             : no_token_of_this_server();
  }
  std::vector<documented_answer> answers(bool) const override {
    return {{"401", "There is no bearer token.", "application/json", "VercelError"},
            {"403",
             "The token is not one of this server's, or has expired; or its key is for other APIs.",
             "application/json", "VercelError"},
            {"429", "The node has no room, or a ceiling of the API key is used up.",
             "application/json", "VercelError"}};
  }
};

const by_bearer the_bearer;

} // namespace

const access_scheme* const bearer = &the_bearer;

reach::reach(const services& with, const matched_request& what)
    : reach(with, what, form_value(what.head().query, "teamId")) {}

reach::reach(const services& with, const matched_request& what, std::string asked)
    : projects_(with.projects)
    , asked_(std::move(asked))
    , key_(what.key()) {
  const auto& head = what.head();
  // Without a key every request reaches every project.
  if (with.key.open() || with.key.allows_header(head.field("Authorization"), true))
    return;
  is_ = standing(with.key, head);
  // Of a token that another key has signed than the one with which the request was let in.
  if (is_.allowed && is_.allowed->key != (key_ ? key_->name : std::string{}))
    is_.allowed.reset();
  auto team = asked_;
  if (is_.is_one) {
    names_team_ = !is_.allowed || team.empty() || team == is_.allowed->team;
    if (team.empty() && is_.allowed)
      team = is_.allowed->team;
  }
  names_team_ = names_team_ && (!key_ || key_->may_reach_team(team));
}

std::string reach::team() const {
  constexpr std::size_t longest = 128;
  constexpr std::string_view alphabet =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  const auto& named = asked_.empty() && is_.allowed ? is_.allowed->team : asked_;
  return named.size() <= longest && named.find_first_not_of(alphabet) == std::string::npos
           ? named
           : std::string{};
}

std::optional<response> reach::objection(std::string_view project) const {
  if (is_.is_one && !is_.allowed)     // The token has expired since, or the node that let it in has
    return no_token_of_this_server(); // another key.
  if (is_among(projects_, project) && names_team_ &&
      (!is_.is_one || is_.allowed->project == project) &&
      (!key_ || key_->may_reach_project(project)))
    return std::nullopt;
  return failure(refusal{404, "not_found", "The project was not found."});
}

std::vector<std::string> reach::teams() const {
  if (is_.allowed)
    return {is_.allowed->team};
  return key_ ? key_->teams : std::vector<std::string>{};
}

std::vector<std::string> reach::projects() const {
  if (is_.allowed)
    return {is_.allowed->project};
  if (!key_ || key_->projects.empty())
    return projects_;
  auto both = key_->projects;
  std::erase_if(both, [&](const auto& each) { return !is_among(projects_, each); });
  return both;
}

bool reach::may_name_team(std::string_view team) const {
  return is_among(teams(), team) && (!key_ || key_->may_reach_team(team));
}

} // namespace insula::http::vercel::access
