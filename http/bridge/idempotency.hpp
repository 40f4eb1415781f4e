#pragma once

#include "actors/protocol/messages.hpp"
#include "base/error.hpp"
#include "http/api/route.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace insula::http::bridge {

/// SHA-256, bit by bit.
class digest {
public:
  digest();
  void add(std::string_view bytes);
  std::string hexadecimal(); ///< Of all that was added. Once.

private:
  std::shared_ptr<void> context_;
};

/// What a request's header says of that.
struct idempotency_header {
  std::optional<std::string> key; ///< None: the request may have its effect each time.
  std::string session;            ///< The Session-Id; part of what the request says.
};
idempotency_header idempotency_header_of(const matched_request& what);

/// Whether the request is one that has its effect once. Errors: invalid_request.
result<bool> has_idempotency_key(const idempotency_header& header);

/// Of a request for which that is so. `body`: all that it says besides its route and its sandbox.
idempotency_key idempotency_key_of(const idempotency_header& header, std::string_view body);
/// The same for a body that has been hashed meanwhile.
idempotency_key idempotency_key_with_digest(const idempotency_header& header, std::string digest);

/// For the document.
inline constexpr parameter idempotency_parameter{
  "Idempotency-Key", "header",
  "1 to 255 visible ASCII characters. For 24 hours the same request with the same key is done once "
  "and answered alike, and another request with it is refused."};

} // namespace insula::http::bridge
