#pragma once

#include "http/api/auth.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Tokens for one project. They are signed with the server's main key or with a named one, and kept
/// nowhere: the key's holder makes them, on any machine, and a new key ends all of them.
namespace insula::http::vercel {

/// What a token is good for.
struct token_scope {
  std::string team, project;
  std::string key = {}; ///< The name of the key that signs it. Empty: the main one.
  bool operator==(const token_scope&) const = default;
};

/// As VERCEL_OIDC_TOKEN: three parts, in which clients read team and project. `key` has what signs
/// it.
std::string make_identity_token(const key_check& key, const token_scope& of, std::int64_t issued_s,
                                std::int64_t expires_s);
/// The same as one word, which clients take for any other access token.
std::string make_access_token(const key_check& key, const token_scope& of, std::int64_t issued_s,
                              std::int64_t expires_s);

/// How a bearer token stands with this server.
struct token_standing {
  bool is_one = false;                ///< It says that it is one of Insula's.
  std::optional<token_scope> allowed; ///< None: it is none, of another key, or over.
};
token_standing standing_of(const key_check& key, std::string_view token, std::int64_t now_s);

} // namespace insula::http::vercel
