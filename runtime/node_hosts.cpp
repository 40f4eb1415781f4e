#include "runtime/node_hosts.hpp"

#include "runtime/egress/address.hpp"
#include "runtime/egress/policy.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

namespace insula::runtime {

namespace {

constexpr std::size_t most_addresses = 8;
constexpr std::streamsize most_bytes = 1 << 20;

bool is_local(std::string_view name) {
  return name == "localhost" || name.ends_with(".localhost");
}

/// Of a name in its plain form.
std::vector<std::string> addresses_of(const std::string& name, std::string_view hosts_file) {
  if (is_local(name))
    return {"127.0.0.1", "::1"};
  std::vector<std::string> found;
  std::istringstream lines{std::string{hosts_file}};
  for (std::string line; std::getline(lines, line) && found.size() < most_addresses;) {
    std::istringstream words{line.substr(0, line.find('#'))};
    std::string first;
    words >> first;
    const auto address = egress::ip_address::parse(first);
    if (!address)
      continue;
    for (std::string word; words >> word;)
      if (egress::plain_name(word) == name) {
        found.push_back(address->text());
        break;
      }
  }
  return found;
}

} // namespace

std::string known_hosts(const egress_policy& reach, std::string_view hosts_file) {
  std::string lines;
  for (const auto& rule : reach.rules) {
    if (!rule.allow || is_subnet(rule.target) || rule.target.find('*') != std::string::npos)
      continue;
    for (const auto& address : addresses_of(rule.target, hosts_file))
      lines.append("host ").append(rule.target).append(" ").append(address).append("\n");
  }
  return lines;
}

std::string read_hosts_file() {
  std::ifstream file{"/etc/hosts", std::ios::binary};
  std::string text(static_cast<std::size_t>(most_bytes), '\0');
  file.read(text.data(), most_bytes);
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

} // namespace insula::runtime
