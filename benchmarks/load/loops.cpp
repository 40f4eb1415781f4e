#include "benchmarks/load/loops.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <numeric>

namespace insula::load {

namespace {

using namespace std::chrono_literals;

/// What is overdue by that much at the end of its time is not begun any more.
constexpr auto overdue_patience = 1s;
/// So many are begun in a row before what has arrived is looked at.
constexpr unsigned in_a_row = 32;

std::string rate_text(double rate) {
  char made[64];
  std::snprintf(made, sizeof made, "%g/s", rate);
  return made;
}

const activity& choose(const std::vector<activity>& from, std::mt19937_64& random) {
  if (from.size() == 1)
    return from.front();
  const auto all = std::accumulate(from.begin(), from.end(), 0.0,
                                   [](double sum, const auto& each) { return sum + each.weight; });
  auto place = static_cast<double>(random() >> 11) * 0x1p-53 * all;
  for (const auto& each : from)
    if ((place -= each.weight) < 0)
      return each;
  return from.back();
}

/// All of them are measured until this goes.
std::deque<self_watch::span> spans_of(scenario_context& in, const std::vector<activity>& what) {
  std::deque<self_watch::span> all;
  for (const auto& each : what)
    all.emplace_back(in.with.watch, each.into->result().name);
  return all;
}

task<> attempt(const activity& what, clock::time_point intended, clock::time_point began,
               clock::time_point until, std::uint64_t* completed) {
  const ending how = co_await what.run();
  what.into->ended(intended, began, how);
  if (completed != nullptr && how.ok() && how.at <= until)
    ++*completed;
}

} // namespace

task<loop_outcome> open_loop(scenario_context& in, loop_plan plan,
                             const std::vector<activity>& what) {
  in.open_loop = true;
  const auto start = co_await in.start_together();
  const auto measured = start + plan.warm_up, end = measured + plan.length;
  const auto middle = measured + plan.length / 2;
  in.measure_from(std::min(in.measured_from, measured));
  in.with.steering.measuring_until = end;

  const auto measuring = spans_of(in, what);
  loop_outcome out;
  schedule times{in.with.shape.kind, plan.rate, in.random(), in.with.part};
  const auto ceiling =
    std::max<std::uint64_t>(1, in.with.part.part_of(in.with.shape.max_in_flight));
  asio::steady_timer timer{in.with.io};
  error_code ignored;
  unsigned row = 0;
  bool past_middle = false;
  task_group group{in.with.io};
  while (!in.ending()) {
    const auto intended = start + times.next();
    if (intended >= end)
      break;
    auto now = clock::now();
    if (now < intended) {
      timer.expires_at(intended);
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      row = 0;
    } else if (++row % in_a_row == 0) {
      co_await asio::post(in.with.io, asio::use_awaitable);
    }
    if (in.ending())
      break;
    now = clock::now();
    if (!past_middle && intended >= middle) {
      past_middle = true;
      out.open_middle = group.open();
    }
    const auto& chosen = choose(what, in.random);
    const bool counts = intended >= measured;
    out.intended += counts ? 1 : 0;
    if (group.open() >= ceiling || now > end + overdue_patience) {
      chosen.into->dropped(intended, now);
    } else {
      chosen.into->started(intended, now);
      group.start(attempt(chosen, intended, now, end, counts ? &out.completed : nullptr));
    }
  }
  if (!in.ending())
    co_await sleep_until(in.with.io, end);
  out.open_end = group.open();
  co_await group.wait();
  co_return out;
}

task<> closed_loop(scenario_context& in, std::uint64_t clients, loop_plan plan,
                   const std::vector<activity>& what) {
  const auto start = co_await in.start_together();
  const auto measured = start + plan.warm_up, end = measured + plan.length;
  in.measure_from(std::min(in.measured_from, measured));
  in.with.steering.measuring_until = end;
  const auto client = [](scenario_context& inside, const std::vector<activity>& from,
                         clock::time_point until) -> task<> {
    while (!inside.ending() && clock::now() < until) {
      const auto& chosen = choose(from, inside.random);
      const auto began = clock::now();
      chosen.into->started(began, began);
      const ending how = co_await chosen.run();
      chosen.into->ended(began, began, how);
      // A server that is gone refuses within microseconds.
      if (!how.ok())
        co_await sleep_until(inside.with.io, clock::now() + 10ms);
    }
  };
  const auto measuring = spans_of(in, what);
  task_group group{in.with.io};
  for (std::uint64_t i = in.with.part.part_of(clients); i > 0; --i)
    group.start(client(in, what, end));
  co_await group.wait();
}

task<> drive(scenario_context& in, const std::vector<activity>& what) {
  const auto& shape = in.with.shape;
  loop_plan plan;
  plan.warm_up = in.seconds("warm-up");
  plan.length = in.seconds("duration");
  in.found.warm_up_seconds = std::chrono::duration<double>(plan.warm_up).count();
  if (shape.closed > 0) {
    in.found.method = "closed loop, " + std::to_string(shape.closed) + " at once";
    co_await closed_loop(in, shape.closed, plan, what);
  } else {
    plan.rate = in.number("rate");
    in.found.method = std::string{"open loop, "} +
                      (shape.kind == arrivals::poisson ? "Poisson" : "fixed") + ", " +
                      rate_text(plan.rate);
    co_await open_loop(in, plan, what);
  }
}

task<> in_turn(scenario_context& in, std::uint64_t count, const activity& what) {
  const self_watch::span measuring{in.with.watch, what.into->result().name};
  for (std::uint64_t i = 0; i < count && !in.ending(); ++i) {
    const auto began = clock::now();
    if (in.measured_from == clock::time_point::max())
      in.measure_from(began);
    what.into->started(began, began);
    const ending how = co_await what.run();
    what.into->ended(began, began, how);
  }
}

task<clock::time_point> at_once(scenario_context& in, std::uint64_t count, recorder& into,
                                std::function<task<ending>(std::uint64_t)> run) {
  const auto begin = co_await in.start_together();
  in.measure_from(std::min(in.measured_from, begin));
  const auto one = [](recorder& to, clock::time_point since,
                      const std::function<task<ending>(std::uint64_t)>& what,
                      std::uint64_t number) -> task<> {
    const auto began = clock::now();
    to.started(since, began);
    const ending how = co_await what(number);
    to.ended(since, began, how);
  };
  const self_watch::span measuring{in.with.watch, into.result().name};
  task_group group{in.with.io};
  for (std::uint64_t i = 0; i < count; ++i)
    group.start(one(into, begin, run, i));
  co_await group.wait();
  co_return begin;
}

task<> open_connections(scenario_context& in, std::uint64_t count) {
  const auto knock = [](bridge& api) -> task<> { co_await api.health(); };
  task_group group{in.with.io};
  for (std::uint64_t i = 0; i < count; ++i)
    group.start(knock(in.with.api));
  co_await group.wait();
}

} // namespace insula::load
