#pragma once

#include "base/error.hpp"

#include <string>
#include <string_view>

namespace insula::storage::registry {

/// Which image of which registry, in full: "debian" is docker.io/library/debian:latest.
struct image_reference {
  std::string host;       ///< In lower case, with the port where one is said: "[::1]:5000".
  std::string repository; ///< "library/debian"
  std::string tag;        ///< Empty: there is a digest, and no tag was said.
  std::string digest;     ///< Well-formed. Empty: the tag decides.

  /// The repository with its host, and then all of it as parse_reference() takes it.
  std::string name() const { return host + "/" + repository; }
  std::string str() const;

  bool operator==(const image_reference&) const = default;
};

/// Reads a reference as docker and podman write it. Of a reference with both, the digest counts and
/// the tag is for people. Errors: invalid_request, with the part that is wrong.
result<image_reference> parse_reference(std::string_view text);

/// Is it a host of this machine alone, by the way it is written: localhost, 127.0.0.0/8 or ::1?
/// `host`: with or without its port.
bool is_loopback(std::string_view host);

} // namespace insula::storage::registry
