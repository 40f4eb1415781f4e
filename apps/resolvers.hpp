#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace insula {

/// The addresses that a resolv.conf names, in their order, three at most.
std::vector<std::string> resolvers_in(std::string_view resolv_conf);

/// Those of this machine; none, if it has none.
std::vector<std::string> machines_resolvers();

} // namespace insula
