#include "http/transport/certificate.hpp"

#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>

namespace insula::http {

std::string certificate_name(ssl_st* of) {
  const std::unique_ptr<X509, decltype(&X509_free)> shown{SSL_get1_peer_certificate(of),
                                                          &X509_free};
  if (!shown)
    return {};
  // OpenSSL looks at the dates once: not when a session is resumed.
  if (X509_cmp_current_time(X509_get0_notAfter(shown.get())) <= 0)
    return {};
  const auto* subject = X509_get_subject_name(shown.get());
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0)
    return {};
  unsigned char* bytes = nullptr;
  const int size =
    ASN1_STRING_to_UTF8(&bytes, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
  if (size < 0)
    return {};
  std::string name{reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size)};
  OPENSSL_free(bytes);
  // A name with a zero in it would be a shorter one to some who read it.
  return name.find('\0') == std::string::npos ? name : std::string{};
}

} // namespace insula::http
