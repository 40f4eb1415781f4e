#include "apps/resolvers.hpp"

#include <arpa/inet.h>
#include <array>
#include <fstream>
#include <iterator>
#include <sstream>

namespace insula {

std::vector<std::string> resolvers_in(std::string_view resolv_conf) {
  constexpr std::size_t most = 3; // As the C library has it.
  std::vector<std::string> found;
  std::istringstream lines{std::string{resolv_conf}};
  for (std::string line; std::getline(lines, line) && found.size() < most;) {
    std::istringstream words{line};
    std::string what, address;
    std::array<unsigned char, 16> bytes;
    if (words >> what >> address && what == "nameserver" &&
        (::inet_pton(AF_INET, address.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, address.c_str(), bytes.data()) == 1))
      found.push_back(address);
  }
  return found;
}

std::vector<std::string> machines_resolvers() {
  std::ifstream file{"/etc/resolv.conf"};
  return resolvers_in({std::string{std::istreambuf_iterator<char>{file}, {}}});
}

} // namespace insula
