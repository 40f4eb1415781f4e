#pragma once

#include "http/api/auth.hpp"
#include "http/preview/address.hpp"
#include "http/transport/exchange.hpp"

#include <functional>
#include <string>
#include <string_view>

/// Header fields on their way through. What concerns one connection only stays on it (RFC 9110,
/// 7.6.1); what is the node's own, such as its key, stays with the node.
namespace insula::http::preview {

/// What the server in the sandbox cannot know by itself.
struct sender {
  std::string address;    ///< Who is connected here.
  bool encrypted = false; ///< By TLS, to here.
  std::string request_id;
  const key_check* key = nullptr; ///< This node's, if there is one: it goes no further.
};

/// The header for the server, whole. Whatever the client says of who has sent it is replaced by
/// what is true: X-Forwarded-For, -Proto, -Host and, where there is one, -Prefix.
std::string write_request(const request_head& head, const address& to, const sender& from);

/// One field of its answer, as the client is to see it, a line; empty: it stays here. Behind a
/// prefix, all sandboxes and this node are one origin to a browser, so a field passes only if it is
/// known to hold for no more than the prefix. A cookie is for its own host alone. A reference to
/// the server leads through the prefix, also if it names the server in full: as the client has
/// named it, or as it is called in the sandbox. `of_connection`: what the answer's own Connection
/// names.
std::string answer_line(std::string_view name, std::string_view value, const address& to,
                        std::string_view of_connection = {});

/// Lines that every answer has besides: behind a prefix, a page is nobody's origin.
std::string_view own_lines(const address& to);

} // namespace insula::http::preview
