#include "base/secret_box.hpp"

#include "base/base64.hpp"

#include <algorithm>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

namespace insula {

namespace {

constexpr std::string_view format = "1";
constexpr std::size_t nonce_bytes = 12, tag_bytes = 16;
constexpr std::string_view id_prefix = "insula secret_box key_id\n";
constexpr std::size_t id_bytes = 8;
/// Of nonce, text and tag, in base64url.
constexpr std::size_t longest_sealed =
  format.size() + (secret_box::most_bytes + nonce_bytes + tag_bytes + 2) / 3 * 4;

struct free_cipher {
  void operator()(EVP_CIPHER_CTX* used) const { EVP_CIPHER_CTX_free(used); }
};
using cipher = std::unique_ptr<EVP_CIPHER_CTX, free_cipher>;

unsigned char* bytes_of(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

error failed_to(const char* what) {
  return {errc::internal, std::string{"OpenSSL does not "} + what};
}

error does_not_open() {
  return {errc::io_failed, "a sealed secret does not open: it is damaged, or was sealed with "
                           "another key or for another purpose"};
}

/// What is vouched for beside the text: the version and the purpose.
std::string beside(std::string_view purpose) {
  return std::string{format}.append(1, '\n').append(purpose);
}

} // namespace

void wipe(std::string& secret) {
  secret.resize(secret.capacity()); // What was cut off is still there.
  OPENSSL_cleanse(secret.data(), secret.size());
  secret.clear();
}

void secret_box::cleansed::operator()(key* used) const {
  OPENSSL_cleanse(used->data(), used->size());
  delete used;
}

result<secret_box> secret_box::from_key(std::string_view bytes) {
  if (bytes.size() != key_bytes)
    return error{errc::invalid_request, "a key for secrets has 32 bytes"};
  std::unique_ptr<key, cleansed> made{new key};
  std::copy(bytes.begin(), bytes.end(), made->begin());
  auto text = std::string{id_prefix}.append(bytes);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  const bool good =
    EVP_Digest(text.data(), text.size(), digest.data(), nullptr, EVP_sha256(), nullptr) == 1;
  wipe(text);
  if (!good)
    return failed_to("make a digest");
  constexpr std::string_view digits = "0123456789abcdef";
  std::string id;
  for (std::size_t i = 0; i < id_bytes; ++i)
    id.append(1, digits[digest[i] >> 4]).append(1, digits[digest[i] & 15]);
  return secret_box{std::move(made), std::move(id)};
}

result<std::string> secret_box::seal(std::string_view plain, std::string_view purpose) const {
  if (plain.size() > most_bytes)
    return error{errc::limit_reached, "a secret has more than 1 MiB"};
  const auto vouched = beside(purpose);
  std::string sealed(nonce_bytes + plain.size() + tag_bytes, '\0');
  auto* nonce = bytes_of(sealed);
  auto* text = nonce + nonce_bytes;
  if (RAND_bytes(nonce, static_cast<int>(nonce_bytes)) != 1)
    return failed_to("have random bytes");
  const cipher using_it{EVP_CIPHER_CTX_new()};
  int written = 0;
  const bool good =
    using_it &&
    EVP_EncryptInit_ex(using_it.get(), EVP_aes_256_gcm(), nullptr, key_->data(), nonce) == 1 &&
    EVP_EncryptUpdate(using_it.get(), nullptr, &written, bytes_of(vouched),
                      static_cast<int>(vouched.size())) == 1 &&
    EVP_EncryptUpdate(using_it.get(), text, &written, bytes_of(plain),
                      static_cast<int>(plain.size())) == 1 &&
    EVP_EncryptFinal_ex(using_it.get(), text + plain.size(), &written) == 1 &&
    EVP_CIPHER_CTX_ctrl(using_it.get(), EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag_bytes),
                        text + plain.size()) == 1;
  if (!good)
    return failed_to("encrypt");
  return std::string{format} + base64url(sealed);
}

result<std::string> secret_box::open(std::string_view sealed, std::string_view purpose) const {
  if (!sealed.starts_with(format) || sealed.size() > longest_sealed)
    return does_not_open();
  auto bytes = from_base64url(sealed.substr(format.size()));
  if (!bytes || bytes->size() < nonce_bytes + tag_bytes)
    return does_not_open();
  const auto vouched = beside(purpose);
  const auto* nonce = bytes_of(*bytes);
  const auto count = bytes->size() - nonce_bytes - tag_bytes;
  auto* tag = bytes_of(*bytes) + nonce_bytes + count;
  std::string plain(count, '\0');
  const cipher using_it{EVP_CIPHER_CTX_new()};
  int written = 0;
  const bool good =
    using_it &&
    EVP_DecryptInit_ex(using_it.get(), EVP_aes_256_gcm(), nullptr, key_->data(), nonce) == 1 &&
    EVP_DecryptUpdate(using_it.get(), nullptr, &written, bytes_of(vouched),
                      static_cast<int>(vouched.size())) == 1 &&
    EVP_DecryptUpdate(using_it.get(), bytes_of(plain), &written, nonce + nonce_bytes,
                      static_cast<int>(count)) == 1 &&
    EVP_CIPHER_CTX_ctrl(using_it.get(), EVP_CTRL_AEAD_SET_TAG, static_cast<int>(tag_bytes), tag) ==
      1 &&
    EVP_DecryptFinal_ex(using_it.get(), bytes_of(plain) + count, &written) == 1;
  if (!good) {
    wipe(plain);
    return does_not_open();
  }
  return plain;
}

} // namespace insula
