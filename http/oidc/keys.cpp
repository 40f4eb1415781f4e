#include "http/oidc/keys.hpp"

#include "base/base64.hpp"
#include "base/secret_box.hpp"
#include "http/json/document.hpp"
#include "http/json/writer.hpp"

#include <algorithm>
#include <array>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <set>
#include <utility>

namespace insula::http::oidc {

namespace {

constexpr int bits_of_new_key = 2048, most_bits = 4096;
constexpr std::size_t longest_pem = 8u << 10;

template <auto Free>
struct freed_by {
  template <class T>
  void operator()(T* used) const {
    Free(used);
  }
};
using evp_key = std::unique_ptr<EVP_PKEY, freed_by<EVP_PKEY_free>>;
using evp_digest = std::unique_ptr<EVP_MD_CTX, freed_by<EVP_MD_CTX_free>>;
using big_number = std::unique_ptr<BIGNUM, freed_by<BN_free>>;
using memory_bio = std::unique_ptr<BIO, freed_by<BIO_free_all>>;

error openssl_failed(const char* what) {
  return {errc::internal, std::string{"OpenSSL does not "} + what};
}

error malformed_keys(const std::string& why) {
  return {errc::invalid_request, why};
}

unsigned char* bytes_of(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

/// A public part of the key, in base64url; empty: it has none.
std::string part_of(const EVP_PKEY* key, const char* name) {
  BIGNUM* found = nullptr;
  if (EVP_PKEY_get_bn_param(key, name, &found) != 1)
    return {};
  const big_number number{found};
  std::string bytes(static_cast<std::size_t>(BN_num_bytes(number.get())), '\0');
  BN_bn2bin(number.get(), bytes_of(bytes));
  return base64url(bytes);
}

std::string sha256(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned count = 0;
  EVP_Digest(text.data(), text.size(), bytes.data(), &count, EVP_sha256(), nullptr);
  return {reinterpret_cast<const char*>(bytes.data()), count};
}

/// RSASSA-PKCS1-v1_5 with SHA-256; none: it has failed.
std::optional<std::string> signature_of(EVP_PKEY* key, std::string_view text) {
  const evp_digest with{EVP_MD_CTX_new()};
  std::size_t size = 0;
  if (!with || EVP_DigestSignInit(with.get(), nullptr, EVP_sha256(), nullptr, key) != 1 ||
      EVP_DigestSign(with.get(), nullptr, &size, bytes_of(text), text.size()) != 1)
    return std::nullopt;
  std::string bytes(size, '\0');
  if (EVP_DigestSign(with.get(), bytes_of(bytes), &size, bytes_of(text), text.size()) != 1)
    return std::nullopt;
  bytes.resize(size);
  return bytes;
}

/// Do both halves of the key belong together?
bool is_whole(EVP_PKEY* key) {
  constexpr std::string_view text = "insula oidc";
  const auto bytes = signature_of(key, text);
  const evp_digest with{EVP_MD_CTX_new()};
  return bytes && with &&
         EVP_DigestVerifyInit(with.get(), nullptr, EVP_sha256(), nullptr, key) == 1 &&
         EVP_DigestVerify(with.get(), bytes_of(*bytes), bytes->size(), bytes_of(text),
                          text.size()) == 1;
}

/// Nobody is asked on the terminal for the password of a key that has one.
int no_password(char*, int, int, void*) {
  return -1;
}

evp_key key_in(std::string_view pem) {
  const memory_bio text{BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))};
  return evp_key{text ? PEM_read_bio_PrivateKey(text.get(), nullptr, no_password, nullptr)
                      : nullptr};
}

/// Empty: it has failed.
std::string pem_of(EVP_PKEY* key) {
  const memory_bio text{BIO_new(BIO_s_secmem())}; // What overwrites its bytes.
  if (!text ||
      PEM_write_bio_PKCS8PrivateKey(text.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return {};
  char* bytes = nullptr;
  const auto size = BIO_get_mem_data(text.get(), &bytes);
  return {bytes, static_cast<std::size_t>(size)};
}

std::optional<std::int64_t> time_in(const json::value& of, std::string_view name) {
  const auto* value = json::find(of, name);
  return value != nullptr && value->IsInt64() && value->GetInt64() >= 0
           ? std::optional{value->GetInt64()}
           : std::nullopt;
}

} // namespace

struct key_set::key {
  evp_key pair;
  std::string n, e; ///< In base64url, as kid.
  std::string kid;

  /// Null: it is no RSA key of a size that is used.
  static shared_key of(evp_key pair) {
    if (!pair || EVP_PKEY_is_a(pair.get(), "RSA") != 1 ||
        EVP_PKEY_get_bits(pair.get()) < bits_of_new_key ||
        EVP_PKEY_get_bits(pair.get()) > most_bits || !is_whole(pair.get()))
      return nullptr;
    auto made = std::make_shared<key>();
    made->n = part_of(pair.get(), OSSL_PKEY_PARAM_RSA_N);
    made->e = part_of(pair.get(), OSSL_PKEY_PARAM_RSA_E);
    if (made->n.empty() || made->e.empty())
      return nullptr;
    json::ascii_writer members; // In the order of RFC 7638, without blanks.
    members.begin_object().member("e", made->e).member("kty", "RSA").member("n", made->n);
    members.end_object();
    made->kid = base64url(sha256(members.view()));
    made->pair = std::move(pair);
    return made;
  }

  static shared_key make() {
    return of(evp_key{EVP_RSA_gen(static_cast<unsigned>(bits_of_new_key))});
  }
};

bool key_set::kept_key::operator==(const kept_key& other) const {
  return is->kid == other.is->kid && created_s == other.created_s && retired_s == other.retired_s;
}

bool key_set::operator==(const key_set& other) const {
  return keys_ == other.keys_;
}

result<key_set> key_set::make(std::int64_t now_s) {
  auto fresh = key::make();
  if (!fresh)
    return openssl_failed("make a key");
  key_set made;
  made.keys_.push_back({std::move(fresh), now_s});
  return made;
}

result<key_set> key_set::read(std::string_view text) {
  json::document said;
  const auto* list = text.size() <= most_bytes && json::parse(text, said) && said.IsObject()
                       ? json::find(said, "keys")
                       : nullptr;
  if (list == nullptr || !list->IsArray() || list->Empty() || list->Size() > most_keys)
    return malformed_keys("expected {\"keys\":[…]} with 1 to " + std::to_string(most_keys) +
                          " keys in it");
  key_set found;
  std::set<std::string> kids;
  for (const auto& each : list->GetArray()) {
    const auto where = "key " + std::to_string(found.keys_.size() + 1) + ": ";
    const auto* pem = json::find(each, "pem");
    const auto* kid = json::find(each, "kid");
    const auto created = time_in(each, "created"), retired = time_in(each, "retired");
    if (pem == nullptr || !pem->IsString() || pem->GetStringLength() > longest_pem ||
        kid == nullptr || !kid->IsString() || !created ||
        (json::find(each, "retired") != nullptr && !retired))
      return malformed_keys(where + "expected kid, created, pem and perhaps retired");
    auto is = key::of(key_in(json::text_of(*pem)));
    if (!is)
      return malformed_keys(where + "expected a private RSA key of 2048 to 4096 bits in PEM, "
                                    "without a password");
    if (is->kid != json::text_of(*kid))
      return malformed_keys(where + "its kid is another key's");
    if (!kids.insert(is->kid).second)
      return malformed_keys(where + "it stands there twice");
    const bool last = found.keys_.size() + 1 == list->Size();
    if (retired.has_value() == last)
      return malformed_keys(where + (last ? "the last key signs, and has no `retired`"
                                          : "all keys but the last one have `retired`"));
    found.keys_.push_back({std::move(is), *created, retired});
  }
  return found;
}

result<std::string> key_set::text() const {
  json::ascii_writer out;
  out.begin_object().key("keys").begin_array();
  for (const auto& each : keys_) {
    auto pem = pem_of(each.is->pair.get());
    if (pem.empty())
      return openssl_failed("write a key");
    out.begin_object().member("kid", each.is->kid).member("created", each.created_s);
    if (each.retired_s)
      out.member("retired", *each.retired_s);
    out.member("pem", pem).end_object();
    wipe(pem);
  }
  out.end_array().end_object();
  return out.str() + '\n';
}

result<key_set> key_set::rotated(std::int64_t now_s, std::chrono::seconds keep) const {
  key_set next;
  std::copy_if(keys_.begin(), keys_.end(), std::back_inserter(next.keys_), [&](const auto& each) {
    return !each.retired_s || now_s < *each.retired_s + keep.count();
  });
  if (next.keys_.size() >= most_keys)
    return error{errc::limit_reached, "there are " + std::to_string(most_keys) +
                                        " keys with tokens that may still live, and no more can be "
                                        "added"};
  auto fresh = key::make();
  if (!fresh)
    return openssl_failed("make a key");
  next.keys_.back().retired_s = now_s + publish_ahead.count();
  next.keys_.push_back({std::move(fresh), now_s});
  return next;
}

const key_set::kept_key& key_set::signer(std::int64_t now_s) const {
  // The first that is not retired yet: those behind it are only published.
  const auto found = std::find_if(keys_.begin(), keys_.end(), [&](const auto& each) {
    return !each.retired_s || now_s < *each.retired_s;
  });
  return found == keys_.end() ? keys_.back() : *found;
}

std::vector<key_set::line> key_set::list(std::int64_t now_s) const {
  std::vector<line> lines;
  for (const auto& each : keys_)
    lines.push_back({each.is->kid, each.created_s, each.retired_s, &each == &signer(now_s)});
  return lines;
}

std::string key_set::published(std::int64_t now_s, std::chrono::seconds keep) const {
  json::ascii_writer out;
  out.begin_object().key("keys").begin_array();
  for (const auto& each : keys_) {
    if (each.retired_s && now_s >= *each.retired_s + keep.count())
      continue;
    out.begin_object().member("kty", "RSA").member("n", each.is->n).member("e", each.is->e);
    out.member("kid", each.is->kid).member("alg", "RS256").member("use", "sig").end_object();
  }
  out.end_array().end_object();
  return out.str();
}

result<key_set::signature> key_set::sign(std::string_view payload, std::int64_t now_s) const {
  const auto& by = *signer(now_s).is;
  json::ascii_writer header;
  header.begin_object().member("alg", "RS256").member("typ", "JWT").member("kid", by.kid);
  header.end_object();
  signature made{base64url(header.view()) + '.' + base64url(payload), {}};
  auto bytes = signature_of(by.pair.get(), made.text);
  if (!bytes)
    return openssl_failed("sign");
  made.bytes = std::move(*bytes);
  return made;
}

} // namespace insula::http::oidc
