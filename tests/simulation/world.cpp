#include "tests/simulation/world.hpp"

#include <algorithm>
#include <optional>

namespace insula::simulation {

using namespace storage::etcd;

void world::run_until(nanoseconds end) {
  while (!future_.empty() && future_.begin()->first <= end) {
    auto next = future_.extract(future_.begin());
    now_ = std::max(now_, next.key());
    next.mapped()();
    settle();
  }
  now_ = end;
  settle();
}

// ---- etcd

bool engine::holds(const condition& what) const {
  const auto found = keys_.find(what.key);
  if (found == keys_.end())
    return what.is == 0;
  return (what.what == condition::of::created ? found->second.created : found->second.modified) ==
         what.is;
}

void engine::note(event what) {
  log_.push_back(what);
  changed(what);
  for (auto& [wanted, tell] : std::exchange(waiting_, {}))
    if (!wanted.expired())
      tell();
}

std::shared_ptr<void> engine::when_changed(std::function<void()> tell) {
  auto wanted = std::make_shared<int>(0);
  waiting_.emplace_back(wanted, std::move(tell));
  return wanted;
}

void engine::remove(const std::string& key) {
  keys_.erase(key);
  note({true, {key, {}, 0, at_, 0}});
}

result<outcome> engine::transact(const transaction& what) {
  const auto is_put = [](const operation& each) { return each.what == operation::of::put; };
  if (full && std::any_of(what.then.begin(), what.then.end(), is_put)) {
    ++refused_full;
    return error{errc::disk_full, "etcd has no room"};
  }
  const bool held = std::all_of(what.conditions.begin(), what.conditions.end(),
                                [&](const auto& each) { return holds(each); });
  for (const auto& each : held ? what.then : what.otherwise)
    if (each.lease != 0 && !leases_.contains(each.lease)) {
      ++refused_lease;
      return error{errc::not_found, "there is no such lease"};
    }
  auto told = apply(what);
  if (world_.chance(garbled))
    return error{errc::io_failed, "etcd's answer makes no sense"};
  return told;
}

outcome engine::apply(const transaction& what) {
  outcome told;
  told.held = std::all_of(what.conditions.begin(), what.conditions.end(),
                          [&](const auto& each) { return holds(each); });
  const auto& steps = told.held ? what.then : what.otherwise;
  const bool changes = std::any_of(
    steps.begin(), steps.end(), [](const auto& each) { return each.what != operation::of::read; });
  if (changes)
    ++at_;
  told.at = at_;
  told.in = term_;
  for (const auto& each : steps) {
    auto& found = told.found.emplace_back();
    auto& count = told.counts.emplace_back();
    switch (each.what) {
      case operation::of::put: {
        auto& key = keys_[each.key];
        if (key.created == 0)
          key.created = at_;
        key.key = each.key;
        key.value = each.value;
        key.modified = at_;
        key.lease = each.lease;
        note({false, key});
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
             ++at, ++count)
          if (!each.count_only && (each.limit == 0 || count < each.limit))
            found.push_back(at->second);
        break;
    }
  }
  return told;
}

result<lease_id> engine::grant(std::chrono::seconds lives) {
  if (full)
    return error{errc::disk_full, "etcd has no room"};
  leases_[++last_lease_] = {lives};
  watch_end(last_lease_);
  return last_lease_;
}

/// Nothing of it ends while there is no leader.
void engine::watch_end(lease_id which) {
  const auto& mine = leases_.at(which);
  // Never early; late by as much as a new leader may need.
  const auto late = world_.chance(0.1) ? world_.between(0ms, 2s) : world_.between(0ms, 500ms);
  world_.after(mine.lives + late, [this, which, of = mine.renewals] {
    const auto at = leases_.find(which);
    if (at != leases_.end() && at->second.renewals == of && !electing_)
      revoke(which);
  });
}

renewal engine::renew(lease_id which) {
  const auto at = leases_.find(which);
  if (at == leases_.end())
    return {0s, term_};
  ++at->second.renewals;
  watch_end(which);
  return {at->second.lives, term_};
}

void engine::hang_leader(nanoseconds elected_after) {
  if (hangs_)
    return;
  hangs_ = electing_ = true;
  old_term_ = term_;
  old_leases_.clear();
  for (const auto& [which, each] : leases_)
    old_leases_[which] = each.lives;
  world_.after(elected_after, [this, which_time = ++times_hung_] { elect(which_time); });
}

void engine::elect(std::uint64_t which_time) {
  if (!electing_ || which_time != times_hung_)
    return;
  electing_ = false;
  ++term_;
  for (auto& [which, each] : leases_) {
    ++each.renewals;
    watch_end(which);
  }
}

renewal engine::renew_at_old(lease_id which) {
  const auto at = old_leases_.find(which);
  if (at == old_leases_.end())
    return {0s, old_term_};
  ++renewed_in_vain;
  return {at->second, old_term_};
}

void engine::leader_goes_on(bool revokes) {
  if (!hangs_)
    return;
  hangs_ = false;
  elect(times_hung_);
  if (!revokes)
    return;
  for (const auto& [which, lives] : old_leases_)
    if (leases_.contains(which) && world_.chance(0.7)) {
      ++ended_early;
      last_early_end = world_.now();
      revoke(which);
    }
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
  std::function<result<Answer>()> at_engine;
  std::function<result<Answer>()> at_old; ///< Null: a leader that hangs says nothing to it.
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
    world_.after(delay(), [this, to = &engine_, alive = alive_, call, delay] {
      if (!*alive) {
        if (to->has_leader())
          static_cast<void>(call->at_engine()); // What was sent arrives without its sender as well.
        return;
      }
      const bool at_old = to->leader_hangs() && world_.chance(0.5);
      if (at_old ? !call->at_old : !to->has_leader())
        return;
      const auto told =
        std::make_shared<decltype(call->at_engine())>(at_old ? call->at_old() : call->at_engine());
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
void wired_client::ask(std::function<result<Answer>()> at_engine, milliseconds patience,
                       std::function<void(result<Answer>)> then,
                       std::function<result<Answer>()> at_old) {
  auto call = std::make_shared<open_call<Answer>>();
  call->at_engine = std::move(at_engine);
  call->then = std::move(then);
  call->at_old = std::move(at_old);
  call->until = now() + patience;
  post([this, call] { attempt(call); });
}

void wired_client::transact(transaction what, milliseconds patience,
                            std::function<void(result<outcome>)> then) {
  ask<outcome>([to = &engine_, what = std::move(what)] { return to->transact(what); }, patience,
               std::move(then));
}

void wired_client::grant(std::chrono::seconds lives, milliseconds patience,
                         std::function<void(result<lease_id>)> then) {
  ask<lease_id>([to = &engine_, lives] { return to->grant(lives); }, patience, std::move(then));
}

void wired_client::renew(lease_id which, milliseconds patience,
                         std::function<void(result<renewal>)> then) {
  ask<renewal>([to = &engine_, which] { return to->renew(which); }, patience, std::move(then),
               [to = &engine_, which] { return to->renew_at_old(which); });
}

void wired_client::revoke(lease_id which, milliseconds patience,
                          std::function<void(result<void>)> then) {
  ask<done>(
    [to = &engine_, which]() -> result<done> {
      to->revoke(which);
      return done{};
    },
    patience,
    [then = std::move(then)](result<done> said) {
      then(said ? result<void>{} : result<void>{said.reason()});
    });
}

/// What has come and what has not: a watch is told in order, late, and one whose way is cut is told
/// nothing, until somebody notices.
struct wired_client::watching {
  std::string prefix;
  std::size_t next = 0; ///< In the log.
  std::function<void(std::vector<event>, revision)> tell;
  std::function<void(error)> ended;
  std::weak_ptr<void> wanted;
  nanoseconds cut{0}; ///< Since when; 0: it is not.
  std::shared_ptr<void> waits;
};

std::shared_ptr<void> wired_client::watch(std::string prefix, revision from,
                                          std::function<void(std::vector<event>, revision)> tell,
                                          std::function<void(error)> ended) {
  auto wanted = std::make_shared<int>(0);
  auto made = std::make_shared<watching>();
  made->prefix = std::move(prefix);
  made->tell = std::move(tell);
  made->ended = std::move(ended);
  made->wanted = wanted;
  const auto& log = engine_.log();
  made->next = static_cast<std::size_t>(
    std::partition_point(log.begin(), log.end(),
                         [&](const auto& each) { return each.what.modified < from; }) -
    log.begin());
  wait_for_news(made);
  return wanted;
}

void wired_client::wait_for_news(const std::shared_ptr<watching>& at) {
  const auto tell = [this, alive = alive_, at] {
    if (*alive)
      look(at);
  };
  if (at->next < engine_.log().size())
    tell();
  else
    at->waits = engine_.when_changed(tell);
}

void wired_client::look(const std::shared_ptr<watching>& at) {
  after(world_.chance(0.02) ? world_.between(0ms, 2s) : world_.between(1ms, 40ms), [this, at] {
    if (at->wanted.expired())
      return;
    if (!between.answers_arrive && at->cut == 0ns)
      at->cut = now();
    if (at->cut != 0ns) {
      if (now() < at->cut + 2s)
        return look(at);
      return at->ended(error{errc::node_unreachable, "the watch has ended"});
    }
    std::vector<event> news;
    for (const auto& log = engine_.log(); at->next < log.size(); ++at->next)
      if (log[at->next].what.key.starts_with(at->prefix))
        news.push_back(log[at->next]);
    if (!news.empty())
      at->tell(std::move(news), engine_.at());
    wait_for_news(at);
  });
}

} // namespace insula::simulation
