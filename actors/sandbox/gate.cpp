#include "actors/sandbox/gate.hpp"

#include "actors/sandbox/startup.hpp"
#include "base/limits.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace insula::actors::inside_sandbox {

void gate::when_running(waiting_request request) {
  if (core_.refusal())
    return request.refuse(*core_.refusal());
  if (is_alive(core_.now()) && !core_.is_held() && !engine_sandbox()->is_over()) {
    if (core_.delays(
          request.context, [=, this] { when_running(request); }, request.refuse))
      return;
    if (const auto awake = core_.thaw(); !awake)
      return request.refuse(awake.reason());
    core_.each_part([&](part& one) { one.served(request.context); });
    request.go();
    return core_.mark_used();
  }
  if (waiting_.size() >= limits::waiting_per_sandbox)
    return request.refuse({errc::limit_reached, "too many requests wait for this sandbox"});
  request.since = steady_clock::now();
  request.until = options().time->now() + limits::pause_patience;
  waiting_.push_back(std::move(request));
  if (core_.is_held())
    expect_resume();
  else if (core_.now() == phase::asleep)
    startup_.begin();
}

void gate::serve() {
  auto all = take();
  while (!all.empty() && !core_.is_held()) {
    const auto next = std::move(all.front());
    all.pop_front();
    if (core_.delays(
          next.context, [=, this] { when_running(next); }, next.refuse))
      continue;
    core_.each_part([&](part& one) { one.served(next.context); });
    next.go();
  }
  waiting_.insert(waiting_.begin(), std::make_move_iterator(all.begin()),
                  std::make_move_iterator(all.end()));
}

void gate::expect_resume() {
  if (waiting_.empty() || std::exchange(resume_expected_, true))
    return;
  const auto left = waiting_.front().until - options().time->now();
  core_.after(std::max<std::chrono::nanoseconds>(left, {}), [this] { refuse_impatient(); });
}

void gate::refuse_impatient() {
  resume_expected_ = false;
  if (!core_.is_held())
    return;
  const auto now = options().time->now();
  while (!waiting_.empty() && waiting_.front().until <= now) {
    const auto refused = std::move(waiting_.front());
    waiting_.pop_front();
    refused.refuse({errc::deadline_exceeded, "the sandbox is paused"});
  }
  expect_resume();
  core_.hibernate_if_idle();
}

void gate::refuse_all(const error& why) {
  for (const auto& each : take())
    each.refuse(why);
}

void gate::account(steady_clock::time_point now) const {
  for (const auto& each : waiting_)
    if (each.context.times)
      each.context.times->waited(now - each.since);
}

} // namespace insula::actors::inside_sandbox
