#include "http/api/wrong_key_log.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"

#include <utility>

namespace insula::http {

wrong_key_log::line wrong_key_log::take_line(const std::string& network, time_point now) {
  const auto is_over = [now](time_point when) { return when + limits::wrong_keys_within <= now; };
  const std::lock_guard hold{guard_};
  if (lines_ == 0 || is_over(since_)) {
    since_ = now;
    lines_ = 0;
  }
  const auto last = last_.find(network);
  if (lines_ >= limits::wrong_key_lines || (last != last_.end() && !is_over(last->second))) {
    ++left_out_;
    return {};
  }
  std::erase_if(last_, [&](const auto& each) { return is_over(each.second); });
  last_[network] = now;
  ++lines_;
  return {true, std::exchange(left_out_, 0)};
}

void wrong_key_log::note(const std::string& network, std::string_view by, std::string_view route) {
  if (const auto due = take_line(network, clock::now()); due.granted)
    log::warning("http.wrong_key",
                 {{"from", network}, {"by", by}, {"route", route}, {"left_out", due.left_out}});
}

} // namespace insula::http
