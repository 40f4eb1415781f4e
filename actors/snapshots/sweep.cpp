#include "actors/snapshots/sweep.hpp"

#include "actors/protocol/errors.hpp"
#include "actors/snapshots/snapshot.hpp"
#include "actors/snapshots/snapshot_record.hpp"
#include "base/log.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace insula::actors::snapshots {

namespace {

using listed_atom = caf::atom_constant<caf::atom("listed")>;
using names = std::set<std::string, std::less<>>;

struct sweep_state {
  static inline const char* name = "snapshot sweep";
  std::shared_ptr<const sandbox_options> options;
  node_directory_actor directory;
  names found;

  ~sweep_state() {
    if (!options)
      return;
    options->objects->end_sweep();
    options->figures->disks.end_sweep();
  }
};
using sweep_pointer = caf::stateful_actor<sweep_state>*;

/// One that was taken meanwhile gets its record later.
void drop_unless_recorded(sweep_pointer self, const std::string& id) {
  const auto owner = object_name{std::string{kind}, id}.owner();
  self
    ->request(self->state.options->keep->cluster, caf::infinite, read_owner_atom::value, owner,
              std::string{}, request_context{})
    .then(
      [options = self->state.options, engine = self->state.options->engine,
       id](const std::vector<storage::entry>& record) {
        record_entries entries;
        for (const auto& each : record)
          entries.emplace(each.key, each.value);
        if (const auto is = describe(id, entries); is && !entries.contains(freed_key)) {
          if (const auto what = counted(*is, entries))
            options->figures->disks.learn(id, *what, is->bytes);
          return;
        }
        if (options->objects->is_new_snapshot(id))
          return;
        log::info("snapshot.swept", {{"id", id}});
        engine->drop_snapshot(id, [](const result<void>&) {});
      },
      [](const caf::error&) {}); // The next start tries again.
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
          self
            ->request(self->state.directory, caf::infinite, reach_atom::value,
                      object_name{std::string{kind}, each.id})
            .then(
              [is_there](const owned_object_actor& of) {
                const auto it = caf::actor_cast<snapshot_object_actor>(of);
                is_there ? caf::anon_send(it, found_atom::value)
                         : caf::anon_send(it, lost_atom::value);
              },
              [](const caf::error&) {});
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
      self->unbecome(); // It ends once all that it asks for is answered.
      for (const auto& each : all)
        drop_unless_recorded(self, each);
      self->state.found = {all.begin(), all.end()};
      tell_records(self, {});
    },
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
