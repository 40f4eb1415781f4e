#include "apps/cluster_entry.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <sstream>

namespace insula {

namespace {

constexpr std::uint32_t first_protocol = 1;

std::string described(const member_record& of) {
  return "protocol " + std::to_string(of.protocol) +
         (of.build.empty() ? "" : " (build " + of.build + ")");
}

std::string seconds(std::chrono::milliseconds of) {
  const auto tenths = of.count() / 100;
  std::ostringstream words;
  words << static_cast<double>(tenths) / 10 << " s";
  return words.str();
}

} // namespace

namespace {

using version_numbers = std::array<unsigned, 3>;

/// Of "3.4.23", and of "3.6.0-rc.1".
std::optional<version_numbers> numbers_of(std::string_view version) {
  version_numbers read{};
  const auto* at = version.data();
  const auto* const end = at + version.size();
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (i > 0 && (at == end || *at++ != '.'))
      return std::nullopt;
    const auto [next, failed] = std::from_chars(at, end, read[i]);
    if (failed != std::errc{})
      return std::nullopt;
    at = next;
  }
  return read;
}

/// Of "https://[2001:db8::1]:2379", without the brackets.
std::string_view host_of(std::string_view endpoint) {
  if (const auto scheme = endpoint.find("://"); scheme != std::string_view::npos)
    endpoint.remove_prefix(scheme + 3);
  if (endpoint.starts_with('['))
    return endpoint.substr(1, endpoint.find(']') - 1);
  return endpoint.substr(0, endpoint.find_first_of(":/"));
}

} // namespace

std::string fault_of_etcd(std::string_view version) {
  constexpr version_numbers first_good_of_3_4{3, 4, 31}, first_of_3_5{3, 5, 0},
    first_good_of_3_5{3, 5, 13};
  const auto is = numbers_of(version);
  if (!is || (*is >= first_good_of_3_4 && *is < first_of_3_5) || *is >= first_good_of_3_5)
    return {};
  return "a leader whose disk hangs ends all leases when it goes on, and with them all sandboxes "
         "of the cluster (etcd issue 15247): install 3.4.31, 3.5.13 or a later version";
}

std::vector<std::string> endpoints_for(const std::string& self, const std::string& address,
                                       const std::vector<std::string>& nodes,
                                       const std::vector<std::string>& endpoints) {
  auto order = endpoints;
  const auto own = std::stable_partition(
    order.begin(), order.end(), [&](const std::string& each) { return host_of(each) == address; });
  const auto turn = std::find(nodes.begin(), nodes.end(), self) - nodes.begin();
  for (auto [begin, end] : {std::pair{order.begin(), own}, std::pair{own, order.end()}})
    if (begin != end)
      std::rotate(begin, begin + turn % (end - begin), end);
  return order;
}

std::string member_record::text() const {
  return address + ' ' + std::to_string(protocol) + ' ' + build;
}

member_record member_record::parse(const std::string& text) {
  member_record read;
  std::istringstream words{text};
  words >> read.address >> std::ws;
  if (words.eof())
    read.protocol = first_protocol;
  else
    words >> read.protocol >> read.build;
  return read;
}

result<void> speaks_as(const member_record& self,
                       const std::map<std::string, std::string>& others) {
  for (const auto& [name, text] : others)
    if (const auto other = member_record::parse(text); other.protocol != self.protocol)
      return error{errc::invalid_request,
                   "node " + name + " speaks " + described(other) + ", this one " +
                     described(self) +
                     ": run the same version on all nodes; to change to one with another protocol, "
                     "stop all of them first"};
  return {};
}

result<void> clock_agrees(const std::map<std::string, std::chrono::milliseconds>& ahead) {
  std::string wrong;
  std::size_t count = 0;
  for (const auto& [whose, by] : ahead) {
    if (std::chrono::abs(by) <= clock_limit)
      continue;
    ++count;
    wrong += (wrong.empty() ? "" : ", and ") + seconds(std::chrono::abs(by)) +
             (by.count() > 0 ? " behind that of " : " ahead of that of ") + whose;
  }
  if (2 * count <= ahead.size())
    return {};
  return error{
    errc::invalid_request,
    "its clock is " + wrong + ", and " + seconds(clock_limit) +
      " are the most that is allowed: set the clocks right (chrony), then start it again"};
}

} // namespace insula
