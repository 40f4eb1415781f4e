#pragma once

#include "base/error.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

using SSL_CTX = struct ssl_ctx_st;
using EVP_PKEY = struct evp_pkey_st;
using X509 = struct x509_st;

namespace insula::runtime::broker {

/// The certificate authority of one sandbox, which its programs trust. PEM.
struct authority_text {
  std::string certificate;
  std::string key; ///< A secret.
};

/// A new one, on P-256. `now_s`: Unix time. Errors: internal.
result<authority_text> make_authority(std::int64_t now_s);

/// Shows a client of a sandbox a certificate for the name that it asks for, made by the authority
/// of the sandbox when it is asked for first. One thread.
/// Ceilings: most_names are kept, those that were used last.
class authority {
public:
  static constexpr std::size_t most_names = 256;

  /// Errors: invalid_request, for what is no certificate or not its key.
  static result<std::unique_ptr<authority>> make(const authority_text& from);
  ~authority();

  /// For servers of TLS 1.2 and 1.3, with h2 and http/1.1. Held by who uses it: it may be let go of
  /// here. Errors: internal.
  result<std::shared_ptr<SSL_CTX>> context_for(const std::string& name, std::int64_t now_s);

private:
  struct known {
    std::string name;
    std::shared_ptr<SSL_CTX> context;
    std::int64_t until_s = 0;
  };

  authority() = default;
  result<std::shared_ptr<SSL_CTX>> make_context(const std::string& name, std::int64_t now_s) const;

  std::shared_ptr<X509> certificate_;
  std::shared_ptr<EVP_PKEY> key_, leaf_key_;
  std::list<known> all_; ///< The one that was used last comes first.
  std::map<std::string, std::list<known>::iterator> by_name_;
};

} // namespace insula::runtime::broker
