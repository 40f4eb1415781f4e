#pragma once

#include "http/api/auth.hpp"
#include "http/preview/address.hpp"
#include "http/sandboxes/services.hpp"
#include "http/transport/exchange.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace insula::http::preview {

/// What is left of a request when its header has gone.
struct request {
  address to;
  std::string head; ///< For the server, whole.
  std::uint64_t length = 0;
  bool chunked = false;
  bool asks_first = false;
  bool head_only = false;
  bool old_protocol = false;
  bool keep_alive = false;
  bool upgrade = false;
  bool repeatable = false;        ///< Twice is as good as once, and there is no body.
  bool wants_page = false;        ///< It is a browser that shows what it gets.
  std::optional<key_check> key;   ///< The node's.
  std::string connection_options; ///< What its Connection names.

  bool has_body() const { return chunked || length > 0; }
};

/// Carries one request to its server and the answer back, both at once, byte by byte: no more is in
/// memory than is under way. Then gives the connection back; after an upgrade, keeps it until
/// either side ends. On the connection's strand.
void serve(std::shared_ptr<const services> with, request wanted, std::shared_ptr<connection> client,
           request_track track);

/// The answer where the sandbox does not run.
response not_running(std::uint16_t port, bool as_page);

} // namespace insula::http::preview
