#pragma once

#include <string>
#include <string_view>

namespace insula::http {

/// The id of a sandbox that `key` always leads to, and that nobody can guess without the secret.
std::string keyed_id(std::string_view secret, std::string_view key);

} // namespace insula::http
