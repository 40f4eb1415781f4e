#pragma once

#include "http/front_door.hpp"
#include "tests/support/temp_dir.hpp"

#include <openssl/types.h>
#include <string>

namespace insula::test {

/// Signs certificates, in a directory that goes away.
class authority {
public:
  authority();
  ~authority();
  authority(const authority&) = delete;
  authority& operator=(const authority&) = delete;

  /// A certificate of that name, with this authority's own beside it.
  http::tls_files issue(const std::string& name) const;
  std::string file() const { return (directory_ / "ca.crt").string(); }

private:
  temp_dir directory_;
  EVP_PKEY* key_;
  X509* own_;
};

} // namespace insula::test
