#include "tests/simulation/history.hpp"

#include <algorithm>

namespace insula::simulation {

using namespace storage;

namespace {

constexpr auto troubled = 40s;
constexpr auto quiet = 40s;
/// After which a node knows, by its own clock, that its lease is over.
constexpr auto told_of_early_end = 2500ms;

} // namespace

history::history(std::uint64_t seed)
    : time(seed)
    , decides(time) {
  first_violation.clear();
  time.settle = [this] {
    for (const auto& each : all)
      each->settle();
    if (!first_violation.empty())
      throw violation{first_violation};
  };
}

void history::end_all() {
  for (const auto& each : all) // They tell things to the last.
    each->end(false);
  all.clear();
}

// ---- What nodes tell

void history::held(const std::string& id, epoch now, const std::string& by) {
  auto& mine = tenures_[id];
  count("leases taken");
  demand(now > mine.last || ended_early(), "an epoch of " + id + " has not grown");
  mine.last = std::max(mine.last, now);
  check(id);
  if (!mine.node.empty() && mine.node != by)
    count("ids moved");
  mine.node = by;
}

void history::made(const std::string& id, const std::string& object) {
  const auto [at, is_new] = objects_.emplace(id, object);
  count(is_new ? "objects made" : "objects answered with again");
  demand(at->second == object, "two clients have got two objects for " + id);
}

// ---- What is true all the time

/// Where etcd itself has ended a lease before its time, its node hears of it as fast as it can, but
/// not before. What is written is checked all the same.
bool history::ended_early() const {
  return time.now() < decides.last_early_end + told_of_early_end;
}

void history::check(const std::string& id) const {
  std::size_t act = 0, run = 0;
  for (const auto& each : all) {
    act += each->may_act(id);
    run += each->has_running(id);
  }
  if (ended_early())
    return;
  demand(act <= 1, "two nodes act for " + id);
  demand(run <= 1, "two nodes have sandbox " + id + " running");
}

void history::check_all() const {
  for (std::size_t i = 0; i < ids; ++i)
    check(id_of(i));
  for (std::size_t i = 0; i < keys_of_clients; ++i)
    check(key_of(i));
}

// ---- What happens

void history::trouble() {
  auto& whom = *all[time.below(nodes)];
  const auto heal_later = [&](auto what) {
    time.after(time.between(200ms, 9s), [&whom, what] {
      if (whom.runs())
        what(whom);
    });
  };
  if (time.chance(0.3))
    more_trouble();
  switch (time.below(8)) {
    case 0:
      if (whom.runs()) {
        whom.client->between = {time.chance(0.5), time.chance(0.5)};
        heal_later([](node& of) { of.client->between = {}; });
      }
      break;
    case 1:
      if (whom.runs()) {
        whom.client->stands_still = true;
        heal_later([](node& of) { of.client->go_on(); });
      }
      break;
    case 2:
    case 3:
      if (whom.runs()) {
        whom.end(time.chance(0.3));
        time.after(time.chance(0.5) ? time.between(10ms, 1s) : time.between(1s, 6s), [&whom] {
          if (!whom.runs())
            whom.start();
        });
      }
      break;
    case 4:
      if (whom.runs()) {
        whom.client->between.slowest = time.chance(0.3) ? nanoseconds{3s} : 400ms;
        heal_later([](node& of) { of.client->between.slowest = 5ms; });
      }
      break;
    case 5: // etcd has no leader for a while.
      for (const auto& each : all)
        if (each->runs())
          each->client->between.requests_arrive = false;
      time.after(time.between(300ms, 4s), [this] { heal(); });
      break;
    case 6: // It has no room.
      decides.full = true;
      time.after(time.between(300ms, 4s), [this] { decides.full = false; });
      break;
    case 7: // Its leader's disk hangs, and the others elect another one.
      decides.hang_leader(time.between(500ms, 2s));
      time.after(time.between(1s, 12s), [this] { decides.leader_goes_on(time.chance(0.3)); });
      break;
    default: break;
  }
}

void history::heal() {
  for (const auto& each : all) {
    if (!each->runs())
      continue;
    each->client->between = {};
    if (each->client->stands_still)
      each->client->go_on();
  }
}

void history::play() {
  for (std::size_t i = 0; i < nodes; ++i)
    all.push_back(make_node("n" + std::to_string(i)));
  for (const auto& each : all)
    each->start();
  const auto every = [this](nanoseconds least, nanoseconds most, nanoseconds until, auto what) {
    auto turn = std::make_shared<std::function<void()>>();
    *turn = [this, least, most, until, what, again = std::weak_ptr{turn}] {
      what();
      if (time.now() < until)
        if (auto self = again.lock())
          time.after(time.between(least, most), [self] { (*self)(); });
    };
    time.after(time.between(least, most), [turn] { (*turn)(); });
  };
  const auto sleep_from = time.between(5s, troubled);
  const auto [shortest, longest] = pauses();
  every(shortest, longest, troubled + quiet, [this, sleep_from] {
    const auto all_of_them = time.now() < sleep_from ? ids : ids - sleepers;
    all[time.below(nodes)]->use(id_of(time.below(all_of_them)));
  });
  every(50ms, 500ms, troubled + quiet,
        [this] { all[time.below(nodes)]->create(key_of(time.below(keys_of_clients))); });
  every(500ms, 4s, troubled, [this] { trouble(); });
  // Something is looked at also where nothing happens.
  every(100ms, 100ms, troubled + quiet, [this] { check_all(); });
  time.run_until(troubled);
  heal();
  decides.leader_goes_on(false);
  decides.full = false;
  decides.garbled = 0;
  for (const auto& each : all)
    if (!each->runs())
      each->start();
  std::vector<std::uint64_t> before;
  for (std::size_t i = 0; i < ids; ++i)
    before.push_back(progress(id_of(i)));
  time.run_until(troubled + quiet);
  // What was late may have cost a node its lease just now: it joins anew.
  const auto all_good = [this] {
    return std::all_of(all.begin(), all.end(),
                       [](const auto& each) { return each->member->good(); });
  };
  for (int more = 0; more < 3 && !all_good(); ++more)
    time.run_until(time.now() + 5s);
  demand(all_good(), "a node is no member again");
  for (std::size_t i = 0; i < ids - sleepers; ++i)
    demand(progress(id_of(i)) > before[i], "nothing is written any more of " + id_of(i));
  demand(objects_.size() == keys_of_clients, "a client has got no object");
  check_end();
  seen.of["times that etcd was full"] += decides.refused_full;
  seen.of["leases not found"] += decides.refused_lease;
  seen.of["keepalives answered by a leader that was none"] += decides.renewed_in_vain;
  seen.of["leases that ended early"] += decides.ended_early;
}

} // namespace insula::simulation
