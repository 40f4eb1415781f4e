#include "actors/figures.hpp"

#include <string_view>

namespace insula::actors {

namespace {

constexpr std::array<std::string_view, start_failures> failure_names{
  "capacity", "image", "lease", "record", "launch", "files", "machine", "key"};
constexpr std::array<std::string_view, sandbox_ends> end_names{"deleted", "idle", "died", "memory",
                                                               "stopped"};
constexpr std::array<std::string_view, exec_phases> exec_names{"start", "first_output", "exit"};

/// One sample for each, told apart by one label.
template <class Each, std::size_t N>
void append(metrics::text& into, std::string_view label,
            const std::array<std::string_view, N>& names, const std::array<Each, N>& values) {
  for (std::size_t i = 0; i < N; ++i)
    into.sample(values[i], {{label, names[i]}});
}

} // namespace

void figures::started(const start_times& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].count() >= 0)
      start_[i].observe(parts[i]);
}

void figures::write(metrics::text& into) const {
  using metrics::kind;
  into.family("insula_sandboxes", kind::gauge, "Sandboxes that somebody has asked for, by state.");
  append(into, "state", phase_names, activations_);
  into.single("insula_sandboxes_started_total", kind::counter, "Sandboxes that came to run.",
              start_[static_cast<std::size_t>(start_phase::ready)].count());
  into.family("insula_sandboxes_not_started_total", kind::counter,
              "Starts of sandboxes that came to nothing, by reason.");
  append(into, "reason", failure_names, not_started_);
  into.family("insula_sandboxes_ended_total", kind::counter,
              "Sandboxes that ran and do so no more, by reason.");
  append(into, "reason", end_names, ended_);
  into.single("insula_sandboxes_frozen_total", kind::counter,
              "Times that an idle sandbox was frozen.", frozen_);
  into.single("insula_sandboxes_not_frozen_total", kind::counter,
              "Times that an idle sandbox was left running, since it could not be frozen.",
              not_frozen_);
  into.single("insula_sandboxes_thawed_total", kind::counter,
              "Times that a frozen sandbox was needed and went on.", thaw_.count());
  into.single("insula_sandbox_thaw_seconds", kind::histogram,
              "What it took to have a frozen sandbox go on.", thaw_);
  into.family("insula_sandbox_create_phase_seconds", kind::histogram,
              "Parts of the starts of sandboxes; ready is the whole, first_byte from its beginning "
              "to the first output of the first command.");
  for (std::size_t i = 0; i < start_phases; ++i)
    into.sample(start_[i], {{"phase", name_of(static_cast<start_phase>(i))}});
  into.sample(first_byte_, {{"phase", "first_byte"}});

  into.single("insula_pool_warm", kind::gauge, "Sandboxes that are warm: started, and nobody's.",
              warm_);
  into.single("insula_pool_claims_total", kind::counter,
              "Warm sandboxes that were taken out of the pool.", slots_claimed_);
  into.single("insula_pool_cold_starts_total", kind::counter,
              "Sandboxes that were begun from nothing, because none was warm.", cold_starts_);
  into.single("insula_pool_refills_total", kind::counter,
              "Sandboxes that were begun in order to be warm.", slots_started_);
  into.single("insula_pool_dead_slots_total", kind::counter,
              "Warm sandboxes that were found dead, and given to nobody.", slots_died_);

  into.single("insula_disk_snapshots_taken_total", kind::counter,
              "Snapshots of disks that somebody has asked for.", snapshots_);
  into.single("insula_disk_snapshots_kept_total", kind::counter,
              "Snapshots of the disks of persistent sandboxes, for their next starts.",
              disks_kept_);
  into.single("insula_disk_snapshots_failed_total", kind::counter,
              "Snapshots of disks that could not be taken.", snapshots_failed_);
  into.single("insula_disk_snapshot_seconds", kind::histogram,
              "What a snapshot of a disk took until it was durable.", snapshot_);
  into.single("insula_disk_snapshot_flush_seconds", kind::histogram,
              "What it took of that to write what was dirty, while the sandbox went on.",
              snapshot_flush_);
  into.single("insula_disk_snapshot_commit_seconds", kind::histogram,
              "What it took of that to copy the disk, durably.", snapshot_commit_);
  into.single("insula_disk_snapshot_pause_seconds", kind::histogram,
              "How long a sandbox stood still for a snapshot of its disk.", snapshot_pause_);
  const auto there = disks.count();
  into.family("insula_disk_snapshots", kind::gauge,
              "Snapshots of disks that there are: created; hidden, for forks and persistent "
              "sandboxes; deleted, with a sandbox that stands on them; failed, since their bytes "
              "are lost.");
  constexpr std::array<std::string_view, snapshots::counted_states> states{"created", "hidden",
                                                                           "deleted", "failed"};
  for (std::size_t i = 0; i < states.size(); ++i)
    into.sample(there.many[i], {{"state", states[i]}});
  into.single("insula_disk_snapshot_bytes", kind::gauge,
              "Bytes that the disks in snapshots have. What several share counts for each.",
              there.bytes);
  into.single("insula_sandboxes_rolled_back_total", kind::counter,
              "Sandboxes that went back to a snapshot.", rolled_back_);

  into.single("insula_commands_running", kind::gauge, "Commands that run.", running_);
  into.single("insula_sessions_open", kind::gauge, "Sessions with a live shell.", sessions_);
  into.single("insula_commands_not_started_total", kind::counter,
              "Commands that could not be started.", commands_failed_);
  into.family("insula_exec_phase_seconds", kind::histogram,
              "Parts of commands: until it runs, from there to the first output that was read, and "
              "from there to its end.");
  append(into, "phase", exec_names, exec_);
  into.single("insula_sandboxes_adopted_total", kind::counter,
              "Sandboxes of an earlier server that were taken over as they ran.", adopted_);
  into.single("insula_output_readers_dropped_total", kind::counter,
              "Streams of output that were dropped because their client took nothing for too long.",
              readers_dropped_);
  into.single("insula_terminals", kind::gauge, "Terminals whose process runs.", terminals_);
  into.single("insula_output_lost_bytes_total", kind::counter,
              "Output that was asked for when the log no longer had it.", lost_bytes_);
  into.single("insula_alarms_total", kind::counter, "Alarms whose objects have done their work.",
              alarms_);
  into.single("insula_alarms_failed_total", kind::counter,
              "Alarms whose objects have failed; they come again.", alarms_failed_);

  const std::array<std::pair<std::string_view, mailbox_depths::depths>, 3> mailboxes{
    {{"directory", directories->now()}, {"store", stores->now()}, {"sandbox", sandboxes->now()}}};
  into.family("insula_mailbox_messages", kind::gauge,
              "Messages that have come to the actors of a kind and have not been handled.");
  for (const auto& [kind_name, depth] : mailboxes)
    into.sample(depth.sum, {{"actor", kind_name}});
  into.family("insula_mailbox_messages_largest", kind::gauge,
              "The same of the one actor of the kind that has most.");
  for (const auto& [kind_name, depth] : mailboxes)
    into.sample(depth.largest, {{"actor", kind_name}});
}

} // namespace insula::actors
