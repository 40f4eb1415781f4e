#include "actors/snapshots/eviction.hpp"

#include "actors/object_link.hpp"
#include "actors/record_text.hpp"
#include "actors/snapshots/snapshot_record.hpp"
#include "base/limits.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <functional>
#include <memory>
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

void evict_behind(caf::event_based_actor* self, const shared_evicting& st,
                  const storage::mark_position& last);

/// A page at a time: the next one once all of this one have answered.
void evict_page(caf::event_based_actor* self, const shared_evicting& st,
                const storage::mark_page& page) {
  const auto directory = st->options->objects->get();
  if (!directory)
    return self->quit();
  const auto left = std::make_shared<std::size_t>(page.lines.size() + 1);
  std::function<void()> next;
  if (page.more)
    next = [=, last = storage::mark_position{page.lines.back().key, page.lines.back().owner}] {
      evict_behind(self, st, last);
    };
  const auto one_less = [left, next] {
    if (--*left == 0 && next)
      next();
  };
  for (const auto& each : page.lines) {
    const auto id = evicted(each, st->what);
    if (id.empty())
      --*left;
    else
      self->request(directory, caf::infinite, delete_snapshot{id, {}, true, st->what.keep_ms})
        .then([one_less](const snapshot_description&) { one_less(); },
              [one_less](const caf::error&) { one_less(); });
  }
  one_less();
}

void evict_behind(caf::event_based_actor* self, const shared_evicting& st,
                  const storage::mark_position& last) {
  self
    ->request(st->options->keep->finder, caf::infinite,
              scan_marks{list_of_origin(st->what.origin), last, limits::list_page_sandboxes})
    .then([=](const storage::mark_page& found) { evict_page(self, st, found); },
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
