#pragma once

#include "apps/config.hpp"
#include "http/api/auth.hpp"
#include "storage/key_places.hpp"

#include <functional>
#include <map>
#include <string>
#include <vector>

/// `keys` of a configuration, as the parts of the server know them.
namespace insula {

std::vector<http::named_key> named_keys_of(const config& values);
std::map<std::string, storage::key_ceilings, std::less<>> ceilings_of(const config& values);

} // namespace insula
