#pragma once

#include "apps/config.hpp"
#include "apps/fixed_files.hpp"
#include "http/oidc/issuer.hpp"
#include "http/server.hpp"
#include "storage/key_places.hpp"

#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace insula {

/// Warns of values that are no errors.
void warn_of(const config& values);

/// Has a running server take server.api_key, keys, log.level, the files of server.tls and the keys
/// that sign tokens anew. All other keys hold from the next start on. See docs/decisions/0038.
///
/// Owner:   the server's main thread, which alone calls it.
class reloader {
public:
  /// What goes by the configuration.
  struct takers {
    http::server& server;
    storage::key_places& places;
    http::oidc::issuer& issuer;
  };

  /// As fixed_files::prepare(). `values` come from `from`.
  static result<reloader> prepare(config values, config_origin from, uid_t uid, gid_t gid);

  /// Reads everything again, and has all of these and the log go by it, or none if anything is
  /// wrong. Says in the log how it went. Blocks, for some seconds at most, and not when one of
  /// `ends` is readable.
  void reload(const takers& by, std::vector<int> ends);

private:
  reloader(config values, config_origin from, fixed_files files)
      : values_(std::move(values))
      , from_(std::move(from))
      , files_(std::move(files)) {}

  result<void> take(const takers& by, const fixed_files::patience& how_long);
  result<http::oidc::key_set> read_signers(const fixed_files::patience& how_long);
  struct taken_keys {
    bool main = false, named = false, signers = false; ///< There are others.
  };
  void tell(const config& next, taken_keys keys, std::string_view certificate,
            const std::vector<std::string>& later);

  config values_; ///< By which the server goes.
  config_origin from_;
  fixed_files files_; ///< The keys that sign, then the configuration, certificate and key if any.
};

} // namespace insula
