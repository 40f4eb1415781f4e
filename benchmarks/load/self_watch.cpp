#include "benchmarks/load/self_watch.hpp"

#include "benchmarks/load/process_stats.hpp"

#include <algorithm>
#include <ctime>
#include <unistd.h>

namespace insula::load {

namespace {

constexpr std::chrono::seconds window_length{5}, shortest_window{1};

double thread_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

double process_seconds() {
  return std::chrono::duration<double>(cpu_time(::getpid())).count();
}

} // namespace

self_watch::mark self_watch::now_used(clock::time_point now) const {
  return {now, thread_seconds()};
}

void self_watch::begin(clock::time_point from) {
  from_ = from;
}

void self_watch::close_window(clock::time_point now) {
  const auto used = now_used(now);
  const auto length = std::chrono::duration<double>(used.at - window_->at).count();
  if (length > 0)
    found_.busiest_thread_share = std::max(
      found_.busiest_thread_share, (used.thread_seconds - window_->thread_seconds) / length);
  window_ = used;
}

void self_watch::tick(clock::time_point intended, clock::time_point now) {
  if (!from_ || intended < *from_)
    return;
  if (!begin_) {
    begin_ = window_ = now_used(now);
    process_seconds_ = process_seconds();
  }
  const auto late = std::chrono::duration_cast<std::chrono::microseconds>(now - intended).count();
  const auto us = static_cast<std::uint64_t>(std::max<std::int64_t>(late, 0));
  if (!measured_.empty())
    found_.timer_lateness.record(us);
  for (const auto& [operation, count] : measured_)
    lateness_[operation].record(us);
  if (now - window_->at >= window_length)
    close_window(now);
}

client_result self_watch::end(clock::time_point now) {
  if (begin_) {
    found_.seconds = std::chrono::duration<double>(now - begin_->at).count();
    if (of_process_)
      found_.cpu_seconds = process_seconds() - process_seconds_;
    // A short rest would say too much about a single moment.
    if (now - window_->at >= shortest_window || window_->at == begin_->at)
      close_window(now);
  }
  from_.reset();
  begin_.reset();
  window_.reset();
  return std::exchange(found_, {});
}

} // namespace insula::load
