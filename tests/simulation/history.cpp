#include "tests/simulation/history.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

namespace insula::simulation {

using namespace storage;

namespace {

constexpr std::size_t nodes = 3;
constexpr std::size_t ids = 5;
constexpr std::size_t sleepers = 2; ///< Of these: nobody asks for them any more after a while.
constexpr std::size_t keys_of_clients = 2;
constexpr auto troubled = 40s;
constexpr auto quiet = 40s;
/// So long after its time an alarm has rung, when all is well.
constexpr auto alarm_patience = 35s;

std::string id_of(std::size_t number) {
  return "id" + std::to_string(number);
}
std::string key_of(std::size_t number) {
  return "key" + std::to_string(number);
}

} // namespace

history::history(std::uint64_t seed)
    : time(seed)
    , decides(time) {
  decides.changed = [this](const etcd::event& what) { changed(what); };
}

history::~history() {
  for (const auto& each : all) // They tell things to the last.
    each->end(false);
}

// ---- What nodes tell

std::uint64_t history::begun(const std::string& id, bool is_delete) {
  auto& mine = deeds_[id];
  const auto number = ++mine.begun;
  if (is_delete)
    mine.deletes.insert(number);
  return number;
}

void history::done(const std::string& id, std::uint64_t number, bool is_delete) {
  auto& mine = deeds_[id];
  count(is_delete ? "deletes acknowledged" : "writes acknowledged");
  mine.acknowledged = std::max(mine.acknowledged, number);
  if (std::exchange(mine.found_out, false))
    count("writes that nobody knew of found out about");
  // Where nothing was left to be removed, nothing was seen of it.
  if (is_delete && mine.applied < number) {
    demand(mine.is_gone, "an acknowledged delete of " + id + " has not taken place");
    applied(mine, number, true);
  }
  // What was told to be durable has taken place, and nothing older has come after it.
  demand(mine.applied >= number, "an acknowledged write of " + id + " is not there");
}

void history::failed(const std::string& id, std::uint64_t number) {
  auto& mine = deeds_[id];
  if (number <= mine.applied)
    mine.found_out = number == mine.applied;
  else
    mine.in_doubt.insert(number);
}

void history::held(const std::string& id, epoch now, const std::string& by) {
  auto& mine = deeds_[id];
  count("leases taken");
  demand(now > mine.last_epoch, "an epoch of " + id + " has not grown");
  mine.last_epoch = now;
  check(id);
  if (!mine.last_node.empty() && mine.last_node != by)
    count("ids moved");
  mine.last_node = by;
}

void history::made(const std::string& id, const std::string& object) {
  const auto [at, is_new] = objects_.emplace(id, object);
  count(is_new ? "objects made" : "objects answered with again");
  demand(at->second == object, "two clients have got two objects for " + id);
}

// ---- What etcd tells

void history::applied(deeds& of, std::uint64_t number, bool is_delete) {
  of.applied = number;
  of.is_gone = is_delete;
  of.deletes.erase(of.deletes.begin(), of.deletes.upper_bound(number));
  if (of.in_doubt.contains(number))
    of.found_out = true;
}

void history::changed(const etcd::event& what) {
  const std::string prefix = "s/data/";
  const auto& key = what.what.key;
  if (!key.starts_with(prefix) || !key.ends_with("/n"))
    return;
  const auto id = key.substr(prefix.size(), key.size() - prefix.size() - 2);
  auto& mine = deeds_[id];
  if (what.removed) {
    // Which delete it was, nobody can see: the first that it can have been.
    const auto at = mine.deletes.upper_bound(mine.applied);
    demand(at != mine.deletes.end(), "a delete of " + id + " has come after a later write");
    return applied(mine, *at, true);
  }
  std::uint64_t number = 0;
  std::from_chars(what.what.value.data(), what.what.value.data() + what.what.value.size(), number);
  demand(number > mine.applied, "a write of " + id + " has come after a later one, or twice");
  applied(mine, number, false);
}

// ---- What is true all the time, and in the end

void history::check(const std::string& id) const {
  std::size_t act = 0, run = 0;
  for (const auto& each : all) {
    act += each->may_act(id);
    run += each->has_running(id);
  }
  demand(act <= 1, "two nodes act for " + id);
  demand(run <= 1, "two nodes have sandbox " + id + " running");
}

void history::check_all() const {
  for (std::size_t i = 0; i < ids; ++i)
    check(id_of(i));
  for (std::size_t i = 0; i < keys_of_clients; ++i)
    check(key_of(i));
}

void history::check_end() {
  const auto& keys = decides.keys();
  for (const auto& [id, mine] : deeds_) {
    const auto at = keys.find("s/data/" + id + "/n");
    demand((at == keys.end()) == mine.is_gone, id + " is there, or is not, as it should not be");
    demand(mine.is_gone || at->second.value == std::to_string(mine.applied),
           "what is there of " + id + " is not what was written last");
    demand(mine.applied >= mine.acknowledged, "an acknowledged write of " + id + " is lost");
  }
  for (const auto& [id, object] : objects_) {
    const auto at = keys.find("s/data/" + id + "/object");
    demand(at != keys.end() && at->second.value == object, "the object of " + id + " is another");
  }
  // What can be found without knowing whose it is, is what there is.
  const std::string marked = "s/mark/@alarm/", data = "s/data/", alarm = "/@alarm";
  std::map<std::string, std::string> marks, alarms;
  for (const auto& [key, value] : keys) {
    if (key.starts_with(marked))
      marks[key.substr(marked.size())] = value.value;
    if (key.starts_with(data) && key.ends_with(alarm))
      alarms[key.substr(data.size(), key.size() - data.size() - alarm.size())] = value.value;
  }
  demand(marks == alarms, "the marks are not what they stand for");
  for (const auto& [id, record] : alarms) {
    std::int64_t due = 0;
    std::from_chars(record.data(), record.data() + record.size(), due);
    demand(nanoseconds{due} + alarm_patience > time.now(), "an alarm of " + id + " has not rung");
  }
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
  switch (time.below(7)) {
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
    all.push_back(std::make_unique<node>(*this, "n" + std::to_string(i)));
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
  every(5ms, 80ms, troubled + quiet, [this, sleep_from] {
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
  decides.full = false;
  decides.garbled = 0;
  for (const auto& each : all)
    if (!each->runs())
      each->start();
  const auto before = deeds_;
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
    demand(deeds_[id_of(i)].acknowledged > before.at(id_of(i)).acknowledged,
           "nothing is written any more of " + id_of(i));
  demand(objects_.size() == keys_of_clients, "a client has got no object");
  check_end();
  seen.of["times that etcd was full"] += decides.refused_full;
  seen.of["leases not found"] += decides.refused_lease;
}

} // namespace insula::simulation
