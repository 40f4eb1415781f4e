#pragma once

#include "http/api/auth.hpp"

#include <string>
#include <string_view>

/// What a proxy passes on of a request's header. A field of one connection stays on that connection
/// (RFC 9110, 7.6.1); what belongs to the node, such as its key, stays with the node.
namespace insula::http::proxy {

/// Names of what a client shows here, and no server in a sandbox is to see.
inline constexpr std::string_view token_cookie = "insula-preview";
inline constexpr std::string_view token_field = "X-Insula-Preview-Token";
inline constexpr std::string_view token_parameter = "insula_preview_token";

/// `query` without the token, and without each pair that has the key in it.
std::string without_token(std::string_view query, const key_check* key = nullptr);

/// A Cookie field without what the node's own cookies say, and without each that has the key in it.
std::string cookies_for_server(std::string_view cookies, const key_check* key);

/// Whether a field of a request has the key in it, but for a Cookie, which is looked at one by one.
bool shows_key(std::string_view name, std::string_view value, const key_check* key);

/// One field of a request, as the server is to see it, a line; empty: it stays here.
/// `of_connection`: what the request's own Connection names.
std::string request_line(std::string_view name, std::string_view value, const key_check* key,
                         std::string_view of_connection);

/// The same of a field that follows the body.
std::string trailer_line(std::string_view name, std::string_view value, const key_check* key,
                         std::string_view of_connection);

} // namespace insula::http::proxy
