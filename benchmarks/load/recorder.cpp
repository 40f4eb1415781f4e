#include "benchmarks/load/recorder.hpp"

#include <algorithm>

namespace insula::load {

namespace {

constexpr std::size_t longest_series = 86'400; // Seconds; what is later counts with the last.

std::uint64_t us_between(clock::time_point from, clock::time_point to) {
  const auto length = std::chrono::duration_cast<std::chrono::microseconds>(to - from).count();
  return length > 0 ? static_cast<std::uint64_t>(length) : 0;
}

} // namespace

recorder::recorder(std::string name, const clock::time_point& from, counters& all,
                   bool keeps_samples)
    : from_(from)
    , all_(all)
    , keeps_samples_(keeps_samples) {
  result_.name = std::move(name);
}

second_point& recorder::second_of(clock::time_point when) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(when - from_).count();
  const auto place =
    std::min<std::size_t>(seconds > 0 ? static_cast<std::size_t>(seconds) : 0, longest_series - 1);
  if (result_.seconds.size() <= place)
    result_.seconds.resize(place + 1);
  return result_.seconds[place];
}

void recorder::extend(clock::time_point intended) {
  if (first_ == clock::time_point{})
    first_ = last_ = intended;
  first_ = std::min(first_, intended);
  last_ = std::max(last_, intended);
  result_.span_seconds = std::chrono::duration<double>(last_ - first_).count();
}

void recorder::started(clock::time_point intended, clock::time_point began) {
  ++all_.started;
  if (!counts(intended))
    return;
  extend(intended);
  ++second_of(intended).started;
  if (began - intended > late_after)
    ++result_.late;
}

void recorder::ended(clock::time_point intended, clock::time_point began, const ending& how) {
  if (how.failure == failure::let_go) {
    ++let_go_;
    return;
  }
  ++(how.ok() ? all_.ok : all_.failed);
  if (!counts(intended)) {
    if (!how.ok())
      ++early_[how.failure];
    return;
  }
  const auto latency = us_between(intended, how.at);
  if (keeps_samples_) {
    const auto ms = std::max(static_cast<double>(latency), 1.0) / 1000;
    result_.samples_ms.push_back(how.ok() ? ms : -ms);
  }
  auto& second = second_of(how.at);
  if (!how.ok()) {
    ++result_.failures[how.failure];
    ++second.failed;
    return;
  }
  result_.latency.record(latency);
  result_.service.record(us_between(began, how.at));
  result_.bytes += how.bytes;
  ++second.ok;
  second.sum_us += latency;
  second.max_us = std::max(second.max_us, latency);
}

void recorder::dropped(clock::time_point intended, clock::time_point now) {
  ++all_.dropped;
  if (!counts(intended))
    return;
  extend(intended);
  ++result_.dropped;
  if (now - intended > late_after)
    ++result_.late;
  ++second_of(intended).dropped;
}

} // namespace insula::load
