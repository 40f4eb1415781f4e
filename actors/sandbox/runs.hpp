#pragma once

#include "actors/run_record.hpp"
#include "actors/sandbox/core.hpp"

#include <optional>
#include <vector>

namespace insula::actors::inside_sandbox {

class command_logs;
class commands;
class disk_snapshots;
class drives;
class idempotency;
class teardown;

/// The runs of a sandbox that has them, one at a time: from a start that a client asks for to a
/// stop that it asks for, or to a deadline. Such a sandbox is not started by its first use, and
/// does not sleep while a run is alive. Each run stands in the record, the last limits::kept_runs
/// of them and the sums of all; the deadline is an alarm of its own. A run may leave its disk to
/// the next one, in a snapshot that is taken once its programs have been asked to end; without such
/// a snapshot there is no next run.
class runs final : public part {
public:
  /// The parts that a stop needs.
  struct others {
    commands& programs;
    idempotency& keys;
    command_logs& logs;
    teardown& ends;
    disk_snapshots& disk;
    drives& volumes;
  };

  runs(core& of, others with)
      : part(of)
      , with_(with) {}

  // As sandbox_runs says.
  void begin(const begin_run& wanted, const reply<run_report>& to);
  void find(const find_runs& wanted, const reply<run_list>& to);
  void stop(const stop_run& wanted, const reply<run_report>& to);
  void extend(const extend_run& wanted, const reply<run_report>& to);

  /// The alarm of the run's clock, whose record is loaded, with the lease held.
  void attend(const alarm_due& due);

  void running(bool adopted) override;
  bool delays(const request_context& context, const then_function& then,
              const otherwise_function& otherwise) override;
  std::optional<error> forbids_start() const override;
  bool in_use() const override;
  void count(sandbox_status& into) const override;
  void stopped(const error& why) override;
  void deleting(const error& why) override { refuse_all(why); }
  void ends(const error& why) override { refuse_all(why); }

private:
  struct beginner {
    begin_run wanted;
    reply<run_report> to;
  };

  std::optional<sandbox_run> current() const;
  std::optional<sandbox_run> run_of(std::uint64_t number) const;
  void write(const sandbox_run& run);
  void write_end(sandbox_run run, run_state how);
  run_report report(const sandbox_run& run, bool begun = false) const;
  bool is_lost(const sandbox_run& run) const;
  /// Calls `go` with the reply to use, once the record tells of no run that is lost.
  template <class Answer, class Go>
  void with_settled_record(const reply<Answer>& to, const request_context& context, Go go) {
    core_.with_record(to, context, [this, go](const reply<Answer>& mine) {
      end_lost([=] { go(mine); }, mine.otherwise());
    });
  }
  void end_lost(const then_function& go, const otherwise_function& otherwise);
  void write_lost_end(const then_function& go, const otherwise_function& otherwise);
  void begin_next();
  void begin_one();
  void write_begin(const std::vector<storage::change>& of_disk);
  void refuse_begins(const error& why);
  bool has_left_disk(const sandbox_run& run) const;
  void on_running(std::uint64_t number);
  void on_not_running(std::uint64_t number, const error& why);
  /// `wanted`: a client's own words. None: its time is up.
  void end_current(const std::optional<stop_run>& wanted = std::nullopt);
  void note_end_begins(sandbox_run& run, const std::optional<stop_run>& wanted);
  void end_programs(std::uint64_t number);
  void measure_and_stop(std::uint64_t number);
  void keep_logs_and_stop(std::uint64_t number);
  void keep_disk_and_stop(std::uint64_t number);
  void write_end_of(sandbox_run run);
  void tell_end(std::uint64_t number);
  bool is_worth_waiting(const sandbox_run& lost, const error& why) const;
  void set_clock(const sandbox_run& run);
  void add_to_clock(const sandbox_run& run, std::int64_t by_ms);
  void with_clock(std::uint64_t number, const std::function<void(kept_record&)>& go);
  void set_alarm(kept_record& clock, const sandbox_run& run, std::int64_t left_ms);
  void clock_failed(std::uint64_t number, const error& why);
  bool is_for(const kept_record& clock, std::uint64_t number) const;
  std::optional<std::int64_t> lacks(const sandbox_run& run) const;
  std::int64_t left_by_wall(const sandbox_run& run) const;
  void refuse_all(const error& why);

  const others with_;
  std::vector<beginner> begins_;         ///< The first of them has begun the run that starts.
  std::vector<reply<run_report>> stops_; ///< Of the run that is alive.
  bool starting_ = false;                ///< A run waits for the sandbox.
  std::uint64_t attempt_ = 0;            ///< Counts those to begin one.
  bool stopping_ = false;                ///< The steps of a stop are under way.
  bool settles_ = false;                 ///< What it has left is looked for.
  std::uint64_t measured_ = 0;           ///< The run that has been measured for its stop,
  sandbox_run usage_{};                  ///< and what it had used.
  std::string own_snapshot_;             ///< That this activation has named: none before has.
};

} // namespace insula::actors::inside_sandbox
