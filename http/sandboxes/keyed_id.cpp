#include "http/sandboxes/keyed_id.hpp"

#include "base/id.hpp"
#include "http/text/hmac.hpp"

namespace insula::http {

std::string keyed_id(std::string_view secret, std::string_view key) {
  constexpr std::size_t id_bytes = 16;
  const auto bytes = hmac_sha256(secret, key);
  return base32(reinterpret_cast<const unsigned char*>(bytes.data()), id_bytes);
}

} // namespace insula::http
