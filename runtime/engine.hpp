#pragma once

#include "base/error.hpp"
#include "base/file_tasks.hpp"
#include "base/id.hpp"
#include "base/network.hpp"
#include "base/process_input.hpp"
#include "base/process_output.hpp"
#include "base/token_signer.hpp"
#include "base/unique_fd.hpp"
#include "runtime/disk_changes.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// The seam between those who decide about sandboxes and those who make them. Knows no actor, no
/// HTTP, no JSON.
///
/// Threads: every function may be called from any thread and returns without waiting. Every
/// callback runs on
///          a thread of the engine's, those of one sandbox and all that is in it never
///          concurrently: be quick there. A callback
///          may be dropped unheard only when its engine is destroyed.
/// Owner:   sandboxes and processes are let go of before their engine is destroyed.
namespace insula::runtime {

/// Ceilings of one sandbox. 0 means none.
struct sandbox_limits {
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
  std::uint64_t shm_bytes = 0;
  std::uint64_t log_bytes = 0;   ///< Output kept per command before the oldest goes.
  std::uint32_t cpu_percent = 0; ///< Of one CPU.
  std::uint32_t processes = 0;
  std::uint32_t open_files = 0;
};

/// What a sandbox starts from: files with 0-based owners that nobody changes while they are used.
struct image_layers {
  std::string tree;          ///< The name of a directory in the node's directory of images.
  bool machines_usr = false; ///< The machine's /usr goes over that of the tree.
};

/// Words of the asker's that a later server is given with what is still there: names and labels are
/// kept beside it, and mean nothing here.
inline constexpr std::size_t max_name_bytes = 128;
inline constexpr std::size_t max_label_bytes = 512;

/// What is done with single requests of the sandbox on their way out, and by whose authority. Only
/// the engine opens what is sealed.
struct request_orders {
  std::string sealed_rules;   ///< As seal_rules() gives them. Empty: there are none.
  std::string certificate;    ///< Of the sandbox's own authority, PEM.
  std::string sealed_key;     ///< As engine::make_authority() gives it, with the certificate.
  token_claims identity = {}; ///< What tokens for places to which rules forward say.

  bool empty() const { return sealed_rules.empty(); }
  bool operator==(const request_orders&) const = default;
};

/// Another authority for a sandbox.
struct made_authority {
  std::string certificate, sealed_key;
};

struct sandbox_spec {
  std::string host_name; ///< At most 63 bytes.
  image_layers image;
  sandbox_limits limits;
  std::string name;      ///< By which a later server adopts it. Empty: none does, and it is ended.
  egress_policy network; ///< Holds before anything is told of it, and so do the next ones.
  request_orders requests = {};
  std::uint64_t epoch = 0; ///< Under which its id is held by whoever asks; 0: it is nobody's yet.
  /// Programs that change the user work in it, so its users may become its root: one of its own
  /// ids, with the capabilities that its root always has.
  bool may_gain_rights = false;
  std::string disk_from = {}; ///< The snapshot that its disk begins with. Empty: it begins empty.
  /// It is small, and serves the node: it begins although refuses_more() has a reason.
  bool of_the_node = false;
};

/// What a sandbox gets that was made before anybody wanted it.
struct sandbox_identity {
  std::string host_name; ///< At most 63 bytes.
  sandbox_limits limits;
  std::string name; ///< As sandbox_spec has it, and the next two.
  egress_policy network;
  std::uint64_t epoch = 0;
  request_orders requests = {};
};

/// Who runs inside, as the sandbox sees it.
struct sandbox_user {
  std::uint32_t uid = 1000;
  std::uint32_t gid = 1000;
};

struct process_spec {
  std::vector<std::string> argv; ///< argv[0] is a path, or a name that is looked for along PATH.
  std::vector<std::string> env;  ///< "NAME=value".
  std::string cwd = "/";
  std::string script; ///< If not empty: the command can read it as descriptor 9.
  sandbox_user user;
  std::string label;
  /// A later server finds it also when it has ended, with its output, for as long as the process is
  /// held. It is not started if that cannot be promised.
  bool kept = false;
  /// Its stdin is open for write_input(); else it is at its end. It is not started if the sandbox
  /// has limits::inputs_per_sandbox of these.
  bool input = false;
  /// An attached reader is about to come: from its start the command is held up as with one that
  /// has read nothing. A reader that is not there after limits::reader_patience counts no more.
  bool awaits_reader = false;
  /// Of a terminal: its output waits for its reader, however slowly that one reads, until it has
  /// been forgotten. For a terminal with one reader.
  bool waits_for_reader = false;
  /// Of a terminal: one whose directory cannot be entered is not started. Else it begins at home.
  bool needs_cwd = false;
};

struct process_exit {
  int status = 0;    ///< A wait status; what waitpid() gives.
  bool lost = false; ///< The sandbox ended around it: nobody knows how it would have ended.
  bool out_of_memory = false; ///< Killed while the sandbox's memory was used up.
  /// The node has ended its sandbox for this reason, which is the last line of a command's stderr;
  /// empty: it has not.
  std::string ended_for{};
};

/// What a command has come to whose sandbox has ended around it. `why`: as of ended_for.
inline process_exit end_with_sandbox(const std::string& why) {
  constexpr int killed = 9; // SIGKILL, as a wait status.
  return {.status = why.empty() ? 0 : killed,
          .lost = why.empty(),
          .out_of_memory = false,
          .ended_for = why};
}

struct log_chunk : output_piece {
  bool reader_dropped = false; ///< The attached reader had asked for nothing for too long.
  std::optional<process_exit>
    ended; ///< The command has ended and there is nothing after next_offset.
};

/// What of a process' output can still be read.
struct log_extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// One command, from its start until nobody holds it any more. Its output goes to a log with
/// absolute offsets.
class process {
public:
  virtual ~process() = default;

  /// Answers once there is something at `offset`, or the end. One question at a time for the
  /// attached reader; others may ask as they like. `attached`: from now on the command is held up
  /// when the log's ceiling is ahead of this reader, and the reader is dropped when it asks for
  /// nothing for limits::reader_patience.
  virtual void read(std::uint64_t offset, std::size_t max_bytes, bool attached,
                    std::function<void(log_chunk)> on_output) = 0;

  /// The attached reader has gone: the oldest output goes instead of the command being held up.
  /// The next one to be attached may be another, and nothing is held against it.
  virtual void detach() = 0;

  virtual void measure(std::function<void(log_extent)> tell) = 0;

  /// The file of its log, for somebody who keeps that; it may still be written to. Empty: there is
  /// none.
  virtual void open_log(std::function<void(unique_fd)> tell) { tell({}); }

  /// Answers when all of the piece is taken, so that nothing but the end of the sandbox can lose it
  /// on its way to the command, or when it is known that it will not be. What was taken before is
  /// not taken again; pieces are taken in the order in which they come. The command may have ended.
  virtual void write_input(input_piece, std::function<void(input_progress)> tell) {
    tell({0, input_state::over});
  }

  /// Of one that is kept: in place of the label that it was started with.
  virtual void relabel(const std::string&) {}

  /// To the command's whole process group.
  virtual void signal(int number) = 0;

  /// Takes no more output than has been written by now: what still holds the pipes open is not
  /// waited for.
  virtual void cut_output() = 0;

  /// After on_ended: the same, but at its reader's pace, and what still holds the pipes open may go
  /// on writing, which goes nowhere.
  virtual void leave_output() { cut_output(); }
};

/// on_started or on_failed comes first and once; the others follow on_started only, each once.
struct process_listener {
  std::function<void()> on_started;
  std::function<void(error)> on_failed; ///< launch_failed with the reason in words; limit_reached.
  std::function<void(process_exit)>
    on_ended; ///< The command itself has ended; its output may go on.
  std::function<void()>
    on_complete; ///< The log has all of its output: nobody holds the pipes any more.
};

/// A process behind a terminal. All of its output is output_stream::out, and offsets in its log are
/// bytes; the log keeps the newest limits::terminal_log_bytes. Its output waits for whoever reads
/// it fastest, as reader_pace.hpp says, and for nobody else: for some time, or as
/// process_spec::waits_for_reader has it. It has ended when the process that was
/// started has, whoever else still has the terminal open.
class terminal : public process {
public:
  /// read() for one of several readers, by any number of the caller's.
  virtual void read_for(std::uint64_t reader, std::uint64_t offset, std::size_t max_bytes,
                        std::function<void(log_chunk)> on_output) = 0;
  /// That one has gone: what it still waits for is not answered any more.
  virtual void forget(std::uint64_t reader) = 0;

  /// What somebody types, in order. `taken`: the terminal has taken all of it, or (false) it has
  /// ended. The caller waits for that before it hands over more.
  virtual void write(std::string bytes, std::function<void(bool)> taken) = 0;

  virtual void resize(terminal_size size) = 0;

  /// Of the process that was started, as the sandbox counts. 0: it does not run yet. Any thread.
  virtual std::int32_t leader() const = 0;
};

/// What a shell starts with.
struct shell_spec {
  std::string program = "/bin/bash";
  std::vector<std::string> env; ///< "NAME=value".
  std::string cwd = "/";        ///< One that cannot be entered is replaced by the user's home.
  sandbox_user user;
  std::string label;
};

struct shell_command {
  std::string script;
  /// For this command only; afterwards the shell is where it was. Empty: where it is.
  std::string cwd;
  std::string label;
  bool kept = false;          ///< As of process_spec,
  bool awaits_reader = false; ///< and this.
};

/// What a shell would give to a program that it starts now.
struct shell_surroundings {
  std::string cwd;
  std::vector<std::string> env; ///< "NAME=value".
};

/// on_ready or on_failed comes first and once; on_ended after on_ready only, once, and before the
/// end of a command that ends with the shell: who hears of that knows that there is no shell.
struct shell_listener {
  std::function<void()> on_ready;
  std::function<void(error)> on_failed;
  std::function<void(process_exit)> on_ended;
};

/// One live bash, in which commands run one after the other and leave their traces: directory,
/// variables, functions, options. A command that ends the shell ends with its status.
class shell {
public:
  virtual ~shell() = default;

  /// One at a time: only after the former one's on_ended. The process is like any other, with these
  /// differences. signal(SIGTERM) interrupts what the command has started and leaves the shell and
  /// its state; signal(SIGKILL) kills that, and the shell if it still does not come back. What the
  /// command leaves running in the background may go on writing: after on_ended that goes nowhere.
  /// on_failed with sandbox_not_running: the shell ended before it took the command, of which
  /// nothing has run. Another one can run it.
  virtual std::shared_ptr<process> run(shell_command what, process_listener listener) = 0;

  /// Asked while no command runs; the next one may come once this is answered. Errors:
  /// deadline_exceeded, sandbox_not_running, limit_reached (it exports too much), io_failed.
  virtual void look_around(std::function<void(result<shell_surroundings>)> tell) = 0;

  /// Kills it and all that it has started. on_ended follows. If it ends by itself, only what has
  /// begun a session of its own lives on.
  virtual void end() = 0;
};

/// What the commands of a sandbox use right now. None: it is not known on this machine.
struct sandbox_usage {
  std::optional<std::uint64_t> memory_bytes;    ///< As the limit counts it, cached files included.
  std::optional<std::chrono::microseconds> cpu; ///< Since its start.
  std::optional<std::uint32_t> processes;       ///< Threads count, as they do for the limit.
};

enum class file_operation { read, write };

/// A directory with all below it.
struct tree_request {
  file_operation what = file_operation::read;
  std::string path;
  /// Of a read: names to leave out, as shell patterns for "./name" in which wildcards match slashes
  /// too.
  std::vector<std::string> excludes;
  /// Of a read: without what is mounted there, and what has several names once. Of a write, which
  /// is root's: in place of all that is there, as the owner of that directory, with permissions as
  /// they are told, where an ordinary user's tar would take some away.
  bool exact = false;
  /// Of a read that is not exact: files with several names once, and maps of holes
  /// (tree_compact).
  bool compact = false;
  /// Of a write to /, which is root's: over what is there, with all that a whole tree tells.
  bool whole = false;
};

/// What a user of a sandbox is called, and where that is at home.
struct user_account {
  sandbox_user user;
  std::string name;
  std::string home;      ///< Absolute, as the next two.
  std::string directory; ///< Where its files are.
  std::string link;      ///< Leads there, for those to whom the directory has another name.
  bool anew = true; ///< Nobody has used the sandbox yet: what the image has of them becomes so.
};

/// A snapshot of a disk: all that the sandbox has changed of its image.
struct disk_snapshot {
  std::uint64_t bytes = 0;                ///< That the disk has. 0: it is not known.
  std::chrono::nanoseconds flush{};       ///< So long writing took of what was dirty,
  std::chrono::nanoseconds commit{};      ///< and copying the disk after that.
  std::chrono::nanoseconds stood_still{}; ///< So long the sandbox did, for it. 0: it did before.
};

/// Of the engine's, for a snapshot: 1 to 63 of a-z, 0-9 and -.
inline constexpr std::size_t max_snapshot_name = 63;

/// How long the parts of making a sandbox took, one after the other.
struct creation_times {
  std::chrono::nanoseconds slot{};       ///< Until whoever makes sandboxes began with it.
  std::chrono::nanoseconds cgroup{};     ///< Its cgroups,
  std::chrono::nanoseconds disk{};       ///< a place for its files,
  std::chrono::nanoseconds namespaces{}; ///< its namespaces with their id maps and network, and
                                         ///< what is in its files from the first moment,
  std::chrono::nanoseconds layers{};     ///< and the layers of its image, handed over to it.
  std::chrono::nanoseconds mounts{};     ///< What it made of them by itself, until its agent ran;
                                         ///< it begins with /proc, /sys and /dev before.
  std::chrono::nanoseconds agent{};      ///< Until the agent had been heard of.
};

/// A directory of a sandbox that a FUSE program outside of it serves.
struct mount_spec {
  std::string path;   ///< Absolute, normalised; not /, and nothing of /proc, /sys, /dev.
  std::string source; ///< By which the sandbox sees it listed, as the next.
  std::string type;
  std::vector<std::string> argv; ///< argv[0] is the program's name.
  std::string secret;            ///< What the program reads once, and nobody else.
  egress_policy reach = egress_policy::deny_all(); ///< Where the program may connect to, and
  std::uint16_t port = 0;                          ///< at which port alone.
  std::uint64_t cache_bytes = 0;                   ///< Of memory, for what it keeps of files.
  bool read_only = false;
  bool over_files = false; ///< The directory need not be empty.
  bool is_listed = false;  ///< It is good only if it can be listed: what a program finds out late.
  bool keeps_directory = false; ///< Also when it is unmounted, and that is empty.
  std::uint32_t owner = 0;      ///< User and group whose the directory is, if it has to be made.
};

/// What is mounted now.
struct live_mount {
  std::string path;
  bool good = true; ///< If not its program has ended, and whoever uses it gets errors.
};

/// What a drive is below the root of its sandbox.
inline constexpr const char* drive_directory = "/drive";

class sandbox;

/// The drive of one sandbox as a directory of another one.
struct drive_spec {
  std::string path;            ///< As of mount_spec.
  std::shared_ptr<sandbox> of; ///< Of the same engine; it has the drive in drive_directory.
  std::string snapshot = {};   ///< Not empty: the drive as it was in this snapshot of `of`.
  bool read_only = false;      ///< One of a snapshot always is.
  std::uint32_t owner = 0;     ///< As of mount_spec.
};

/// Sockets to be made in a sandbox's network.
struct sockets_request {
  bool ipv6 = false; ///< Else IPv4.
  std::uint32_t count = 1;
};
inline constexpr std::uint32_t max_sockets_at_once = 16;

enum class survivor_kind { command, terminal, shell, shell_command };

/// Something in an adopted sandbox that an earlier server has started.
struct survivor {
  std::uint64_t id = 0; ///< To take it over by.
  survivor_kind kind{};
  std::string label;
  std::uint64_t shell = 0; ///< Of a shell_command: in which it runs. Else 0.
  bool ended = false;      ///< Of one that is kept: it is known how.
};

struct sandbox_listener;

/// One live sandbox. Whatever is asked of it goes under the epoch that it was made, claimed or
/// adopted with. Once it has been commanded under a newer one, nothing that changes it has an
/// effect: stale_epoch, where an error can be told.
class sandbox {
public:
  virtual ~sandbox() = default;

  /// What it took to make it. Does not change any more.
  virtual const creation_times& creation() const = 0;

  virtual std::shared_ptr<process> start(process_spec spec, process_listener listener) = 0;

  /// Starts a process behind a terminal of the sandbox's own, as the leader of a new session.
  virtual std::shared_ptr<terminal> open_terminal(process_spec spec, terminal_size size,
                                                  process_listener listener) = 0;

  virtual std::shared_ptr<shell> open_shell(shell_spec spec, shell_listener listener) = 0;

  /// What was there when it was adopted. Each is taken over, once, or ended by disown(). A
  /// listener is then told all that it would have been told, from on_started or on_ready on.
  virtual std::vector<survivor> survivors() const = 0;
  virtual std::shared_ptr<process> take_over(const survivor& which, process_listener listener) = 0;
  virtual std::shared_ptr<terminal> take_over_terminal(const survivor& which,
                                                       process_listener listener) = 0;
  /// First the shell, then the command in it, if there is one: until then it takes no other.
  virtual std::shared_ptr<shell> take_over_shell(const survivor& which,
                                                 shell_listener listener) = 0;
  virtual void disown(const survivor& which) = 0;

  /// Has all that runs in it stand still; what is asked of it meanwhile waits for thaw(), but for
  /// usage() and destroy(). `on_still`: it stands still (true); or it goes on (false), since it
  /// could not be stopped within limits::freeze_patience, was thawed meanwhile, or this machine
  /// cannot do it.
  virtual void freeze(std::function<void(bool)> on_still) = 0;

  /// It goes on, also if it had only begun to stand still: one write, which takes microseconds.
  /// Errors: io_failed, sandbox_not_running.
  virtual result<void> thaw() = 0;

  /// It has been told to, or may have been when it was adopted, and not to go on since.
  virtual bool stands_still() const = 0;

  /// Its disk as it is becomes a snapshot of this name, which no other one has: everything that was
  /// written in it before, and nothing of what is written after on_taken. What is dirty is written
  /// while it goes on; then it stands still for as long as a commit takes. Acknowledged, the
  /// snapshot outlives it, the spawner and the machine's restart, if the engine keeps snapshots.
  /// Not in it: what is mounted, /dev/shm, processes. Errors: already_exists, disk_full, io_failed,
  /// stale_epoch, sandbox_not_running, limit_reached (too many wait for the disk); nothing is left
  /// then.
  virtual void take_snapshot(const std::string& name,
                             std::function<void(result<disk_snapshot>)> on_taken) = 0;

  /// Which paths differ between two snapshots over the image of this sandbox, whose own disk does
  /// not count. It does the work, as its root, and pays for it. Errors: not_found (there is no such
  /// snapshot), deadline_exceeded (after limits::compare_patience), io_failed, sandbox_not_running,
  /// stale_epoch.
  virtual void compare_disks(const compare_request& wanted,
                             std::function<void(result<disk_changes>)> tell) = 0;

  /// Reads a snapshot over the image of this sandbox, whose own disk does not count, as its root:
  /// base/tree_frames.hpp says how a whole tree travels through the answered socket. Errors:
  /// not_found (there is no such snapshot), launch_failed, io_failed, sandbox_not_running,
  /// stale_epoch.
  virtual void open_disk(const std::string& snapshot,
                         std::function<void(result<unique_fd>)> tell) = 0;

  /// It has ended: nothing can be begun in it. True before anything that ran in it is told of its
  /// end; on_ended, or the answer of destroy(), is on its way. Any thread.
  virtual bool is_over() const = 0;

  /// Read from the kernel now: a few small files, which take microseconds. None: it has ended.
  virtual std::optional<sandbox_usage> usage() const = 0;

  /// Starts a file operation as `user`; base/stream_frames.hpp says what travels through the
  /// answered socket. Errors: launch_failed.
  virtual result<unique_fd> open_file(file_operation what, const std::string& path,
                                      sandbox_user user) = 0;

  /// The same for a tree, with base/tree_frames.hpp. Errors: launch_failed; invalid_request for
  /// more patterns than an operation can have.
  virtual result<unique_fd> open_tree(const tree_request& wanted, sandbox_user user) = 0;

  /// Starts a file task as `user`; base/file_tasks.hpp says what its words are and what travels
  /// through the answered socket. Errors: launch_failed; invalid_request for more words than a task
  /// can have.
  virtual result<unique_fd> open_file_task(file_task what, const std::vector<std::string>& words,
                                           sandbox_user user) = 0;

  /// Gives the user its name, and makes its directories, as file_task::name_user does. Errors:
  /// launch_failed, sandbox_not_running, io_failed; deadline_exceeded, after
  /// limits::name_user_patience.
  virtual void name_user(const user_account& who, std::function<void(result<void>)> on_named) = 0;

  /// Programs in it believe this authority (PEM) from now on, in place of one before. Where its
  /// image has no authorities, they also believe those of the node. Errors: launch_failed,
  /// sandbox_not_running, io_failed; deadline_exceeded, after limits::name_user_patience.
  virtual void trust_authority(const std::string& certificate,
                               std::function<void(result<void>)> on_trusted) = 0;

  /// From now on it may reach what this says; answers when that is so, and what is open and
  /// forbidden by it has been cut. Both hold from the same moment. If the broker fails the policy
  /// holds all the same, and names with rules are reached once it has them. One after the other: of
  /// those that wait the last one counts, and all are answered by it. Errors: io_failed (the
  /// gateway does not answer: what held before goes on to hold, or nothing passes),
  /// node_unreachable (the broker does not), limit_reached, sandbox_not_running; io_failed,
  /// invalid_request, for requests that cannot be opened or have an expression that is none.
  virtual void set_network(const egress_policy& policy, const request_orders& requests,
                           std::function<void(result<void>)> on_set) = 0;
  /// Errors as of set_network().
  virtual void measure_network(std::function<void(result<network_figures>)> tell) = 0;

  /// TCP sockets that are connected to nothing, with which the sandbox's own network is reached,
  /// its loopback included. At most max_sockets_at_once. Non-blocking, close-on-exec. It may stand
  /// still meanwhile. Errors: io_failed, sandbox_not_running.
  virtual void open_sockets(sockets_request wanted,
                            std::function<void(result<std::vector<unique_fd>>)> tell) = 0;
  /// What listens in it for TCP, by port. The gateway's own is none of it. Errors:
  /// sandbox_not_running, io_failed, deadline_exceeded.
  virtual void list_ports(std::function<void(result<std::vector<listening_port>>)> tell) = 0;

  /// Leaders of terminals that are shells at their prompts, with nothing else in their sessions and
  /// no children. The sandbox says so of itself; none: it could not be asked, too.
  virtual void list_quiet_shells(std::function<void(std::vector<std::int32_t>)> tell) = 0;

  /// Answers when it can be used, or everything about it is undone. Errors: launch_failed, with
  /// what the program has said, which may be anything and is for the node's log alone;
  /// deadline_exceeded (the same, after limits::mount_patience); io_failed, in words;
  /// already_exists (there is one at the path); sandbox_not_running. It outlives the server, as
  /// commands do.
  virtual void mount(mount_spec what, std::function<void(result<void>)> on_mounted) = 0;
  /// Takes it away, whoever uses it. Answers when all that was written has been taken by whatever
  /// is behind it, or after limits::unmount_patience: who has a file open then may go on for
  /// limits::late_write_patience. Errors: not_found, io_failed, sandbox_not_running.
  virtual void unmount(const std::string& path, std::function<void(result<void>)> on_unmounted) = 0;
  /// Those of an earlier server as well.
  virtual std::vector<live_mount> mounts() const = 0;

  /// The drive becomes a directory of it, for as long as it lives and that other one does. What
  /// is written there is of the other one's disk, and its bytes count there. It outlives the
  /// server; to attach the same there again is fine. Errors: drive_in_use (another sandbox writes
  /// to it), not_found (there is no such drive), already_exists (another one is at the path),
  /// io_failed, sandbox_not_running, stale_epoch.
  virtual void attach_drive(drive_spec what, std::function<void(result<void>)> on_attached) = 0;

  /// Makes it somebody's, before anything has run in it and at most once: its host name and its
  /// limits are these from now on, and `heard_by` hears of it as if it had asked for it; nobody
  /// else does any more. One that does not answer within limits::claim_patience is removed and
  /// reported as failed, as in engine::create().
  virtual void claim(sandbox_identity who, sandbox_listener heard_by) = 0;

  /// Calls back once its agent has answered: never, if that hangs or has gone.
  virtual void ping(std::function<void()> on_answer) = 0;

  /// Kills and removes everything. Calls back when that has happened, or it is another's by now.
  /// May be called again.
  virtual void destroy(std::function<void()> on_gone) = 0;
};

/// on_ready or on_failed comes first and once; on_ended after on_ready only, when it ends without
/// having been asked.
struct sandbox_listener {
  std::function<void(std::shared_ptr<sandbox>)> on_ready;
  std::function<void(error)> on_failed; ///< launch_failed, naming step and reason;
                                        ///< capacity_exceeded; machine_full; stale_epoch.
  std::function<void()> on_ended;
  /// The program of the mount at this path has ended by itself. May be left out.
  std::function<void(const std::string& path)> on_mount_ended = nullptr;
  /// Right before on_ended: the node has ended it for what it has taken. May be left out.
  std::function<void()> on_forced_end = nullptr;
};

/// One kind of isolation.
class engine {
public:
  virtual ~engine() = default;

  /// A sandbox that is not ready within limits::create_patience is removed again and reported as
  /// failed. One whose disk is to begin with a snapshot that is not there: not_found.
  virtual void create(sandbox_spec spec, sandbox_listener listener) = 0;

  /// The names of those that an earlier server of this node has left running and that have not been
  /// adopted.
  virtual std::vector<std::string> survivors() const = 0;
  virtual bool survives(const std::string& name) const = 0;

  /// Takes over the one of the spec's name; the rest is as it was made with. What stands still does
  /// so until thaw(). Errors: not_found; stale_epoch, and it is left as it was; launch_failed, if
  /// it does not answer any more, and then it is ended.
  virtual void adopt(const sandbox_spec& spec, sandbox_listener listener) = 0;

  /// Ends one of them, in the name of whoever had it last. Calls back when nothing of it is left,
  /// or there is none of that name.
  virtual void disown(const std::string& name, std::function<void()> on_gone) = 0;

  /// It is gone then; that it is not there is fine. What stands on it goes on. Errors: io_failed.
  virtual void drop_snapshot(const std::string& name,
                             std::function<void(result<void>)> on_dropped) = 0;
  /// They outlive this server, whatever makes sandboxes, and the machine's restart. Any thread.
  virtual bool keeps_snapshots() const = 0;
  /// Names of those that are there. Errors: io_failed.
  virtual void list_snapshots(std::function<void(result<std::vector<std::string>>)> tell) = 0;

  /// For a sandbox that is to have rules about requests. Takes less than a millisecond. Errors:
  /// forbidden, this engine carries no requests; internal.
  virtual result<made_authority> make_authority() const {
    return error{errc::forbidden, "this node carries no requests for rules"};
  }

  /// The essential parts that are missing, in words; empty when all is well.
  virtual std::vector<std::string> ailments() const = 0;

  /// Why it begins no sandbox now, if it does not: machine_full, since the machine has less memory
  /// available than it keeps.
  virtual std::optional<error> refuses_more() const { return std::nullopt; }

  /// The sandboxes of this node may run until then, of CLOCK_BOOTTIME; 0: without an end, for a
  /// node that is in no cluster any more. From then on all of them stand still, whatever has become
  /// of the server, and go on with the next permission; what stands still by itself, or is frozen
  /// or thawed meanwhile, does as it was told then. Until then create() and claim() fail with
  /// node_unreachable; destroy() works as ever. Of one server the latest deadline counts; its first
  /// one counts in place of an earlier server's. Without any permission ever, they may run.
  /// Does not wait.
  virtual void permit([[maybe_unused]] std::chrono::nanoseconds boottime_deadline) {}
};

} // namespace insula::runtime
