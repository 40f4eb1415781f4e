#include "apps/cluster_entry.hpp"

#include <sstream>

namespace insula {

namespace {

constexpr std::uint32_t first_protocol = 1;

std::string described(const member_record& of) {
  return "protocol " + std::to_string(of.protocol) +
         (of.build.empty() ? "" : " (build " + of.build + ")");
}

std::string seconds(std::chrono::milliseconds of) {
  std::ostringstream words;
  words << static_cast<double>(of.count() / 100) / 10 << " s";
  return words.str();
}

} // namespace

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
