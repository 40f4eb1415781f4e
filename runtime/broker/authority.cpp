#include "runtime/broker/authority.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace insula::runtime::broker {

namespace {

constexpr std::int64_t hour_s = 3600, day_s = 24 * hour_s;
constexpr std::int64_t authority_s = 3650 * day_s, leaf_s = 30 * day_s;
constexpr std::int64_t early_s = hour_s; ///< Clocks in a sandbox are the machine's, almost.
constexpr const char* common_name = "Insula sandbox";
constexpr std::size_t max_common_name = 64;

struct frees {
  void operator()(BIO* what) const { BIO_free(what); }
  void operator()(X509* what) const { X509_free(what); }
  void operator()(EVP_PKEY* what) const { EVP_PKEY_free(what); }
  void operator()(SSL_CTX* what) const { SSL_CTX_free(what); }
  void operator()(X509_EXTENSION* what) const { X509_EXTENSION_free(what); }
};
template <class T>
using owned = std::unique_ptr<T, frees>;

error failed(const char* what) {
  const auto code = ERR_get_error();
  std::array<char, 256> text{};
  ERR_error_string_n(code, text.data(), text.size());
  ERR_clear_error();
  return {errc::internal, std::string{what} + ": " + text.data()};
}

owned<EVP_PKEY> new_key() {
  return owned<EVP_PKEY>{EVP_EC_gen("P-256")};
}

/// Of both kinds of certificate. False: OpenSSL says why.
bool fill(X509* made, EVP_PKEY* key, std::int64_t from_s, std::int64_t until_s) {
  std::array<unsigned char, 16> serial{};
  if (RAND_bytes(serial.data(), static_cast<int>(serial.size())) != 1)
    return false;
  serial.front() &= 0x7f; // It is positive,
  serial.front() |= 0x40; // and not short.
  BIGNUM* number = BN_bin2bn(serial.data(), static_cast<int>(serial.size()), nullptr);
  const bool numbered =
    number != nullptr && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(made)) != nullptr;
  BN_free(number);
  return numbered && X509_set_version(made, X509_VERSION_3) == 1 &&
         ASN1_TIME_set(X509_getm_notBefore(made), from_s) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(made), until_s) != nullptr &&
         X509_set_pubkey(made, key) == 1;
}

bool add(X509* to, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, to, nullptr, nullptr, 0);
  const owned<X509_EXTENSION> made{X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str())};
  return made && X509_add_ext(to, made.get(), -1) == 1;
}

bool add_name(X509* to, const std::string& name) {
  return X509_NAME_add_entry_by_txt(X509_get_subject_name(to), "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(name.data()),
                                    static_cast<int>(name.size()), -1, 0) == 1;
}

template <class Write>
std::string pem_of(Write write) {
  const owned<BIO> to{BIO_new(BIO_s_mem())};
  if (!to || write(to.get()) != 1)
    return {};
  char* text = nullptr;
  const auto size = BIO_get_mem_data(to.get(), &text);
  return {text, static_cast<std::size_t>(size)};
}

owned<BIO> reader_of(const std::string& text) {
  return owned<BIO>{BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))};
}

/// h2 before http/1.1, whatever order the client has.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size,
                    const unsigned char* in, unsigned in_size, void*) {
  static constexpr unsigned char ours[] = "\x02h2\x08http/1.1";
  unsigned char* chosen = nullptr;
  const int found = SSL_select_next_proto(&chosen, out_size, ours, sizeof ours - 1, in, in_size);
  *out = chosen;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() <= 253 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  });
}

} // namespace

result<authority_text> make_authority(std::int64_t now_s) {
  const auto key = new_key();
  const owned<X509> made{X509_new()};
  if (!key || !made || !fill(made.get(), key.get(), now_s - early_s, now_s + authority_s) ||
      !add_name(made.get(), common_name) ||
      X509_set_issuer_name(made.get(), X509_get_subject_name(made.get())) != 1 ||
      !add(made.get(), made.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !add(made.get(), made.get(), NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !add(made.get(), made.get(), NID_subject_key_identifier, "hash") ||
      X509_sign(made.get(), key.get(), EVP_sha256()) == 0)
    return failed("no certificate authority could be made");
  authority_text text;
  text.certificate = pem_of([&](BIO* to) { return PEM_write_bio_X509(to, made.get()); });
  text.key = pem_of([&](BIO* to) {
    return PEM_write_bio_PKCS8PrivateKey(to, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  if (text.certificate.empty() || text.key.empty())
    return failed("no certificate authority could be written");
  return text;
}

authority::~authority() = default;

result<std::unique_ptr<authority>> authority::make(const authority_text& from) {
  std::unique_ptr<authority> made{new authority};
  const auto certificate = reader_of(from.certificate), key = reader_of(from.key);
  made->certificate_.reset(PEM_read_bio_X509(certificate.get(), nullptr, nullptr, nullptr),
                           frees{});
  made->key_.reset(PEM_read_bio_PrivateKey(key.get(), nullptr, nullptr, nullptr), frees{});
  ERR_clear_error();
  if (!made->certificate_ || !made->key_ ||
      X509_check_private_key(made->certificate_.get(), made->key_.get()) != 1)
    return error{errc::invalid_request, "this is no certificate authority with its key"};
  made->leaf_key_ = new_key();
  if (!made->leaf_key_)
    return failed("there is no key for certificates");
  return made;
}

result<std::shared_ptr<SSL_CTX>> authority::context_for(const std::string& name,
                                                        std::int64_t now_s) {
  if (const auto at = by_name_.find(name); at != by_name_.end()) {
    if (at->second->until_s > now_s + day_s) {
      all_.splice(all_.begin(), all_, at->second);
      return all_.front().context;
    }
    all_.erase(at->second);
    by_name_.erase(at);
  }
  auto made = make_context(name, now_s);
  if (!made)
    return made;
  all_.push_front({name, *made, now_s + leaf_s});
  by_name_[name] = all_.begin();
  if (all_.size() > most_names) {
    by_name_.erase(all_.back().name);
    all_.pop_back();
  }
  return made;
}

result<std::shared_ptr<SSL_CTX>> authority::make_context(const std::string& name,
                                                         std::int64_t now_s) const {
  if (!is_plain_name(name))
    return error{errc::invalid_request, "a certificate is for the name of a host"};
  const owned<X509> leaf{X509_new()};
  auto* const issuer = certificate_.get();
  if (!leaf || !fill(leaf.get(), leaf_key_.get(), now_s - early_s, now_s + leaf_s) ||
      (name.size() <= max_common_name && !add_name(leaf.get(), name)) ||
      X509_set_issuer_name(leaf.get(), X509_get_subject_name(issuer)) != 1 ||
      !add(leaf.get(), issuer, NID_basic_constraints, "critical,CA:FALSE") ||
      !add(leaf.get(), issuer, NID_key_usage, "critical,digitalSignature") ||
      !add(leaf.get(), issuer, NID_ext_key_usage, "serverAuth") ||
      !add(leaf.get(), issuer, NID_authority_key_identifier, "keyid") ||
      !add(leaf.get(), issuer, NID_subject_alt_name,
           (name.size() <= max_common_name ? "DNS:" : "critical,DNS:") + name) ||
      X509_sign(leaf.get(), key_.get(), EVP_sha256()) == 0)
    return failed("no certificate could be made");
  std::shared_ptr<SSL_CTX> made{SSL_CTX_new(TLS_server_method()), frees{}};
  if (!made || SSL_CTX_set_min_proto_version(made.get(), TLS1_2_VERSION) != 1 ||
      SSL_CTX_use_certificate(made.get(), leaf.get()) != 1 ||
      SSL_CTX_use_PrivateKey(made.get(), leaf_key_.get()) != 1)
    return failed("no server of TLS could be made");
  SSL_CTX_set_options(made.get(),
                      SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
  // A session that is kept outlives the rules that it was opened under.
  SSL_CTX_set_session_cache_mode(made.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(made.get(), 0);
  SSL_CTX_set_mode(made.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                 SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(made.get(), choose_protocol, nullptr);
  return made;
}

} // namespace insula::runtime::broker
