#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace insula::load {

/// Where the API is: what its paths begin behind.
struct base_url {
  bool tls = false;
  std::string host; ///< A name or an address; one of IPv6 without its brackets.
  std::uint16_t port = 0;
  std::string prefix; ///< Of every path: empty, or with a slash in front and none at its end.

  std::string text() const;
  std::string authority() const; ///< For the Host field: without the scheme's own port.
  bool is_loopback() const; ///< As it is written; names are not looked up, but localhost is known.
};

/// "http://127.0.0.1:8787", "https://sandboxes.example/bridge/". Errors: invalid_request.
result<base_url> parse_url(std::string_view text);

} // namespace insula::load
