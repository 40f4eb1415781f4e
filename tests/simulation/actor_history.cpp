#include "tests/simulation/actor_history.hpp"

#include "actors/alarm.hpp"
#include "actors/sandbox_list.hpp"
#include "actors/snapshots/snapshot_record.hpp"
#include "tests/simulation/actor_node.hpp"

#include <algorithm>
#include <charconv>
#include <map>

namespace insula::simulation {

using namespace storage;

namespace {

/// So long after its time an alarm has rung, when all is well. Nodes' clocks differ by up to 2 s.
constexpr auto alarm_patience = 37s;
/// Within this time everything begins with any snapshot at any node, when all is well.
constexpr auto last_begins = 150s;
constexpr auto next_try = 3s;
/// Nobody asks any more, and what was asked is answered.
constexpr auto last_answers = 20s;

std::int64_t number_in(const std::string& text) {
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

} // namespace

actor_history::actor_history(std::uint64_t seed)
    : history(seed)
    , links(time)
    , snapshots(*this, time.chance(0.5)) {
  found_by = {"@alarm/"};
  decides.changed = [this](const etcd::event& what) { changed(what); };
}

actor_history::~actor_history() {
  end_all();
}

std::unique_ptr<node> actor_history::make_node(std::string name) {
  return std::make_unique<actor_node>(*this, std::move(name));
}

// ---- What nodes tell

std::uint64_t actor_history::begun(const std::string& id, bool is_delete) {
  const auto number = ++last_;
  known_[id].deeds[number].is_delete = is_delete;
  return number;
}

void actor_history::done(const std::string& id, std::uint64_t number) {
  auto& mine = known_[id];
  auto& what = mine.deeds.at(number);
  what.ended = ++last_;
  ++mine.acknowledged;
  // With it, its end is known to all. What failed may have set another one, which nobody knows.
  const auto set = std::find_if(mine.ends.begin(), mine.ends.end(),
                                [&](const auto& each) { return each.by == number; });
  if (set != mine.ends.end())
    mine.ends.erase(mine.ends.begin(), set);
  count(what.is_delete ? "deletes acknowledged" : "writes acknowledged");
  if (!what.is_delete) {
    // Of two that were under way at once, the later may have gone with it, and over it.
    const auto over = mine.deeds.find(mine.last_written);
    const bool at_once = over != mine.deeds.end() && over->first != number &&
                         (over->second.ended == 0 || over->second.ended > number);
    return demand(what.applied || at_once, "an acknowledged write of " + id + " is not there");
  }
  // What is there now was written at the same time, or later.
  if (mine.there != 0) {
    const auto& present = mine.deeds.at(mine.there);
    demand(present.ended == 0 || present.ended > number,
           "an acknowledged delete of " + id + " has not taken place");
  }
}

void actor_history::failed(const std::string& id, std::uint64_t number) {
  known_[id].deeds.at(number).ended = ++last_;
  count("deeds that failed");
}

// ---- What etcd tells

void actor_history::written(const std::string& id, object& of, const std::string& text) {
  if (text.empty())
    return; // It was made by its first use.
  const auto number = static_cast<std::uint64_t>(number_in(text.substr(1)));
  const auto at = of.deeds.find(number);
  demand(at != of.deeds.end(), id + " has something that nobody has written");
  auto& what = at->second;
  demand(!std::exchange(what.applied, true), "a write of " + id + " has taken place twice");
  demand(what.ended == 0 || what.ended > of.newest_begun,
         "a write of " + id + " that was over has come after a later one");
  of.newest_begun = std::max(of.newest_begun, number);
  of.there = of.last_written = number;
}

void actor_history::removed(const std::string& id, object& of) {
  if (of.there == 0)
    return;
  const bool deleted = std::any_of(of.deeds.begin(), of.deeds.end(), [&](const auto& each) {
    return each.second.is_delete && (each.second.ended == 0 || each.second.ended > of.there);
  });
  const auto latest = actor_node::wall_ms(time.now() + actor_node::clocks_differ);
  const bool expired = std::any_of(of.ends.begin(), of.ends.end(),
                                   [&](const auto& each) { return each.expires_ms <= latest; });
  std::string ends;
  for (const auto& each : of.ends)
    ends += ' ' + std::to_string(each.expires_ms - latest);
  demand(deleted || expired,
         "nobody has deleted " + id + ", and its time is not up: it is, in ms," + ends);
  if (!deleted)
    count("objects ended by their alarms");
  of.there = 0;
  of.ends.clear();
}

void actor_history::changed(const etcd::event& what) {
  const std::string prefix = "s/data/";
  const auto& key = what.what.key;
  if (!key.starts_with(prefix))
    return;
  const auto slash = key.find('/', prefix.size());
  const auto id = key.substr(prefix.size(), slash - prefix.size());
  const auto name = key.substr(slash + 1);
  if (const auto of = object_name::parse(id); of && !of->kind.empty()) {
    if (name == actors::snapshots::taken_key && !what.removed)
      note_snapshot(of->id, decides.keys().at("s/owner/" + id).value);
    return;
  }
  auto& mine = known_[id];
  if (name == "expires_ms" && !what.removed)
    mine.ends.push_back({mine.there, number_in(what.what.value)});
  else if (name == "metadata/sim" && !what.removed)
    written(id, mine, what.what.value);
  else if (name == "metadata/sim")
    removed(id, mine);
}

/// Its bytes are where its object is.
void actor_history::note_snapshot(const std::string& id, const std::string& at) {
  for (const auto& each : all)
    if (each->name == at) {
      const auto& disk = static_cast<const actor_node&>(*each).disk_snapshots();
      const auto bytes = disk.find(id);
      snapshots.recorded(id, bytes == disk.end() ? std::nullopt : std::optional{bytes->second});
    }
}

// ---- What is true in the end

std::uint64_t actor_history::progress(const std::string& id) const {
  const auto at = known_.find(id);
  return at == known_.end() ? 0 : at->second.acknowledged;
}

void actor_history::check_end() {
  check_snapshots();
  time.run_until(time.now() + last_answers);
  demand(open_ == 0, std::to_string(open_) + " questions were never answered");
  demand(links.all_up(), "two nodes have no link");
  const auto& keys = decides.keys();
  for (const auto& [id, mine] : known_) {
    const auto at = keys.find("s/data/" + id + "/metadata/sim");
    const auto is = at == keys.end() ? std::string{} : at->second.value;
    demand(is == (mine.there == 0 ? std::string{} : text_of(mine.there)),
           "what is there of " + id + " is not what was written last");
  }
  for (const auto& [id, which] : objects()) {
    const auto at = keys.find("s/data/" + id + "/metadata/sim");
    demand(at != keys.end() && at->second.value == which, "the object of " + id + " is another");
  }
  const std::string data = "s/data/", alarm = "/@alarm/";
  check_lists();
  for (const auto& [key, value] : keys) {
    if (!key.starts_with(data) || key.find(alarm) == std::string::npos)
      continue;
    const auto record = alarm_record::parse(value.value);
    demand(record.has_value(), "an alarm makes no sense");
    demand(record->due_unix_ms + std::chrono::milliseconds{alarm_patience}.count() >
             actor_node::wall_ms(time.now()),
           "an alarm has not rung: " + key);
  }
}

/// What was acknowledged can be begun with at every node, and what stands on one starts again.
void actor_history::check_snapshots() {
  struct begin {
    std::string box;
    std::size_t at = 0; ///< The node, or where it is asked for.
    bool runs = false;
  };
  std::vector<std::shared_ptr<begin>> begins, boxes, desks;
  for (const auto& id : snapshots.good_ones())
    for (std::size_t i = 0; i < nodes; ++i)
      begins.push_back(std::make_shared<begin>(begin{snapshots.asks_for_box(id), i}));
  for (const auto& box : snapshots.good_boxes())
    boxes.push_back(std::make_shared<begin>(begin{box}));
  for (const auto& desk : snapshots.good_desks())
    desks.push_back(std::make_shared<begin>(begin{desk}));
  const auto is_over = [&] {
    std::erase_if(begins, [&](const auto& each) { return !snapshots.is_wanted(each->box, true); });
    std::erase_if(boxes, [&](const auto& each) { return !snapshots.is_wanted(each->box, false); });
    std::erase_if(desks, [&](const auto& each) { return !snapshots.is_good_desk(each->box); });
    const auto runs = [](const auto& each) { return each->runs; };
    return std::all_of(begins.begin(), begins.end(), runs) &&
           std::all_of(boxes.begin(), boxes.end(), runs) &&
           std::all_of(desks.begin(), desks.end(), runs);
  };
  const auto try_all = [&] {
    const auto note = [](const auto& each) {
      return [each](bool runs) { each->runs = each->runs || runs; };
    };
    for (const auto& each : begins)
      if (!each->runs)
        at_node(each->at).begin_box(each->box, note(each));
    for (const auto& each : boxes)
      if (!each->runs)
        at_node(time.below(nodes)).use_box(each->box, note(each));
    for (const auto& each : desks)
      if (!each->runs)
        at_node(time.below(nodes)).begin_desk(each->box, note(each));
  };
  for (const auto until = time.now() + last_begins; !is_over() && time.now() < until;) {
    try_all();
    time.run_until(time.now() + next_try);
  }
  for (const auto& each : begins)
    demand(each->runs, "nothing begins at " + all[each->at]->name + " with snapshot " +
                         snapshots.snapshot_of(each->box) + " in the end");
  for (const auto& each : boxes)
    demand(each->runs,
           each->box + " does not start again with snapshot " + snapshots.snapshot_of(each->box));
  for (const auto& each : desks)
    demand(each->runs, each->box + " has left its disk, and does not begin again");
  snapshots.check_records();
}

actor_node& actor_history::at_node(std::size_t number) const {
  return static_cast<actor_node&>(*all[number]);
}

/// Each record has the line that follows from it, and the list has that line and no other.
void actor_history::check_lists() const {
  const std::string data = "s/data/", mark = "s/mark/";
  std::map<std::string, actors::record_entries> records;
  std::map<std::string, std::string> marks, expected;
  for (const auto& [key, is] : decides.keys())
    if (key.starts_with(data)) {
      const auto slash = key.find('/', data.size());
      const auto id = key.substr(data.size(), slash - data.size());
      records[id].emplace(key.substr(slash + 1), is.value);
    } else if (key.starts_with(mark)) {
      marks.emplace(key.substr(mark.size()), is.value);
    }
  for (const auto& [id, record] : records) {
    for (const auto& [key, value] : record)
      if (is_marked(key))
        expected.emplace(key + '/' + id, value);
    if (id.starts_with('_'))
      continue;
    if (const auto of = object_name::parse(id); of && !of->kind.empty()) {
      const auto none = actors::underived(record, {std::string{actors::snapshots::lines}},
                                          actors::snapshots::lines_of(of->id, record));
      demand(none.empty(), id + " has not the lines that follow from its record");
      continue;
    }
    const auto lacking = actors::underived(record, actors::prefixes_of_lines(),
                                           actors::lines_of(record, everybodys_group));
    demand(lacking.empty(), id + " has not the lines that follow from its record");
  }
  demand(marks == expected, "the marks are not what the records have");
}

// ---- What happens

void actor_history::more_trouble() {
  const auto one = time.below(nodes);
  const auto other = (one + 1 + time.below(nodes - 1)) % nodes;
  const auto a = all[one]->name, b = all[other]->name;
  links.cut(a, b, time.chance(0.7), time.chance(0.7));
  time.after(time.between(200ms, 9s), [this, a, b] { links.cut(a, b, false, false); });
  switch (time.below(6)) {
    case 0:
    case 1:
      place.away = true;
      time.after(time.between(200ms, 9s), [this] { place.away = false; });
      break;
    case 2:
      place.slowest = time.between(200ms, 5s);
      time.after(time.between(1s, 9s), [this] { place.slowest = 50ms; });
      break;
    case 3: lose_disk_of(*all[time.below(nodes)]); break;
    default: break;
  }
}

/// With it the machine has ended, and is another one when it is there again.
void actor_history::lose_disk_of(node& whom) {
  if (!whom.runs())
    return;
  whom.end(true);
  static_cast<actor_node&>(whom).lose_disk();
  time.after(time.between(1s, 6s), [&whom] {
    if (!whom.runs())
      whom.start();
  });
}

void actor_history::heal() {
  history::heal();
  links.heal();
  place.away = false;
  place.slowest = 50ms;
}

} // namespace insula::simulation
