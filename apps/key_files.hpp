#pragma once

#include "apps/config.hpp"
#include "base/error.hpp"
#include "base/secret_box.hpp"
#include "http/oidc/issuer.hpp"
#include "http/oidc/keys.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace insula {

/// The files of keys that a server makes where there are none. All of it waits for the disk, and
/// making a key for tokens takes a tenth of a second: for the beginning of a start, and for
/// commands.
struct key_files {
  secret_box secrets;       ///< What is sealed here opens on every node with the same file.
  http::oidc::key_set oidc; ///< Those that sign tokens.

  /// Errors: as storage::open_secret_key(); the same for the other file, which is named.
  static result<key_files> open(const config& values, std::int64_t now_s);
};

/// What is in that file. Errors: not_found, io_failed; invalid_request, naming the file and what to
/// do.
result<http::oidc::key_set> read_oidc_keys(const std::string& path);
/// The same of a text that was read from it.
result<http::oidc::key_set> oidc_keys_in(const std::string& path, std::string_view text);

http::oidc::issuer_settings issuer_of(const config& values);

} // namespace insula
