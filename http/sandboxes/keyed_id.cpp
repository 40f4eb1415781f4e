#include "http/sandboxes/keyed_id.hpp"

#include "base/id.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>

namespace insula::http {

std::string keyed_id(std::string_view secret, std::string_view key) {
  constexpr std::size_t id_bytes = 16;
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned count = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(key.data()), key.size(), bytes.data(), &count);
  return base32(bytes.data(), id_bytes);
}

} // namespace insula::http
