#pragma once

#include "actors/counted_mailbox.hpp"
#include "actors/protocol/request_context.hpp"
#include "actors/sandbox/lifecycle.hpp"
#include "actors/snapshots/census.hpp"
#include "base/metrics.hpp"
#include "runtime/engine.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>

namespace insula::actors {

/// Why a sandbox that was wanted did not run.
enum class start_failure : std::uint8_t {
  capacity,
  image,
  lease,
  record,
  launch,
  files,
  machine,
  key
};
inline constexpr std::size_t start_failures = 8;

/// Why one that ran does so no more. `died`: its first process ended by itself. `memory`: the node
/// ended it, since it held kernel memory outside of its limit.
enum class sandbox_end : std::uint8_t { deleted, idle, died, memory, stopped };
inline constexpr std::size_t sandbox_ends = 5;

/// From a command's acceptance to the stage; `first_output` from its start, as `exit`.
enum class exec_phase : std::uint8_t { start, first_output, exit };
inline constexpr std::size_t exec_phases = 3;

/// What the actors of a node count. Any thread.
class figures {
public:
  // Sandboxes.
  void entered(phase now) { at(activations_, now).add(); }
  void left(phase before) { at(activations_, before).subtract(); }
  void started(const start_times& parts);
  void not_started(start_failure why) { at(not_started_, why).add(); }
  void adopted() { adopted_.add(); }
  void ended(sandbox_end why) { at(ended_, why).add(); }
  /// An idle one stands still, or was left running since it could not be stopped.
  void froze(bool good) { (good ? frozen_ : not_frozen_).add(); }
  /// It goes on, since somebody needs it; `time` is what its caller waited for that.
  void thawed(std::chrono::nanoseconds time) { thaw_.observe(time); }

  // The pool of warm sandboxes.
  void warm_are(std::int64_t many) { warm_.add(many - warm_.value()); } ///< By the pool alone.
  void slot_started() { slots_started_.add(); }
  void slot_claimed() { slots_claimed_.add(); }
  void slot_died() { slots_died_.add(); }
  void cold_start() { cold_starts_.add(); }

  // Snapshots of disks.
  /// Nobody has asked for one that is `kept`, for a persistent sandbox. `took` is all of it, with
  /// its record.
  void snapshot_taken(bool kept, std::chrono::nanoseconds took,
                      const runtime::disk_snapshot& made) {
    (kept ? disks_kept_ : snapshots_).add();
    snapshot_.observe(took);
    snapshot_flush_.observe(made.flush);
    snapshot_commit_.observe(made.commit);
    if (made.stood_still.count() > 0) // One that stood still before has no pause.
      snapshot_pause_.observe(made.stood_still);
  }
  snapshots::census disks; ///< What there is of them.
  void snapshot_failed() { snapshots_failed_.add(); }
  void rolled_back() { rolled_back_.add(); }

  // Commands.
  void took(exec_phase what, std::chrono::nanoseconds time) { at(exec_, what).observe(time); }
  /// From the beginning of a sandbox's start to the first output of its first command.
  void first_byte(std::chrono::nanoseconds time) { first_byte_.observe(time); }
  void command_runs() { running_.add(); }
  void command_over() { running_.subtract(); }
  void command_failed() { commands_failed_.add(); }
  void reader_dropped() { readers_dropped_.add(); }
  void lost_output(std::uint64_t bytes) { lost_bytes_.add(bytes); }

  // Sessions whose shell lives.
  void session_opened() { sessions_.add(); }
  void session_closed() { sessions_.subtract(); }
  // Terminals.
  void terminal_runs() { terminals_.add(); }
  void terminal_over() { terminals_.subtract(); }

  /// An object has done what its alarm was for, or has failed to and is told again.
  void alarm_over(bool good) { (good ? alarms_ : alarms_failed_).add(); }

  // Mailboxes, by kind of actor. Shared with the actors, which can outlive their node.
  const std::shared_ptr<mailbox_depths> directories = std::make_shared<mailbox_depths>();
  const std::shared_ptr<mailbox_depths> stores = std::make_shared<mailbox_depths>();
  const std::shared_ptr<mailbox_depths> sandboxes = std::make_shared<mailbox_depths>();

  void write(metrics::text& into) const;

private:
  template <class Each, std::size_t N, class Which>
  static Each& at(std::array<Each, N>& all, Which one) {
    return all[static_cast<std::size_t>(one)];
  }

  std::array<metrics::gauge, phases> activations_;
  std::array<metrics::histogram, start_phases> start_;
  metrics::histogram first_byte_;
  std::array<metrics::counter, start_failures> not_started_;
  std::array<metrics::counter, sandbox_ends> ended_;
  metrics::gauge warm_;
  metrics::counter slots_started_;
  metrics::counter slots_claimed_;
  metrics::counter slots_died_;
  metrics::counter cold_starts_;
  metrics::counter frozen_;
  metrics::counter not_frozen_;
  metrics::histogram thaw_;
  metrics::counter snapshots_;
  metrics::counter disks_kept_;
  metrics::counter snapshots_failed_;
  metrics::counter rolled_back_;
  metrics::histogram snapshot_;
  metrics::histogram snapshot_flush_;
  metrics::histogram snapshot_commit_;
  metrics::histogram snapshot_pause_;
  std::array<metrics::histogram, exec_phases> exec_;
  metrics::gauge running_;
  metrics::gauge sessions_;
  metrics::counter commands_failed_;
  metrics::counter adopted_;
  metrics::counter readers_dropped_;
  metrics::counter lost_bytes_;
  metrics::gauge terminals_;
  metrics::counter alarms_;
  metrics::counter alarms_failed_;
};

} // namespace insula::actors
