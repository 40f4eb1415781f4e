#pragma once

#include "tests/support/temp_dir.hpp"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

namespace insula::test {

/// An authority whose certificates last for an hour, and what it has issued, as PEM files in a
/// directory that goes with it.
class made_authority {
public:
  struct files {
    std::string certificate;
    std::string key;
  };

  explicit made_authority(const std::string& name = "test authority")
      : key_(new_key())
      , certificate_(make(name, *key_, nullptr)) {
    write_certificate(file(), *certificate_);
  }

  /// The authority's own certificate.
  std::string file() const { return (at_ / "authority.pem").string(); }

  /// A certificate with this common name, for both ends of a connection.
  files issue(const std::string& name) {
    const auto key = new_key();
    const auto number = std::to_string(++issued_);
    files made{(at_ / (number + ".crt")).string(), (at_ / (number + ".key")).string()};
    write_certificate(made.certificate, *make(name, *key, this));
    write(made.key, [&](std::FILE* to) {
      return PEM_write_PrivateKey(to, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    });
    return made;
  }

  /// The file that says what is revoked: nothing, until revoke() has written it anew.
  std::string revoked() {
    if (!list_)
      revoke_serial(nullptr);
    return list_file();
  }
  void revoke(const files& which) {
    std::FILE* const from = std::fopen(which.certificate.c_str(), "r");
    const certificate_pointer read{from != nullptr ? PEM_read_X509(from, nullptr, nullptr, nullptr)
                                                   : nullptr};
    if (from == nullptr || std::fclose(from) != 0 || !read)
      throw std::runtime_error("cannot read " + which.certificate);
    revoke_serial(X509_get_serialNumber(read.get()));
  }

private:
  template <auto Free>
  struct freed {
    template <class T>
    void operator()(T* what) const {
      Free(what);
    }
  };
  using key_pointer = std::unique_ptr<EVP_PKEY, freed<EVP_PKEY_free>>;
  using certificate_pointer = std::unique_ptr<X509, freed<X509_free>>;
  using list_pointer = std::unique_ptr<X509_CRL, freed<X509_CRL_free>>;

  static key_pointer new_key() { return key_pointer{EVP_EC_gen("P-256")}; }

  /// By itself, if there is no issuer.
  static certificate_pointer make(const std::string& name, EVP_PKEY& key, made_authority* issuer) {
    certificate_pointer made{X509_new()};
    X509_set_version(made.get(), X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), issuer ? issuer->issued_ + 1 : 1);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -60);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), 3600);
    X509_set_pubkey(made.get(), &key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(name.data()),
                               static_cast<int>(name.size()), -1, 0);
    X509_set_issuer_name(made.get(),
                         X509_get_subject_name(issuer ? issuer->certificate_.get() : made.get()));
    X509_EXTENSION* const kind = X509V3_EXT_conf_nid(
      nullptr, nullptr, NID_basic_constraints, issuer ? "critical,CA:FALSE" : "critical,CA:TRUE");
    X509_add_ext(made.get(), kind, -1);
    X509_EXTENSION_free(kind);
    if (X509_sign(made.get(), issuer ? issuer->key_.get() : &key, EVP_sha256()) == 0)
      throw std::runtime_error("no certificate could be made");
    return made;
  }

  std::string list_file() const { return (at_ / "revoked.pem").string(); }

  void revoke_serial(const ASN1_INTEGER* serial) {
    using time_pointer = std::unique_ptr<ASN1_TIME, freed<ASN1_TIME_free>>;
    const time_pointer now{X509_gmtime_adj(nullptr, -60)}, later{X509_gmtime_adj(nullptr, 3600)};
    if (!list_) {
      list_.reset(X509_CRL_new());
      X509_CRL_set_version(list_.get(), X509_CRL_VERSION_2);
      X509_CRL_set_issuer_name(list_.get(), X509_get_subject_name(certificate_.get()));
      X509_CRL_set1_lastUpdate(list_.get(), now.get());
      X509_CRL_set1_nextUpdate(list_.get(), later.get());
    }
    if (serial != nullptr) {
      X509_REVOKED* const one = X509_REVOKED_new();
      X509_REVOKED_set_serialNumber(one, const_cast<ASN1_INTEGER*>(serial));
      X509_REVOKED_set_revocationDate(one, now.get());
      X509_CRL_add0_revoked(list_.get(), one);
      X509_CRL_sort(list_.get());
    }
    if (X509_CRL_sign(list_.get(), key_.get(), EVP_sha256()) == 0)
      throw std::runtime_error("no list could be made");
    write(list_file(), [&](std::FILE* to) { return PEM_write_X509_CRL(to, list_.get()); });
  }

  template <class Write>
  static void write(const std::string& path, Write what) {
    std::FILE* const to = std::fopen(path.c_str(), "w");
    const bool written = to != nullptr && what(to) == 1;
    if (to == nullptr || std::fclose(to) != 0 || !written)
      throw std::runtime_error("cannot write " + path);
  }
  static void write_certificate(const std::string& path, X509& what) {
    write(path, [&](std::FILE* to) { return PEM_write_X509(to, &what); });
  }

  temp_dir at_;
  int issued_ = 0;
  key_pointer key_;
  certificate_pointer certificate_;
  list_pointer list_; ///< Null: nobody has asked for it.
};

} // namespace insula::test
