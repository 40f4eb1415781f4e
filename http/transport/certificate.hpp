#pragma once

#include <string>

struct ssl_st;

namespace insula::http {

/// The name (CN) in the certificate that the other end of a TLS connection has shown. Empty: it has
/// shown none, or one whose time is over, or with several names or none.
std::string certificate_name(ssl_st* of);

} // namespace insula::http
