#include "http/preview/links.hpp"

#include "http/preview/address.hpp"
#include "http/preview/token.hpp"
#include "http/proxy/request_fields.hpp"

namespace insula::http::preview {

namespace {

/// The port that clients have asked this node at, with its colon; empty: the usual one.
std::string_view port_in(std::string_view host) {
  const auto at = host.find_last_of(":]");
  return at == std::string_view::npos || host[at] == ']' ? std::string_view{} : host.substr(at);
}

} // namespace

result<port_link> links::link(const std::string& id, std::uint16_t port, std::string_view host,
                              std::chrono::seconds lasts) const {
  if (const auto at = is_.reserved.find(port); at != is_.reserved.end())
    return error{errc::invalid_request, at->second};
  port_link made;
  made.path = prefix_of(id, port) + "/";
  if (const auto label = label_of(id, port); !label.empty())
    made.url = url_of(label, host);
  if (!is_.asks_key || is_.is_public)
    return made;
  const auto ends = token_now() + lasts;
  made.token = sign_token(is_.secret, id, port, ends);
  made.expires_at_s = ends.time_since_epoch().count();
  const auto query = "?" + std::string{proxy::token_parameter} + "=" + *made.token;
  made.path += query;
  if (!made.url.empty())
    made.url += query;
  return made;
}

std::string links::url_of(std::string_view label, std::string_view host) const {
  std::string url = is_.encrypted ? "https://" : "http://";
  ((url += label) += '.') += is_.domain;
  return (url += port_in(host)) += '/';
}

std::optional<std::string> links::token(const std::string& id, std::uint16_t port,
                                        std::chrono::seconds lasts) const {
  if (!is_.asks_key)
    return std::nullopt;
  return sign_token(is_.secret, id, port, token_now() + lasts);
}

bool links::holds(std::string_view token, const std::string& id, std::uint16_t port) const {
  return !token.empty() && check_token(is_.secret, id, port, token, token_now()).has_value();
}

} // namespace insula::http::preview
