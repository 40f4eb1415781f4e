#pragma once

#include <string>
#include <string_view>

namespace insula::http {

/// HMAC with SHA-256: 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view text);

/// In a time that tells nothing of where they differ. Their lengths may become known.
bool is_same_secret(std::string_view one, std::string_view other);

} // namespace insula::http
