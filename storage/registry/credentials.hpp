#pragma once

#include "base/error.hpp"
#include "storage/registry/reference.hpp"

#include <map>
#include <string>
#include <string_view>

namespace insula::storage::registry {

/// Who asks a registry.
struct login {
  std::string user; ///< Without a ':'.
  std::string password;
  std::string identity_token; ///< Where there is one, it takes the password's place.

  bool empty() const { return user.empty() && identity_token.empty(); }
  /// What stands behind "Basic ".
  std::string basic() const;
  bool operator==(const login&) const = default;
};

/// What a config.json of docker, or an auth.json of podman, says about registries.
class credentials {
public:
  struct found {
    login who;          ///< May be empty: nobody in particular.
    std::string helper; ///< A program that would know, and is not run. Empty: none is named.
  };

  /// Errors: invalid_request, when it is no such file. What it has besides is ignored.
  static result<credentials> read(std::string_view json);

  /// The entry with the longest beginning of the image's name, from its host on.
  found find(const image_reference& image) const;

private:
  std::map<std::string, login> logins_; ///< By host, or host and the first parts of a name.
  std::map<std::string, std::string> helpers_;
  std::string store_; ///< The helper for all that have none.
};

/// Reads the file that REGISTRY_AUTH_FILE names, or else config.json in DOCKER_CONFIG, or else
/// ~/.docker/config.json. If there is none of the latter two, nobody has logged in.
/// Errors: invalid_request and io_failed, with the file's name.
result<credentials> read_credentials(const std::map<std::string, std::string>& environment);

} // namespace insula::storage::registry
