#include "tests/simulation/world.hpp"

#include <algorithm>
#include <optional>

namespace insula::simulation {

using namespace storage::etcd;

void world::run_until(nanoseconds end, const std::function<void()>& each) {
  while (!future_.empty() && future_.begin()->first <= end) {
    auto next = future_.extract(future_.begin());
    now_ = std::max(now_, next.key());
    next.mapped()();
    each();
  }
  now_ = end;
}

// ---- etcd

bool engine::holds(const condition& what) const {
  const auto found = keys_.find(what.key);
  if (found == keys_.end())
    return what.is == 0;
  return (what.what == condition::of::created ? found->second.created : found->second.modified) ==
         what.is;
}

void engine::remove(const std::string& key) {
  keys_.erase(key);
  changed({true, {key, {}, 0, at_, 0}});
}

outcome engine::apply(const transaction& what) {
  outcome told;
  told.held = std::all_of(what.conditions.begin(), what.conditions.end(),
                          [&](const auto& each) { return holds(each); });
  const auto& steps = told.held ? what.then : what.otherwise;
  const bool changes = std::any_of(
    steps.begin(), steps.end(), [](const auto& each) { return each.what != operation::of::read; });
  // With a lease that is gone nothing can be put.
  for (const auto& each : steps)
    if (each.lease != 0 && !leases_.contains(each.lease))
      return {false, at_, {}};
  if (changes)
    ++at_;
  told.at = at_;
  for (const auto& each : steps) {
    auto& found = told.found.emplace_back();
    switch (each.what) {
      case operation::of::put: {
        auto& key = keys_[each.key];
        if (key.created == 0)
          key.created = at_;
        key.key = each.key;
        key.value = each.value;
        key.modified = at_;
        key.lease = each.lease;
        changed({false, key});
        break;
      }
      case operation::of::remove: {
        std::vector<std::string> gone;
        for (auto at = keys_.lower_bound(each.key);
             at != keys_.end() && (each.end.empty() ? at->first == each.key : at->first < each.end);
             ++at)
          gone.push_back(at->first);
        for (const auto& key : gone)
          remove(key);
        break;
      }
      case operation::of::read:
        for (auto at = keys_.lower_bound(each.key);
             at != keys_.end() && (each.end.empty() ? at->first == each.key : at->first < each.end);
             ++at)
          found.push_back(at->second);
        break;
    }
  }
  return told;
}

lease_id engine::grant(std::chrono::seconds lives) {
  leases_[++last_lease_] = {lives};
  watch_end(last_lease_);
  return last_lease_;
}

void engine::watch_end(lease_id which) {
  const auto& mine = leases_.at(which);
  // Never early; late by as much as a new leader may need.
  const auto late = world_.chance(0.1) ? world_.between(0ms, 2s) : world_.between(0ms, 500ms);
  world_.after(mine.lives + late, [this, which, of = mine.renewals] {
    const auto at = leases_.find(which);
    if (at != leases_.end() && at->second.renewals == of)
      revoke(which);
  });
}

std::chrono::seconds engine::renew(lease_id which) {
  const auto at = leases_.find(which);
  if (at == leases_.end())
    return 0s;
  ++at->second.renewals;
  watch_end(which);
  return at->second.lives;
}

void engine::revoke(lease_id which) {
  if (leases_.erase(which) == 0)
    return;
  ++at_;
  std::vector<std::string> gone;
  for (const auto& [key, each] : keys_)
    if (each.lease == which)
      gone.push_back(key);
  for (const auto& key : gone)
    remove(key);
}

// ---- The way there

namespace {

template <class Answer>
struct open_call {
  std::function<Answer()> at_engine;
  std::function<void(result<Answer>)> then;
  nanoseconds until{};
  bool answered = false;
};

} // namespace

void wired_client::here(std::function<void()> what) {
  if (stands_still)
    held_.push_back(std::move(what));
  else
    what();
}

void wired_client::go_on() {
  stands_still = false;
  for (auto held = std::exchange(held_, {}); auto& each : held)
    post(std::move(each));
}

void wired_client::post(std::function<void()> what) {
  if (ending)
    return what();
  world_.after(0ns, [this, alive = alive_, what = std::move(what)]() mutable {
    if (*alive)
      here(std::move(what));
  });
}

void wired_client::after(nanoseconds pause, std::function<void()> what) {
  world_.after(pause, [this, alive = alive_, what = std::move(what)]() mutable {
    if (*alive)
      here(std::move(what));
  });
}

template <class Call>
void wired_client::attempt(std::shared_ptr<Call> call) {
  if (call->answered)
    return;
  if (now() >= call->until) {
    call->answered = true;
    return call->then(error{errc::node_unreachable, "etcd does not answer"});
  }
  const auto delay = [this] {
    // Now and then something takes as long as a queue in a switch can be.
    return world_.chance(0.02) ? world_.between(0ms, 4s) : world_.between(100us, between.slowest);
  };
  if (between.requests_arrive)
    world_.after(delay(), [this, alive = alive_, call, delay] {
      if (!*alive) {
        static_cast<void>(call->at_engine()); // What was sent arrives without its sender as well.
        return;
      }
      auto told = std::make_shared<std::decay_t<decltype(call->at_engine())>>(call->at_engine());
      if (!between.answers_arrive)
        return;
      world_.after(delay(), [this, alive, call, told] {
        if (*alive && between.answers_arrive)
          here([call, told] {
            if (!std::exchange(call->answered, true))
              call->then(std::move(*told));
          });
      });
    });
  after(300ms, [this, call] { attempt(call); });
}

template <class Answer>
void wired_client::ask(std::function<Answer()> at_engine, milliseconds patience,
                       std::function<void(result<Answer>)> then) {
  auto call = std::make_shared<open_call<Answer>>();
  call->at_engine = std::move(at_engine);
  call->then = std::move(then);
  call->until = now() + patience;
  post([this, call] { attempt(call); });
}

void wired_client::transact(transaction what, milliseconds patience,
                            std::function<void(result<outcome>)> then) {
  ask<outcome>([to = &engine_, what = std::move(what)] { return to->apply(what); }, patience,
               std::move(then));
}

void wired_client::grant(std::chrono::seconds lives, milliseconds patience,
                         std::function<void(result<lease_id>)> then) {
  ask<lease_id>([to = &engine_, lives] { return to->grant(lives); }, patience, std::move(then));
}

void wired_client::renew(lease_id which, milliseconds patience,
                         std::function<void(result<std::chrono::seconds>)> then) {
  ask<std::chrono::seconds>([to = &engine_, which] { return to->renew(which); }, patience,
                            std::move(then));
}

void wired_client::revoke(lease_id which, milliseconds patience,
                          std::function<void(result<void>)> then) {
  ask<done>(
    [to = &engine_, which] {
      to->revoke(which);
      return done{};
    },
    patience,
    [then = std::move(then)](result<done> said) {
      then(said ? result<void>{} : result<void>{said.reason()});
    });
}

} // namespace insula::simulation
