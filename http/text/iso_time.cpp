#include "http/text/iso_time.hpp"

#include <array>
#include <cstdio>
#include <ctime>

namespace insula::http {

std::string iso_time(std::int64_t unix_ms) {
  const auto ms = (unix_ms % 1000 + 1000) % 1000;
  const std::time_t seconds = (unix_ms - ms) / 1000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 32> day{};
  std::array<char, 48> whole{};
  std::strftime(day.data(), day.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(whole.data(), whole.size(), "%s.%03dZ", day.data(), static_cast<int>(ms));
  return whole.data();
}

} // namespace insula::http
