#include "actors/snapshots/eviction.hpp"

#include "actors/object_link.hpp"
#include "actors/record_text.hpp"
#include "actors/snapshots/snapshot_record.hpp"
#include "base/limits.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <utility>

namespace insula::actors::snapshots {

namespace {

struct evicting {
  std::shared_ptr<const sandbox_options> options;
  eviction what;
};
using shared_evicting = std::shared_ptr<const evicting>;

/// Empty: it stays as it is.
std::string evicted(const storage::owned_entry& line, const eviction& what) {
  const auto name = object_name::parse(line.owner);
  const auto is = name ? describe(name->id, from_text(line.value)) : std::nullopt;
  if (!is || is->created_ms < what.since_ms)
    return {};
  // It expires soon enough already.
  if (what.keep_ms > 0 && is->keep_ms > 0 && is->keep_ms <= what.keep_ms)
    return {};
  return name->id;
}

/// A page at a time.
void evict_behind(caf::event_based_actor* self, const shared_evicting& st,
                  const storage::mark_position& last) {
  self
    ->request(st->options->keep->finder, caf::infinite,
              scan_marks{list_of_origin(st->what.origin), last, limits::list_page_sandboxes})
    .then(
      [=](const storage::mark_page& found) {
        const auto directory = st->options->objects->get();
        if (!directory)
          return self->quit();
        for (const auto& each : found.lines)
          if (const auto id = evicted(each, st->what); !id.empty())
            self->request(directory, caf::infinite, delete_snapshot{id, {}, true, st->what.keep_ms})
              .then([](const snapshot_description&) {}, [](const caf::error&) {});
        // It ends with the last answer.
        if (found.more)
          evict_behind(self, st, {found.lines.back().key, found.lines.back().owner});
      },
      [self](const caf::error&) { self->quit(); });
}

void begin(caf::event_based_actor* self, const shared_evicting& st) {
  const auto limit = std::clamp<std::size_t>(st->what.keep_last, 1, storage::store::max_page_lines);
  self
    ->request(st->options->keep->finder, caf::infinite,
              scan_marks{list_of_origin(st->what.origin), {}, limit, true})
    .then(
      [=](const storage::mark_page& found) {
        if (found.more)
          evict_behind(self, st, {found.lines.back().key, found.lines.back().owner});
      },
      [self](const caf::error&) { self->quit(); });
}

} // namespace

void evict_older(caf::actor_system& system, std::shared_ptr<const sandbox_options> options,
                 eviction what) {
  system.spawn(begin,
               std::make_shared<const evicting>(evicting{std::move(options), std::move(what)}));
}

} // namespace insula::actors::snapshots
