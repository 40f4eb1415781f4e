#pragma once

#include "http/api/port_names.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

/// Previews: HTTP to servers in sandboxes.
namespace insula::http::preview {

/// What a request asks for: a server in a sandbox, and something of it.
struct address {
  std::string id;
  std::uint16_t port = 0;
  std::string prefix; ///< What the path began with, without a last slash; empty: the host named it.
  std::string path;   ///< For that server, as it was sent: begins with a slash, or is `*`.
  /// Asked of a port that an API serves, which goes on to `port`; 0: it was not.
  std::uint16_t served_by = 0;
  std::string host = {};  ///< What the client calls this node.
  bool encrypted = false; ///< The client speaks TLS.
  /// By which API's name the port was asked for; null: by none. A name needs no key, and the API
  /// says whether its port is open.
  std::shared_ptr<const port_names> named_by = nullptr;
  bool is_forwarded = false; ///< By X-Forwarded-Host, which caches in between have to know.
};

/// `host` as the Host field has it: `<port>-<id>.<domain>`, in any letter case, with any port
/// behind it. None: it names no sandbox.
std::optional<address> address_of_host(std::string_view host, std::string_view domain,
                                       std::string_view path);

/// `/v1/sandbox/<id>/port/<port>/…`, or as OpenSandbox's clients have it `/sandboxes/<id>/proxy/
/// <port>…`, with or without /v1. None: it is no such path, or its id or port is none.
std::optional<address> address_of_path(std::string_view path);

/// What goes on from a served port to another one: of it is asked `/proxy/<port>…`. None: something
/// else is, or the port is none.
std::optional<address> address_beyond(const address& served);

/// What the host of a port begins with; empty: the id is too long for a name in DNS.
std::string label_of(std::string_view id, std::uint16_t port);

/// `/v1/sandbox/<id>/port/<port>`
std::string prefix_of(std::string_view id, std::uint16_t port);

} // namespace insula::http::preview
