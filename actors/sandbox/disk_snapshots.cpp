#include "actors/sandbox/disk_snapshots.hpp"

#include "actors/run_record.hpp"
#include "actors/sandbox/persistence.hpp"
#include "actors/sandbox/teardown.hpp"
#include "actors/sandbox_groups.hpp"
#include "actors/sandbox_metadata.hpp"
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

/// Of what this start lies over: what has its name may change while it runs.
constexpr const char* image_digest_key = "image_digest";

const error changed_meanwhile{errc::sandbox_mismatch, "the sandbox is being changed: ask again"};

error gone(const std::string& id) {
  return {errc::snapshot_gone, "Snapshot " + id + " not found."};
}

/// Starts that a rollback meets one after the other.
constexpr unsigned most_starts = 3;

std::string lineage(const snapshot_description& of) {
  return of.id + ' ' + of.root;
}

void drop(runtime::engine& from, const std::string& id) {
  from.drop_snapshot(id, [id](const result<void>& outcome) {
    if (!outcome) // The node's next start does it.
      log::warning("snapshot.not_freed", {{"id", id}, {"reason", outcome.reason().message}});
  });
}

/// The bytes of a snapshot of which nobody has been told. They go, unless the sandbox has heard.
struct untold_bytes {
  runtime::engine* engine;
  std::string id;
  bool there = false;

  untold_bytes(runtime::engine& of, std::string which)
      : engine(&of)
      , id(std::move(which)) {}
  untold_bytes(const untold_bytes&) = delete;
  untold_bytes& operator=(const untold_bytes&) = delete;
  ~untold_bytes() {
    if (there)
      drop(*engine, id);
  }
};

} // namespace

std::string disk_snapshots::base() const {
  return record().value(disk_from_key);
}

std::vector<storage::change> disk_snapshots::changes_for(const snapshot_description& from) {
  std::vector<storage::change> changes{
    {disk_from_key, from.id}, {disk_of_key, from.hidden ? std::nullopt : std::optional{from.id}}};
  if (!from.hidden)
    changes.push_back({lineage_key, lineage(from)});
  else if (!from.parent.empty())
    changes.push_back({lineage_key, from.parent + ' ' + from.root});
  if (!from.image.empty())
    changes.push_back({image_key, from.image});
  changes.push_back({image_source_key,
                     from.image_source.empty() ? std::nullopt : std::optional{from.image_source}});
  return changes;
}

bool disk_snapshots::has_other_disk() const {
  return record().find(rolled_back_key) != nullptr;
}

void disk_snapshots::note_start(std::vector<storage::change>& into) const {
  if (has_other_disk())
    into.push_back({rolled_back_key, std::nullopt});
  const auto& digest = core_.image().digest;
  if (record().value(image_digest_key) != digest)
    into.push_back({image_digest_key, digest.empty() ? std::nullopt : std::optional{digest}});
}

std::string disk_snapshots::told_base() const {
  return record().value(disk_of_key);
}

snapshot_retention disk_snapshots::retention() const {
  const auto& rule = options().run_disks;
  return rule ? rule(metadata_of(record().entries())) : snapshot_retention{};
}

void disk_snapshots::describe(sandbox_description& into) const {
  const auto next = record().value(disk_next_key);
  into.snapshot = next.empty() ? told_base() : next;
  into.has_kept_disk = !next.empty() || !base().empty();
}

/// Nobody needs what is being kept of it.
void disk_snapshots::deleting(const error&) {
  for (const auto& [id, each] : taking_)
    if (each.stands_on_it)
      core_.release_snapshot(id);
}

void disk_snapshots::ends(const error& why) {
  for (const auto& each : std::exchange(when_left_, {}))
    each(why);
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
  if (!options().keeps_snapshots())
    return to.fail(snapshots::no_common_place);
  core_.when_there(
    wanted.context,
    [=, this] {
      const auto go = [=, this] {
        wanted.becomes_base ? take_and_keep(wanted, to) : begin_unless_known(wanted, to);
      };
      // Of another run than the one that is alive, or of one that ends, there is none.
      if (wanted.context.run != 0 && core_.delays(wanted.context, go, to.otherwise()))
        return;
      core_.runs() ? go() : core_.when_running(to, wanted.context, go);
    },
    to.otherwise());
}

/// A request that came before may have taken it, or be about to.
void disk_snapshots::begin_unless_known(const take_snapshot& wanted,
                                        const reply<snapshot_description>& to) {
  if (wanted.id.empty())
    return begin(wanted, to);
  if (const auto at = taking_.find(wanted.id); at != taking_.end())
    return at->second.to.push_back(to);
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
                           purpose of) {
  const bool stands_on_it = of == purpose::next_start;
  if (of == purpose::seen && taking_.size() >= limits::snapshots_at_once)
    return to.fail({errc::limit_reached, "as many snapshots of this sandbox are taken as may be"});
  const auto id = wanted.id.empty() ? options().new_snapshot_of(core_.id()) : wanted.id;
  taking asked{wanted, {to}, pending_operation{core_}};
  asked.is = describe_next(id, wanted);
  asked.start = core_.start();
  asked.since = steady_clock::now();
  asked.stands_on_it = stands_on_it;
  asked.is_held = of != purpose::seen;
  asked.earlier = stands_on_it ? base() : std::string{};
  asked.noted = options().objects->note_snapshot(id);
  if (!stands_on_it) // One that nobody has asked for is no use of the sandbox.
    asked.awake = core_.keep_awake();
  taking_.emplace(id, std::move(asked));
  const auto bytes = std::make_shared<untold_bytes>(*options().engine, id);
  engine_sandbox()->take_snapshot(
    id, [this, bytes, post = core_.post()](const result<runtime::disk_snapshot>& outcome) {
      bytes->there = static_cast<bool>(outcome);
      post([this, bytes, outcome] {
        bytes->there = false;
        on_taken(bytes->id, outcome);
      });
    });
}

snapshot_description disk_snapshots::describe_next(const std::string& id,
                                                   const take_snapshot& wanted) const {
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
  // Of one that an earlier version has started it is not known.
  is.image_digest = record().value(image_digest_key);
  is.hidden = wanted.hidden;
  is.automatic = wanted.automatic;
  if (const auto& groups = options().groups)
    if (auto member = groups(metadata_of(record().entries())))
      is.group = std::move(member->group);
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
  if (!outcome || !core_.exists() || core_.now() == phase::deleting) {
    if (outcome)
      drop(*options().engine, id);
    const auto why = outcome ? core_.refusal().value_or(has_ended) : outcome.reason();
    options().figures->snapshot_failed();
    log::warning("snapshot.not_taken", {{"id", core_.id()}, {"reason", why.message}});
    return taking_.extract(at).mapped().give(why);
  }
  failpoint("snapshot.taken");
  auto& asked = at->second;
  asked.made = *outcome;
  define_snapshot made{asked.is, asked.wanted.keep_last};
  made.is.bytes = outcome->bytes;
  made.context = asked.wanted.context;
  made.wanted = asked.noted;
  if (asked.is_held)
    made.held_by = core_.id();
  if (asked.stands_on_it) {
    made.is.state = snapshot_state::deleted;
    made.earlier = asked.earlier;
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
    drop_unless_defined(id);
    if (asked.mapped().is_held && !asked.mapped().stands_on_it)
      core_.release_snapshot(id);
    return asked.mapped().give(defined.reason());
  }
  const auto& done = asked.mapped();
  options().figures->snapshot_taken(done.stands_on_it, steady_clock::now() - done.since, done.made);
  log::write(defined->hidden ? log::level::debug : log::level::info, "snapshot.taken",
             {{"id", id}, {"sandbox", core_.id()}, {"request", done.wanted.context.id}});
  if (!defined->hidden) {
    // Nothing is lost if this is: the next one then comes from an older one.
    const pending_operation mine{core_};
    core_.with_lease(
      [=, this, start = done.start] {
        if (core_.exists() && start == core_.start()) // Else it has another disk by now.
          record().write({{lineage_key, lineage(*defined)}});
        mine.over();
      },
      [mine](const error&) { mine.over(); });
  }
  done.give(*defined);
}

/// Its record may be there, though the answer was another one.
void disk_snapshots::drop_unless_defined(const std::string& id) {
  const pending_operation mine{core_};
  core_.ask_snapshot(
    find_snapshot{id, {}, true},
    reply<snapshot_description>::function{
      [engine = options().engine, id, mine](const result<snapshot_description>& found) {
        if (!found && found.reason().code == errc::not_found)
          drop(*engine, id);
        mine.over();
      }});
}

// ---- Back to one

void disk_snapshots::roll_back_to(const roll_back& wanted, const reply<sandbox_description>& to) {
  if (!options().keeps_snapshots())
    return to.fail(snapshots::no_common_place);
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

/// It is held. `then` gets what the next start began with before, which is held as well.
void disk_snapshots::stand_on(const snapshot_description& next, base_changes changes,
                              std::function<void(const std::string&)> then,
                              const otherwise_function& otherwise) {
  const auto refuse = [=, this](const error& why) {
    release(next.id, [otherwise, why] { otherwise(why); });
  };
  core_.with_lease(
    [=, this] {
      if (!core_.exists())
        return refuse(core_.refusal().value_or(core_.not_found()));
      auto all = changes();
      if (!all)
        return refuse(all.reason());
      const auto before = base();
      all->push_back({disk_from_key, next.id});
      record().write(std::move(*all));
      // A write that failed may have been made: the next start then needs what is held. If it was
      // not, the alarm of the snapshot lets go.
      record().when_durable([=] { then(before == next.id ? std::string{} : before); }, otherwise);
    },
    refuse);
}

/// Unless it is needed again.
void disk_snapshots::release(const std::string& id, const then_function& then) {
  const bool is_held = id.empty() || id == base() || id == record().value(disk_next_key);
  is_held ? then() : core_.release_snapshot(id, then);
}

void disk_snapshots::write_base(const snapshot_description& next, const roll_back& wanted,
                                const reply<sandbox_description>& to) {
  const auto changes = [=, this]() -> result<std::vector<storage::change>> {
    auto all = changes_for(next);
    if (core_.now() != phase::asleep || core_.has_survived())
      all.push_back({rolled_back_key, "1"});
    persistence_.note_other_disk(all);
    ++rollbacks_;
    return all;
  };
  stand_on(
    next, changes,
    [=, this](const std::string& before) {
      failpoint("snapshot.rolled_back");
      options().figures->rolled_back();
      log::info("sandbox.rolled_back",
                {{"id", core_.id()}, {"snapshot", next.id}, {"request", wanted.context.id}});
      // A start that is on its way may begin with what was held before.
      const reply<sandbox_description> over{reply<sandbox_description>::function{
        [this, to, before](const result<sandbox_description>& outcome) {
          release(before, [to, outcome] { to.give(outcome); });
        }}};
      run_from_base(wanted.context, most_starts, over);
    },
    to.otherwise());
}

/// Answers once it runs with the disk that it was rolled back to.
void disk_snapshots::run_from_base(const request_context& context, unsigned starts_left,
                                   const reply<sandbox_description>& to) {
  if (made_after_ != rollbacks_ && is_alive(core_.now()))
    teardown_.stop(sandbox_end::stopped, "it was rolled back to snapshot " + base());
  core_.when_running(to, context, [=, this] {
    if (made_after_ != rollbacks_ && starts_left == 0)
      return to.fail({errc::io_failed, "the sandbox does not come to run from there"});
    if (made_after_ != rollbacks_) { // Later: others are being served.
      core_.post()([=, this] { run_from_base(context, starts_left - 1, to); });
      return;
    }
    if (has_other_disk())
      record().write({{rolled_back_key, std::nullopt}});
    to.deliver(core_.describe());
  });
}

// ---- From run to run

void disk_snapshots::take_and_keep(const take_snapshot& wanted,
                                   const reply<snapshot_description>& to) {
  auto kept = wanted;
  if (kept.id.empty())
    kept.id = options().new_snapshot_of(core_.id());
  keep_for_next_run(kept, [to](const result<snapshot_description>& made) { to.give(made); });
}

void disk_snapshots::keep_for_next_run(const take_snapshot& wanted, kept_function then) {
  const bool goes_on = wanted.becomes_base;
  if (!goes_on) {
    left_by_start_ = core_.start();
    leaves_ = true;
    then = [this, then = std::move(then)](const result<snapshot_description>& outcome) {
      left(outcome);
      then(outcome);
    };
  }
  begin(wanted,
        reply<snapshot_description>::function{
          [this, goes_on, then = std::move(then),
           start = core_.start()](const result<snapshot_description>& taken) {
            if (!goes_on || left_by_start_ != start || !taken)
              return keep_taken(taken, start, then);
            // The run has been asked to end meanwhile, and leaves a later one.
            release(taken->id, [then, taken] { then(taken); });
          }},
        purpose::next_run);
}

void disk_snapshots::left(const result<snapshot_description>& outcome) {
  leaves_ = false;
  for (const auto& each : std::exchange(when_left_, {}))
    each(outcome ? result<void>{} : outcome.reason());
}

void disk_snapshots::keep_taken(const result<snapshot_description>& taken, std::uint64_t start,
                                const kept_function& then) {
  // Never before the function that has asked for it has returned.
  const auto told = [then, post = core_.post()](const result<snapshot_description>& outcome) {
    post([=] { then(outcome); });
  };
  if (!taken)
    return told(taken.reason());
  failpoint("run.disk_defined");
  const auto next = std::make_shared<std::string>();
  stand_on(
    *taken,
    [=, this]() -> result<std::vector<storage::change>> {
      if (start != core_.start() || core_.now() == phase::deleting)
        return has_ended;
      auto changes = changes_for(*taken);
      for (auto& each : persistence_.changes_of_kept(taken->created_ms))
        changes.push_back(std::move(each));
      *next = record().value(disk_next_key);
      changes.push_back({disk_next_key, std::nullopt});
      return changes;
    },
    [=, this](const std::string& before) {
      failpoint("run.disk_kept");
      release(*next, [=, this] {
        release(before, [=, this] {
          core_.evict_snapshots(retention());
          told(*taken);
        });
      });
    },
    [told](const error& why) { told(why); });
}

void disk_snapshots::find_for_next_run(const std::string& id, kept_function then) {
  const pending_operation mine{core_};
  core_.ask_snapshot(hold_snapshot{id, core_.id()},
                     reply<snapshot_description>::function{
                       [=, this, start = core_.start()](const result<snapshot_description>& held) {
                         keep_taken(held, start, then);
                         mine.over();
                       }});
}

void disk_snapshots::begin_run(
  const request_context& context,
  std::function<void(const result<std::vector<storage::change>>&)> then) {
  using changes = std::vector<storage::change>;
  const auto next = record().value(disk_next_key);
  const auto from = next.empty() ? base() : next;
  if (from.empty())
    return then(error{errc::snapshot_gone, "no snapshot available"});
  if (next.empty() && from != told_base()) // It goes with its hold alone.
    return then(changes{});
  begins_ = true;
  const pending_operation mine{core_};
  core_.ask_snapshot(
    hold_snapshot{from, core_.id(), context, true},
    reply<snapshot_description>::function{[=, this](const result<snapshot_description>& held) {
      if (held) {
        auto all = changes_for(*held);
        if (!next.empty())
          all.push_back({disk_next_key, std::nullopt});
        let_go_ = from == base() ? std::string{} : base();
        then(std::move(all));
      } else if (held.reason().code == errc::not_found) {
        then(error{errc::snapshot_gone, "the snapshot that it begins with was deleted"});
      } else {
        then(held.reason());
      }
      mine.over();
    }});
}

void disk_snapshots::note_run_begun() {
  begins_ = false;
  const auto before = std::exchange(let_go_, {});
  if (before.empty())
    return;
  const pending_operation mine{core_};
  record().when_durable([=, this] { release(before, [mine] { mine.over(); }); },
                        [mine](const error&) { mine.over(); });
}

void disk_snapshots::begin_next_run_with(
  const std::string& id, const request_context& context,
  std::function<result<std::vector<storage::change>>()> changes,
  std::function<void(const result<void>&)> then) {
  if (!options().keeps_snapshots())
    return then(snapshots::no_common_place);
  const pending_operation mine{core_};
  const auto over = [then, mine](const result<void>& outcome) {
    then(outcome);
    mine.over();
  };
  const auto& groups = options().groups;
  const auto member = groups ? groups(metadata_of(record().entries())) : std::nullopt;
  const auto group = member ? member->group : std::string{};
  // One of another group is not even used for a moment.
  core_.ask_snapshot(
    find_snapshot{id, context},
    reply<snapshot_description>::function{[=, this](const result<snapshot_description>& found) {
      if (found && found->group == group)
        return begin_with_seen(id, context, changes, over);
      const bool is_none = found || found.reason().code == errc::not_found;
      over(is_none ? gone(id) : found.reason());
    }});
}

void disk_snapshots::begin_with_seen(const std::string& id, const request_context& context,
                                     std::function<result<std::vector<storage::change>>()> changes,
                                     const std::function<void(const result<void>&)>& then) {
  core_.ask_snapshot(
    hold_snapshot{id, core_.id(), context},
    reply<snapshot_description>::function{[=, this](const result<snapshot_description>& held) {
      if (!held)
        return then(held.reason().code == errc::not_found ? gone(id) : held.reason());
      if (has_run())
        return note_next(*held, changes, then);
      const auto next = std::make_shared<std::string>();
      stand_on(
        *held,
        [=, this]() -> result<std::vector<storage::change>> {
          if (begins_ || has_run())
            return changed_meanwhile;
          auto all = changes();
          if (!all)
            return all;
          for (auto& each : changes_for(*held))
            all->push_back(std::move(each));
          *next = record().value(disk_next_key);
          all->push_back({disk_next_key, std::nullopt});
          return all;
        },
        [=, this](const std::string& before) {
          release(*next, [=, this] { release(before, [then] { then({}); }); });
        },
        then);
    }});
}

bool disk_snapshots::has_run() const {
  const auto last = last_run(record().entries());
  return last && is_alive(last->state);
}

/// It is held, and a run is alive, whose disk is of another one.
void disk_snapshots::note_next(const snapshot_description& next,
                               const std::function<result<std::vector<storage::change>>()>& changes,
                               const std::function<void(const result<void>&)>& then) {
  const auto refuse = [=, this](const error& why) { release(next.id, [then, why] { then(why); }); };
  core_.with_lease(
    [=, this] {
      if (!core_.exists() || begins_ || !has_run())
        return refuse(core_.exists() ? changed_meanwhile : core_.not_found());
      auto all = changes();
      if (!all)
        return refuse(all.reason());
      const auto before = record().value(disk_next_key);
      all->push_back({disk_next_key, next.id});
      record().write(std::move(*all));
      record().when_durable([=, this] { release(before, [then] { then({}); }); },
                            [then](const error& why) { then(why); });
    },
    refuse);
}

// ---- What is kept of a persistent sandbox

void disk_snapshots::keep(std::function<void(const result<void>&)> then) {
  if (leaves_ && left_by_start_ == core_.start())
    return when_left_.push_back(
      [then, post = core_.post()](const result<void>& outcome) { post([=] { then(outcome); }); });
  const auto has_another = [this, start = core_.start()]() -> std::optional<error> {
    if (core_.now() == phase::deleting)
      return being_deleted;
    const bool is_left = left_by_start_ == core_.start();
    if (start == core_.start() && !rolling_back_ && !has_other_disk() && !is_left)
      return std::nullopt;
    return error{errc::sandbox_not_running, "the sandbox has another disk by now"};
  };
  const auto told = [then, post = core_.post()](const result<void>& outcome) {
    post([=] { then(outcome); }); // Never before this function has returned.
  };
  if (const auto why = has_another())
    return told(*why);
  const auto changes_of = [=, this](std::int64_t taken_ms) {
    return [=, this]() -> result<std::vector<storage::change>> {
      if (const auto why = has_another())
        return *why;
      return persistence_.changes_of_kept(taken_ms);
    };
  };
  take_snapshot wanted;
  wanted.hidden = true;
  begin(wanted,
        reply<snapshot_description>::function{[=, this](const result<snapshot_description>& taken) {
          if (!taken)
            return told(taken.reason());
          failpoint("snapshot.kept");
          stand_on(
            *taken, changes_of(taken->created_ms),
            [=, this](const std::string& before) {
              failpoint("snapshot.stood_on");
              release(before, [told] { told({}); });
            },
            [told](const error& why) { told(why); });
        }},
        purpose::next_start);
}

} // namespace insula::actors::inside_sandbox
