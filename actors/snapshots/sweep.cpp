#include "actors/snapshots/sweep.hpp"

#include "actors/protocol/errors.hpp"
#include "actors/snapshots/snapshot.hpp"
#include "actors/snapshots/snapshot_record.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace insula::actors::snapshots {

namespace {

using listed_atom = caf::atom_constant<caf::atom("listed")>;
using claimed_atom = caf::atom_constant<caf::atom("claimed")>;
using again_atom = caf::atom_constant<caf::atom("again")>;
constexpr std::chrono::seconds first_pause{1};
using names = std::set<std::string, std::less<>>;

struct sweep_state {
  static inline const char* name = "snapshot sweep";
  std::shared_ptr<const sandbox_options> options;
  node_directory_actor directory;
  names found;
  names unread; ///< In a cluster: those whose records are not known yet.
  bool over = false;
  std::map<std::string, std::chrono::seconds> claims; ///< With the pause before the next try.

  void end() {
    if (!options || std::exchange(over, true))
      return;
    options->objects->end_sweep();
    options->figures->disks.end_sweep();
  }
  ~sweep_state() { end(); }
};
using sweep_pointer = caf::stateful_actor<sweep_state>*;

void tell(caf::event_based_actor* self, const node_directory_actor& directory,
          const std::string& id, bool is_there) {
  self->request(directory, caf::infinite, reach_atom::value, object_name{std::string{kind}, id})
    .then(
      [is_there](const owned_object_actor& of) {
        const auto it = caf::actor_cast<snapshot_object_actor>(of);
        is_there ? caf::anon_send(it, found_atom::value) : caf::anon_send(it, lost_atom::value);
      },
      [](const caf::error&) {});
}

// ---- In a cluster

void claim(sweep_pointer self, const std::string& id) {
  self->state.options->routes->claim(
    owner_of_snapshot(id),
    [me = caf::actor_cast<caf::actor_addr>(self), id](const result<void>& ours) {
      if (!ours)
        log::warning("snapshot.not_claimed", {{"id", id}, {"reason", ours.reason().message}});
      if (const auto target = caf::actor_cast<caf::actor>(me))
        caf::anon_send(target, claimed_atom::value, id, static_cast<bool>(ours));
    });
}

/// Its record is read then, once more if need be: it may have gone meanwhile.
void try_again(sweep_pointer self, const std::string& id) {
  auto& pause = self->state.claims.emplace(id, first_pause).first->second;
  self->delayed_send(self, pause, again_atom::value, id);
  pause = std::min(2 * pause, limits::snapshot_longest_retry);
}

/// The node that has the object may be away, or not yet linked to this one.
void claimed(sweep_pointer self, const std::string& id, bool ours) {
  if (!ours)
    return try_again(self, id);
  self->state.claims.erase(id);
  tell(self, self->state.directory, id, true);
}

/// The bytes are here, so the object is to be here as well, unless another node can have them from
/// a copy.
void claim_unless_copied(sweep_pointer self, const snapshot_description& is) {
  if (!is.copy.empty()) {
    self->state.claims.erase(is.id);
    return self->state.options->copies->note_cached(is.id, is.bytes);
  }
  self->state.claims.emplace(is.id, first_pause);
  claim(self, is.id);
}

/// One that was taken meanwhile gets its record later.
void judge(sweep_pointer self, const std::string& id, const std::vector<storage::entry>& record) {
  const auto& options = self->state.options;
  record_entries entries;
  for (const auto& each : record)
    entries.emplace(each.key, each.value);
  if (const auto is = describe(id, entries); is && !entries.contains(freed_key)) {
    if (options->routes != nullptr)
      return claim_unless_copied(self, *is);
    if (const auto what = counted(*is, entries))
      options->figures->disks.learn(id, *what, is->bytes);
    return;
  }
  self->state.claims.erase(id);
  if (options->objects->is_new_snapshot(id))
    return;
  if (options->was_alone)
    return log::warning("snapshot.unknown",
                        {{"id", id},
                         {"consequence", "its bytes stay: this node may have taken it before it "
                                         "was in a cluster"}});
  log::info("snapshot.swept", {{"id", id}});
  options->engine->drop_snapshot(id, [](const result<void>&) {});
}

void drop_unless_recorded(sweep_pointer self, const std::string& id) {
  self
    ->request(self->state.options->keep->finder, caf::infinite, read_owner_atom::value,
              owner_of_snapshot(id), std::string{}, request_context{})
    .then(
      [self, id](const std::vector<storage::entry>& record) {
        judge(self, id, record);
        if (self->state.unread.erase(id) != 0 && self->state.unread.empty())
          self->state.end();
      },
      [self, id](const caf::error&) {
        if (self->state.options->routes != nullptr) // Else the next start tries again.
          try_again(self, id);
      });
}

void tell_records(sweep_pointer self, const std::string& after) {
  list_snapshots wanted;
  wanted.after = after;
  wanted.limit = limits::list_page_sandboxes;
  self->request(self->state.directory, caf::infinite, wanted)
    .then(
      [self](const snapshot_page& page) {
        for (const auto& each : page.snapshots) {
          const bool is_there = self->state.found.contains(each.id);
          const bool has_copy = !each.copy.empty();
          if (!is_there)
            self->state.options->figures->disks.learn(
              each.id, has_copy ? counted_as::created : counted_as::failed, 0);
          if (!is_there && self->state.options->objects->is_new_snapshot(each.id))
            continue; // It was taken after the list was made.
          const bool is_known = is_there ? each.state == snapshot_state::created
                                         : each.state == snapshot_state::failed || has_copy;
          const bool wants_copy = is_there && !has_copy && self->state.options->copies != nullptr;
          if (is_known && !wants_copy)
            continue;
          tell(self, self->state.directory, each.id, is_there);
        }
        if (!page.next.empty())
          tell_records(self, page.next);
      },
      [](const caf::error&) {});
}

caf::behavior sweeper(sweep_pointer self, std::shared_ptr<const sandbox_options> options,
                      node_directory_actor directory) {
  self->state.options = std::move(options);
  self->state.directory = std::move(directory);
  self->state.options->engine->list_snapshots(
    [me = caf::actor_cast<caf::actor_addr>(self)](result<std::vector<std::string>> all) {
      const auto target = caf::actor_cast<caf::actor>(me);
      if (!target)
        return;
      if (all)
        caf::anon_send(target, listed_atom::value, std::move(*all));
      else
        caf::anon_send_exit(target, caf::exit_reason::user_shutdown);
    });
  return {
    [self](listed_atom, std::vector<std::string>& all) {
      const bool is_alone = self->state.options->routes == nullptr;
      if (is_alone)
        self->unbecome(); // It ends once all that it asks for is answered.
      if (!is_alone)
        self->state.unread = {all.begin(), all.end()};
      for (const auto& each : all)
        drop_unless_recorded(self, each);
      if (!is_alone) // What is not here may be at other nodes.
        return all.empty() ? self->state.end() : void();
      self->state.found = {all.begin(), all.end()};
      tell_records(self, {});
    },
    [self](claimed_atom, const std::string& id, bool ours) { claimed(self, id, ours); },
    [self](again_atom, const std::string& id) { drop_unless_recorded(self, id); },
  };
}

} // namespace

caf::actor sweep(caf::actor_system& system, std::shared_ptr<const sandbox_options> options,
                 node_directory_actor directory) {
  options->objects->begin_sweep(); // Now: the actor may run after a snapshot was asked for.
  options->figures->disks.begin_sweep();
  return system.spawn(sweeper, std::move(options), std::move(directory));
}

} // namespace insula::actors::snapshots
