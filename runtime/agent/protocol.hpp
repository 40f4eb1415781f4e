#pragma once

#include <cstddef>
#include <cstdint>

/// What the server and a sandbox's agent say to each other: one struct per packet of a
/// SOCK_SEQPACKET socket, native byte order, since both are on one machine. Descriptors travel
/// beside it (SCM_RIGHTS).
///
/// The agent trusts the server. The server trusts nothing of an agent: sizes are exact, unknown ids
/// are ignored. An old agent outlives an upgrade of the server, so a change of meaning gets a new
/// version.
namespace insula::runtime::agent {

inline constexpr std::uint32_t version = 10;

/// Where the launcher leaves the control socket, and from where on the cgroup.procs files: those of
/// the commands' own groups, then as many of the reserve.
inline constexpr int control_fd = 3;
inline constexpr int first_cgroup_fd = 4;
inline constexpr std::size_t max_cgroup_fds = 8;

/// Where a command finds the script that was sent with it.
inline constexpr int script_fd = 9;

enum class op : std::uint32_t {
  exec = 1, ///< Start a command. Text: cwd, argv, env. Descriptors: stdin, stdout, stderr and maybe
            ///< a script.
  signal,   ///< Send signal `value` to the process group of `id`, also after its leader has ended.
            ///< SIGKILL for a terminal or a shell ends its whole session, and what descends from
            ///< it: again and again, until there is nothing left.
  forget,   ///< The end of `id` is known: drop it.
  report, ///< Say again of every id what was said last. For a server that has just taken over: what
          ///< it has not heard of when its next ping is answered, is not there.
  read_file,  ///< base/stream_frames.hpp. Text: the path. Descriptor: the channel.
  write_file, ///< The same, the other way.
  read_tree,  ///< base/tree_frames.hpp, `value` being how. Text: the path, then patterns of names
              ///< to leave out, argc strings in all. Descriptor: the channel. (An agent that does
              ///< not know of measured and compact trees sends others.)
  write_tree, ///< The same, the other way; there are no patterns. `value`: a tree_writing. (An
              ///< agent that does not know of exact ones applies a umask.)
  ping,       ///< Answered with pong.
  open_terminal, ///< Like exec, behind a new terminal of `value` = columns | rows << 16.
                 ///< Descriptor: a socket through which the terminal's master comes back. From a
                 ///< cwd that cannot be entered it goes home, without needs_cwd in `flags`.
  open_shell,    ///< Like exec, for the keeper of a session's shell: argv is keeper_name and the
                 ///< shell, the script is its end of the channel of shell_protocol.hpp. It goes
                 ///< home as a terminal does. When it has ended, so does all of its session.
  list_ports,    ///< What listens for TCP, as lines of text (port_list.hpp). No text. Descriptor:
                 ///< the channel.
  file_task,     ///< base/file_tasks.hpp: the one of `value`. Text: its words. Descriptor: the
                 ///< channel.
  list_quiet_shells, ///< Which terminals have nothing but a shell, as lines of text
                     ///< (quiet_shells.hpp). No text. Descriptor: the channel. (An agent that does
                     ///< not know of it closes that, so that there are none.)
  make_room,         ///< Before a command of the session whose keeper is `id`: if the commands have
                     ///< used up what they may, it is to run where something is kept for it.
  compare_disks,     ///< base/disk_changes.hpp: at most `value` changes. Text: the path behind
                 ///< which they begin. Descriptors: the channel, the newer disk, maybe the older
                 ///< one. (An agent that does not know of it closes the channel.)
  read_disk, ///< base/tree_frames.hpp: a whole tree. Text: one word, of no meaning. Descriptors:
             ///< the channel, the disk. (As compare_disks.)
};

struct request {
  op what;
  std::int32_t value;
  std::uint64_t id;    ///< The asker's name for a command; never used twice in one sandbox.
  std::uint64_t epoch; ///< Under which the asker holds the sandbox. What comes with an older one
                       ///< than the newest that has been seen is of no effect.
  std::uint32_t argc;
  std::uint32_t envc;
  std::uint32_t uid; ///< As the sandbox sees it.
  std::uint32_t gid;
  std::uint32_t text_bytes; ///< What follows the struct: NUL-terminated strings.
  std::uint32_t flags;      ///< Or-ed; others are ignored.
};

/// In flags. (An agent that does not know of it goes home.)
inline constexpr std::uint32_t needs_cwd = 1;

/// Text that fits into one packet; the sockets' buffers are made large enough for it.
inline constexpr std::size_t max_text_bytes = 192 * 1024;
inline constexpr std::size_t max_strings = 4096;

/// Commands that run or whose end is not yet known to the server.
inline constexpr std::size_t max_jobs = 4096;

/// File operations at once in one sandbox; for one more the channel closes without a word.
inline constexpr std::size_t max_file_children = 256;

enum class event : std::uint32_t {
  ready = 1,     ///< The sandbox is usable. `value` is the protocol version, `id` when the launcher
                 ///< was done and began to run the agent, in nanoseconds of CLOCK_MONOTONIC.
  launch_failed, ///< It never will be: `step` of the launcher failed with errno `value`.
  started,       ///< The command `id` runs as process `value` of the sandbox.
  failed,        ///< It could not be started: `step` failed with errno `value`.
  exited,        ///< It has ended with wait status `value`.
  pong,
  starting, ///< Answers report for a command of which nothing has been said yet.
};

struct notice {
  event what;
  std::int32_t value;
  std::uint64_t id;
  std::uint32_t step;
  std::uint32_t max_rss_kb;
  std::uint64_t user_us;
  std::uint64_t system_us;
};

/// Steps of starting a command.
enum class exec_step : std::uint32_t {
  none = 0,
  fork,
  cgroup,
  limits,
  user,
  stdio,
  cwd,
  exec,
  full,
  terminal,
  epoch, ///< The asker does not hold the sandbox any more.
};

} // namespace insula::runtime::agent
