#include "benchmarks/load/control.hpp"

namespace insula::load {

namespace {

using namespace std::chrono_literals;

/// Processes and hosts that share a run do not talk to each other: they begin at the next full five
/// seconds of the clock on the wall that is not too near.
constexpr auto wall_raster = 5s;
constexpr auto near = 500ms;

clock::time_point next_on_the_wall(clock::time_point now) {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  const auto begin = (wall + near) / wall_raster * wall_raster + wall_raster;
  return now + std::chrono::duration_cast<clock::duration>(begin - wall);
}

} // namespace

void control::end(const std::string& why, bool all) {
  const std::lock_guard lock{mutex_};
  if (!ending_)
    why_ = why;
  ending_ = true;
  run_is_over_ = run_is_over_ || all;
}

void control::begin_if_complete(clock::time_point now, bool with_other_processes) {
  if (arrived_ == 0 || arrived_ < wanted_)
    return;
  begin_ = with_other_processes ? next_on_the_wall(now) : now + 5ms;
  arrived_ = 0;
  ++round_;
}

std::uint64_t control::arrive(clock::time_point now, bool with_other_processes) {
  const std::lock_guard lock{mutex_};
  const auto arrival = round_;
  ++arrived_;
  begin_if_complete(now, with_other_processes);
  return arrival;
}

std::optional<clock::time_point> control::together_at(std::uint64_t arrival) const {
  const std::lock_guard lock{mutex_};
  if (round_ == arrival)
    return std::nullopt;
  return begin_;
}

void control::leave(clock::time_point now, bool with_other_processes) {
  const std::lock_guard lock{mutex_};
  --wanted_;
  begin_if_complete(now, with_other_processes);
}

void control::reset() {
  const std::lock_guard lock{mutex_};
  if (!run_is_over_) {
    ending_ = false;
    why_.clear();
  }
  wanted_ = threads_;
  arrived_ = 0;
  so_far.started = so_far.ok = so_far.failed = so_far.dropped = 0;
  measuring_until = clock::time_point{};
}

} // namespace insula::load
