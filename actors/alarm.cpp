#include "actors/alarm.hpp"

#include <algorithm>
#include <sstream>

namespace insula {

using std::chrono::milliseconds;

namespace {

std::int64_t steady_ms(const clock& time) {
  return std::chrono::duration_cast<milliseconds>(time.now().time_since_epoch()).count();
}

} // namespace

alarm_record alarm_record::in(milliseconds delay, const clock& time, std::string tag) {
  return {time.unix_ms() + delay.count(), delay.count(), steady_ms(time) + delay.count(),
          time.boot(), std::move(tag)};
}

std::optional<alarm_record> alarm_record::parse(std::string_view text) {
  std::istringstream words{std::string{text}};
  alarm_record read;
  std::string more;
  if (!(words >> read.due_unix_ms >> read.delay_ms >> read.due_steady_ms >> read.boot >>
        read.tag) ||
      words >> more || read.delay_ms < 0)
    return std::nullopt;
  return read;
}

std::string alarm_record::text() const {
  std::ostringstream words;
  words << due_unix_ms << ' ' << delay_ms << ' ' << due_steady_ms << ' ' << boot << ' ' << tag;
  return words.str();
}

milliseconds alarm_record::left(const clock& time) const {
  if (time.boot() == boot)
    return milliseconds{due_steady_ms - steady_ms(time)};
  return milliseconds{std::min(due_unix_ms - time.unix_ms(), delay_ms)};
}

} // namespace insula
