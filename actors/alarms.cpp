#include "actors/alarms.hpp"

#include "actors/protocol/errors.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

namespace insula::actors {

namespace {

using steady = std::chrono::steady_clock;
using tick_atom = caf::atom_constant<caf::atom("tick")>;
using read_atom = caf::atom_constant<caf::atom("readalarms")>;
using alarms_impl = alarms_actor::extend<caf::reacts_to<tick_atom, std::uint64_t /* which */>,
                                         caf::reacts_to<read_atom, bool /* the node's? */>>;

struct known_alarm {
  std::string record;
  steady::time_point due;
  bool at_work = false; ///< Its object has been told, and has not answered.
  unsigned failures = 0;
};

/// What is under way with one of the stores, so that there is one question at a time.
struct reading {
  bool asked = false;
  bool again = false; ///< Somebody has asked for it meanwhile.
  bool retry_set = false;
};

struct alarms_state {
  static inline const char* name = "alarms";
  alarms_options options;
  caf::actor target;
  std::map<alarm_name, known_alarm> all;
  std::set<std::pair<steady::time_point, alarm_name>> waiting; ///< Those not at work.
  std::size_t at_work = 0;
  std::optional<steady::time_point> next_look;
  std::uint64_t looks = 0;
  std::map<kept_in, reading> readings;

  /// In place of the one there was.
  void add(const alarm_name& whose, std::string record, steady::time_point due) {
    remove(whose);
    all[whose] = {std::move(record), due};
    waiting.emplace(due, whose);
  }
  void remove(const alarm_name& whose) {
    if (const auto at = all.find(whose); at != all.end()) {
      waiting.erase({at->second.due, whose});
      all.erase(at);
    }
  }
};

using alarms_pointer = alarms_impl::stateful_pointer<alarms_state>;

void advance(alarms_pointer self);

/// The one whose record this was has answered. It may have been replaced or cancelled meanwhile.
void answered(alarms_pointer self, const alarm_due& what, const caf::error* failure) {
  auto& st = self->state;
  --st.at_work;
  const auto at = st.all.find(what.whose);
  if (at != st.all.end() && at->second.record == what.record && at->second.at_work) {
    if (failure == nullptr) {
      st.all.erase(at);
    } else {
      auto& alarm = at->second;
      alarm.at_work = false;
      const auto longer = std::min(++alarm.failures, 7u) - 1;
      const auto pause = std::min<std::chrono::seconds>(limits::alarm_retry * (1u << longer),
                                                        limits::longest_alarm_retry);
      alarm.due = st.options.time->now() + pause;
      st.waiting.emplace(alarm.due, what.whose);
      log::warning("alarm.failed", {{"id", what.whose.owner},
                                    {"object", what.whose.object},
                                    {"reason", from_caf(*failure).message}});
    }
  }
  st.options.figures->alarm_over(failure == nullptr);
  advance(self);
}

bool is_ours(const alarms_state& st, const std::string& owner) {
  return !st.options.ours || st.options.ours(owner);
}

void ring(alarms_pointer self, const alarm_name& whose, known_alarm& alarm) {
  auto& st = self->state;
  if (!is_ours(st, whose.owner))
    return static_cast<void>(st.all.erase(whose)); // Whoever owns it has it in the store.
  alarm.at_work = true;
  ++st.at_work;
  alarm_due what{whose, alarm.record};
  self->request(st.target, limits::alarm_patience, what)
    .then([self, what](caf::ok_atom) { answered(self, what, nullptr); },
          [self, what](const caf::error& why) { answered(self, what, &why); });
}

/// A look at the clock when the next one is due, or sooner: a delayed message keeps its actor.
void look_later(alarms_pointer self, steady::time_point due) {
  auto& st = self->state;
  if (st.next_look && *st.next_look <= due)
    return;
  constexpr std::chrono::nanoseconds longest = std::chrono::seconds{20};
  const auto now = st.options.time->now();
  const auto left =
    std::clamp(std::chrono::nanoseconds{due - now}, std::chrono::nanoseconds{0}, longest);
  st.next_look = now + left;
  self->delayed_send(self, left, tick_atom::value, ++st.looks);
}

void advance(alarms_pointer self) {
  auto& st = self->state;
  if (!st.target)
    return;
  const auto now = st.options.time->now();
  while (!st.waiting.empty() && st.waiting.begin()->first <= now) {
    if (st.at_work >= limits::alarms_at_work)
      return; // An answer goes on with it.
    const auto whose = st.waiting.begin()->second;
    st.waiting.erase(st.waiting.begin());
    ring(self, whose, st.all.at(whose));
  }
  if (!st.waiting.empty())
    look_later(self, st.waiting.begin()->first);
}

steady::time_point due_time(const alarm_record& alarm, const clock& time) {
  return time.now() + alarm.left(time);
}

/// Tags are "<epoch>.<count>", and epochs grow over all nodes: that tells which of two records of
/// one alarm was set first.
std::pair<std::uint64_t, std::uint64_t> turn_of(const alarm_record& alarm) {
  std::pair<std::uint64_t, std::uint64_t> turn;
  const auto* const end = alarm.tag.data() + alarm.tag.size();
  const auto [dot, bad] = std::from_chars(alarm.tag.data(), end, turn.first);
  if (bad == std::errc{} && dot != end)
    std::from_chars(dot + 1, end, turn.second);
  return turn;
}

bool is_older(const std::string& known, const alarm_record& than) {
  const auto record = alarm_record::parse(known);
  return !record || turn_of(*record) < turn_of(than);
}

/// Of what has gone to another node, that one has the alarms; should it come back, they are
/// others.
void forget_others(alarms_state& st, kept_in where) {
  for (auto at = st.all.lower_bound({where, {}, {}});
       at != st.all.end() && at->first.where == where;) {
    const auto whose = (at++)->first;
    if (!is_ours(st, whose.owner))
      st.remove(whose);
  }
}

void read_stored(alarms_pointer self, bool of_node);

void have_read(alarms_pointer self, kept_in where, const std::vector<storage::owned_entry>& found) {
  auto& st = self->state;
  for (const auto& [owner, key, value] : found) {
    const alarm_name whose{where, owner, key.substr(alarm_keys.size())};
    if (!is_ours(st, owner))
      continue;
    const auto record = alarm_record::parse(value);
    if (!record) {
      log::error("alarm.damaged", {{"id", owner}, {"object", whose.object}});
      continue;
    }
    // What has been set meanwhile is newer.
    if (const auto at = st.all.find(whose);
        at == st.all.end() || is_older(at->second.record, *record))
      st.add(whose, value, due_time(*record, *st.options.time));
  }
  advance(self);
}

/// What was stored before this process, or at another node.
void read_stored(alarms_pointer self, bool of_node) {
  auto& st = self->state;
  const auto where = of_node ? kept_in::node : kept_in::cluster;
  forget_others(st, where);
  auto& mine = st.readings[where];
  if (std::exchange(mine.asked, true))
    return static_cast<void>(mine.again = true);
  const auto over = [self, where, of_node] {
    auto& one = self->state.readings[where];
    one.asked = false;
    if (std::exchange(one.again, false))
      read_stored(self, of_node);
  };
  self
    ->request(of_node ? st.options.node : st.options.cluster, caf::infinite, find_keys_atom::value,
              std::string{alarm_keys})
    .then(
      [self, where, over](const std::vector<storage::owned_entry>& found) {
        have_read(self, where, found);
        over();
      },
      [self, where, of_node, over](const caf::error&) { // The store has said why.
        if (!std::exchange(self->state.readings[where].retry_set, true))
          self->delayed_send(self, limits::longest_alarm_retry, read_atom::value, of_node);
        over();
      });
}

alarms_impl::behavior_type alarms(alarms_pointer self,
                                  const std::shared_ptr<alarms_options>& options) {
  self->state.options = std::move(*options);
  return {
    [self](alarm_set& said) {
      auto& st = self->state;
      st.add(said.whose, said.what.text(), due_time(said.what, *st.options.time));
      advance(self);
    },
    [self](const alarm_cancelled& said) { self->state.remove(said.whose); },
    [self](const alarms_forgotten& said) {
      auto& st = self->state;
      const auto& [where, owner, object] = said.first;
      for (auto at = st.all.lower_bound(said.first);
           at != st.all.end() && at->first.where == where && at->first.owner == owner &&
           at->first.object.starts_with(object);) {
        const auto whose = (at++)->first;
        st.remove(whose);
      }
    },
    [self](wake_by_atom, caf::actor& target) {
      self->state.target = std::move(target);
      for (const bool of_node : {false, true})
        read_stored(self, of_node);
      advance(self);
    },
    [self](tick_atom, std::uint64_t which) {
      if (which != self->state.looks)
        return;
      self->state.next_look.reset();
      advance(self);
    },
    [self](read_atom, bool of_node) {
      self->state.readings[of_node ? kept_in::node : kept_in::cluster].retry_set = false;
      read_stored(self, of_node);
    },
    [self](reread_atom) {
      for (const bool of_node : {false, true})
        read_stored(self, of_node);
    },
  };
}

} // namespace

alarms_actor spawn_alarms(caf::actor_system& system, alarms_options options) {
  return system.spawn(alarms, std::make_shared<alarms_options>(std::move(options)));
}

} // namespace insula::actors
