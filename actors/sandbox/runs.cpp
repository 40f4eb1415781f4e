#include "actors/sandbox/runs.hpp"

#include "actors/sandbox/command_logs.hpp"
#include "actors/sandbox/commands.hpp"
#include "actors/sandbox/description.hpp"
#include "actors/sandbox/disk_snapshots.hpp"
#include "actors/sandbox/drives.hpp"
#include "actors/sandbox/egress.hpp"
#include "actors/sandbox/idempotency.hpp"
#include "actors/sandbox/teardown.hpp"
#include "actors/sandbox_metadata.hpp"
#include "actors/snapshots/snapshot_record.hpp"
#include "base/failpoint.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <utility>

namespace insula::actors::inside_sandbox {

namespace {

/// Programs have so long between SIGTERM and the end of all.
constexpr std::chrono::milliseconds stop_grace{500};

/// Beside the alarm: the time of the run for which it is set.
constexpr const char* clock_time_key = "time_ms";
constexpr const char* clock_run_key = "run"; ///< And its number.
constexpr std::chrono::seconds clock_retry{5};

/// For a snapshot that a lost run has named and that has no copy yet: its node may come back.
constexpr std::chrono::seconds lost_snapshot_patience{30};

const error run_is_over{errc::run_over, "the run of the sandbox is over"};

/// Why what needs a run that goes on is refused.
error not_running(const sandbox_run& run) {
  switch (run.state) {
    case run_state::stopping:
      return {errc::run_stopping, "the run of the sandbox is being stopped"};
    case run_state::snapshotting:
      return {errc::run_snapshotting,
              "a snapshot of the sandbox is being taken, and stops its run"};
    default: return run_is_over;
  }
}

} // namespace

// ---- The record

std::optional<sandbox_run> runs::run_of(std::uint64_t number) const {
  return find_run(record().entries(), number);
}

std::optional<sandbox_run> runs::current() const {
  return last_run(record().entries());
}

void runs::write(const sandbox_run& run) {
  record().write({{key_of_run(run.number), actors::text_of(run)}});
}

/// Its end need not be waited for: what it was to leave is there.
bool runs::has_left_disk(const sandbox_run& run) const {
  return !run.snapshot.empty() && run.snapshot == with_.disk.told_base();
}

/// With the sums, and without the oldest run, in one batch. One that was to leave its disk and has
/// not is failed.
void runs::write_end(sandbox_run run, run_state how) {
  if (!run.snapshot.empty() && !has_left_disk(run)) {
    how = how == run_state::stopped ? run_state::failed : how;
    run.snapshot.clear();
  }
  run.state = how;
  run.ended_ms = std::max({options().time->unix_ms(), begin_of(run), run.stop_asked_ms});
  if (run.started_ms == 0)
    run.started_ms = run.ended_ms;
  auto all = totals_of(record().entries());
  ++all.runs;
  all.duration_ms += run.ended_ms - run.started_ms;
  all.cpu_ms += run.cpu_ms;
  all.bytes_in += run.bytes_in;
  all.bytes_out += run.bytes_out;
  std::vector<storage::change> changes{{key_of_run(run.number), actors::text_of(run)},
                                       {run_totals_key, actors::text_of(all)}};
  std::vector<std::string> kept;
  for (const auto& [key, text] : record().entries())
    if (run_of_key(key) != 0)
      kept.push_back(key);
  for (std::size_t i = 0; i + limits::kept_runs < kept.size(); ++i)
    changes.push_back({kept[i], std::nullopt});
  const bool drops = kept.size() > limits::kept_runs;
  record().write(std::move(changes));
  if (drops) // With them go their commands.
    with_.keys.forget_runs_before(run_of_key(kept[kept.size() - limits::kept_runs]));
  log::info("sandbox.run_over", {{"id", core_.id()},
                                 {"run", run.number},
                                 {"state", name_of(how)},
                                 {"ms", run.ended_ms - run.started_ms}});
}

run_report runs::report(const sandbox_run& run, bool begun) const {
  return {run, begun, core_.describe()};
}

/// The server, or the machine, has ended around it.
bool runs::is_lost(const sandbox_run& run) const {
  return is_alive(run.state) && !starting_ && !core_.lives() && core_.now() != phase::stopping &&
         core_.now() != phase::deleting && !settles_;
}

void runs::end_lost(const then_function& go, const otherwise_function& otherwise) {
  const auto last = current();
  if (!last || !is_lost(*last))
    return go();
  // Its snapshot may have been taken, and not been told of.
  if (is_ending(last->state) && !last->snapshot.empty() && !has_left_disk(*last)) {
    const pending_operation mine{core_};
    const auto failed = [otherwise, mine](const error& why) {
      otherwise(why);
      mine.over();
    };
    return with_.disk.find_for_next_run(last->snapshot,
                                        [=, this](const result<snapshot_description>& found) {
                                          if (!found && is_worth_waiting(*last, found.reason()))
                                            return failed(found.reason());
                                          write_lost_end(
                                            [go, mine] {
                                              go();
                                              mine.over();
                                            },
                                            failed);
                                        });
  }
  write_lost_end(go, otherwise);
}

/// One without a copy may be at a node that is lost: the sandbox goes on with what it had before.
bool runs::is_worth_waiting(const sandbox_run& lost, const error& why) const {
  if (why.code == errc::not_found)
    return false;
  const auto since = options().time->unix_ms() - lost.stop_asked_ms;
  return !snapshots::is_pending(why) ||
         since < std::chrono::milliseconds{lost_snapshot_patience}.count();
}

void runs::write_lost_end(const then_function& go, const otherwise_function& otherwise) {
  core_.with_lease(
    [=, this] {
      if (const auto now = current(); now && is_lost(*now))
        write_end(*now, has_left_disk(*now) ? run_state::stopped : run_state::aborted);
      go();
    },
    otherwise);
}

// ---- What is asked

void runs::find(const find_runs& wanted, const reply<run_list>& to) {
  const auto go = [=, this](const reply<run_list>& mine) {
    if (!core_.exists())
      return mine.fail(core_.not_found());
    run_list all;
    const auto& entries = record().entries();
    for (auto at = entries.rbegin(); at != entries.rend() && !all.more; ++at) {
      const auto number = run_of_key(at->first);
      const auto run = number == 0 ? std::nullopt : read_run(number, at->second);
      const bool fits = run && (wanted.before == 0 || run->number < wanted.before) &&
                        (wanted.number == 0 || run->number == wanted.number);
      if (fits && all.runs.size() >= wanted.limit)
        all.more = true;
      else if (fits)
        all.runs.push_back(*run);
    }
    all.sandbox = core_.describe();
    record().when_durable([=] { mine.deliver(all); }, mine.otherwise());
  };
  core_.with_record(to, wanted.context, [this, go](const reply<run_list>& mine) {
    // What cannot be settled now is told as it is.
    end_lost([=] { go(mine); }, [=](const error&) { go(mine); });
  });
}

void runs::begin(const begin_run& wanted, const reply<run_report>& to) {
  with_settled_record(to, wanted.context, [=, this](const reply<run_report>& mine) {
    if (!core_.exists())
      return mine.fail(core_.not_found());
    if (begins_.size() >= limits::waiting_per_sandbox)
      return mine.fail({errc::limit_reached, "too many requests wait for this sandbox"});
    const auto last = current();
    if (last && last->state == run_state::running && !starting_)
      return mine.deliver(report(*last));
    begins_.push_back({wanted, mine});
    begin_next();
  });
}

void runs::stop(const stop_run& wanted, const reply<run_report>& to) {
  with_settled_record(to, wanted.context, [=, this](const reply<run_report>& mine) {
    const auto run = run_of(wanted.number);
    if (!core_.exists() || !run)
      return mine.fail({errc::not_found, "there is no such run"});
    if (wanted.snapshots && run->state != run_state::running)
      return mine.fail(not_running(*run));
    if (wanted.snapshots && !options().keeps_snapshots())
      return mine.fail(snapshots::no_common_place);
    if (is_alive(run->state)) {
      stops_.push_back(mine);
      return end_current(wanted);
    }
    record().when_durable([=, this] { mine.deliver(report(*run)); }, mine.otherwise());
  });
}

void runs::extend(const extend_run& wanted, const reply<run_report>& to) {
  const auto go = [=, this](const reply<run_report>& mine) {
    auto run = run_of(wanted.number);
    if (!core_.exists() || !run)
      return mine.fail({errc::not_found, "there is no such run"});
    if (run->state != run_state::running)
      return mine.fail(not_running(*run));
    if (wanted.by_ms <= 0 || wanted.by_ms > wanted.most_ms - run->timeout_ms)
      return mine.fail({errc::invalid_request, "a run may take " + std::to_string(wanted.most_ms) +
                                                 " ms in all, and this one has " +
                                                 std::to_string(run->timeout_ms) + " already"});
    run->timeout_ms += wanted.by_ms;
    write(*run);
    add_to_clock(*run, wanted.by_ms);
    record().when_durable([=, this] { mine.deliver(report(*run)); }, mine.otherwise());
  };
  with_settled_record(to, wanted.context, [=, this](const reply<run_report>& mine) {
    core_.with_lease([=] { go(mine); }, mine.otherwise());
  });
}

// ---- A run begins

void runs::begin_next() {
  if (begins_.empty() || starting_)
    return;
  const auto last = current();
  if (last && last->state == run_state::pending && core_.runs() && !stopping_) {
    starting_ = true; // The write which says that it runs was refused.
    return on_running(last->number);
  }
  if (last && is_alive(last->state))
    return; // Its end comes back here.
  starting_ = true;
  begin_one();
}

void runs::refuse_begins(const error& why) {
  starting_ = false;
  with_.disk.note_run_refused();
  for (const auto& each : std::exchange(begins_, {}))
    each.to.fail(why);
}

void runs::begin_one() {
  const auto is_it = [this, attempt = ++attempt_] { return starting_ && attempt == attempt_; };
  const auto refuse = [this, is_it](const error& why) {
    if (is_it()) // Else they have been refused already.
      refuse_begins(why);
  };
  const auto write_it = [this, is_it, refuse](const std::vector<storage::change>& of_disk) {
    core_.with_lease(
      [=, this] {
        if (is_it())
          write_begin(of_disk);
      },
      refuse);
  };
  if (!current() || !begins_.front().wanted.resumes)
    return write_it({});
  with_.disk.begin_run(begins_.front().wanted.context,
                       [=, this](const result<std::vector<storage::change>>& of_disk) {
                         of_disk ? write_it(*of_disk) : refuse(of_disk.reason());
                       });
}

void runs::write_begin(const std::vector<storage::change>& of_disk) {
  if (begins_.empty() || core_.now() == phase::deleting) {
    starting_ = false;
    return with_.disk.note_run_refused();
  }
  const auto last = current();
  const auto& wanted = begins_.front().wanted;
  sandbox_run run;
  run.number = std::max<std::uint64_t>(last ? last->number + 1 : 1, core_.epoch());
  run.asked_ms = options().time->unix_ms();
  run.timeout_ms = wanted.timeout_ms;
  run.began_with = with_.disk.told_base();
  for (const auto& each : of_disk) // It may be about to be another one.
    if (each.key == disk_of_key)
      run.began_with = each.value.value_or(std::string{});
  auto changes = of_disk;
  changes.push_back({key_of_run(run.number), actors::text_of(run)});
  // As the sandbox is to be now, however long the run has waited.
  if (const auto& rule = options().run_limits; rule && wanted.resumes)
    if (const auto limits = rule(metadata_of(record().entries()))) {
      auto made = changes_of(*limits, core_);
      if (!made) {
        starting_ = false;
        with_.disk.note_run_refused();
        return refuse_begins(made.reason());
      }
      changes.insert(changes.end(), made->begin(), made->end());
    }
  record().write(std::move(changes));
  with_.disk.note_run_begun();
  failpoint("run.begins");
  with_.keys.note_run(run.number);
  set_clock(run);
  auto context = wanted.context;
  context.run = run.number;
  core_.when_running(
    {[this, number = run.number] { on_running(number); },
     [this, number = run.number](const error& why) { on_not_running(number, why); },
     std::move(context)});
}

void runs::on_running(std::uint64_t number) {
  if (!std::exchange(starting_, false))
    return;
  auto run = run_of(number);
  if (!run) { // The store has refused it, and with it what the sandbox was.
    for (const auto& each : std::exchange(begins_, {}))
      each.to.fail({errc::store_failed, "its run was not kept"});
    return with_.ends.stop(sandbox_end::stopped);
  }
  run->state = run_state::running;
  run->started_ms = options().time->unix_ms();
  std::vector<storage::change> changes{{key_of_run(number), actors::text_of(*run)}};
  if (const auto& with = begins_.empty() ? std::nullopt : begins_.front().wanted.with)
    for (auto& change : fitting_changes(*with, core_))
      changes.push_back(std::move(change));
  record().write(std::move(changes));
  set_clock(*run); // It may have rung already.
  log::info("sandbox.run", {{"id", core_.id()}, {"run", number}});
  const pending_operation mine{core_};
  record().when_durable(
    [this, number, mine] {
      bool first = true;
      if (const auto now = run_of(number))
        for (const auto& each : std::exchange(begins_, {}))
          each.to.deliver(report(*now, std::exchange(first, false)));
      if (!stops_.empty())
        end_current();
      mine.over();
    },
    [this, mine](const error& why) {
      for (const auto& each : std::exchange(begins_, {}))
        each.to.fail(why);
      mine.over();
    });
}

void runs::on_not_running(std::uint64_t number, const error& why) {
  if (!std::exchange(starting_, false))
    return;
  const auto all = std::exchange(begins_, {});
  const auto answer = [all, why] {
    for (const auto& each : all)
      each.to.fail(why);
  };
  if (core_.now() == phase::deleting)
    return answer();
  const pending_operation mine{core_};
  core_.with_lease(
    [=, this] {
      const auto run = run_of(number);
      if (run && is_alive(run->state)) {
        write_end(*run, run_state::failed);
        tell_end(number);
      }
      answer();
      mine.over();
    },
    [=](const error&) { // The next look at the record finds that nothing runs.
      answer();
      mine.over();
    });
}

/// All its time is left. It is counted by the alarm, which no jump of the wall clock moves.
void runs::set_clock(const sandbox_run& run) {
  with_clock(run.number,
             [this, run](kept_record& clock) { set_alarm(clock, run, run.timeout_ms); });
}

void runs::add_to_clock(const sandbox_run& run, std::int64_t by_ms) {
  with_clock(run.number, [=, this](kept_record& clock) {
    const auto left = is_for(clock, run.number) ? clock.alarm_left() : std::nullopt;
    const auto missed = lacks(run).value_or(by_ms);
    set_alarm(clock, run, left ? left->count() + missed : left_by_wall(run));
  });
}

void runs::with_clock(std::uint64_t number, const std::function<void(kept_record&)>& go) {
  auto& clock = core_.run_clock();
  clock.load([go, &clock] { go(clock); },
             [this, number](const error& why) { clock_failed(number, why); });
}

/// The alarm has beside it what it is for: which run, and for how much of its time. More may be
/// added than comes to be known to it, and that of an earlier run may stay.
void runs::set_alarm(kept_record& clock, const sandbox_run& run, std::int64_t left_ms) {
  clock.set_alarm(std::chrono::milliseconds{std::max<std::int64_t>(left_ms, 0)},
                  {{clock_run_key, std::to_string(run.number)},
                   {clock_time_key, std::to_string(run.timeout_ms)}});
  clock.when_durable([] {},
                     [this, number = run.number](const error& why) { clock_failed(number, why); });
}

/// Without it the run would go on for ever, or end with the time of another one.
void runs::clock_failed(std::uint64_t number, const error& why) {
  log::error("sandbox.no_deadline", {{"id", core_.id()}, {"reason", why.message}});
  if (why.code == errc::stale_epoch || core_.epoch() == 0)
    return; // It is another node's, which sets its own.
  core_.after(clock_retry, [this, number] {
    const auto run = current();
    if (!run || run->number != number || !is_alive(run->state) || core_.epoch() == 0)
      return;
    auto& clock = core_.run_clock();
    if (!clock.loaded() || !is_for(clock, number) || lacks(*run).value_or(0) > 0)
      with_clock(number, [=, this](kept_record& of) { set_alarm(of, *run, left_by_wall(*run)); });
  });
}

/// That of an earlier version does not say whose it is.
bool runs::is_for(const kept_record& clock, std::uint64_t number) const {
  const auto whose = number_in(clock.entries(), clock_run_key);
  return clock.alarm_left() && (!whose || *whose == static_cast<std::int64_t>(number));
}

/// What was added to the run's time, and not to that of its alarm. None: it does not say for how
/// much it is, as that of an earlier version.
std::optional<std::int64_t> runs::lacks(const sandbox_run& run) const {
  const auto set = number_in(core_.run_clock().entries(), clock_time_key);
  return set ? std::optional{std::max<std::int64_t>(run.timeout_ms - *set, 0)} : std::nullopt;
}

/// However the clock was set meanwhile, no more than all of it.
std::int64_t runs::left_by_wall(const sandbox_run& run) const {
  return std::clamp<std::int64_t>(begin_of(run) + run.timeout_ms - options().time->unix_ms(), 0,
                                  run.timeout_ms);
}

// ---- A run ends

void runs::attend(const alarm_due& due) {
  auto& clock = core_.run_clock();
  if (!clock.is_set(due))
    return; // More was added, or another run has begun, while this waited for the lease.
  if (const auto run = current(); run && is_alive(run->state)) {
    if (!is_for(clock, run->number))
      return set_alarm(clock, *run, left_by_wall(*run));
    if (lacks(*run).value_or(0) > 0)
      return add_to_clock(*run, 0);
    log::info("sandbox.run_expired", {{"id", core_.id()}, {"run", run->number}});
    is_lost(*run) ? end_lost([] {}, [](const error&) {}) : end_current();
  }
  clock.alarm_over(due);
}

/// One that starts is ended once it runs.
void runs::end_current(const std::optional<stop_run>& wanted) {
  const auto run = current();
  if (stopping_ || starting_ || !run || !is_alive(run->state))
    return;
  stopping_ = true;
  core_.with_lease(
    [this, wanted, number = run->number] {
      auto now = run_of(number);
      if (!now || !is_alive(now->state) || core_.now() == phase::deleting) {
        stopping_ = false;
        return;
      }
      note_end_begins(*now, wanted);
      if (is_alive(core_.now())) {
        static_cast<void>(core_.thaw());
        return end_programs(number);
      }
      stopping_ = false;
      if (core_.lives()) // An earlier server has left it.
        return core_.when_running({[this] { end_current(); }, [](const error&) {}, {}});
      write_end(*now, run_state::aborted);
      tell_end(number);
    },
    [this](const error& why) {
      stopping_ = false;
      for (const auto& each : std::exchange(stops_, {}))
        each.fail(why);
    });
}

/// One that an earlier server has begun to end goes on as that has had it.
void runs::note_end_begins(sandbox_run& run, const std::optional<stop_run>& wanted) {
  if (is_ending(run.state))
    return;
  const bool snapshots = wanted && wanted->snapshots;
  run.state = snapshots ? run_state::snapshotting : run_state::stopping;
  // The wall clock may have been set back.
  run.stop_asked_ms = std::max(options().time->unix_ms(), begin_of(run));
  if (options().keeps_snapshots() && (snapshots || with_.disk.retention().keeps)) {
    run.snapshot = own_snapshot_ = options().new_snapshot_of(core_.id());
    run.snapshot_keep_ms = snapshots ? wanted->keep_ms : std::nullopt;
  }
  write(run);
}

/// By SIGTERM; what does not end goes with the sandbox.
void runs::end_programs(std::uint64_t number) {
  const auto done = std::make_shared<bool>(false);
  const auto go = [this, number, done] {
    if (!std::exchange(*done, true))
      measure_and_stop(number);
  };
  if (with_.programs.running_count() == 0)
    return go();
  with_.keys.when_known([this, go, done] {
    if (!*done) // Else they are the next run's.
      with_.programs.interrupt_all(go);
  });
  core_.after(stop_grace, go);
}

void runs::measure_and_stop(std::uint64_t number) {
  if (!stopping_ || !core_.runs())
    return; // It has ended meanwhile, and stopped() was told.
  engine_sandbox()->measure_network([this, number, start = core_.start(),
                                     post = core_.post()](const result<network_figures>& figures) {
    post([=, this] {
      if (start != core_.start() || !stopping_ || !core_.runs())
        return;
      usage_ = {};
      measured_ = number;
      if (figures) {
        usage_.bytes_in = figures->bytes_in;
        usage_.bytes_out = figures->bytes_out;
      }
      if (const auto used = engine_sandbox()->usage(); used && used->cpu)
        usage_.cpu_ms = std::chrono::duration_cast<std::chrono::milliseconds>(*used->cpu).count();
      keep_logs_and_stop(number);
    });
  });
}

/// Before the sandbox goes, with which the spawner lets go of them: a server that is killed on the
/// way leaves logs that are kept, or a run that goes on to its end with the next one.
void runs::keep_logs_and_stop(std::uint64_t number) {
  with_.logs.keep(number, [this, number, start = core_.start()] {
    if (start != core_.start() || !stopping_ || !core_.runs())
      return;
    failpoint("run.logs_kept");
    with_.volumes.keep([this, number, start] {
      if (start == core_.start() && stopping_ && core_.runs())
        keep_disk_and_stop(number);
    });
  });
}

/// What it leaves to the next run, if it leaves something: whatever becomes of that, it is stopped.
void runs::keep_disk_and_stop(std::uint64_t number) {
  const auto run = run_of(number);
  if (!run || run->snapshot.empty() || has_left_disk(*run))
    return with_.ends.stop(sandbox_end::stopped);
  const auto rule = with_.disk.retention();
  take_snapshot wanted;
  wanted.id = run->snapshot;
  wanted.automatic = run->state == run_state::stopping;
  wanted.keep_ms = run->snapshot_keep_ms.value_or(rule.keep_ms);
  const auto then = [this, number,
                     start = core_.start()](const result<snapshot_description>& kept) {
    if (!kept)
      log::warning("sandbox.run_not_kept",
                   {{"id", core_.id()}, {"run", number}, {"reason", kept.reason().message}});
    if (start == core_.start() && stopping_ && core_.runs())
      with_.ends.stop(sandbox_end::stopped);
  };
  if (run->snapshot == own_snapshot_)
    return with_.disk.keep_for_next_run(wanted, then);
  // Of an earlier server, which may have taken it.
  with_.disk.find_for_next_run(run->snapshot, [=, this](const result<snapshot_description>& found) {
    const bool is_there = found || found.reason().code != errc::not_found;
    if (is_there || !stopping_ || !core_.runs())
      return then(found);
    with_.disk.keep_for_next_run(wanted, then);
  });
}

/// The sandbox runs no more: so does its run.
void runs::stopped(const error& why) {
  stopping_ = false;
  if (core_.now() == phase::deleting || !record().loaded())
    return refuse_all(why);
  auto run = current();
  if (starting_ || !run || !is_alive(run->state))
    return;
  if (core_.epoch() == 0) // It is not ours any more: the next look at the record finds that.
    return refuse_all(why);
  if (!is_ending(run->state) || run->snapshot.empty() || has_left_disk(*run) || core_.refusal())
    return write_end_of(*run);
  // Its snapshot may be there all the same.
  settles_ = true;
  const pending_operation mine{core_};
  with_.disk.find_for_next_run(
    run->snapshot, [this, mine, number = run->number](const result<snapshot_description>&) {
      settles_ = false;
      core_.with_lease(
        [this, mine, number] {
          const auto now = run_of(number);
          if (now && is_alive(now->state) && core_.now() != phase::deleting)
            write_end_of(*now);
          mine.over();
        },
        [this, mine](const error& failed) {
          refuse_all(failed);
          mine.over();
        });
    });
}

/// The sandbox of a run that was alive has ended.
void runs::write_end_of(sandbox_run run) {
  const bool was_asked = is_ending(run.state) && (measured_ == run.number || has_left_disk(run));
  if (measured_ == run.number) {
    run.cpu_ms = usage_.cpu_ms;
    run.bytes_in = usage_.bytes_in;
    run.bytes_out = usage_.bytes_out;
  }
  write_end(run, was_asked ? run_state::stopped : run_state::aborted);
  if (was_asked)
    return tell_end(run.number);
  if (core_.refusal()) // It leaves the node, with which it leaves what this one keeps.
    return tell_end(run.number);
  // Their logs are still open here.
  const pending_operation mine{core_};
  with_.logs.keep(run.number, [this, number = run.number, mine] {
    tell_end(number);
    mine.over();
  });
}

/// An adopted sandbox has a run that an earlier server has begun, was about to begin or to end.
void runs::running(bool adopted) {
  const auto run = current();
  if (!run || !is_alive(run->state))
    return;
  with_.keys.note_run(run->number);
  if (adopted && run->state == run_state::pending && !std::exchange(starting_, true))
    on_running(run->number);
  if (adopted && is_ending(run->state))
    core_.post()([this] { end_current(); }); // Once its commands have been taken over.
}

/// Once that is durable, and its commands have ended with all that they have said.
void runs::tell_end(std::uint64_t number) {
  const pending_operation mine{core_};
  const auto told = [this, number, mine] {
    with_.logs.end_run(number);
    failpoint("run.over");
    if (const auto now = run_of(number))
      for (const auto& each : std::exchange(stops_, {}))
        each.deliver(report(*now));
    core_.post()([this] { begin_next(); }); // The end that this is a part of comes first.
    mine.over();
  };
  record().when_durable(
    [this, told] {
      failpoint("run.end_durable");
      with_.programs.when_over(told);
    },
    [this, mine](const error& why) {
      refuse_all(why);
      mine.over();
    });
}

void runs::refuse_all(const error& why) {
  starting_ = stopping_ = false;
  with_.disk.note_run_refused();
  for (const auto& each : std::exchange(begins_, {}))
    each.to.fail(why);
  for (const auto& each : std::exchange(stops_, {}))
    each.fail(why);
}

// ---- For the other parts

std::optional<error> runs::forbids_start() const {
  // One that is alive and does not run was lost: the next question about runs says so.
  const auto last = current();
  return last && (!is_alive(last->state) || !starting_) ? std::optional{run_is_over} : std::nullopt;
}

/// A request for another run than the one that is alive is not served.
bool runs::delays(const request_context& context, const then_function& /*then*/,
                  const otherwise_function& otherwise) {
  if (context.run == 0)
    return false;
  const auto last = current();
  const bool is_it = last && last->number == context.run;
  if (is_it && is_alive(last->state) && !is_ending(last->state))
    return false;
  if (is_it)
    otherwise(not_running(*last));
  else
    otherwise(last && last->number > context.run
                ? run_is_over
                : error{errc::not_found, "the sandbox has no such run"});
  return true;
}

bool runs::in_use() const {
  if (!record().loaded())
    return false;
  const auto last = current();
  return last && is_alive(last->state);
}

void runs::count(sandbox_status& into) const {
  if (!record().loaded())
    return;
  into.run = current();
  if (into.run && is_lost(*into.run))
    into.run->state = run_state::aborted; // The next question about runs writes it.
}

} // namespace insula::actors::inside_sandbox
