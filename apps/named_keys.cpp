#include "apps/named_keys.hpp"

#include <cmath>

namespace insula {

std::vector<http::named_key> named_keys_of(const config& values) {
  std::vector<http::named_key> all;
  for (const auto& [name, each] : values.keys)
    all.push_back({name, each.key, each.apis, each.teams, each.projects});
  return all;
}

std::map<std::string, storage::key_ceilings, std::less<>> ceilings_of(const config& values) {
  std::map<std::string, storage::key_ceilings, std::less<>> all;
  for (const auto& [name, each] : values.keys)
    all[name] = {each.sandboxes, static_cast<std::uint64_t>(std::llround(each.vcpus * 100)),
                 each.creates_per_minute};
  return all;
}

} // namespace insula
