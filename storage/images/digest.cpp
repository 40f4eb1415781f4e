#include "storage/images/digest.hpp"

#include "base/hex.hpp"

#include <algorithm>
#include <array>
#include <openssl/evp.h>

namespace insula::storage::images {

namespace {

constexpr std::string_view sha256 = "sha256:", sha512 = "sha512:";

} // namespace

struct hasher::state {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  std::string_view algorithm;

  explicit state(std::string_view which)
      : algorithm(which) {
    EVP_DigestInit_ex(context, which == sha512 ? EVP_sha512() : EVP_sha256(), nullptr);
  }
  ~state() { EVP_MD_CTX_free(context); }
  state(const state&) = delete;
  state& operator=(const state&) = delete;
};

bool is_digest(std::string_view text) {
  const std::size_t digits = text.starts_with(sha256) ? 64 : text.starts_with(sha512) ? 128 : 0;
  return digits != 0 && text.size() == sha256.size() + digits &&
         text.find_first_not_of("0123456789abcdef", sha256.size()) == std::string_view::npos;
}

hasher::hasher(std::string_view like)
    : state_(std::make_unique<state>(like.starts_with(sha512) ? sha512 : sha256)) {}

hasher::~hasher() = default;
hasher::hasher(hasher&&) noexcept = default;
hasher& hasher::operator=(hasher&&) noexcept = default;

void hasher::add(const void* bytes, std::size_t count) {
  EVP_DigestUpdate(state_->context, bytes, count);
}

std::string hasher::digest() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> raw{};
  unsigned size = 0;
  EVP_DigestFinal_ex(state_->context, raw.data(), &size);
  return std::string{state_->algorithm} + to_hex({raw.data(), size});
}

std::string digest_of(std::string_view bytes, std::string_view like) {
  hasher all{like};
  all.add(bytes.data(), bytes.size());
  return all.digest();
}

} // namespace insula::storage::images
