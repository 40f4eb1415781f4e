#include "http/bridge/idempotency.hpp"

#include "base/hex.hpp"
#include "http/bridge/api.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <stdexcept>

namespace insula::http::bridge {

namespace {

constexpr std::size_t longest_key = 255;

EVP_MD_CTX* in(const std::shared_ptr<void>& context) {
  return static_cast<EVP_MD_CTX*>(context.get());
}

std::string hash(std::string_view text) {
  digest whole;
  whole.add(text);
  return whole.hexadecimal();
}

} // namespace

digest::digest()
    : context_(EVP_MD_CTX_new(),
               [](void* context) { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context)); }) {
  if (!context_ || EVP_DigestInit_ex(in(context_), EVP_sha256(), nullptr) != 1)
    throw std::runtime_error("there is no SHA-256");
}

void digest::add(std::string_view bytes) {
  EVP_DigestUpdate(in(context_), bytes.data(), bytes.size());
}

std::string digest::hexadecimal() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned count = 0;
  EVP_DigestFinal_ex(in(context_), bytes.data(), &count);
  return to_hex({bytes.data(), count});
}

idempotency_header idempotency_header_of(const matched_request& what) {
  return {what.field_if_any("Idempotency-Key"), what.field("Session-Id")};
}

result<bool> has_idempotency_key(const idempotency_header& header) {
  const auto& key = header.key;
  if (!key)
    return false;
  const auto visible = [](char c) { return c > ' ' && c < '\x7f'; };
  if (key->empty() || key->size() > longest_key || !std::all_of(key->begin(), key->end(), visible))
    return error{errc::invalid_request,
                 "Idempotency-Key must be 1 to 255 visible ASCII characters"};
  return true;
}

idempotency_key idempotency_key_of(const idempotency_header& header, std::string_view body) {
  digest all;
  all.add(header.session);
  all.add({"\0", 1});
  all.add(body);
  return idempotency_key_with_digest(header, all.hexadecimal());
}

idempotency_key idempotency_key_with_digest(const idempotency_header& header, std::string digest) {
  return {hash(header.key.value_or("")), std::move(digest)};
}

} // namespace insula::http::bridge
