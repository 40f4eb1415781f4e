#pragma once

#include "base/error.hpp"
#include "http/transport/exchange.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace insula {
struct request_context;
}

namespace insula::http {

/// A port of a sandbox, under a name that an API has given it.
struct named_port {
  std::string sandbox;
  std::uint16_t port = 0; ///< 0: there is no such name.
};

/// Hosts by which an API's clients reach servers in sandboxes, with no key: a name is as secret as
/// its client keeps it. The API says which ports are open, and how it is told what is wrong. Any
/// thread.
class port_names {
public:
  virtual ~port_names() = default;

  /// `host` as the Host field has it. None: it is no host of this API's.
  virtual std::optional<named_port> find(std::string_view host) const = 0;

  /// Asks the sandbox whether that port is open. `then` is called once, on any thread, with the
  /// answer for the client if it is not.
  virtual void check(const named_port& to, const request_context& context,
                     std::function<void(std::optional<response>)> then) const = 0;

  virtual response unknown() const = 0;

  /// Of what has failed on the way to the server, or at it, with a code of previews.
  virtual response failure(int status, std::string_view code, const std::string& why) const = 0;
};

} // namespace insula::http
