#include "benchmarks/load/url.hpp"

#include <charconv>

namespace insula::load {

namespace {

constexpr std::uint16_t http_port = 80, https_port = 443;

std::string in_brackets(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

} // namespace

std::string base_url::authority() const {
  const auto name = in_brackets(host);
  return port == (tls ? https_port : http_port) ? name : name + ":" + std::to_string(port);
}

std::string base_url::text() const {
  return (tls ? "https://" : "http://") + authority() + prefix;
}

bool base_url::is_loopback() const {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

result<base_url> parse_url(std::string_view text) {
  const auto wrong = [text](const std::string& why) {
    return error{errc::invalid_request, "'" + std::string{text} + "' is no base URL: " + why};
  };
  base_url made;
  auto rest = text;
  if (rest.starts_with("https://"))
    made.tls = true;
  else if (!rest.starts_with("http://"))
    return wrong("it has to begin with http:// or https://");
  rest.remove_prefix(made.tls ? 8 : 7);

  if (rest.find_first_of(" \t\r\n?#@") != std::string_view::npos)
    return wrong("blanks, user names, queries and fragments have no place in it");
  const auto slash = rest.find('/');
  auto place = rest.substr(0, slash);
  if (slash != std::string_view::npos)
    made.prefix = rest.substr(slash);
  while (made.prefix.ends_with('/'))
    made.prefix.pop_back();

  std::string_view port;
  if (place.starts_with('[')) {
    const auto end = place.find(']');
    if (end == std::string_view::npos)
      return wrong("a bracket is not closed");
    made.host = place.substr(1, end - 1);
    place.remove_prefix(end + 1);
    if (!place.empty() && place.front() != ':')
      return wrong("after the address there may be a port only");
    port = place;
  } else {
    const auto colon = place.find(':');
    made.host = place.substr(0, colon);
    if (colon != std::string_view::npos)
      port = place.substr(colon);
  }
  if (made.host.empty())
    return wrong("it names no host");
  made.port = made.tls ? https_port : http_port;
  if (!port.empty()) {
    port.remove_prefix(1);
    const auto [end, failed] = std::from_chars(port.data(), port.data() + port.size(), made.port);
    if (failed != std::errc{} || end != port.data() + port.size() || made.port == 0)
      return wrong("a port is a number from 1 to 65535");
  }
  return made;
}

} // namespace insula::load
