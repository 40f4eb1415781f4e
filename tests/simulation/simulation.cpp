// Who owns what in a cluster, with a clock, a network and an etcd that are played: thousands of
// histories, each from a seed that plays it again. What is true all the time is checked after
// each event, and what has to be true in the end when all faults are over.
#include "storage/etcd/cluster_store.hpp"
#include "storage/etcd/membership.hpp"
#include "tests/simulation/world.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iostream>
#include <optional>
#include <stdexcept>

namespace insula::simulation {

namespace {

using namespace storage;
using storage::etcd::cluster_store;
using storage::etcd::membership;

constexpr std::size_t nodes = 3;
constexpr std::size_t ids = 4;
constexpr auto troubled = 40s;
constexpr auto quiet = 25s;

struct violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void demand(bool holds, const std::string& what) {
  if (!holds)
    throw violation{what};
}

class history;

/// A node: what it remembers outlives its server only as far as that is in etcd.
class node {
public:
  node(history& in, std::string name);
  ~node() { end(false); }

  void start();
  void end(bool end_lease);
  bool runs() const { return store != nullptr; }
  /// It may have an effect on this id now, whether it moves or not.
  bool may_act(const std::string& id) const {
    return runs() && member->good() && store->is_mine(id);
  }
  void use(const std::string& id);

  const std::string name;
  std::unique_ptr<wired_client> client;
  std::unique_ptr<membership> member;
  std::unique_ptr<cluster_store> store;

private:
  /// An activation: the actor of an id, as far as it matters here.
  struct activation {
    epoch held = 0;
    bool asked = false;
  };
  void act(const std::string& id);

  history& all_;
  etcd::lease_id kept_lease_ = 0; ///< On its disk.
  nanoseconds ahead_;
  std::map<std::string, activation> live_;
  std::uint64_t life_ = 0;
};

class history {
public:
  explicit history(std::uint64_t seed)
      : time(seed)
      , decides(time) {
    decides.changed = [this](const etcd::event& what) { changed(what); };
  }

  void play();

  world time;
  engine decides;
  std::vector<std::unique_ptr<node>> all;
  std::size_t acknowledged = 0, taken = 0;

  /// Numbers writes of an id in the order in which they were begun.
  std::uint64_t begun(const std::string& id) { return ++last_begun_[id]; }
  void done(const std::string& id, std::uint64_t number) {
    ++acknowledged;
    // What was told to be durable has taken place, and nothing older has come after it.
    demand(applied_[id] >= number, "an acknowledged write of " + id + " is not there");
  }
  void held(const std::string& id, epoch now) {
    auto& before = last_epoch_[id];
    demand(now > before, "an epoch of " + id + " has not grown");
    before = now;
  }

private:
  void changed(const etcd::event& what);
  void check();
  void trouble();
  void heal();

  std::map<std::string, std::uint64_t> last_begun_, applied_;
  std::map<std::string, epoch> last_epoch_;
};

// ---- A node

node::node(history& in, std::string n)
    : name(std::move(n))
    , all_(in)
    , ahead_(in.time.between(0s, 1000s)) {}

void node::start() {
  client = std::make_unique<wired_client>(all_.time, all_.decides, ahead_);
  etcd::membership_options how;
  how.prefix = "s/";
  how.self = name;
  how.record = name;
  how.resumed = kept_lease_;
  membership::listener tell;
  tell.joined = [this](bool resumed) {
    kept_lease_ = member->lease();
    if (!resumed)
      demand(live_.empty(), "a node that is new has activations");
  };
  tell.lost = [this](std::function<void()> gone) {
    kept_lease_ = 0; // It will be given back, and that may arrive late.
    store->forget_all();
    live_.clear();
    ++life_;
    client->after(all_.time.between(0ms, 1s), std::move(gone));
  };
  member = std::make_unique<membership>(*client, how, tell);
  store =
    std::make_unique<cluster_store>(*client, *member, etcd::cluster_store_options{"s/", {"@"}});
  member->start();
}

void node::end(bool end_lease) {
  if (!client)
    return;
  client->ending = true;
  client->stands_still = false;
  if (end_lease) {
    // Its lease is given back as its last word, which may not arrive.
    kept_lease_ = 0;
    member->leave(false, [] {});
    if (const auto old = member->lease(); old != 0 && client->between.requests_arrive)
      all_.decides.revoke(old);
  }
  ++life_;
  live_.clear();
  store.reset();
  member.reset();
  client.reset();
}

void node::use(const std::string& id) {
  if (!runs() || client->stands_still || !member->good())
    return;
  auto& mine = live_[id];
  if (mine.held != 0)
    return act(id);
  if (std::exchange(mine.asked, true))
    return;
  store->acquire(id, [this, id, of = life_](result<epoch> got) {
    if (of != life_)
      return;
    auto& now = live_[id];
    now.asked = false;
    if (!got)
      return;
    now.held = *got;
    ++all_.taken;
    all_.held(id, *got);
  });
}

void node::act(const std::string& id) {
  auto& mine = live_[id];
  const auto held = mine.held;
  switch (all_.time.below(12)) {
    case 0: // It goes to sleep, and stays this node's.
      store->release(id, std::exchange(mine.held, 0));
      return;
    case 1: { // It is deleted.
      store->commit({id, held + 1, {}, {""}}, [this, id, held, of = life_](result<void> done) {
        if (of == life_ && done) {
          live_[id].held = 0;
          store->release(id, held);
        }
      });
      return;
    }
    case 2: // It is handed over.
      store->release(id, std::exchange(mine.held, 0));
      store->give_up(id, [](const auto&) {});
      return;
    default: break;
  }
  const auto number = all_.begun(id);
  std::vector<change> changes{{"n", std::to_string(number)}};
  if (all_.time.chance(0.3))
    changes.push_back(
      {"@alarm", all_.time.chance(0.5) ? std::optional{std::to_string(number)} : std::nullopt});
  std::vector<std::string> cleared;
  if (all_.time.chance(0.1))
    cleared.emplace_back("@");
  store->commit({id, held, std::move(changes), std::move(cleared)},
                [this, id, number](result<void> done) {
                  if (done)
                    all_.done(id, number);
                });
}

// ---- The cluster

void history::changed(const etcd::event& what) {
  const std::string prefix = "s/data/";
  const auto& key = what.what.key;
  if (!key.starts_with(prefix) || !key.ends_with("/n") || what.removed)
    return;
  const auto id = key.substr(prefix.size(), key.size() - prefix.size() - 2);
  std::uint64_t number = 0;
  std::from_chars(what.what.value.data(), what.what.value.data() + what.what.value.size(), number);
  auto& last = applied_[id];
  demand(number > last, "a write of " + id + " has come after a later one, or twice");
  last = number;
}

void history::check() {
  for (std::size_t i = 0; i < ids; ++i) {
    const auto id = "id" + std::to_string(i);
    std::size_t owners = 0;
    for (const auto& each : all)
      owners += each->may_act(id);
    demand(owners <= 1, "two nodes act for " + id);
  }
}

void history::trouble() {
  auto& whom = *all[time.below(nodes)];
  const auto heal_later = [&](auto what) {
    time.after(time.between(200ms, 9s), [this, &whom, what] {
      if (whom.runs())
        what(whom);
    });
  };
  switch (time.below(6)) {
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
      if (whom.runs()) {
        whom.end(time.chance(0.3));
        time.after(time.between(10ms, 6s), [&whom] {
          if (!whom.runs())
            whom.start();
        });
      }
      break;
    case 3:
      if (whom.runs()) {
        whom.client->between.slowest = 400ms;
        heal_later([](node& of) { of.client->between.slowest = 5ms; });
      }
      break;
    case 4: // etcd has no leader for a while.
      for (const auto& each : all)
        if (each->runs())
          each->client->between.requests_arrive = false;
      time.after(time.between(300ms, 4s), [this] { heal(); });
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
  const auto use = [this] { all[time.below(nodes)]->use("id" + std::to_string(time.below(ids))); };
  every(5ms, 80ms, troubled + quiet, use);
  every(500ms, 4s, troubled, [this] { trouble(); });
  // Something is looked at also where nothing happens.
  every(50ms, 50ms, troubled + quiet, [] {});
  time.run_until(troubled, [this] { check(); });
  heal();
  for (const auto& each : all)
    if (!each->runs())
      each->start();
  const auto before = acknowledged;
  time.run_until(troubled + quiet, [this] { check(); });
  // What was late may have cost a node its lease just now: it joins anew.
  const auto all_good = [this] {
    return std::all_of(all.begin(), all.end(),
                       [](const auto& each) { return each->member->good(); });
  };
  for (int more = 0; more < 3 && !all_good(); ++more)
    time.run_until(time.now() + 5s, [this] { check(); });
  demand(all_good(), "a node is no member again");
  demand(acknowledged > before, "nothing is written any more");
  // What can be found without knowing whose it is, is what there is.
  std::map<std::string, std::string> marks, alarms;
  for (const auto& [key, value] : decides.keys()) {
    if (key.starts_with("s/mark/@alarm/"))
      marks[key.substr(std::strlen("s/mark/@alarm/"))] = value.value;
    if (key.starts_with("s/data/") && key.ends_with("/@alarm"))
      alarms[key.substr(7, key.size() - 7 - 7)] = value.value;
  }
  demand(marks == alarms, "the marks are not what they stand for");
}

} // namespace

} // namespace insula::simulation

int main(int argc, char** argv) {
  std::uint64_t from = 1, count = 1000;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view what = argv[i];
    const auto number = std::strtoull(argv[i + 1], nullptr, 10);
    if (what == "--from")
      from = number;
    else if (what == "--seeds")
      count = number;
    else if (what == "--seed") {
      from = number;
      count = 1;
    } else {
      std::cerr << "simulation [--from N] [--seeds N] [--seed N]\n";
      return 2;
    }
  }
  std::size_t acknowledged = 0, taken = 0, failed = 0;
  for (auto seed = from; seed < from + count; ++seed) {
    insula::simulation::history one{seed};
    try {
      one.play();
    } catch (const std::exception& why) {
      std::cout << "seed " << seed << ": " << why.what() << '\n';
      ++failed;
    }
    acknowledged += one.acknowledged;
    taken += one.taken;
  }
  std::cout << count << " histories, " << taken << " leases taken, " << acknowledged
            << " writes acknowledged, " << failed << " violations\n";
  return failed == 0 && acknowledged > 0 ? 0 : 1;
}
