#pragma once

#include "actors/protocol/request_context.hpp"
#include "base/bucket.hpp"
#include "base/error.hpp"
#include "base/file_tasks.hpp"
#include "base/network.hpp"
#include "base/process_input.hpp"
#include "base/process_output.hpp"
#include "base/request_rules.hpp"
#include "base/unique_fd.hpp"

#include <caf/allowed_unsafe_message_type.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace insula::runtime {
class sandbox;
}

/// Everything that travels between actors and is asked for from outside, as plain structs. They
/// know no public API: each one is translated at the door.
namespace insula {

/// A request that has its effect once, however often it is sent: who sends it again, within
/// limits::results_kept, gets the same result.
struct idempotency_key {
  std::string key;    ///< Of the client, as its hash in hexadecimal digits. Empty: it is not one.
  std::string digest; ///< Of what is asked for: the same key for something else is an error.
  /// Its client has no key and sends it again if a server is lost before it answers. The command of
  /// the first one is then to be asked for: request_known, with its text as the message.
  bool by_digest = false;
};

/// When a command is over.
struct command_rules {
  /// Once its shell has ended, whoever else still has its output open; else once nobody has.
  bool with_its_shell = false;
  /// When its time is up it is ended by SIGKILL; else by SIGTERM, and SIGKILL a while later.
  bool killed_at_timeout = false;
};

/// As the sandbox sees them.
struct command_user {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};

/// A command that can be asked for by its id, with what has become of it, for at least
/// limits::results_kept, unless so many others have been run meanwhile.
struct remembered_command {
  bool output = false; ///< What it has said is kept as well.
  std::string text;    ///< Whatever its asker wants to find again.
};

/// Run one command line with bash in the sandbox, or a program.
struct exec_request {
  std::string command_line; ///< What bash is given; quoting is the caller's. No NUL. Up to 16 MiB.
  /// The same for a shell that is no bash, since images can be without. Empty: the same text.
  std::string posix_line;
  /// Not empty: this program, without a shell. A name without a slash is looked for along PATH. No
  /// NUL in it. If there is a line, the program can read it, any bytes, as descriptor 9.
  std::vector<std::string> argv = {};
  std::string cwd;                        ///< Absolute, as the sandbox sees it. Empty: /workspace.
  std::map<std::string, std::string> env; ///< In addition to the image's.
  std::optional<std::int64_t>
    timeout_ms; ///< None: it may run for ever. Zero or less: over at once.
  /// Empty: a shell of its own. Else it runs in this session's, which is made if it is not there;
  /// env counts for nothing then, and an empty cwd is where the session is.
  std::string session = {};
  bool only_if_session = false; ///< There is such a session; else nothing is made.
  request_context context = {};
  idempotency_key idempotency = {};
  command_rules rules = {};
  std::optional<command_user> user = {}; ///< None: the sandbox's.
  bool expands_cwd = false; ///< cwd may begin with ~, and have variables of its environment in it.
  bool only_if_there = false; ///< There is such a sandbox; else nothing is made.
  /// Its id is once.key, which nobody has used before.
  std::optional<remembered_command> remembered = {};
  /// Its standard input is open for write_command_input; else it is at its end. In no session.
  bool input = false;
  bool awaits_reader = false; ///< An attached reader is about to ask: nothing is lost before.
};

/// What has become of a command that is to run once.
struct find_result {
  idempotency_key idempotency;
  request_context context = {};
  /// Who asks is about to ask for the command itself if nothing is known of it.
  bool runs_it = true;
};

/// A named shell in a sandbox, whose state lasts between commands.
struct create_session_request {
  std::string id;                                      ///< [a-zA-Z0-9._-]{1,128}.
  std::string cwd = {};                                ///< Empty: /workspace.
  std::map<std::string, std::string> env = {};         ///< In addition to the image's.
  std::optional<std::int64_t> command_timeout_ms = {}; ///< For commands that bring none.
  request_context context = {};
  idempotency_key idempotency = {};
};

struct delete_session_request {
  std::string id;
  request_context context = {};
};

/// A program that runs for one client alone. Its output waits for that client, and its terminal is
/// hung up when the client has gone, or its server: nobody comes to it again.
struct terminal_program {
  std::vector<std::string> argv;          ///< As of exec_request. No NUL in it.
  std::string cwd = {};                   ///< As of exec_request. It has to be there.
  std::map<std::string, std::string> env; ///< In addition to the sandbox's. No NUL in it.
};

/// The terminal of a session: made on first use, with size and shell, or else the one that is
/// there.
struct open_terminal_request {
  std::string session = "default"; ///< Made if it is not there.
  std::uint16_t columns = 80;
  std::uint16_t rows = 24;
  std::string shell = {}; ///< Empty: the image's.
  request_context context = {};
  /// Not empty: the terminal that was defined with this id, instead of a session's. It has one
  /// client at a time, and session and shell count for nothing.
  std::string defined = {};
  bool takes_over = false; ///< Of that one: who is there has to go.
  /// Instead of both: this program on a terminal of its own, which is its one client's.
  std::optional<terminal_program> program = {};
  bool only_if_there = false; ///< As of exec_request; of the last two it counts for the program.
};

/// A terminal that no session has: its program is started when it is opened, and again when it is
/// opened after that has ended. It can be opened for as long as the sandbox is there. Starts
/// nothing.
struct define_terminal {
  std::string id;           ///< [a-zA-Z0-9._-]{1,128}, which nobody has used before.
  std::string command = {}; ///< One line for the image's shell. Empty: that shell itself. No NUL.
  std::string cwd = {};     ///< As of exec_request, expanded.
  request_context context = {};
};
struct find_terminal {
  std::string id;
  request_context context = {};
};
struct terminal_status {
  bool known = false;
  bool running = false;
  std::uint64_t end_offset = 0; ///< Of what it has printed, if it runs.
};
struct forget_terminal {
  std::string id;
  request_context context = {};
};

/// What somebody types into a terminal; at most limits::terminal_input_bytes.
struct write_input {
  std::string bytes;
};

using resize_terminal = terminal_size;

/// For the group of the process that was started.
struct signal_terminal {
  int number = 0;
};

/// A sandbox may have runs: each is one start of it, from when a client asks for it until it is
/// stopped, its time is up, or it ends by itself.
/// `snapshotting`: it stops because a client has asked for a snapshot of its disk.
enum class run_state : std::uint8_t {
  pending,
  running,
  stopping,
  stopped,
  failed,
  aborted,
  snapshotting
};
inline constexpr std::size_t run_states = 7;
constexpr std::string_view name_of(run_state now) {
  constexpr std::string_view names[run_states] = {"pending", "running", "stopping",    "stopped",
                                                  "failed",  "aborted", "snapshotting"};
  return names[static_cast<std::size_t>(now)];
}
constexpr bool is_ending(run_state now) {
  return now == run_state::stopping || now == run_state::snapshotting;
}
constexpr bool is_alive(run_state now) {
  return now == run_state::pending || now == run_state::running || is_ending(now);
}
struct sandbox_run {
  std::uint64_t number = 0; ///< Of all runs of one id, each has a larger one than those before.
  run_state state = run_state::pending;
  // Unix time; 0: not yet.
  std::int64_t asked_ms = 0;
  std::int64_t started_ms = 0;
  std::int64_t stop_asked_ms = 0;
  std::int64_t ended_ms = 0;
  std::int64_t timeout_ms = 0; ///< From its start, with what was added.
  // Of one that was stopped.
  std::int64_t cpu_ms = 0;
  std::uint64_t bytes_in = 0; ///< To the sandbox.
  std::uint64_t bytes_out = 0;
  std::string began_with = {}; ///< The snapshot that its disk began with. Empty: none that is seen.
  /// The snapshot of its disk that its end leaves to the next run, or is to leave while it is
  /// alive. Empty: none.
  std::string snapshot = {};
  /// How long a client wants that snapshot to be kept. None: as the sandbox has it.
  std::optional<std::int64_t> snapshot_keep_ms = {};
};
/// From when on its time counts.
constexpr std::int64_t begin_of(const sandbox_run& run) {
  return run.started_ms != 0 ? run.started_ms : run.asked_ms;
}
/// When it came to be in its state.
constexpr std::int64_t state_since(const sandbox_run& run) {
  switch (run.state) {
    case run_state::pending: return run.asked_ms;
    case run_state::running: return begin_of(run);
    case run_state::stopping:
    case run_state::snapshotting: return run.stop_asked_ms;
    case run_state::stopped:
    case run_state::failed:
    case run_state::aborted: return run.ended_ms;
  }
  return run.asked_ms;
}

/// What a sandbox is called by the clients of its API, for people to read.
struct sandbox_caption {
  std::string group; ///< 1 to 128 bytes, any.
  std::string name;  ///< The same. Of two sandboxes of a group, each has another one.
  std::map<std::string, std::string> tags = {}; ///< By the name of each; any text.
};

/// One row of a list of what lives on a node.
struct sandbox_status {
  std::string id;
  std::string_view state = "asleep"; ///< Its phase: a literal.
  std::int64_t created_ms = 0;       ///< Unix time; 0: not known.
  bool current = true; ///< False: it did not answer in time; all of this was true some time ago.
  // Of its commands. None: nothing runs, or it is not known.
  std::optional<std::uint64_t> memory_bytes = {}; ///< As the limit counts it, with cached files.
  std::optional<std::uint64_t> cpu_us = {};       ///< Since its start.
  std::optional<std::uint32_t> processes = {};    ///< With their threads.
  // What they may use. 0: there is no limit.
  std::uint64_t memory_limit_bytes = 0;
  std::uint32_t cpu_limit_percent = 0; ///< Of one CPU.
  std::uint32_t sessions = 0;
  std::uint32_t terminals = 0;
  std::optional<sandbox_caption> caption = {}; ///< None: no API has one for it.
  std::optional<sandbox_run> run = {}; ///< The one that is alive, or was last. None: it has none.
};

/// How many sandboxes are to be kept warm: started, empty, nobody's.
struct pool_settings {
  std::uint32_t target = 0;                           ///< 0: none.
  std::chrono::milliseconds refresh_interval{10'000}; ///< From the end of one round to the next.
  std::uint32_t scale_batch_size = 5;                 ///< So many start at once; 1 to 20.
};

struct pool_stats {
  std::uint32_t warm = 0;
  std::uint32_t assigned = 0; ///< That somebody has. What starts or ends is in neither.
  std::uint32_t limit = 0;    ///< Of both together.
  pool_settings settings;
};

/// The pool is to keep to these from now on; none: to what it has.
struct prime_pool {
  std::optional<pool_settings> settings = {};
};

/// How a command ended.
struct process_end {
  std::int32_t exit_code = 0; ///< As a shell reports it: 128 + n when signal n ended it.
  bool timed_out =
    false; ///< Its time was up and it was ended for that; exit_code then is what was left of it.
  bool out_of_memory = false;     ///< The kernel ended it because the sandbox's memory was used up.
  std::uint64_t memory_bytes = 0; ///< What the sandbox may use. 0: no limit is known.
  std::int64_t timeout_ms = 0;    ///< How long it had, if it timed out.
  std::int32_t signal = 0;        ///< Which one ended it. 0: none.
  bool lost = false;              ///< The sandbox ended around it: nobody knows how it would have.
};

/// Of a remembered command. Starts nothing.
struct find_command {
  std::string id;
  request_context context = {};
  std::uint64_t run = 0;  ///< Of which it is; 0: of none.
  bool opens_log = false; ///< Its output is to be read, also if its run is over.
};
/// The remembered commands of a run, also of one that is over. Starts nothing.
struct find_commands {
  std::uint64_t run = 0; ///< 0: those of none.
  request_context context = {};
};
/// By SIGTERM, and after limits::interrupt_grace by SIGKILL.
struct interrupt_command {
  std::string id;
  request_context context = {};
  /// Not 0: by this signal alone, to its process group; what comes of it is not waited for.
  int signal = 0;
};
/// To the standard input of a command that is kept under this key, or is remembered by this id.
struct write_command_input {
  std::string key;
  input_piece piece;
  request_context context = {};
};
struct command_state {
  bool known = false;
  bool output = false;
  std::string text;
  std::int64_t started_ms = 0;      ///< Unix time.
  std::int64_t ended_ms = 0;        ///< The same, once it has.
  std::optional<process_end> end{}; ///< None: it runs.
  std::uint64_t run = 0;            ///< In which it was started; 0: in none.
  std::uint64_t log_end = 0;        ///< Of what it has said, once that is complete. 0: not known.
  bool told = false;                ///< Its client was answered, if it has no key of its own.
};
/// What find_commands finds.
struct command_list {
  struct item : command_state {
    std::string id;
  };
  /// The one that was started last is first. Those before limits::command_list_bytes of texts.
  std::vector<item> commands;
  bool elsewhere =
    false; ///< The run was another node's, and there is nothing of its commands here.
};

/// Ask a process for its log from `offset` on. A reader has one question open at a time; asking is
/// what gives the process credit to go on: it blocks once its log's ceiling is ahead of an attached
/// reader.
struct read_output {
  std::uint64_t offset = 0;
  std::uint32_t max_bytes = 64 * 1024;
  bool attached = false; ///< The foreground reader, at most one. It is dropped after
                         ///< limits::reader_patience without a question.
  /// Which of the foreground readers it is: the one of the largest number takes the place of those
  /// before it, which read on without holding the command up.
  std::uint64_t reader = 0;
};

/// An answer to read_output: as much as there is, at least one frame unless the log has ended.
struct output_chunk : output_piece {
  std::optional<process_end>
    ended; ///< Set once the process has ended and next_offset is the log's end.
};

/// Has a tree been written by this request already? If not, and it is to be remembered, it is told
/// afterwards in which start of the sandbox it was.
struct write_once_request {
  idempotency_key idempotency;
  std::string written_in = {}; ///< Of the answer to the question; empty: this is the question.
  request_context context = {};
};

struct write_once_answer {
  bool written = false;
  std::string start; ///< Of the sandbox: the one for which that is so.
};

/// What a sandbox may reach, and what it has.
struct get_network_request {
  request_context context = {};
};
struct network_state {
  egress_policy policy;
  bool running = false; ///< If not, it has no figures.
  bool exists = false;  ///< It runs, or has run, and was not deleted since.
  network_figures figures = {};
  std::vector<request_rule> requests = {}; ///< Without their values.
};
/// In place of its policy. It need not run, nor be there yet: it holds before the first command.
struct set_network_request {
  egress_policy policy;
  request_context context = {};
  std::optional<sealed_rules> requests = {}; ///< The same. None: they stay as they are.
};
/// Changes its rules: `removed` are targets; `added` go before all others, in their order, and in
/// place of those of the same target.
struct change_network_request {
  std::vector<egress_rule> added;
  std::vector<std::string> removed;
  request_context context = {};
};

/// What becomes of the disk of a run that ends, and of the snapshots that earlier ones have left.
struct snapshot_retention {
  bool keeps = false;          ///< It is kept though no client asks for that.
  std::int64_t keep_ms = 0;    ///< As of take_snapshot: of each new snapshot.
  std::uint32_t keep_last = 0; ///< As of define_snapshot.
  /// Those beyond keep_last are not deleted, but expire so long after that. 0: they are.
  std::int64_t evicted_keep_ms = 0;
};

/// What APIs say of a sandbox, by the name of each: 1 to 32 of a-z. The text is the API's own, and
/// no other API reads or changes it. All of a sandbox's have at most limits::metadata_bytes.
using api_metadata = std::map<std::string, std::string>;

/// As which user, where and with which variables a sandbox's programs run if a request does not say
/// otherwise.
struct sandbox_profile {
  command_user user = {1000, 1000};
  std::string login = {};         ///< What the user is called. Empty: as the image says.
  std::string home = {};          ///< Empty: the image's. With a login it has one.
  std::string cwd = "/workspace"; ///< Snapshots of its files have what is there.
  std::map<std::string, std::string> env = {}; ///< Where the image says nothing.
  privileges gains = privileges::none;
};

/// How a sandbox has the drive of another one. One at a time has it to write to. `snapshot`: the
/// drive as it was when the sandbox started.
enum class drive_mode : std::uint8_t { read_write, read_only, snapshot };

constexpr const char* name_of(drive_mode mode) {
  switch (mode) {
    case drive_mode::read_write: return "read-write";
    case drive_mode::read_only: return "read-only";
    case drive_mode::snapshot: return "snapshot";
  }
  return "?";
}
constexpr std::optional<drive_mode> drive_mode_of(std::string_view name) {
  for (const auto each : {drive_mode::read_write, drive_mode::read_only, drive_mode::snapshot})
    if (name == name_of(each))
      return each;
  return std::nullopt;
}

/// What a drive is in its own sandbox.
inline constexpr const char* drive_directory = "/drive";

/// A drive is a sandbox in which nothing runs, and whose drive_directory is a directory of others.
struct drive_mount {
  std::string path;  ///< Absolute, normalised, without control characters.
  std::string drive; ///< The id of the sandbox that is the drive.
  drive_mode mode = drive_mode::read_write;
  std::string name = {}; ///< As clients call it, in letters, digits, _ and -.
};

/// The one at whose node a sandbox begins: the first that it has as it is, or else as a snapshot.
inline std::optional<drive_mount> first_drive(const std::vector<drive_mount>& all) {
  for (const auto& each : all)
    if (each.mode != drive_mode::snapshot)
      return each;
  return all.empty() ? std::nullopt : std::optional{all.front()};
}

/// What is said of a sandbox when it is made by more than its first use. Starts nothing.
struct define_sandbox {
  api_metadata metadata;
  std::map<std::string, std::string> env; ///< Of all that runs in it, over the image's.
  /// A name of the node's, or a reference of a registry's. Empty: that of the context, or else the
  /// node's default.
  std::string image = {};
  std::optional<std::int64_t> expires_ms = {}; ///< Unix time, when it is deleted. None: never.
  std::optional<egress_policy> network = {};   ///< None: the node's default.
  sealed_rules requests = {};                  ///< What is done with its single requests.
  // What it may use, if that is less than what the node gives to each. 0: that.
  std::uint64_t memory_bytes = 0;
  std::uint32_t cpu_percent = 0;               ///< Of one CPU.
  std::optional<sandbox_profile> profile = {}; ///< None: the node's.
  /// None: those that the context asks for, or else the profile's, or else the node's.
  std::optional<privileges> gains = {};
  std::vector<std::string> image_names = {}; ///< Names that mean the same to the API's clients.
  /// Its disk begins with that snapshot, at each start, and its image is that one's. Empty: with
  /// nothing.
  std::string snapshot = {};
  /// Answered before it is durable: the asker tells nobody of it before a later change of the
  /// sandbox's has been answered.
  bool prompt = false;
  request_context context = {};
  std::vector<drive_mount> drives = {}; ///< That each start attaches, or else fails.
  std::uint64_t disk_bytes = 0;         ///< In place of what the node gives to each. 0: that.
};
/// What a sibling is given that begins as this sandbox was defined: its limits, its network policy
/// and its profile. Its image, its time and what APIs say of it are left out. Starts nothing.
struct copy_definition {
  bool with_env = false;
  request_context context = {};
};
/// One API's text becomes another one. The texts of other APIs do not matter to it.
struct metadata_change {
  std::string api;
  std::string text;
  std::optional<std::string> only_if =
    {}; ///< As the text is now, "" for none; else nothing changes.
};
/// What is set is changed; none of it: nothing is.
struct redefine_sandbox {
  std::optional<metadata_change> metadata = {};
  std::optional<std::int64_t> expires_ms = {};
  /// What the context asks of a sandbox holds for one that does not exist yet, whenever it comes to
  /// be.
  bool keeps_wishes = false;
  request_context context = {};
  /// Its next run begins with this snapshot. Empty: with what it would begin with.
  std::string snapshot = {};
  std::optional<std::vector<drive_mount>> drives = {}; ///< From the next start on.
};
/// Which sandbox has a drive: to write to, or else the one that has had it longest.
struct drive_use {
  std::string sandbox;
  std::uint64_t run = 0; ///< 0: it has none.
  std::string name = {}; ///< Of its caption.
};
/// Of all runs that are over.
struct run_totals {
  std::uint64_t runs = 0;
  std::int64_t duration_ms = 0;
  std::int64_t cpu_ms = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
};
struct sandbox_description {
  bool exists = false;   ///< It has been defined, or has run, and was not deleted since.
  api_metadata metadata; ///< None: it was made by its first use.
  std::string image;
  std::int64_t created_ms = 0;
  std::optional<std::int64_t> expires_ms;
  bool paused = false;
  std::optional<sandbox_run> run = {}; ///< The one that is alive, or was last. None: it has none.
  run_totals totals = {};
  // Of one that is asked, and not of those in a list. What the next start gives it.
  sandbox_profile profile = {};
  std::uint64_t memory_limit_bytes = 0, disk_limit_bytes = 0;
  std::uint32_t cpu_limit_percent = 0; ///< Of one CPU; 0: there is no limit.
  std::uint32_t process_limit = 0;
  std::string_view state = "asleep";           ///< Its phase: a literal.
  std::optional<sandbox_caption> caption = {}; ///< None: no API has one for it.
  std::string snapshot = {}; ///< That its next start begins with. Empty: with nothing.
  std::optional<drive_use> drive_user = {}; ///< Of a drive. None: no sandbox has it.
  bool has_kept_disk = false; ///< Its next start begins with a disk, be it one that nobody sees.
};

/// Of a drive: it starts, and stays while it is in use.
struct attach_drive {
  drive_use by;
  drive_mode mode = drive_mode::read_write;
  request_context context = {};
  /// The sandbox had it under an earlier server, and is not refused.
  bool has_it = false;
  /// The drive has ended, and what is attached is no drive any more. Any thread.
  std::function<void()> on_gone = nullptr;
};
/// What runtime::sandbox::attach_drive needs. It stays on its node.
struct attached_drive {
  std::shared_ptr<runtime::sandbox> of;
  std::string snapshot;      ///< Not empty: that of the engine's, which goes with `use`.
  std::shared_ptr<void> use; ///< For as long as it is held, the drive is in use.
  /// Has it keep what is on it now; `then` is called on any thread. Null: there is nothing to keep.
  std::function<void(std::function<void(const result<void>&)> then)> keep = nullptr;
};
struct run_limits {
  // As of define_sandbox.
  std::uint64_t memory_bytes = 0;
  std::uint32_t cpu_percent = 0;
  egress_policy network = {};
  sealed_rules requests = {};
};
/// A new run, unless one is alive. While one stops, the new one waits for that.
struct begin_run {
  std::int64_t timeout_ms = 0;
  /// Made together with the run's start, and not if the sandbox does not come to run, or if another
  /// request has begun the run already.
  std::optional<metadata_change> with = {};
  request_context context = {};
  /// If it is not the first one it begins with a snapshot, or not at all: snapshot_gone.
  bool resumes = false;
};
/// Starts nothing. The newest first.
struct find_runs {
  std::uint64_t number = 0; ///< That one alone. 0: all.
  std::uint64_t before = 0; ///< Only those with lower numbers. 0: all.
  std::uint32_t limit = 1;
  request_context context = {};
};
/// Its disk is kept for the next run, in a snapshot that the sandbox begins with then, if the
/// node's run_disk_rule says so, or if a client has asked for it.
struct stop_run {
  std::uint64_t number = 0;
  request_context context = {};
  bool snapshots =
    false; ///< It is stopped for a snapshot: one that runs, or run_over and the like.
  std::optional<std::int64_t> keep_ms = {}; ///< As of sandbox_run::snapshot_keep_ms.
};
struct extend_run {
  std::uint64_t number = 0;
  std::int64_t by_ms = 0;
  std::int64_t most_ms = 0; ///< In all.
  request_context context = {};
};
struct run_report {
  sandbox_run run;
  bool begun = false; ///< By this request.
  sandbox_description sandbox;
};
struct run_list {
  std::vector<sandbox_run> runs;
  bool more = false;
  sandbox_description sandbox;
};

/// Paused, all that runs in it stands still, and who needs it waits, until it is resumed, whatever
/// becomes of the server. Starts nothing.
struct pause_sandbox {
  bool paused = true; ///< If not, it is resumed.
  request_context context = {};
};
struct described_sandbox {
  std::string id;
  sandbox_description is;
};
/// A page of the list of all sandboxes that there are, whether they run or not: the newest first.
struct list_sandboxes {
  std::string after = {};  ///< `next` of the page before. Empty: this is the first page.
  std::uint32_t limit = 1; ///< At most limits::list_page_sandboxes.
  bool counted = false;    ///< The answer says how many there are in all.
};
struct sandbox_page {
  std::vector<described_sandbox> sandboxes;
  std::string next; ///< Empty: this is the last page.
  std::uint64_t total = 0;
};
/// A sandbox is in one group at most.
struct grouped_sandbox {
  std::string group; ///< 1 to 128 bytes, any.
  std::string name;  ///< 1 to 128 visible characters of ASCII.
};
/// What the sandboxes of a group are ordered by: when each was made, its name, or when its last run
/// came to be in the state that it is in.
enum class list_order : std::uint8_t { created, name, state };
/// A page of the sandboxes of a group, whether they run or not.
struct list_group {
  std::string group;
  list_order by = list_order::created;
  bool descends = true;
  std::string name_prefix = {}; ///< Only those whose names begin so: with list_order::name.
  std::string after = {};       ///< A place of this list. Empty: this is the first page.
  std::uint32_t limit = 1;      ///< At most limits::list_page_sandboxes.
};
struct listed_sandbox {
  std::string id;
  sandbox_description is;
  std::string place; ///< For the page that begins behind it.
};
/// Of a sandbox that is deleted while the page is read there is nothing.
struct group_page {
  std::vector<listed_sandbox> sandboxes;
  std::string next; ///< The place behind which the list goes on. Empty: this is the last page.
};
/// A page of the sandboxes that are active on this node: the one that was activated last is first.
struct list_activations {
  std::uint64_t after = 0; ///< `next` of the page before. 0: this is the first page.
  std::uint32_t limit = 1; ///< At most limits::list_page_sandboxes.
};
struct activation_page {
  std::vector<sandbox_status> sandboxes;
  std::uint64_t next = 0;  ///< 0: this is the last page.
  std::uint64_t total = 0; ///< On all pages.
};

/// Sockets in the sandbox's own network, to connect to what listens in it. Starts nothing; one that
/// stands still goes on.
struct open_sockets_request {
  bool ipv6 = false;
  std::uint32_t count = 1; ///< 1 to 16.
  request_context context = {};
};
/// Non-blocking, close-on-exec, not connected. They stay on their node.
struct sandbox_sockets {
  std::shared_ptr<std::vector<unique_fd>> sockets;
  std::shared_ptr<void> use = nullptr; ///< As of file_channel.
};
/// Starts nothing.
struct list_ports_request {
  request_context context = {};
};

/// A bucket is to be a directory of the sandbox, from now on and after each of its starts. Starts
/// it.
struct mount_bucket_request {
  std::string path;          ///< Absolute; its slashes and dots are normalised.
  std::string binding = {};  ///< One of the node's buckets. Empty: what follows says which.
  std::string endpoint = {}; ///< A URL.
  std::string bucket = {};
  std::string prefix = {}; ///< As it was given: empty for the whole bucket.
  bool read_only = false;
  std::optional<bucket_credentials> credentials = {}; ///< None: the node's own.
  std::vector<std::string> options = {};              ///< As of bucket_source.
  bool by_proxy = false; ///< Options that would lead round the node's own way are refused.
  request_context context = {};
};
struct unmount_bucket_request {
  std::string path; ///< As of mount_bucket_request.
  request_context context = {};
};
/// Starts nothing.
struct list_mounts_request {
  request_context context = {};
};
struct mounted_bucket {
  std::string path; ///< Normalised.
  std::string binding;
  std::string endpoint; ///< Of one without a binding, as it was given; the next as well.
  std::string bucket;
  std::string prefix;
  bool read_only = false;
  bool live = false; ///< It can be used now.
};

/// Its files are to outlive its node from now on, until it is deleted. Starts nothing.
struct mark_persistent {
  request_context context = {};
};

/// Does the program `true` run in it?
struct probe_request {
  request_context context = {};
};

/// Open a file for reading, or for replacing its content. The path is absolute, normalised, without
/// NUL, and is resolved inside the sandbox, as the sandbox's user. A session that is named is made
/// if it is not there.
struct read_file_request {
  std::string path;
  std::string session = {};
  request_context context = {};
  /// Set: only this of it, told as file_task::read tells it with these two words.
  std::optional<std::pair<std::string, std::string>> part = {};
  bool only_if_there = false; ///< As of exec_request.
};
struct write_file_request {
  std::string path;
  std::string session = {};
  request_context context = {};
};

/// The same for a directory with all below it.
struct read_tree_request {
  std::string path;
  /// Names to leave out, as shell patterns for "./name" in which wildcards match slashes too.
  std::vector<std::string> excludes;
  request_context context = {};
  bool compact = false; ///< Files with several names once, and maps of holes.
};
struct write_tree_request {
  std::string path; ///< Made if it is missing.
  request_context context = {};
};

/// A task with files; base/file_tasks.hpp says what its words are. Its paths are below /workspace
/// if they are not absolute, and may begin with ~ and have variables of the sandbox's environment
/// in them.
struct file_task_request {
  file_task what{};
  std::vector<std::string> words;
  bool only_if_there = false; ///< As of exec_request.
  request_context context = {};
};

/// The socket to the operation inside the sandbox; base/stream_frames.hpp and base/tree_frames.hpp
/// say what travels through it. Non-blocking and close-on-exec. It stays on its node.
struct file_channel {
  std::shared_ptr<unique_fd> socket;
  std::shared_ptr<void> use = nullptr; ///< For as long as somebody holds it, the sandbox is in use.
};

} // namespace insula

// All of these stay on their node so far; what is sent to another one gets an inspect() and a
// protocol version.
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::attach_drive)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::attached_drive)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::begin_run)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::change_network_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::create_session_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::copy_definition)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::define_sandbox)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::define_terminal)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::delete_session_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::exec_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::extend_run)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::file_channel)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::file_task_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::command_list)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::find_command)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::find_commands)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::find_result)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::find_runs)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::find_terminal)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::forget_terminal)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::input_piece)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::input_progress)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::interrupt_command)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::get_network_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::terminal_status)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::list_mounts_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::list_ports_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(std::vector<insula::listening_port>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::mark_persistent)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::mount_bucket_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(std::vector<insula::mounted_bucket>)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::network_state)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::open_sockets_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::open_terminal_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::output_chunk)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::pause_sandbox)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::pool_stats)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::prime_pool)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::probe_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::read_output)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::read_tree_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::read_file_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::request_context)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::resize_terminal)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::redefine_sandbox)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::run_list)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::run_report)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::sandbox_description)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::list_sandboxes)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::sandbox_page)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::list_group)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::group_page)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::list_activations)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::activation_page)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::sandbox_sockets)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::sandbox_status)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::set_network_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::signal_terminal)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::stop_run)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::unmount_bucket_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::write_command_input)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::write_input)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::write_once_answer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::write_once_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::write_file_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::write_tree_request)
