#include "tests/simulation/plain_node.hpp"

#include "storage/etcd/gateway_json.hpp"
#include "tests/simulation/plain_history.hpp"

#include <charconv>

namespace insula::simulation {

using namespace storage;

namespace {

std::uint64_t number_in(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

} // namespace

std::optional<plain_node::alarm> plain_node::parse(const std::string& record) {
  const auto blank = record.find(' ');
  if (blank == std::string::npos)
    return std::nullopt;
  return alarm{record, nanoseconds{number_in(record)}, number_in(record.substr(blank + 1))};
}

plain_history& plain_node::told() const {
  return static_cast<plain_history&>(all_);
}

void plain_node::begin() {
  for (const auto& [id, since] : std::map{running_})
    hold(id, [](epoch) {}); // It goes on with what the server before has left.
  reread_asked_ = true;
  tick();
}

void plain_node::evict(std::function<void()> gone) {
  if (all_.mistake)
    return gone();
  live_.clear();
  running_.clear();
  alarms_.clear();
  gone();
}

void plain_node::cease() {
  reread_asked_ = false;
  live_.clear();
  alarms_.clear();
}

// ---- Activations

void plain_node::hold(const std::string& id, std::function<void(epoch)> then) {
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
void plain_node::sleep(const std::string& id) {
  const auto held = live_[id].held;
  live_.erase(id);
  running_.erase(id);
  store->release(id, held);
}

void plain_node::use(const std::string& id) {
  hold(id, [this, id](epoch held) { act(id, held); });
}

void plain_node::act(const std::string& id, epoch held) {
  switch (all_.time.below(12)) {
    case 0: return sleep(id);
    case 1: { // It is deleted.
      running_.erase(id);
      const auto number = told().begun(id, true);
      store->commit({id, held + 1, {}, {""}},
                    [this, id, held, number, of = life_](result<void> done) {
                      if (done)
                        told().done(id, number, true);
                      else
                        told().failed(id, number);
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

void plain_node::write(const std::string& id, epoch held) {
  const auto number = told().begun(id, false);
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
                    return told().failed(id, number);
                  told().done(id, number, false);
                  if (of != life_ || !forgets)
                    return;
                  if (set)
                    alarms_[id] = *set;
                  else
                    alarms_.erase(id);
                });
}

void plain_node::create(const std::string& id) {
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

void plain_node::tick() {
  if (std::exchange(reread_asked_, false))
    reread();
  for (const auto& [id, what] : std::map{alarms_})
    if (what.due <= all_.time.now())
      ring(id, what);
  client->after(1s, [this] { tick(); });
}

void plain_node::reread() {
  std::erase_if(alarms_, [this](const auto& each) { return !may_act(each.first); });
  find_alarms(
    [this](const std::vector<owned_entry>& found) {
      for (const auto& each : found) {
        const auto stored = parse(each.value);
        demand(stored.has_value(), "an alarm makes no sense");
        if (!may_act(each.owner))
          continue;
        const auto known = alarms_.find(each.owner);
        if (known == alarms_.end() || known->second.number < stored->number)
          alarms_.insert_or_assign(each.owner, *stored);
      }
    },
    [this] { client->after(5s, [this] { reread_asked_ = true; }); });
}

void plain_node::ring(const std::string& id, const alarm& what) {
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

} // namespace insula::simulation
