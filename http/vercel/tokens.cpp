#include "http/vercel/tokens.hpp"

#include "base/base64.hpp"
#include "http/json/document.hpp"
#include "http/json/writer.hpp"
#include "http/text/hmac.hpp"

#include <array>

namespace insula::http::vercel {

namespace {

constexpr std::string_view issuer = "insula", access_prefix = "insula_";
constexpr std::size_t longest_token = 4096;
/// What else the server's key signs has another beginning.
constexpr std::string_view purpose = "insula vercel token\n";
/// The claim that names the key. None: the main one.
constexpr std::string_view key_claim = "insula_key";

/// Empty: there is no such key.
std::string signature_of(const key_check& key, const std::string& name, std::string_view text) {
  return base64url(key.seal(std::string{purpose}.append(text), name));
}

/// Header, claims and signature.
std::optional<std::array<std::string_view, 3>> parts_of(std::string_view token) {
  const auto first = token.find('.');
  const auto second = first == std::string_view::npos ? first : token.find('.', first + 1);
  if (second == std::string_view::npos || token.find('.', second + 1) != std::string_view::npos)
    return std::nullopt;
  return std::array{token.substr(0, first), token.substr(first + 1, second - first - 1),
                    token.substr(second + 1)};
}

std::string text_in(const json::value& of, std::string_view name) {
  const auto* value = json::find(of, name);
  return value != nullptr && value->IsString() ? json::string_of(*value) : std::string{};
}

token_standing standing_of_identity(const key_check& key, std::string_view token,
                                    std::int64_t now_s) {
  token_standing is;
  const auto parts = parts_of(token);
  const auto claims = parts ? from_base64url((*parts)[1]) : std::nullopt;
  json::document said;
  if (!claims || !json::parse(*claims, said) || !said.IsObject() || text_in(said, "iss") != issuer)
    return is;
  is.is_one = true;
  if (key.open())
    return is;
  token_scope of{text_in(said, "owner_id"), text_in(said, "project_id"), text_in(said, key_claim)};
  const auto& signature = (*parts)[2];
  const auto right =
    signature_of(key, of.key, token.substr(0, token.size() - signature.size() - 1));
  const auto* ends = json::find(said, "exp");
  if (!right.empty() && is_same_secret(right, signature) && ends != nullptr && ends->IsInt64() &&
      ends->GetInt64() > now_s && !of.project.empty())
    is.allowed = std::move(of);
  return is;
}

} // namespace

std::string make_identity_token(const key_check& key, const token_scope& of, std::int64_t issued_s,
                                std::int64_t expires_s) {
  json::ascii_writer claims;
  claims.begin_object().member("iss", issuer);
  claims.member("sub", "owner:" + of.team + ":project:" + of.project);
  claims.member("owner_id", of.team).member("project_id", of.project);
  if (!of.key.empty())
    claims.member(key_claim, of.key);
  claims.member("iat", issued_s).member("exp", expires_s).end_object();
  auto token = base64url(R"({"alg":"HS256","typ":"JWT"})") + '.' + base64url(claims.str());
  const auto signature = signature_of(key, of.key, token);
  return token + '.' + signature;
}

std::string make_access_token(const key_check& key, const token_scope& of, std::int64_t issued_s,
                              std::int64_t expires_s) {
  return std::string{access_prefix} + base64url(make_identity_token(key, of, issued_s, expires_s));
}

token_standing standing_of(const key_check& key, std::string_view token, std::int64_t now_s) {
  if (token.size() > longest_token)
    return {};
  if (!token.starts_with(access_prefix))
    return standing_of_identity(key, token, now_s);
  token_standing is{true, {}};
  if (const auto identity = from_base64url(token.substr(access_prefix.size())))
    is.allowed = standing_of_identity(key, *identity, now_s).allowed;
  return is;
}

} // namespace insula::http::vercel
