#pragma once

#include "base/error.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace insula::http {

/// Where a server in a sandbox can be reached from outside.
struct port_link {
  std::string url;  ///< A host of its own; empty: its id is too long for a name in DNS.
  std::string path; ///< Of this node.
  std::optional<std::string> token; ///< None: no key is asked for. The url and the path have it.
  std::int64_t expires_at_s = 0;    ///< Of the token: seconds since 1970.
};

/// Makes links to ports of sandboxes, and the tokens that open them without the key. Any thread.
class port_links {
public:
  virtual ~port_links() = default;

  /// `host`: what the client calls this node. Errors: invalid_request, for a port that an API
  /// serves itself: a token for it would do more than reach a server.
  virtual result<port_link> link(const std::string& id, std::uint16_t port, std::string_view host,
                                 std::chrono::seconds lasts) const = 0;

  /// Where this node is asked at a name of one label that an API has given to a port.
  virtual std::string url_of(std::string_view label, std::string_view host) const = 0;

  /// None: no key is asked for.
  virtual std::optional<std::string> token(const std::string& id, std::uint16_t port,
                                           std::chrono::seconds lasts) const = 0;

  /// A token of this node's, for this port of this sandbox, that has not expired.
  virtual bool holds(std::string_view token, const std::string& id, std::uint16_t port) const = 0;
};

} // namespace insula::http
