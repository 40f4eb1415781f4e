#pragma once

#include "actors/sandbox/adoption.hpp"
#include "actors/sandbox/command_logs.hpp"
#include "actors/sandbox/command_records.hpp"
#include "actors/sandbox/commands.hpp"
#include "actors/sandbox/description.hpp"
#include "actors/sandbox/disk_snapshots.hpp"
#include "actors/sandbox/drive.hpp"
#include "actors/sandbox/drives.hpp"
#include "actors/sandbox/egress.hpp"
#include "actors/sandbox/files.hpp"
#include "actors/sandbox/gate.hpp"
#include "actors/sandbox/idempotency.hpp"
#include "actors/sandbox/idle.hpp"
#include "actors/sandbox/lease.hpp"
#include "actors/sandbox/login.hpp"
#include "actors/sandbox/mounts.hpp"
#include "actors/sandbox/pause.hpp"
#include "actors/sandbox/persistence.hpp"
#include "actors/sandbox/runs.hpp"
#include "actors/sandbox/sessions.hpp"
#include "actors/sandbox/startup.hpp"
#include "actors/sandbox/teardown.hpp"
#include "actors/sandbox/terminal_room.hpp"
#include "actors/sandbox/terminals.hpp"

namespace insula::actors::inside_sandbox {

/// All parts of one sandbox, and which of them knows which. A new part is one member, and one row
/// of the table.
struct all_parts {
  /// `claim` and `quit`: as of startup and teardown.
  all_parts(core& of, startup::claim_function claim, then_function quit)
      : lease_(of)
      , gate_(of, startup_)
      , pause_(of, gate_, idle_, startup_)
      , idle_(of, pause_, teardown_)
      , disk_(of, persistence_, teardown_)
      , description_(of,
                     [this](const auto& snapshot, const auto& context, auto changes, auto then) {
                       disk_.begin_next_run_with(snapshot, context, std::move(changes),
                                                 std::move(then));
                     })
      , egress_(of)
      , persistence_(of, {idle_, disk_, startup_, teardown_})
      , login_(of, startup_)
      , drive_(of, persistence_)
      , drives_(of, persistence_, startup_, teardown_)
      , mounts_(of)
      , commands_(of)
      , idempotency_(of)
      , command_logs_(of, idempotency_)
      , command_records_(of, idempotency_, command_logs_)
      , terminal_room_(of)
      , sessions_(of, [this](const std::string& id) { terminal_room_.end(id); })
      , terminals_(of, sessions_, terminal_room_)
      , files_(of,
               [this](const std::string& id) {
                 const auto made = sessions_.find(id);
                 return made ? result<void>{} : result<void>{made.reason()};
               })
      , adoption_(of, {commands_, idempotency_, sessions_, terminals_, terminal_room_})
      , startup_(of, {gate_, idle_, persistence_, disk_, egress_, mounts_, idempotency_, teardown_},
                 std::move(claim))
      , runs_(of, {commands_, idempotency_, command_logs_, teardown_, disk_, drives_})
      , teardown_(of, {lease_, gate_, startup_, persistence_, idempotency_, command_logs_, runs_},
                  std::move(quit)) {}

  lease lease_;
  gate gate_;
  pause pause_;
  idle idle_;
  disk_snapshots disk_;
  description description_;
  egress egress_;
  persistence persistence_;
  login login_;
  drive drive_;
  drives drives_;
  mounts mounts_;
  commands commands_;
  idempotency idempotency_;
  command_logs command_logs_;
  command_records command_records_;
  terminal_room terminal_room_;
  sessions sessions_;
  terminals terminals_;
  files files_;
  adoption adoption_;
  startup startup_;
  runs runs_;
  teardown teardown_;

  /// In the order in which they are told. Files settle before the user's own
  /// directories among them, those before the drives that lie there, and these before the mounts;
  /// the idle check is scheduled before that of a snapshot; a pause is settled when no request
  /// waits any more; the lease is the last to go.
  std::vector<part*> table() {
    return {&startup_,  &egress_,        &idle_,        &persistence_,  &disk_,
            &login_,    &drive_,         &drives_,      &mounts_,       &description_,
            &adoption_, &commands_,      &idempotency_, &command_logs_, &command_records_,
            &sessions_, &terminal_room_, &terminals_,   &files_,        &runs_,
            &gate_,     &pause_,         &teardown_,    &lease_};
  }
};

} // namespace insula::actors::inside_sandbox
