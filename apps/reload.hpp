#pragma once

#include "apps/config.hpp"
#include "apps/fixed_files.hpp"
#include "http/server.hpp"
#include "storage/key_places.hpp"

#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace insula {

/// Warns of values that are no errors.
void warn_of(const config& values);

/// Has a running server take server.api_key, keys, log.level and the files of server.tls anew. All
/// other keys hold from the next start on. See docs/decisions/0038.
///
/// Owner:   the server's main thread, which alone calls it.
class reloader {
public:
  /// As fixed_files::prepare(). `values` come from `from`.
  static result<reloader> prepare(config values, config_origin from, uid_t uid, gid_t gid);

  /// Reads everything again, and has `server` and the log go by it, or nothing of it if anything is
  /// wrong. Says in the log how it went. Blocks, for some seconds at most, and not when one of
  /// `ends` is readable.
  void reload(http::server& server, storage::key_places& places, std::vector<int> ends);

private:
  reloader(config values, config_origin from, fixed_files files)
      : values_(std::move(values))
      , from_(std::move(from))
      , files_(std::move(files)) {}

  result<void> take(http::server& server, storage::key_places& places,
                    const fixed_files::patience& how_long);
  struct taken_keys {
    bool main = false, named = false; ///< There are others.
  };
  void tell(const config& next, taken_keys keys, std::string_view certificate,
            const std::vector<std::string>& later);

  config values_; ///< By which the server goes.
  config_origin from_;
  fixed_files files_; ///< The configuration, then certificate and key if there are any.
};

} // namespace insula
