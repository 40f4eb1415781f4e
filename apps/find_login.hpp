#pragma once

#include "base/error.hpp"
#include "storage/registry/credentials.hpp"

#include <map>
#include <string>

namespace insula {

/// The login for `image`, from the file that read_credentials() finds with these variables. Another
/// process reads that file, so logins of other registries are not in the memory of this one, nor of
/// one that is forked from it and speaks to a registry.
///
/// Threads: none but the caller's may run. Blocks, for as long as the file does. Errors: those of
/// read_credentials(); io_failed; payload_too_large for a login of more than 64 KiB.
result<storage::registry::credentials::found>
find_login(const std::map<std::string, std::string>& variables,
           const storage::registry::image_reference& image);

} // namespace insula
