#include "tests/simulation/node.hpp"

#include "storage/etcd/gateway_json.hpp"
#include "storage/etcd/orphans.hpp"
#include "tests/simulation/history.hpp"

#include <charconv>

namespace insula::simulation {

using namespace storage;

namespace {

constexpr auto patience = 5s;
constexpr auto look_for_orphans_every = 15s;
const std::string alarm_marks = "s/mark/@alarm/";

std::uint64_t number_in(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

} // namespace

node::node(history& in, std::string n)
    : name(std::move(n))
    , all_(in)
    , ahead_(in.time.between(0s, 1000s)) {}

std::optional<node::alarm> node::parse(const std::string& record) {
  const auto blank = record.find(' ');
  if (blank == std::string::npos)
    return std::nullopt;
  return alarm{record, nanoseconds{number_in(record)}, number_in(record.substr(blank + 1))};
}

bool node::has_running(const std::string& id) const {
  return running_.contains(id) && all_.time.now() + ahead_ < permitted_;
}

// ---- Its server

void node::start() {
  client = std::make_unique<wired_client>(all_.time, all_.decides, ahead_);
  ++server_;
  etcd::membership_options how;
  how.prefix = "s/";
  how.self = name;
  how.record = name;
  how.resumed = kept_lease_;
  etcd::membership::listener tell;
  tell.joined = [this](bool resumed) {
    kept_lease_ = member->lease();
    const bool first = !std::exchange(has_joined_, true);
    if (resumed)
      all_.count("leases gone on with");
    else if (first)
      running_.clear(); // Another node may have had it in between.
    demand(resumed || (running_.empty() && live_.empty()), "a new member has activations");
    // There is more to be done before its actors are there, which may take long.
    if (first)
      client->after(all_.time.chance(0.2) ? all_.time.between(1s, 8s)
                                          : all_.time.between(0s, 200ms),
                    [this] { serve(); });
  };
  tell.lost = [this](std::function<void()> gone) { lost(std::move(gone)); };
  tell.renewed = [this](nanoseconds until) {
    permitted_ = until;
    all_.check_all();
  };
  member = std::make_unique<etcd::membership>(*client, how, tell);
  etcd::cluster_store_options keeping{"s/", {"@"}};
  keeping.found = [this] { reread_asked_ = true; };
  keeping.most_activations = 5;
  store = std::make_unique<etcd::cluster_store>(*client, *member, keeping);
  nodes = std::make_unique<etcd::watched_keys>(*client, "s/nodes/", [this] {
    if (serving_)
      look_for_orphans();
  });
  owners = std::make_unique<etcd::watched_keys>(*client, "s/owner/", [] {});
  nodes->start();
  owners->start();
  member->start();
}

void node::serve() {
  serving_ = true;
  if (gone_) // Lost before there was anybody who could end what runs.
    evict();
  for (const auto& [id, since] : std::map{running_})
    hold(id, [](epoch) {}); // It goes on with what the server before has left.
  reread_asked_ = true;
  tick();
  const auto again = std::make_shared<std::function<void()>>();
  *again = [this, weak = std::weak_ptr{again}] {
    store->give_up_unused();
    look_for_orphans();
    if (const auto self = weak.lock())
      client->after(look_for_orphans_every, [self] { (*self)(); });
  };
  (*again)();
}

void node::lost(std::function<void()> gone) {
  all_.count("leases lost");
  kept_lease_ = 0; // It will be given back, and that may arrive late.
  store->forget_all();
  gone_ = std::move(gone);
  if (serving_)
    client->after(all_.time.between(0ms, 1s), [this] { evict(); });
}

void node::evict() {
  ++life_;
  live_.clear();
  running_.clear();
  alarms_.clear();
  if (auto gone = std::exchange(gone_, {}))
    gone();
}

void node::end(bool for_good) {
  if (!client)
    return;
  client->ending = true;
  client->stands_still = false;
  if (for_good) {
    running_.clear();
    // Its lease is given back as its last word, which may not arrive.
    kept_lease_ = 0;
    const auto old = member->lease();
    member->leave(false, [] {});
    if (old != 0 && client->between.requests_arrive)
      all_.decides.revoke(old);
  }
  ++life_;
  serving_ = has_joined_ = reread_asked_ = false;
  gone_ = {};
  live_.clear();
  alarms_.clear();
  nodes.reset();
  owners.reset();
  store.reset();
  member.reset();
  client.reset();
}

// ---- Activations

void node::hold(const std::string& id, std::function<void(epoch)> then) {
  if (!runs() || !serving_ || client->stands_still || !member->good())
    return;
  auto& mine = live_[id];
  if (mine.held != 0)
    return then(mine.held);
  if (std::exchange(mine.asked, true))
    return;
  store->acquire(id, [this, id, then = std::move(then), of = life_](result<epoch> got) {
    if (of != life_)
      return;
    auto& now = live_[id];
    now.asked = false;
    if (!got) {
      running_.erase(id);
      live_.erase(id);
      if (got.reason().code == errc::limit_reached)
        store->release(id, 0);
      return;
    }
    now.held = *got;
    running_[id] = *got;
    all_.held(id, *got, name);
    then(*got);
  });
}

/// It ends, and stays this node's.
void node::sleep(const std::string& id) {
  const auto held = live_[id].held;
  live_.erase(id);
  running_.erase(id);
  store->release(id, held);
}

void node::use(const std::string& id) {
  hold(id, [this, id](epoch held) { act(id, held); });
}

void node::act(const std::string& id, epoch held) {
  switch (all_.time.below(12)) {
    case 0: return sleep(id);
    case 1: { // It is deleted.
      running_.erase(id);
      const auto number = all_.begun(id, true);
      store->commit({id, held + 1, {}, {""}},
                    [this, id, held, number, of = life_](result<void> done) {
                      if (done)
                        all_.done(id, number, true);
                      else
                        all_.failed(id, number);
                      if (of != life_)
                        return;
                      // Its actor ends in any case.
                      if (live_[id].held == held)
                        live_.erase(id);
                      if (done)
                        alarms_.erase(id);
                      store->release(id, held);
                    });
      return;
    }
    case 2: // It is handed over.
      sleep(id);
      store->give_up(id, [](const auto&) {});
      return;
    default: return write(id, held);
  }
}

void node::write(const std::string& id, epoch held) {
  const auto number = all_.begun(id, false);
  std::vector<change> changes{{"n", std::to_string(number)}};
  std::vector<std::string> cleared;
  std::optional<alarm> set;
  bool forgets = false;
  if (all_.time.chance(0.3)) {
    forgets = true;
    if (all_.time.chance(0.7)) {
      const auto due = all_.time.now() + all_.time.between(1s, 10s);
      set = alarm{std::to_string(due.count()) + " " + std::to_string(number), due, number};
    }
    changes.push_back({"@alarm", set ? std::optional{set->record} : std::nullopt});
  }
  if (all_.time.chance(0.1)) {
    cleared.emplace_back("@");
    forgets = true;
  }
  store->commit({id, held, std::move(changes), std::move(cleared)},
                [this, id, number, set, forgets, of = life_](result<void> done) {
                  if (!done)
                    return all_.failed(id, number);
                  all_.done(id, number, false);
                  if (of != life_ || !forgets)
                    return;
                  if (set)
                    alarms_[id] = *set;
                  else
                    alarms_.erase(id);
                });
}

void node::create(const std::string& id) {
  hold(id, [this, id](epoch held) {
    auto& mine = live_[id];
    if (!mine.object.empty()) {
      all_.made(id, mine.object);
      return all_.time.chance(0.2) ? sleep(id) : void();
    }
    if (std::exchange(mine.making, true))
      return;
    // The activation it was begun in, if that is still there.
    const auto same = [this, id, held, of = life_]() -> activation* {
      const auto at = live_.find(id);
      return of == life_ && at != live_.end() && at->second.held == held ? &at->second : nullptr;
    };
    client->transact({{}, {etcd::operation::read("s/data/" + id + "/object")}, {}}, patience,
                     [this, id, held, same](result<etcd::outcome> got) {
                       auto* const now = same();
                       if (now == nullptr)
                         return;
                       now->making = false;
                       if (!got)
                         return;
                       if (!got->found[0].empty()) {
                         now->object = got->found[0][0].value;
                         return all_.made(id, now->object);
                       }
                       now->making = true;
                       const auto object = all_.new_object();
                       store->commit({id, held, {{"object", object}}},
                                     [this, id, same, object](result<void> done) {
                                       if (auto* const then = same()) {
                                         then->making = false;
                                         if (done)
                                           then->object = object;
                                       }
                                       if (done)
                                         all_.made(id, object);
                                     });
                     });
  });
}

// ---- Alarms

void node::tick() {
  if (std::exchange(reread_asked_, false))
    reread();
  for (const auto& [id, what] : std::map{alarms_})
    if (what.due <= all_.time.now())
      ring(id, what);
  client->after(1s, [this] { tick(); });
}

void node::find_alarms(std::function<void(std::vector<owned_entry>)> then) {
  client->transact(
    {{}, {etcd::operation::read(alarm_marks, etcd::end_of_prefix(alarm_marks))}, {}}, patience,
    [this, then = std::move(then)](result<etcd::outcome> got) {
      if (!got)
        return client->after(5s, [this] { reread_asked_ = true; });
      std::vector<owned_entry> entries;
      for (const auto& each : got->found[0])
        entries.push_back({each.key.substr(alarm_marks.size()), "@alarm", each.value});
      then(std::move(entries));
    });
}

void node::reread() {
  std::erase_if(alarms_, [this](const auto& each) { return !may_act(each.first); });
  find_alarms([this](const std::vector<owned_entry>& found) {
    for (const auto& each : found) {
      const auto stored = parse(each.value);
      demand(stored.has_value(), "an alarm makes no sense");
      if (!may_act(each.owner))
        continue;
      const auto known = alarms_.find(each.owner);
      if (known == alarms_.end() || known->second.number < stored->number)
        alarms_.insert_or_assign(each.owner, *stored);
    }
  });
}

void node::ring(const std::string& id, const alarm& what) {
  if (!may_act(id))
    return static_cast<void>(alarms_.erase(id)); // Whoever owns it has it in the store.
  const bool slept = !live_.contains(id);
  hold(id, [this, id, what, slept](epoch held) {
    const auto over = [this, id, what] {
      if (const auto at = alarms_.find(id); at != alarms_.end() && at->second.record == what.record)
        alarms_.erase(at);
    };
    // Its record, as it was loaded: nobody else changes it.
    const auto& keys = all_.decides.keys();
    const auto is = keys.find("s/data/" + id + "/@alarm");
    if (is == keys.end() || is->second.value != what.record) {
      over();
      return slept ? sleep(id) : void();
    }
    store->commit({id, held, {{"@alarm", std::nullopt}}}, [this, id, held, over, slept,
                                                           of = life_](result<void> done) {
      if (!done || of != life_)
        return; // It comes again.
      all_.count("alarms rung");
      over();
      if (const auto at = live_.find(id); slept && at != live_.end() && at->second.held == held)
        sleep(id);
    });
  });
}

void node::look_for_orphans() {
  if (!member->good())
    return;
  if (!nodes->ready() || !owners->ready())
    return client->after(1s, [this] { look_for_orphans(); });
  for (const auto& id : etcd::not_known_of(*member, *owners, *store)) {
    all_.count("ids of the server before taken up");
    store->own(id, [this, id](const auto&) { all_.check(id); });
  }
  find_alarms([this](const std::vector<owned_entry>& found) {
    for (const auto& id : etcd::unattended(found, *nodes, *owners))
      store->own(id, [this, id](const result<etcd::cluster_store::owning>& who) {
        all_.check(id);
        if (who && who->node == name)
          all_.count("orphans taken");
      });
  });
}

} // namespace insula::simulation
