#include "tests/simulation/snapshot_book.hpp"

#include "actors/snapshots/snapshot_record.hpp"
#include "tests/simulation/history.hpp"

#include <algorithm>

namespace insula::simulation {

using namespace actors;

namespace {

/// So many of them are used at a time.
constexpr std::size_t most_boxes = 6;

/// As a sandbox may be called.
std::string numbered(const char* kind, std::size_t number) {
  std::string name = kind;
  for (const auto shift : {676u, 26u, 1u})
    name += static_cast<char>('a' + number / shift % 26);
  return name;
}

template <class Map, class Fits>
std::vector<std::string> names_of(const Map& all, Fits fits) {
  std::vector<std::string> found;
  for (const auto& [name, each] : all)
    if (fits(each))
      found.push_back(name);
  return found;
}

} // namespace

bool snapshot_book::has_key(const std::string& id, const char* key) const {
  return all_.decides.keys().contains("s/data/" + snapshots::owner_of_snapshot(id) + '/' + key);
}

std::string snapshot_book::value(const std::string& id, const char* key) const {
  const auto& keys = all_.decides.keys();
  const auto at = keys.find("s/data/" + snapshots::owner_of_snapshot(id) + '/' + key);
  return at == keys.end() ? std::string{} : at->second.value;
}

// ---- What machines tell

void snapshot_book::begins(const std::string& sandbox, const std::string& id,
                           const std::string& text) {
  if (const auto of = desks_.find(sandbox); of != desks_.end()) {
    // Later names are of later snapshots.
    demand(of->second.delete_asked || id >= of->second.left,
           sandbox + " begins with snapshot " + id + ", and has left " + of->second.left);
  } else {
    const auto at = boxes_.find(sandbox);
    // A box that was deleted is any sandbox, for whoever asks late.
    demand(at == boxes_.end() ? id.empty() : id == at->second.snapshot || at->second.delete_asked,
           sandbox + " begins with snapshot " + id);
  }
  disk_is(sandbox, text);
  if (id.empty())
    return;
  all_.count("sandboxes begun with snapshots");
  demand(snapshots_.at(id).text == text,
         sandbox + " begins with " + text + ", which is not what snapshot " + id + " is of");
}

void snapshot_book::brought(const std::string& id, const std::string& text) const {
  all_.count("snapshots brought from their copies");
  demand(snapshots_.at(id).text == text, "the copy of snapshot " + id + " is another one");
}

void snapshot_book::disk_lost(const std::map<std::string, std::string>& on_it) {
  all_.count("disks lost");
  for (const auto& [id, text] : on_it)
    if (auto& mine = snapshots_.at(id); !has_key(id, snapshot_key))
      mine.lost = true;
}

// ---- What etcd tells

void snapshot_book::recorded(const std::string& id, const std::optional<std::string>& text) {
  auto& mine = snapshots_.at(id);
  demand(mine.deleted == 0, "snapshot " + id + " was deleted, and is made again");
  demand(text || mine.lost, "snapshot " + id + " has a record, and no bytes");
  mine.text = text;
}

// ---- What clients ask, and are told

std::string snapshot_book::asks(const std::string& source, bool hidden) {
  auto id = numbered("snap", snapshots_.size());
  snapshots_[id] = {source, hidden, ++now_};
  return id;
}

void snapshot_book::taken(const std::string& id, const snapshot_description& is) {
  auto& mine = snapshots_.at(id);
  if (is.state != snapshot_state::created || mine.taken != 0)
    return;
  mine.taken = ++now_;
  all_.count(mine.hidden ? "snapshots for forks taken" : "snapshots taken");
  if (mine.lost)
    return;
  demand(has_key(id, snapshots::taken_key), "acknowledged snapshot " + id + " has no record");
  demand(!shared_ || mine.hidden || has_key(id, snapshot_key),
         "snapshot " + id + " was acknowledged before it had a copy");
  // It is of some moment between the question and the answer.
  const auto& disk = disks_[mine.source];
  bool fits = false;
  for (auto at = disk.rbegin(); at != disk.rend() && !fits; ++at) {
    fits = at->second == mine.text;
    if (at->first < mine.asked)
      break;
  }
  demand(fits, "snapshot " + id + " is of no moment in which it was taken");
}

void snapshot_book::asks_to_delete(const std::string& id) {
  auto& mine = snapshots_.at(id);
  if (mine.delete_asked == 0)
    mine.delete_asked = ++now_;
}

void snapshot_book::deleted(const std::string& id) {
  auto& mine = snapshots_.at(id);
  mine.deleted = ++now_;
  all_.count("snapshots deleted");
}

void snapshot_book::not_found(const std::string& id) const {
  const auto& mine = snapshots_.at(id);
  demand(mine.taken == 0 || mine.delete_asked != 0 || mine.lost,
         "acknowledged snapshot " + id + " is not found");
}

std::optional<std::string> snapshot_book::any() const {
  const auto known = names_of(snapshots_, [](const snapshot& each) {
    return each.taken != 0 && !each.hidden && each.deleted == 0;
  });
  return known.empty() ? std::nullopt : std::optional{known[all_.time.below(known.size())]};
}

std::string snapshot_book::asks_for_box(const std::string& id) {
  auto name = numbered("box", boxes_.size());
  boxes_[name] = {id};
  return name;
}

void snapshot_book::made_box(const std::string& name, std::uint64_t asked) {
  auto& mine = boxes_.at(name);
  const auto& from = snapshots_.at(mine.snapshot);
  demand(from.deleted == 0 || asked < from.deleted,
         "a sandbox begins with snapshot " + mine.snapshot + ", which was deleted before");
  if (!std::exchange(mine.made, true))
    all_.count("sandboxes made with snapshots");
}

std::optional<std::string> snapshot_book::any_box() const {
  auto known = names_of(boxes_, [](const box& each) { return each.made && !each.delete_asked; });
  if (known.empty())
    return std::nullopt;
  return known[all_.time.below(std::min(known.size(), most_boxes))];
}

// ---- Desks

std::string snapshot_book::new_desk() {
  auto name = numbered("desk", desks_.size());
  desks_[name] = {};
  return name;
}

std::optional<std::string> snapshot_book::any_desk() const {
  const auto known = names_of(desks_, [](const desk& each) { return !each.delete_asked; });
  return known.empty() ? std::nullopt : std::optional{known[all_.time.below(known.size())]};
}

void snapshot_book::desk_runs(const std::string& name, std::uint64_t run) {
  auto& mine = desks_.at(name);
  demand(mine.delete_asked || run >= mine.run, name + " has an older run than before");
  if (run > mine.run)
    all_.count(mine.left.empty() ? "runs begun" : "runs begun that follow a stop");
  mine.run = std::max(mine.run, run);
}

void snapshot_book::desk_stopped(const std::string& name, const sandbox_run& run) {
  if (run.state != run_state::stopped)
    return all_.count("runs that left nothing");
  auto& mine = desks_.at(name);
  demand(!run.snapshot.empty(), "a run of " + name + " was stopped, and has left nothing");
  if (run.snapshot <= mine.left)
    return;
  all_.count("runs stopped");
  snapshot_description is{run.snapshot, name};
  taken(run.snapshot, is);
  mine.left = run.snapshot;
}

bool snapshot_book::may_be_gone(const desk& which) const {
  if (which.left.empty() || which.delete_asked)
    return true;
  // A later one that nobody has heard of may have been lost, or deleted as well.
  for (auto at = snapshots_.find(which.left); at != snapshots_.end(); ++at)
    if (at->second.source == snapshots_.at(which.left).source &&
        (at->second.lost || at->second.delete_asked != 0))
      return true;
  return false;
}

void snapshot_book::desk_gone(const std::string& name) const {
  demand(may_be_gone(desks_.at(name)),
         name + " has left " + desks_.at(name).left + ", and has nothing to begin with");
}

std::vector<std::string> snapshot_book::good_desks() const {
  return names_of(desks_, [this](const desk& each) { return each.made && !may_be_gone(each); });
}

// ---- In the end

void snapshot_book::check_records() const {
  for (const auto& [id, each] : snapshots_) {
    const bool is_there = has_key(id, snapshots::taken_key) &&
                          value(id, snapshots::state_key) != name_of(snapshot_state::deleted);
    demand(each.deleted == 0 || !is_there, "snapshot " + id + " was deleted, and is there");
    demand(each.taken == 0 || each.delete_asked != 0 || each.lost || is_there,
           "nobody has deleted snapshot " + id + ", and it is gone");
  }
}

std::vector<std::string> snapshot_book::good_ones() const {
  return names_of(snapshots_, [](const snapshot& each) {
    return each.taken != 0 && each.delete_asked == 0 && !each.lost;
  });
}

std::vector<std::string> snapshot_book::good_boxes() const {
  return names_of(boxes_, [this](const box& each) {
    return each.made && !each.delete_asked && !snapshots_.at(each.snapshot).lost;
  });
}

} // namespace insula::simulation
