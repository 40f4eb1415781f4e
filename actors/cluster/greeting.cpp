#include "actors/cluster/greeting.hpp"

#include <charconv>

namespace insula::actors::cluster {

namespace {

constexpr std::string_view opening = "insula-link ";

std::string printable(std::string_view text) {
  std::string all;
  for (const char each : text)
    all += each > ' ' && each <= '~' ? each : '?';
  return all;
}

} // namespace

std::string greeting::line() const {
  auto all = std::string{opening} + std::to_string(version) + ' ' + printable(build);
  all.resize(bytes - 1, ' ');
  return all + '\n';
}

std::optional<greeting> greeting::parse(std::string_view line) {
  if (line.size() != bytes || !line.starts_with(opening) || line.back() != '\n')
    return {};
  line.remove_prefix(opening.size());
  line.remove_suffix(1);
  greeting said;
  const auto [end, wrong] = std::from_chars(line.data(), line.data() + line.size(), said.version);
  if (wrong != std::errc{} || end == line.data() + line.size() || *end != ' ')
    return {};
  line.remove_prefix(static_cast<std::size_t>(end - line.data()) + 1);
  said.build = printable(line.substr(0, line.find_last_not_of(' ') + 1));
  return said;
}

} // namespace insula::actors::cluster
