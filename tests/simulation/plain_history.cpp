#include "tests/simulation/plain_history.hpp"

#include "tests/simulation/plain_node.hpp"

#include <algorithm>
#include <charconv>

namespace insula::simulation {

using namespace storage;

namespace {

/// So long after its time an alarm has rung, when all is well.
constexpr auto alarm_patience = 35s;

} // namespace

plain_history::plain_history(std::uint64_t seed)
    : history(seed) {
  decides.changed = [this](const etcd::event& what) { changed(what); };
}

std::unique_ptr<node> plain_history::make_node(std::string name) {
  return std::make_unique<plain_node>(*this, std::move(name));
}

std::uint64_t plain_history::progress(const std::string& id) const {
  const auto at = deeds_.find(id);
  return at == deeds_.end() ? 0 : at->second.acknowledged;
}

// ---- What nodes tell

std::uint64_t plain_history::begun(const std::string& id, bool is_delete) {
  auto& mine = deeds_[id];
  const auto number = ++mine.begun;
  if (is_delete)
    mine.deletes.insert(number);
  return number;
}

void plain_history::done(const std::string& id, std::uint64_t number, bool is_delete) {
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

void plain_history::failed(const std::string& id, std::uint64_t number) {
  auto& mine = deeds_[id];
  if (number <= mine.applied)
    mine.found_out = number == mine.applied;
  else
    mine.in_doubt.insert(number);
}

// ---- What etcd tells

void plain_history::applied(deeds& of, std::uint64_t number, bool is_delete) {
  of.applied = number;
  of.is_gone = is_delete;
  of.deletes.erase(of.deletes.begin(), of.deletes.upper_bound(number));
  if (of.in_doubt.contains(number))
    of.found_out = true;
}

void plain_history::changed(const etcd::event& what) {
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

// ---- What is true in the end

void plain_history::check_end() {
  const auto& keys = decides.keys();
  for (const auto& [id, mine] : deeds_) {
    const auto at = keys.find("s/data/" + id + "/n");
    demand((at == keys.end()) == mine.is_gone, id + " is there, or is not, as it should not be");
    demand(mine.is_gone || at->second.value == std::to_string(mine.applied),
           "what is there of " + id + " is not what was written last");
    demand(mine.applied >= mine.acknowledged, "an acknowledged write of " + id + " is lost");
  }
  for (const auto& [id, object] : objects()) {
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

} // namespace insula::simulation
