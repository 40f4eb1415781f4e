#include "tests/simulation/played_engine.hpp"

#include "tests/simulation/played_place.hpp"
#include "tests/simulation/snapshot_book.hpp"

#include <algorithm>

namespace insula::simulation {

namespace {

const error no_such_snapshot{errc::not_found, "what the snapshot had is not there"};
const error nobody_asks{errc::sandbox_not_running, "the server has been killed"};

} // namespace

// ---- A sandbox

void played_sandbox::take_snapshot(const std::string& as,
                                   std::function<void(result<runtime::disk_snapshot>)> on_taken) {
  if (written)
    text = text_of_file(written.get());
  engine_.take(std::static_pointer_cast<played_sandbox>(shared_from_this()), as,
               std::move(on_taken));
}

void played_sandbox::open_disk(const std::string& snapshot,
                               std::function<void(result<unique_fd>)> tell) {
  const auto at = engine_.snapshots_->find(snapshot);
  if (at == engine_.snapshots_->end())
    return tell(no_such_snapshot);
  tell(file_of(at->second));
}

result<unique_fd> played_sandbox::open_tree(const runtime::tree_request& wanted,
                                            runtime::sandbox_user) {
  if (wanted.what != runtime::file_operation::write || !wanted.whole)
    return error{errc::invalid_request, "nobody reads trees here"};
  written = file_of({});
  return unique_fd{::dup(written.get())};
}

// ---- Sandboxes

void played_engine::next_server() {
  ++server_;
  is_deaf_ = false;
  left_.clear();
  for (const auto& [name, place] : places_)
    if (place->destroys == 0)
      left_.insert(name);
}

bool played_engine::has_any() const {
  return std::any_of(places_.begin(), places_.end(),
                     [](const auto& each) { return each.second->destroys == 0; });
}

void played_engine::write(const std::string& name, const std::string& text) {
  places_.at(name)->text = text;
  book_.disk_is(name, text);
}

void played_engine::create(runtime::sandbox_spec spec, runtime::sandbox_listener listener) {
  if (is_deaf_)
    return;
  if (spec.name.empty()) { // Its maker waits, and nothing else goes on meanwhile.
    if (world_.chance(0.02))
      return listener.on_failed({errc::launch_failed, "it did not start"});
    return listener.on_ready(std::make_shared<played_sandbox>(*this, "", ""));
  }
  const auto takes = world_.chance(0.1) ? world_.between(0ms, 3s) : world_.between(0ms, 60ms);
  open_.after(takes, [this, of = server_, spec = std::move(spec), listener = std::move(listener)] {
    if (of != server_)
      return;
    if (world_.chance(0.03))
      return listener.on_failed({errc::launch_failed, "it did not start"});
    const auto from = snapshots_->find(spec.disk_from);
    if (!spec.disk_from.empty() && from == snapshots_->end())
      return listener.on_failed(no_such_snapshot);
    const auto text = spec.disk_from.empty() ? std::string{} : from->second;
    const auto made = std::make_shared<played_sandbox>(*this, spec.name, text);
    places_[spec.name] = made;
    book_.begins(spec.name, spec.disk_from, text);
    listener.on_ready(made);
  });
}

void played_engine::adopt(const runtime::sandbox_spec& spec, runtime::sandbox_listener listener) {
  if (left_.erase(spec.name) == 0 || !has(spec.name))
    return listener.on_failed({errc::not_found, "nothing of that name has been left"});
  listener.on_ready(places_[spec.name]);
}

// ---- Snapshots

void played_engine::lose_disk() {
  book_.disk_lost(*snapshots_);
  snapshots_->clear();
}

/// It is done though the server that has asked for it may have ended by then.
void played_engine::on_disk(nanoseconds before, std::function<void()> what) {
  busy_until_ = std::max(busy_until_, world_.now() + before) + world_.between(0ms, 20ms);
  world_.at(busy_until_, [alive = alive_, what = std::move(what)] {
    if (*alive)
      what();
  });
}

/// What is dirty is written before the others wait for it.
void played_engine::take(const std::shared_ptr<played_sandbox>& of, const std::string& name,
                         std::function<void(result<runtime::disk_snapshot>)> on_taken) {
  if (is_deaf_)
    return on_taken(nobody_asks);
  const auto flushes = world_.chance(0.1) ? world_.between(0ms, 2s) : world_.between(0ms, 50ms);
  world_.after(flushes, [this, alive = alive_, of, name, tell = open_.keep(std::move(on_taken))] {
    if (*alive)
      on_disk(0ms, [this, of, name, tell] {
        const bool is_there = of->name.empty() || (has(of->name) && places_.at(of->name) == of);
        if (!is_there)
          return tell(error{errc::sandbox_not_running, "it has ended"});
        if (!snapshots_->emplace(name, of->text).second)
          return tell(error{errc::already_exists, "there is such a snapshot"});
        if (of->name.empty())
          book_.brought(name, of->text);
        tell(runtime::disk_snapshot{.bytes = 4096, .stood_still = std::chrono::milliseconds{1}});
      });
  });
}

void played_engine::drop_snapshot(const std::string& name,
                                  std::function<void(result<void>)> on_dropped) {
  if (is_deaf_)
    return on_dropped(nobody_asks);
  on_disk(0ms, [this, name, tell = open_.keep(std::move(on_dropped))] {
    snapshots_->erase(name);
    tell({});
  });
}

void played_engine::list_snapshots(std::function<void(result<std::vector<std::string>>)> tell) {
  if (is_deaf_)
    return tell(nobody_asks);
  on_disk(0ms, [this, tell = open_.keep(std::move(tell))] {
    std::vector<std::string> names;
    for (const auto& [name, text] : *snapshots_)
      names.push_back(name);
    tell(std::move(names));
  });
}

} // namespace insula::simulation
