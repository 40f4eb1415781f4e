#include "actors/sandbox/disk_snapshots.hpp"

#include "actors/run_record.hpp"
#include "actors/sandbox/teardown.hpp"
#include "actors/sandbox/workspace.hpp"
#include "actors/snapshots/snapshot_record.hpp"
#include "base/failpoint.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <utility>

namespace insula::actors::inside_sandbox {

namespace {

/// The snapshot that the next one comes from, a blank, and the first of their tree.
constexpr const char* lineage_key = "disk_lineage";
/// It has been rolled back, and has not started since.
constexpr const char* rolled_back_key = "rolled_back";

const error one_node_alone{errc::forbidden, "snapshots of disks are kept by a node that is in no "
                                            "cluster"};

std::string lineage(const snapshot_description& of) {
  return of.id + ' ' + of.root;
}

void drop(runtime::engine& from, const std::string& id) {
  from.drop_snapshot(id, [id](const result<void>& outcome) {
    if (!outcome) // The node's next start does it.
      log::warning("snapshot.not_freed", {{"id", id}, {"reason", outcome.reason().message}});
  });
}

} // namespace

std::string disk_snapshots::base() const {
  return record().value(disk_from_key);
}

std::vector<storage::change> disk_snapshots::changes_for(const snapshot_description& from) {
  std::vector<storage::change> changes{{disk_from_key, from.id}};
  if (!from.hidden)
    changes.push_back({lineage_key, lineage(from)});
  else if (!from.parent.empty())
    changes.push_back({lineage_key, from.parent + ' ' + from.root});
  if (!from.image.empty())
    changes.push_back({image_key, from.image});
  if (!from.image_source.empty())
    changes.push_back({image_source_key, from.image_source});
  return changes;
}

bool disk_snapshots::has_other_disk() const {
  return record().find(rolled_back_key) != nullptr;
}

void disk_snapshots::note_start(std::vector<storage::change>& into) const {
  if (has_other_disk())
    into.push_back({rolled_back_key, std::nullopt});
}

void disk_snapshots::describe(sandbox_description& into) const {
  into.snapshot = base();
}

void disk_snapshots::ends(const error& why) {
  for (const auto& [id, each] : std::exchange(taking_, {}))
    for (const auto& one : each.to)
      one.fail(why);
}

void disk_snapshots::taking::give(const result<snapshot_description>& outcome) const {
  for (const auto& each : to)
    each.give(outcome);
  mine.over();
}

// ---- Taking one

void disk_snapshots::take(const take_snapshot& wanted, const reply<snapshot_description>& to) {
  if (const auto wrong = snapshots::malformed(wanted))
    return to.fail(*wrong);
  if (options().ours)
    return to.fail(one_node_alone);
  core_.when_there(
    wanted.context,
    [=, this] {
      const auto go = [=, this] { begin_unless_known(wanted, to); };
      core_.runs() ? go() : core_.when_running(to, wanted.context, go);
    },
    to.otherwise());
}

/// A request that came before may have taken it, or be about to.
void disk_snapshots::begin_unless_known(const take_snapshot& wanted,
                                        const reply<snapshot_description>& to) {
  if (wanted.id.empty())
    return begin(wanted, to);
  const pending_operation mine{core_};
  core_.ask_snapshot(
    find_snapshot{wanted.id, wanted.context},
    reply<snapshot_description>::function{[=, this](const result<snapshot_description>& found) {
      if (found || found.reason().code != errc::not_found)
        to.give(found);
      else if (const auto at = taking_.find(wanted.id); at != taking_.end())
        at->second.to.push_back(to);
      else if (core_.runs())
        begin(wanted, to);
      else
        to.fail(has_ended);
      mine.over();
    }});
}

void disk_snapshots::begin(const take_snapshot& wanted, const reply<snapshot_description>& to,
                           bool stands_on_it) {
  if (taking_.size() >= limits::snapshots_at_once)
    return to.fail({errc::limit_reached, "as many snapshots of this sandbox are taken as may be"});
  const auto id = wanted.id.empty() ? sandbox_id::generate().str() : wanted.id;
  // One that nobody has asked for is no use of the sandbox.
  auto awake = stands_on_it ? nullptr : core_.keep_awake();
  taking_.emplace(id, taking{wanted,
                             {to},
                             std::move(awake),
                             pending_operation{core_},
                             steady_clock::now(),
                             std::chrono::nanoseconds{0},
                             stands_on_it});
  engine_sandbox()->take_snapshot(id, [this, id, post = core_.post(), engine = options().engine](
                                        const result<runtime::disk_snapshot>& outcome) {
    if (!post([=, this] { on_taken(id, outcome); }) && outcome)
      drop(*engine, id); // Nobody is there any more to tell of it.
  });
}

snapshot_description disk_snapshots::describe_taken(const std::string& id,
                                                    const take_snapshot& wanted,
                                                    std::uint64_t bytes) const {
  snapshot_description is{id, core_.id()};
  const auto before = record().value(lineage_key);
  const auto blank = before.find(' ');
  if (blank != std::string::npos) {
    is.parent = before.substr(0, blank);
    is.root = before.substr(blank + 1);
  }
  if (const auto run = last_run(record().entries()))
    is.run = run->number;
  is.image = record().value(image_key);
  is.image_source = record().value(image_source_key);
  is.bytes = bytes;
  is.hidden = wanted.hidden;
  is.name = wanted.name;
  is.labels = wanted.labels;
  is.keep_ms = wanted.keep_ms;
  return is;
}

void disk_snapshots::on_taken(const std::string& id,
                              const result<runtime::disk_snapshot>& outcome) {
  const auto at = taking_.find(id);
  if (at == taking_.end())
    return outcome ? drop(*options().engine, id) : void();
  if (!outcome) {
    options().figures->snapshot_failed();
    log::warning("snapshot.not_taken", {{"id", core_.id()}, {"reason", outcome.reason().message}});
    return taking_.extract(at).mapped().give(outcome.reason());
  }
  failpoint("snapshot.taken");
  auto& [wanted, to, awake, mine, since, stood_still, stands_on_it] = at->second;
  stood_still = outcome->stood_still;
  define_snapshot made{describe_taken(id, wanted, outcome->bytes), wanted.keep_last};
  made.context = wanted.context;
  if (stands_on_it) {
    made.is.state = snapshot_state::deleted;
    made.held_by = core_.id();
  }
  core_.ask_snapshot(std::move(made), reply<snapshot_description>::function{
                                        [this, id](const result<snapshot_description>& defined) {
                                          on_defined(id, defined);
                                        }});
}

void disk_snapshots::on_defined(const std::string& id,
                                const result<snapshot_description>& defined) {
  const auto asked = taking_.extract(id);
  if (!asked)
    return;
  if (!defined) {
    options().figures->snapshot_failed();
    drop(*options().engine, id);
    return asked.mapped().give(defined.reason());
  }
  const auto& done = asked.mapped();
  options().figures->snapshot_taken(done.stands_on_it, steady_clock::now() - done.since,
                                    done.stood_still);
  log::write(defined->hidden ? log::level::debug : log::level::info, "snapshot.taken",
             {{"id", id}, {"sandbox", core_.id()}, {"request", done.wanted.context.id}});
  if (!defined->hidden) {
    // Nothing is lost if this is: the next one then comes from an older one.
    const pending_operation mine{core_};
    core_.with_lease(
      [=, this] {
        if (core_.exists())
          record().write({{lineage_key, lineage(*defined)}});
        mine.over();
      },
      [mine](const error&) { mine.over(); });
  }
  done.give(*defined);
}

// ---- Back to one

void disk_snapshots::roll_back_to(const roll_back& wanted, const reply<sandbox_description>& to) {
  core_.when_there(
    wanted.context,
    [=, this] {
      const auto go = [=, this] { begin_roll_back(wanted, to); };
      // What is on its way, or was left by an earlier server, comes first.
      core_.lives() && !core_.runs() ? core_.when_running(to, wanted.context, go) : go();
    },
    to.otherwise());
}

void disk_snapshots::begin_roll_back(const roll_back& wanted,
                                     const reply<sandbox_description>& to) {
  if (core_.is_held())
    return to.fail({errc::invalid_request, "the sandbox is paused: resume it first"});
  if (last_run(record().entries()))
    return to.fail({errc::invalid_request, "the sandbox has runs: stop it, and begin the next run "
                                           "with the snapshot"});
  if (std::exchange(rolling_back_, true))
    return to.fail({errc::limit_reached, "the sandbox is being rolled back"});
  const pending_operation mine{core_};
  const reply<sandbox_description> over{reply<sandbox_description>::function{
    [this, to, mine](const result<sandbox_description>& outcome) {
      rolling_back_ = false;
      to.give(outcome);
      mine.over();
    }}};
  core_.ask_snapshot(
    hold_snapshot{wanted.snapshot, core_.id(), wanted.context},
    reply<snapshot_description>::function{[=, this](const result<snapshot_description>& held) {
      if (!held)
        return over.fail(held.reason());
      const bool fits = held->origin == core_.id() || held->id == base();
      if (fits)
        return write_base(*held, wanted, over);
      core_.release_snapshot(held->id);
      over.fail({errc::invalid_request, "snapshot " + held->id + " is of another sandbox's disk"});
    }});
}

/// It is held. `more` is written with it.
void disk_snapshots::stand_on(const snapshot_description& next, std::vector<storage::change> more,
                              const then_function& then, const otherwise_function& otherwise) {
  const auto refuse = [=, this](const error& why) {
    if (base() != next.id)
      core_.release_snapshot(next.id);
    otherwise(why);
  };
  core_.with_lease(
    [=, this] {
      if (!core_.exists())
        return refuse(core_.refusal().value_or(core_.not_found()));
      const auto before = base();
      auto changes = more;
      changes.push_back({disk_from_key, next.id});
      record().write(std::move(changes));
      record().when_durable(
        [=, this] {
          if (!before.empty() && before != next.id)
            core_.release_snapshot(before);
          then();
        },
        refuse);
    },
    refuse);
}

void disk_snapshots::write_base(const snapshot_description& next, const roll_back& wanted,
                                const reply<sandbox_description>& to) {
  auto changes = changes_for(next);
  if (core_.now() != phase::asleep)
    changes.push_back({rolled_back_key, "1"});
  workspace_.note_roll_back(changes);
  stand_on(
    next, std::move(changes),
    [=, this] {
      failpoint("snapshot.rolled_back");
      options().figures->rolled_back();
      log::info("sandbox.rolled_back",
                {{"id", core_.id()}, {"snapshot", next.id}, {"request", wanted.context.id}});
      if (is_alive(core_.now()))
        teardown_.stop(sandbox_end::stopped, "it was rolled back to snapshot " + next.id);
      core_.when_running(to, wanted.context, [=, this] { to.deliver(core_.describe()); });
    },
    to.otherwise());
}

// ---- What is kept of a persistent sandbox

void disk_snapshots::keep(std::function<void(const result<void>&)> then) {
  take_snapshot wanted;
  wanted.hidden = true;
  begin(wanted,
        reply<snapshot_description>::function{[=, this](const result<snapshot_description>& taken) {
          if (!taken)
            return then(taken.reason());
          failpoint("snapshot.kept");
          stand_on(
            *taken, workspace_.changes_of_kept(taken->created_ms), [then] { then({}); },
            [then](const error& why) { then(why); });
        }},
        true);
}

} // namespace insula::actors::inside_sandbox
