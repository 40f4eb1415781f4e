#include "http/vercel/login.hpp"

#include "base/clock.hpp"
#include "base/log.hpp"
#include "http/api/embedded_page.hpp"
#include "http/json/document.hpp"
#include "http/json/writer.hpp"
#include "http/text/percent.hpp"
#include "http/transport/connection.hpp"
#include "http/transport/node_fields.hpp"
#include "http/vercel/failures.hpp"
#include "http/vercel/members.hpp"
#include "http/vercel/session_call.hpp"
#include "http/vercel/settings.hpp"
#include "http/vercel/tokens.hpp"

#include <string_view>
#include <utility>
#include <vector>

extern "C" {
extern const char insula_device_page_begin[]; ///< All of the page, by `gzip -n`.
extern const char insula_device_page_end[];
}

namespace insula::http::vercel {

namespace {

constexpr std::uint64_t form_bytes = 16u << 10;
constexpr std::int64_t most_days = 365, day_s = 24 * 60 * 60;
constexpr std::size_t most_name_bytes = 126;
/// Where the command line knows its server; the requests come here as all others of it do.
constexpr std::string_view issuer_place = "https://vercel.com";
/// For which the command line asks without `--project`.
constexpr std::string_view usual_project = "vercel-sandbox-default-project";
constexpr std::string_view page_path = "/device";
constexpr std::string_view here = "here"; ///< In place of a node's name where there is no cluster.

const embedded_page& device_page() {
  static const auto page =
    make_page({},
              {insula_device_page_begin,
               static_cast<std::size_t>(insula_device_page_end - insula_device_page_begin)},
              {"img-src data:", "same-origin"});
  return page;
}

response not_kept(response answer) {
  answer.fields.push_back({"Cache-Control", "no-store"});
  return answer;
}

response oauth_refusal(std::string_view code, std::string_view why = {}, int status = 400) {
  json::ascii_writer out;
  out.begin_object().member("error", code);
  if (!why.empty())
    out.member("error_description", why);
  out.end_object();
  return not_kept({status, out.str()});
}

struct login {
  shared_services with;
  login_options at;

  device_codes& codes() const { return *at.codes; }
  std::string name() const { return at.node.empty() ? std::string{here} : at.node; }
  std::string below(std::string_view last) const {
    return "/oauth/nodes/" + percent_encode(name()) + std::string{last};
  }
};
using shared_login = std::shared_ptr<const login>;

response configuration(const login& is) {
  const auto at = [&](std::string_view path) { return std::string{issuer_place}.append(path); };
  json::ascii_writer out;
  out.begin_object().member("issuer", issuer_place);
  out.member("device_authorization_endpoint", at(is.below("/codes")));
  out.member("token_endpoint", at(is.below("/token")));
  out.member("revocation_endpoint", at("/oauth/revoke"));
  out.member("introspection_endpoint", at("/oauth/introspect"));
  out.member("jwks_uri", at("/oauth/jwks"));
  out.key("grant_types_supported").begin_array();
  out.text("urn:ietf:params:oauth:grant-type:device_code").end_array();
  out.end_object();
  return {200, out.str()};
}

/// The client that begins a sign-in, and by which address.
struct beginner {
  std::string network;
  std::string origin;   ///< What the client calls this node, and its browser hopefully as well.
  bool browser = false; ///< It is a browser, in which any page could ask.
};

beginner beginner_of(const login& is, const matched_request& what) {
  const auto* client = what.head().client;
  auto address = is.at.behind_node ? what.field(node_fields::client_field)
                                   : (client != nullptr ? client->peer() : std::string{});
  return {address.empty() ? address : http::network_of(address),
          what.field("Host").empty() ? std::string{} : origin_of(*is.with, what),
          !what.field("Origin").empty() || !what.field("Sec-Fetch-Site").empty()};
}

response open_codes(const login& is, const beginner& by) {
  if (by.browser)
    return oauth_refusal("access_denied", "No page begins a sign-in.", 403);
  if (by.origin.empty())
    return oauth_refusal("invalid_request", "The request has no Host.");
  const auto made = is.codes().open(by.network, device_codes::clock::now());
  if (!made) {
    auto answer = oauth_refusal("slow_down", "Too many sign-ins wait to be confirmed.", 429);
    answer.fields.push_back({"Retry-After", "60"});
    return answer;
  }
  auto page = by.origin + std::string{page_path};
  auto whole = page + "?user_code=" + made->user;
  if (!is.at.node.empty()) {
    page += "?node=" + percent_encode(is.at.node);
    whole += "&node=" + percent_encode(is.at.node);
  }
  json::ascii_writer out;
  out.begin_object().member("device_code", made->device).member("user_code", made->user);
  out.member("verification_uri", page).member("verification_uri_complete", whole);
  out.member("expires_in", std::chrono::seconds{device_codes::lasts}.count());
  out.member("interval", device_codes::interval.count()).end_object();
  return not_kept({200, out.str()});
}

response token_for(const login& is, const std::string& form) {
  const auto kind = form_value(form, "grant_type");
  if (kind == "refresh_token") // None is given out.
    return oauth_refusal("invalid_grant", "There are no refresh tokens.");
  if (kind != "urn:ietf:params:oauth:grant-type:device_code")
    return oauth_refusal("unsupported_grant_type");
  const auto stands = is.codes().ask(form_value(form, "device_code"), device_codes::clock::now());
  switch (stands.is) {
    case device_codes::state::waiting: return oauth_refusal("authorization_pending");
    case device_codes::state::too_soon: return oauth_refusal("slow_down");
    case device_codes::state::refused:
      return oauth_refusal("access_denied", "The sign-in was refused.");
    case device_codes::state::unknown:
      return oauth_refusal("expired_token", "There is no such sign-in any more.");
    case device_codes::state::granted: break;
  }
  json::ascii_writer out;
  out.begin_object().member("access_token", stands.grant.token);
  out.member("token_type", "Bearer").member("expires_in", stands.grant.lasts_s).end_object();
  return not_kept({200, out.str()});
}

response introspection(const login& is, const std::string& form) {
  const auto standing =
    standing_of(is.with->key, form_value(form, "token"), system_clock{}.unix_ms() / 1000);
  json::ascii_writer out;
  out.begin_object().member("active", standing.allowed.has_value());
  if (standing.allowed)
    out.member("client_id", form_value(form, "client_id"))
      .member("session_id", standing.allowed->team + '/' + standing.allowed->project);
  out.end_object();
  return not_kept({200, out.str()});
}

// ---- Confirming

response no_sign_in(const login& is) {
  std::string why = "No sign-in waits with this code.";
  if (!is.at.node.empty())
    why += " Each node knows its own: the address that the command line shows leads to the right "
           "one.";
  return failure(refusal{404, "not_found", std::move(why)});
}

response show_sign_in(const login& is, const std::string& typed) {
  const auto code = user_code_in(typed);
  const auto network = is.codes().network_of(code, device_codes::clock::now());
  if (!network)
    return no_sign_in(is);
  const auto& projects = is.with->projects;
  const bool has_usual = is_among(projects, usual_project);
  json::ascii_writer out;
  out.begin_object().member("user_code", code).member("network", *network);
  out.member("team", usual_team);
  out.member("project", has_usual ? usual_project : std::string_view{projects.front()});
  out.member("most_days", most_days).end_object();
  return not_kept({200, out.str()});
}

std::optional<refusal> read_name(const json::document& in, const char* name, std::string& into) {
  if (auto wrong = read_text(in, name, into))
    return wrong;
  if (into.empty() || into.size() > most_name_bytes)
    return bad_request(std::string{name} + " must have 1 to " + std::to_string(most_name_bytes) +
                       " bytes");
  return std::nullopt;
}

struct allowance {
  token_scope scope;
  std::int64_t days = 0;
};

std::optional<refusal> read_allowance(const login& is, const json::document& in, allowance& into) {
  if (auto wrong = read_name(in, "team", into.scope.team))
    return wrong;
  if (auto wrong = read_name(in, "project", into.scope.project))
    return wrong;
  if (!is_among(is.with->projects, into.scope.project))
    return refusal{404, "not_found", "The project was not found."};
  const auto* days = given(in, "days");
  const auto count = days != nullptr ? whole_number(*days) : std::nullopt;
  if (!count || *count < 1 || *count > most_days)
    return bad_request("days must be from 1 to " + std::to_string(most_days));
  into.days = *count;
  return std::nullopt;
}

response decide(const login& is, const std::string& body) {
  json::document said;
  std::string typed;
  bool refuses = false;
  if (const auto wrong = read_object(body, said))
    return failure(*wrong);
  if (const auto wrong = read_text(said, "user_code", typed))
    return failure(*wrong);
  if (const auto wrong = read_flag(said, "refuse", refuses))
    return failure(*wrong);
  const auto code = user_code_in(typed);
  const auto begun_at = is.codes().network_of(code, device_codes::clock::now());
  if (!begun_at)
    return no_sign_in(is);
  allowance allows;
  std::optional<device_grant> grant;
  if (!refuses) {
    if (const auto wrong = read_allowance(is, said, allows))
      return failure(*wrong);
    const auto now = system_clock{}.unix_ms() / 1000;
    const auto lasts_s = allows.days * day_s;
    grant =
      device_grant{make_access_token(is.with->key, allows.scope, now, now + lasts_s), lasts_s};
  }
  if (!is.codes().decide(code, std::move(grant), device_codes::clock::now()))
    return no_sign_in(is);
  if (refuses)
    log::info("login.refused", {{"network", *begun_at}, {"code", code}});
  else
    log::info("login.allowed", {{"network", *begun_at},
                                {"code", code},
                                {"team", allows.scope.team},
                                {"project", allows.scope.project},
                                {"days", allows.days}});
  return {204, {}};
}

// ---- Routes

/// For everybody. `answer` has the body.
template <class Answer>
route form_route(const shared_login& is, std::string path, Answer answer) {
  route made{verb::post,
             std::move(path),
             http::access::everybody,
             body_use::buffered,
             form_bytes,
             [is, answer](const matched_request& what) {
               return answered_by([is, answer, by = beginner_of(*is, what)](const std::string& body,
                                                                            const reply& to) {
                 to->respond(answer(*is, body, by));
               });
             },
             {}};
  made.too_large = &too_large;
  return made;
}

route page_route() {
  return {verb::get,
          std::string{page_path},
          http::access::everybody,
          body_use::ignored,
          0,
          [](const matched_request& what) {
            return answered_by([gzip = what.takes_gzip()](const std::string&, const reply& to) {
              to->respond(page_response(device_page(), gzip));
            });
          },
          {}};
}

class login_api final : public public_api {
public:
  explicit login_api(shared_login is)
      : is_(std::move(is)) {}

  std::string_view name() const override { return "login"; }

  std::vector<route> routes() const override {
    const auto text_route = [](const std::string& path, std::function<response()> answer) {
      return route{verb::get,
                   path,
                   http::access::everybody,
                   body_use::ignored,
                   0,
                   [answer = std::move(answer)](const matched_request&) {
                     return answered_by(
                       [answer](const std::string&, const reply& to) { to->respond(answer()); });
                   },
                   {}};
    };
    std::vector<route> all{
      text_route("/.well-known/openid-configuration", [is = is_] { return configuration(*is); }),
      // Tokens are signed with a key that nobody else has, so this server alone verifies them.
      text_route("/oauth/jwks",
                 [] {
                   return response{200, R"({"keys":[]})"};
                 }),
      page_route(),
      at_node(form_route(is_, "/oauth/nodes/:node/codes",
                         [](const login& is, const std::string&, const beginner& by) {
                           return open_codes(is, by);
                         })),
      at_node(form_route(is_, "/oauth/nodes/:node/token",
                         [](const login& is, const std::string& body, const beginner&) {
                           return token_for(is, body);
                         })),
      form_route(is_, "/oauth/introspect",
                 [](const login& is, const std::string& body, const beginner&) {
                   return introspection(is, body);
                 }),
      form_route(is_, "/oauth/revoke",
                 [](const login&, const std::string&, const beginner&) {
                   return oauth_refusal("unsupported_token_type",
                                        "A token cannot be taken back before its time.");
                 }),
    };
    auto decision = at_node(form_route(
      is_, "/oauth/nodes/:node/sign-in",
      [](const login& is, const std::string& body, const beginner&) { return decide(is, body); }));
    decision.who = http::access::key;
    decision.main_key_alone = true;
    all.push_back(std::move(decision));
    auto shown =
      at_node({verb::get,
               "/oauth/nodes/:node/sign-in",
               http::access::key,
               body_use::ignored,
               0,
               [is = is_](const matched_request& what) {
                 return answered_by([is, code = form_value(what.head().query, "user_code")](
                                      const std::string&, const reply& to) {
                   to->respond(show_sign_in(*is, code));
                 });
               },
               {}});
    shown.main_key_alone = true;
    all.push_back(std::move(shown));
    return all;
  }

  bool claims(std::string_view path) const override {
    return path == page_path || path.starts_with("/oauth/");
  }
  page_rule rule(std::string_view path) const override {
    return path == page_path ? page_rule::shown : page_rule::guarded;
  }
  response no_route(const std::string& methods) const override { return http::no_route(methods); }
  std::vector<std::string_view> key_fields() const override { return {}; }

private:
  static route at_node(route made) {
    made.at_node = true;
    return made;
  }

  const shared_login is_;
};

} // namespace

std::shared_ptr<const public_api> make_login_api(shared_services with, login_options at) {
  return std::make_shared<login_api>(
    std::make_shared<const login>(login{std::move(with), std::move(at)}));
}

} // namespace insula::http::vercel
