#pragma once

#include "http/api/port_links.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace insula::http::preview {

/// Links to ports by names and paths of this node, with signed tokens.
class links final : public port_links {
public:
  struct settings {
    std::string domain;     ///< Below it, each port of each sandbox has a name.
    std::string secret;     ///< That tokens are signed with.
    bool encrypted = false; ///< This node speaks TLS.
    bool asks_key = false;
    bool is_public = false; ///< The ports are open without the key.
    /// Ports that APIs serve themselves, and why there is no link to them.
    std::map<std::uint16_t, std::string> reserved = {};
  };

  explicit links(settings is)
      : is_(std::move(is)) {}

  result<port_link> link(const std::string& id, std::uint16_t port, std::string_view host,
                         std::chrono::seconds lasts) const override;
  std::string url_of(std::string_view label, std::string_view host) const override;
  std::optional<std::string> token(const std::string& id, std::uint16_t port,
                                   std::chrono::seconds lasts) const override;
  bool holds(std::string_view token, const std::string& id, std::uint16_t port) const override;

private:
  const settings is_;
};

} // namespace insula::http::preview
