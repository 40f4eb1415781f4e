#pragma once

#include "actors/protocol/messages.hpp"
#include "actors/protocol/snapshots.hpp"

#include <caf/typed_actor.hpp>

/// Every actor's handle: who can be asked what, and how it can fail. Read this first.
namespace insula {

using find_atom = caf::atom_constant<caf::atom("find")>;
using delete_atom = caf::atom_constant<caf::atom("delete")>;
using detach_atom = caf::atom_constant<caf::atom("detach")>;
using status_atom = caf::atom_constant<caf::atom("status")>;
using reach_atom = caf::atom_constant<caf::atom("reach")>;
using empty_atom = caf::atom_constant<caf::atom("empty")>;
/// Said to the client of a defined terminal: another one has taken its place.
using taken_over_atom = caf::atom_constant<caf::atom("takenover")>;

/// What prints, and is read.
using output_actor = caf::typed_actor<
  // The log from an offset on, as soon as there is something. Errors: deadline_exceeded (the
  // attached reader had taken nothing for too long).
  caf::replies_to<read_output>::with<output_chunk>,
  // The attached reader has gone: from now on the oldest output is dropped instead of the command
  // being held up. Of several, the one of this number; nothing happens if another has taken its
  // place.
  caf::reacts_to<detach_atom, std::uint64_t>>;

/// One running command, or one that has ended and is still of interest to somebody.
using process_actor = output_actor::extend<
  // To its standard input, as runtime::process takes it. Errors: limit_reached (too many pieces
  // wait).
  caf::replies_to<input_piece>::with<input_progress>>;

/// What find_command finds.
struct command_status : command_state {
  /// Null: it is not there any more. Of a run that is over, if the log was asked for: that log,
  /// with the command's end as if it were known.
  process_actor process;
  // What of its output can be read.
  std::uint64_t begin_offset = 0;
  std::uint64_t end_offset = 0;
  bool log_gone = false;  ///< Its output was asked for, and is not kept any more.
  bool elsewhere = false; ///< As of command_list: whether there was such a command is not known.
};

/// What find_result finds.
struct replay_status {
  /// Null: nothing is known of such a request, or its command has not come to run yet.
  process_actor process;
  bool known = false; ///< It has been asked for.
  // What of its output can be read.
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

} // namespace insula

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::command_status)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::replay_status)

namespace insula {

/// A terminal that lives on when its readers have gone. It waits for them as runtime::terminal
/// does; what is older than its newest limits::terminal_log_bytes is lost to whoever has not read
/// it.
using terminal_actor = output_actor::extend<
  // Answers when the terminal has taken all of it; the writer waits for that before it sends more.
  // Errors: sandbox_not_running (it has ended), limit_reached (too much waits already).
  caf::replies_to<write_input>::with<caf::ok_atom>, caf::reacts_to<resize_terminal>,
  caf::reacts_to<signal_terminal>>;

// What a sandbox can be asked, part by part. Its parts are in actors/sandbox/.

/// Commands, their results, and what has become of them.
using sandbox_commands = caf::typed_actor<
  // Starts a command. The answer comes once it runs, or could not: launch_failed,
  // sandbox_not_running, limit_reached, node_unreachable (the next server has the sandbox, and the
  // command was not started), not_found (only_if_there), invalid_request (its directory makes no
  // sense). Of one that is to run once, all get the same process; also
  // idempotency_conflict, and result_gone: it has run, or may have, and its process is not there.
  caf::replies_to<exec_request>::with<process_actor>,
  // Starts nothing in it. Errors: limit_reached (no more results can be kept),
  // idempotency_conflict, result_gone.
  caf::replies_to<find_result>::with<replay_status>,
  // Errors: sandbox_not_running (the sandbox was started anew meanwhile, or the store is gone).
  caf::replies_to<find_command>::with<command_status>,
  // Errors: not_found (there is no such run), and those of find_command.
  caf::replies_to<find_commands>::with<command_list>,
  // Answers when nothing of it runs any more. Errors: not_found, invalid_request (it has ended),
  // sandbox_not_running.
  caf::replies_to<interrupt_command>::with<caf::ok_atom>,
  // Answers when the piece is taken, or it is known that it will not be. Starts nothing. Errors:
  // not_found (no command is known by the key), limit_reached (too much waits in this sandbox),
  // sandbox_not_running.
  caf::replies_to<write_command_input>::with<input_progress>,
  // Runs the program `true` in it, starting the sandbox if need be. Never fails once the sandbox
  // has been found.
  caf::replies_to<probe_request>::with<bool>>;

/// Sessions and terminals.
using sandbox_shells = caf::typed_actor<
  // Makes a session and answers when its shell is up. Errors: already_exists (there is one of that
  // id), limit_reached, launch_failed, sandbox_not_running.
  caf::replies_to<create_session_request>::with<caf::ok_atom>,
  // Ends its shell with all that it has started, and its terminal. Errors: not_found.
  caf::replies_to<delete_session_request>::with<caf::ok_atom>,
  // The answer is the terminal, the offset where what it has kept begins, and the one where that
  // ended; both are 0 for one that has been made. Errors: launch_failed, limit_reached,
  // sandbox_not_running; of a defined one also not_found, already_exists (it has a client, who does
  // not have to go), invalid_request (its directory makes no sense).
  caf::replies_to<open_terminal_request>::with<terminal_actor, std::uint64_t, std::uint64_t>,
  // Durable when answered. Errors: not_found (there is no such sandbox), limit_reached (as many
  // run).
  caf::replies_to<define_terminal>::with<caf::ok_atom>,
  // Starts nothing.
  caf::replies_to<find_terminal>::with<terminal_status>,
  // Its program is killed with what it has started there. Durable when answered. Errors: not_found.
  caf::replies_to<forget_terminal>::with<caf::ok_atom>>;

/// Files, the buckets among them, and whether they outlive their node.
using sandbox_files = caf::typed_actor<
  // Starts a file operation. Errors: launch_failed, sandbox_not_running.
  caf::replies_to<read_file_request>::with<file_channel>,
  caf::replies_to<write_file_request>::with<file_channel>,
  // The same for a tree; invalid_request for more patterns than an operation can have.
  caf::replies_to<read_tree_request>::with<file_channel>,
  caf::replies_to<write_tree_request>::with<file_channel>,
  // Errors: those of the others; not_found (only_if_there), invalid_request (a path with a variable
  // that is not set, or too many words).
  caf::replies_to<file_task_request>::with<file_channel>,
  // Errors: idempotency_conflict, limit_reached, sandbox_not_running (the start it was written in
  // is over).
  caf::replies_to<write_once_request>::with<write_once_answer>,
  // Durable when answered, and usable. Errors: not_found (no such binding), already_exists (its
  // path is in use), io_failed (in words that a person can use: what is wrong with what was asked
  // for, or why the bucket cannot be reached), limit_reached, sandbox_not_running, store_failed,
  // disk_full.
  caf::replies_to<mount_bucket_request>::with<caf::ok_atom>,
  // Answers when what was written is in the bucket, or after limits::unmount_patience. Errors:
  // not_found (there is no such mount), io_failed.
  caf::replies_to<unmount_bucket_request>::with<caf::ok_atom>,
  caf::replies_to<list_mounts_request>::with<std::vector<mounted_bucket>>,
  // Durable when answered. Errors: invalid_request (the node keeps no snapshots), store_failed,
  // disk_full.
  caf::replies_to<mark_persistent>::with<caf::ok_atom>>;

/// What it may reach, and how it is reached.
using sandbox_network = caf::typed_actor<
  // Starts nothing. Its figures are of the running sandbox. Errors: io_failed.
  caf::replies_to<get_network_request>::with<network_state>,
  // Answers when the policy is durable, and holds if the sandbox runs. Starts nothing. Errors:
  // io_failed (it is durable, and the gateway does not answer: nothing passes that it forbids),
  // store_failed, disk_full, limit_reached (more than max_egress_rules).
  caf::replies_to<set_network_request>::with<network_state>,
  caf::replies_to<change_network_request>::with<network_state>,
  // Errors: sandbox_not_running, io_failed.
  caf::replies_to<open_sockets_request>::with<sandbox_sockets>,
  // Errors: sandbox_not_running, io_failed, deadline_exceeded.
  caf::replies_to<list_ports_request>::with<std::vector<listening_port>>>;

/// The runs of a sandbox that has them. Once it has had a run, no other request starts it:
/// run_over.
using sandbox_runs = caf::typed_actor<
  // Answers when the run is alive: as if it had been asked for by find_atom, with its errors.
  // not_found: there is no such sandbox.
  caf::replies_to<begin_run>::with<run_report>,
  // Errors: not_found (there is no such sandbox).
  caf::replies_to<find_runs>::with<run_list>,
  // Answers when nothing of the run is there any more, and that is durable; also of one that is
  // over. Errors: not_found (there is no such run), store_failed, disk_full.
  caf::replies_to<stop_run>::with<run_report>,
  // Errors: not_found, run_over, invalid_request (it would be more than it may have).
  caf::replies_to<extend_run>::with<run_report>>;

/// Its whole disk, as it is now and as it was.
using sandbox_disk = caf::typed_actor<
  // Answers when the snapshot is durable. Errors: forbidden (as of all snapshots), not_found
  // (there is no such sandbox), invalid_request (its words are too long), limit_reached (so many
  // are being taken), run_over, disk_full, io_failed, sandbox_not_running, store_failed.
  caf::replies_to<take_snapshot>::with<snapshot_description>,
  // Answers when it runs from there. Errors: forbidden, limit_reached (another rollback is under
  // way), io_failed (it does not come to run from there), not_found (no such sandbox, or snapshot),
  // invalid_request (the snapshot is of another one's disk, or the sandbox is paused),
  // launch_failed, sandbox_not_running, store_failed, disk_full.
  caf::replies_to<roll_back>::with<sandbox_description>,
  // Of a sandbox that is a drive. Errors: not_found (there is no such sandbox), drive_in_use,
  // limit_reached (so many are shown as they are), those of its start, and of a snapshot of the
  // engine's.
  caf::replies_to<attach_drive>::with<attached_drive>>;

/// The sandbox as a whole: what is said of it, its start, its pause and its end.
using sandbox_itself = caf::typed_actor<
  // Durable when answered. Errors: already_exists, not_found (there is no such image),
  // invalid_request (the metadata is too long, an API has no such name, or no sandbox may have the
  // profile), store_failed, disk_full.
  caf::replies_to<define_sandbox>::with<sandbox_description>,
  caf::replies_to<redefine_sandbox>::with<sandbox_description>,
  // Errors: not_found.
  caf::replies_to<copy_definition>::with<define_sandbox>,
  // Starts nothing.
  caf::replies_to<status_atom>::with<sandbox_status>,
  // Answers when it is durable and all that runs in it stands still, or goes on. Errors:
  // invalid_request (it is so already, or becomes so), io_failed (it does not stand still, and so
  // goes on; or it does not go on), sandbox_not_running (it has ended meanwhile), store_failed,
  // disk_full.
  caf::replies_to<pause_sandbox>::with<sandbox_description>,
  // Starts it if it is not running, and answers when it is. Errors: capacity_exceeded,
  // launch_failed, sandbox_not_running.
  caf::replies_to<find_atom, request_context>::with<caf::ok_atom>,
  // Ends everything in it and forgets it; answers when that has happened. After the answer this
  // handle is dead. Errors: drive_in_use (it is a drive that another sandbox has).
  caf::replies_to<delete_atom, request_context>::with<caf::ok_atom>>;

/// One isolated environment: started when first needed, with its commands and its end. Every
/// request that needs the running sandbox waits for its start, or for its resume if it is paused:
/// deadline_exceeded after limits::pause_patience. Each question says for which request from
/// outside it is.
using sandbox_actor = sandbox_commands::extend_with<sandbox_shells, sandbox_files, sandbox_network,
                                                    sandbox_runs, sandbox_disk, sandbox_itself>;

/// Snapshots of whole disks, each of which is an object of its own. Errors of all: forbidden (its
/// cluster has no place for copies), node_unreachable, those of storage::store and of the lease.
using snapshot_directory = caf::typed_actor<
  // Durable when answered. Errors: already_exists.
  caf::replies_to<define_snapshot>::with<snapshot_description>,
  // Errors: not_found.
  caf::replies_to<find_snapshot>::with<snapshot_description>,
  // Durable when answered. Errors: not_found (it was deleted, too), limit_reached.
  caf::replies_to<hold_snapshot>::with<snapshot_description>,
  // Of one that is not held nothing happens.
  caf::replies_to<release_snapshot>::with<caf::ok_atom>,
  // Durable when answered; its node has no bytes then, unless a sandbox stands on it. Errors:
  // not_found (it was deleted before, too).
  caf::replies_to<delete_snapshot>::with<snapshot_description>,
  // A sandbox of the node's own looks at both. Errors: not_found (of one, or its bytes are gone),
  // invalid_request (they are over different images), limit_reached (as many are compared as may
  // be), image_refused (their image is not here), deadline_exceeded, io_failed.
  caf::replies_to<compare_snapshots>::with<snapshot_changes>,
  // Reads no more of the store than the page has. Errors: invalid_request (no such place, or the
  // limit).
  caf::replies_to<list_snapshots>::with<snapshot_page>>;

/// From the id of a sandbox, or of a snapshot, to its actor.
using directory_actor = snapshot_directory::extend<
  // The activation of this id, made on first use and with its sandbox running: what find_atom of
  // sandbox_actor promises, and its errors.
  caf::replies_to<find_atom, std::string, request_context>::with<sandbox_actor>,
  // The same without starting it: what is only looked at, or set for later.
  caf::replies_to<reach_atom, std::string, request_context>::with<sandbox_actor>,
  // Deletes it if there is anything of it. Deleting what is not there succeeds.
  caf::replies_to<delete_atom, std::string, request_context>::with<caf::ok_atom>,
  // One that does not answer within limits::list_patience is told as it was when it last did.
  // Errors: invalid_request (the limit).
  caf::replies_to<list_activations>::with<activation_page>,
  // Reads no more of the store than the page has. Errors: invalid_request (no such place, or the
  // limit), store_failed; in a cluster also node_unreachable.
  caf::replies_to<list_sandboxes>::with<sandbox_page>,
  // The same of a group, with its errors: the mark and the line of each sandbox are read.
  caf::replies_to<list_group>::with<group_page>>;

/// The warm sandboxes of a node. It looks after them in rounds, from the first question on.
using pool_actor =
  caf::typed_actor<caf::replies_to<status_atom>::with<pool_stats>,
                   // Waits for no sandbox.
                   caf::replies_to<prime_pool>::with<caf::ok_atom>,
                   // Ends those that are warm, and answers when they are gone, or after
                   // limits::destroy_patience. The next round or claim fills it again.
                   caf::replies_to<empty_atom>::with<caf::ok_atom>>;

} // namespace insula
