#include "tests/http/certificates.hpp"

#include "tests/support/catch.hpp"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>

namespace insula::test {

namespace {

template <class Write>
void write_file(const std::string& path, Write what) {
  FILE* to = std::fopen(path.c_str(), "w");
  REQUIRE(to != nullptr);
  what(to);
  std::fclose(to);
}

/// Not signed yet.
X509* make(EVP_PKEY* key, const std::string& name) {
  static long serial = 0;
  X509* made = X509_new();
  X509_set_version(made, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(made), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(made), -60);
  X509_gmtime_adj(X509_getm_notAfter(made), 3600);
  X509_set_pubkey(made, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.data()),
                             static_cast<int>(name.size()), -1, 0);
  return made;
}

void write_certificate(const std::string& path, X509* what) {
  write_file(path, [&](FILE* to) { PEM_write_X509(to, what); });
}

} // namespace

authority::authority()
    : key_(EVP_EC_gen("P-256"))
    , own_(make(key_, "authority")) {
  X509_set_issuer_name(own_, X509_get_subject_name(own_));
  X509_EXTENSION* may_sign =
    X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE");
  X509_add_ext(own_, may_sign, -1);
  X509_EXTENSION_free(may_sign);
  X509_sign(own_, key_, EVP_sha256());
  write_certificate(file(), own_);
}

authority::~authority() {
  X509_free(own_);
  EVP_PKEY_free(key_);
}

http::tls_files authority::issue(const std::string& name) const {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* made = make(key, name);
  X509_set_issuer_name(made, X509_get_subject_name(own_));
  X509_sign(made, key_, EVP_sha256());
  http::tls_files files{(directory_ / (name + ".crt")).string(),
                        (directory_ / (name + ".key")).string(), file()};
  write_certificate(files.certificate, made);
  write_file(files.key, [&](FILE* to) {
    PEM_write_PrivateKey(to, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
  X509_free(made);
  EVP_PKEY_free(key);
  return files;
}

} // namespace insula::test
