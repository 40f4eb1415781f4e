#include "http/oidc/issuer.hpp"

#include "base/base64.hpp"
#include "http/json/writer.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace insula::http::oidc {

namespace {

constexpr std::array<std::string_view, 3> needed_claims{"team_id", "project_id", "sandbox_id"};
constexpr std::array<std::string_view, 7> own_claims{"iss", "aud", "sub", "iat",
                                                     "nbf", "exp", "jti"};

error refused_claims(const std::string& why) {
  return {errc::invalid_request, "no token is signed: " + why};
}

bool is_own_claim(std::string_view name) {
  return std::find(own_claims.begin(), own_claims.end(), name) != own_claims.end();
}

void write_texts(json::ascii_writer& into, std::string_view name,
                 std::initializer_list<std::string_view> texts) {
  into.key(name).begin_array();
  for (const auto each : texts)
    into.text(each);
  into.end_array();
}

} // namespace

result<std::string> issuer::sign(const token_claims& claims, const std::string& audience) const {
  if (audience.empty())
    return refused_claims("it has no audience");
  std::map<std::string_view, std::string_view> by_name;
  auto bytes = audience.size();
  for (const auto& [name, value] : claims) {
    bytes += name.size() + value.size();
    if (name.empty() || is_own_claim(name))
      return refused_claims("a claim has no name, or one of those that the issuer sets");
    if (value.empty())
      return refused_claims("the claim " + name + " is empty");
    if (!by_name.emplace(name, value).second)
      return refused_claims("the claim " + name + " comes twice");
  }
  for (const auto name : needed_claims)
    if (!by_name.contains(name))
      return refused_claims("the claim " + std::string{name} + " is missing");
  if (claims.size() > most_claims || bytes > most_claim_bytes)
    return error{errc::limit_reached, "no token is signed: it has more than " +
                                        std::to_string(most_claims) + " claims, or more than " +
                                        std::to_string(most_claim_bytes) + " bytes in them"};
  const auto now = now_s();
  std::string subject;
  for (const auto& [word, name] :
       {std::pair{"owner:", "team_id"}, {":project:", "project_id"}, {":sandbox:", "sandbox_id"}})
    subject.append(word).append(by_name.at(name));
  json::ascii_writer payload;
  payload.begin_object().member("iss", settings_.name).member("aud", audience);
  payload.member("sub", subject).member("iat", now).member("nbf", now);
  payload.member("exp", now + std::int64_t{settings_.token_lifetime.count()});
  for (const auto& [name, value] : claims)
    payload.member(name, value);
  payload.end_object();
  const auto made = current()->sign(payload.view(), now);
  if (!made)
    return made.reason();
  return made->text + '.' + base64url(made->bytes);
}

token_signer issuer::signer(std::shared_ptr<const issuer> from) {
  return [from = std::move(from)](const token_claims& claims, const std::string& audience) {
    return from->sign(claims, audience);
  };
}

std::string issuer::published_keys() const {
  return current()->published(now_s(), settings_.keep());
}

std::string issuer::configuration() const {
  json::ascii_writer out;
  out.begin_object().member("issuer", settings_.name).member("jwks_uri", settings_.keys_url());
  write_texts(out, "response_types_supported", {"id_token"});
  write_texts(out, "subject_types_supported", {"public"});
  write_texts(out, "id_token_signing_alg_values_supported", {"RS256"});
  write_texts(out, "claims_supported",
              {"iss", "aud", "sub", "iat", "nbf", "exp", "team_id", "project_id", "sandbox_id",
               "sandbox_name"});
  out.end_object();
  return out.str();
}

void issuer::take(key_set keys) {
  auto next = std::make_shared<const key_set>(std::move(keys));
  const std::lock_guard lock{mutex_};
  keys_.swap(next); // The one before goes without the lock.
}

std::shared_ptr<const key_set> issuer::current() const {
  const std::lock_guard lock{mutex_};
  return keys_;
}

} // namespace insula::http::oidc
