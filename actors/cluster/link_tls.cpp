#include "actors/cluster/link_tls.hpp"

#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace insula::actors::cluster {

namespace {

namespace ssl = boost::asio::ssl;

/// A stranger can send certificates of this size in all.
constexpr long most_certificate_bytes = 32 * 1024;

std::string common_name(X509* certificate) {
  X509_NAME* const subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0)
    return {};
  unsigned char* text = nullptr;
  const int length =
    ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
  if (length < 0)
    return {};
  std::string name{reinterpret_cast<const char*>(text), static_cast<std::size_t>(length)};
  OPENSSL_free(text);
  return name.find('\0') == std::string::npos ? name : std::string{};
}

error unusable(const std::string& file, const std::string& why) {
  return {errc::invalid_request, "the links cannot use " + file + ": " + why};
}

} // namespace

result<std::shared_ptr<ssl::context>> link_context(const link_options& options) {
  const auto made = std::make_shared<ssl::context>(ssl::context::tlsv13);
  boost::system::error_code why;
  if (made->load_verify_file(options.authority, why); why)
    return unusable(options.authority, why.message());
  if (made->use_certificate_chain_file(options.certificate, why); why)
    return unusable(options.certificate, why.message());
  if (made->use_private_key_file(options.key, ssl::context::pem, why); why)
    return unusable(options.key, why.message());
  auto* const native = made->native_handle();
  if (SSL_CTX_check_private_key(native) != 1)
    return unusable(options.key, "it is not the certificate's");
  if (const auto name = common_name(SSL_CTX_get0_certificate(native)); name != options.self)
    return unusable(options.certificate,
                    "it is of '" + name + "', and this node is '" + options.self + "'");
  made->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
  SSL_CTX_set_min_proto_version(native, TLS1_3_VERSION);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(native, 0);
  SSL_CTX_set_max_cert_list(native, most_certificate_bytes);
  return made;
}

std::string peer_name(link_stream& stream) {
  X509* const certificate = SSL_get1_peer_certificate(stream.native_handle());
  if (certificate == nullptr)
    return {};
  auto name = common_name(certificate);
  X509_free(certificate);
  return name;
}

} // namespace insula::actors::cluster
