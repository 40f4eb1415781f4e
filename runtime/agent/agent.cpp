// PID 1 of every sandbox: starts commands, reaps, opens files for others. Static, single-threaded,
// never in the data path, and touches no path that the sandbox's user controls: what could block
// does so in a child.

#include "runtime/agent/cgroups.hpp"
#include "runtime/agent/clock.hpp"
#include "runtime/agent/file_operations.hpp"
#include "runtime/agent/file_tasks.hpp"
#include "runtime/agent/identity.hpp"
#include "runtime/agent/new_file.hpp"
#include "runtime/agent/port_list.hpp"
#include "runtime/agent/processes.hpp"
#include "runtime/agent/processors.hpp"
#include "runtime/agent/quiet_shells.hpp"
#include "runtime/agent/requests.hpp"
#include "runtime/agent/shell_keeper.hpp"
#include "runtime/agent/shell_protocol.hpp"
#include "runtime/agent/shortage.hpp"
#include "runtime/agent/starter.hpp"
#include "runtime/agent/terminal.hpp"
#include "runtime/agent/tree_comparison.hpp"
#include "runtime/agent/tree_operations.hpp"
#include "runtime/descriptors.hpp"
#include "runtime/epoch_fence.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <initializer_list>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

namespace insula::runtime::agent {
namespace {

constexpr int ends_per_turn = 64;

/// Sessions that are being ended at once; more cannot be known to a server.
constexpr std::size_t most_endings = 512;

/// Commands that are being ended at once. Of further ones only the group is ended.
constexpr std::size_t most_hunts = 64;

/// From SIGTERM to SIGKILL for what a command has started, where no SIGKILL comes sooner: more than
/// a server waits.
constexpr long hunt_grace_ms = 4000;

/// What forks faster than it is killed is met again at once; what the kernel does not let die is
/// looked at now and then.
constexpr int quick_rounds = 100;
constexpr int quick_round_ms = 10, slow_round_ms = 1000;

constexpr long look_pause_ms = 1000, stops_pause_ms = 100;

/// A command from its start until the server has said that it knows of the end.
struct job {
  std::uint64_t id = 0; ///< 0: the place is free.
  op what{};            ///< What it was started by.
  int error_pipe =
    -1; ///< Open until the command runs: its end closes on exec, or carries the failure.
  bool ended = false;
  bool unsent = false; ///< `last` has not gone out: the socket was full.
  int signal = 0;      ///< Asked for before there was a process; it gets it as soon as it runs.
  notice last{};
};

/// What a child writes into its error pipe instead of running a command.
struct start_failure {
  exec_step step;
  int error;
};

/// A session whose processes are being killed.
struct ending {
  pid_t session = 0; ///< 0: the place is free.
  pid_t spared = 0;  ///< Goes last: a keeper, to whom its orphans come.
  int rounds = 0;
};

/// A command's processes, which are to end with the command wherever they have gone: into a group
/// or a session of their own, or, once their parents have ended, to this one.
struct hunted_command {
  std::uint64_t id = 0; ///< 0: the place is free.
  pid_t leader = 0;
  long kill_at = 0; ///< In milliseconds: then they are killed until none is left.
  int rounds = 0;
  hunted_processes known{};
};

job jobs[max_jobs]; ///< Their processes are in `children`, at the same places.
epoch_fence fence;
int poller = -1;
int signals = -1;
sigset_t nothing_blocked; ///< The spawner's mask came down to us; it is not for commands.
bool backlog = false;
std::uint64_t owed_pong = 0; ///< Its ping has been heard, and the socket was full.
ending endings[most_endings];
hunted_command hunts[most_hunts];
long next_round = -1; ///< When to look for them, in milliseconds; -1: there are none.
long next_look = -1;  ///< For what does not get to its start, and what is in the reserve.
long stops_at = -1;   ///< For leaders that have been stopped,
long next_stops = 0;  ///< not before this.
alignas(request) char packet[sizeof(request) + max_text_bytes + 1];

bool send_notice(const notice& what) {
  return ::send(control_fd, &what, sizeof what, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof what;
}

void wait_for_room(bool wanted) {
  if (backlog == wanted)
    return;
  backlog = wanted;
  epoll_event wish{};
  wish.events = EPOLLIN | (wanted ? EPOLLOUT : 0u);
  wish.data.fd = control_fd;
  ::epoll_ctl(poller, EPOLL_CTL_MOD, control_fd, &wish);
}

/// False: there is no room yet.
bool send_pong() {
  if (owed_pong == 0)
    return true;
  notice pong{};
  pong.what = event::pong;
  pong.id = owed_pong;
  if (!send_notice(pong))
    return false;
  owed_pong = 0;
  return true;
}

void tell(job& about) {
  about.unsent = !send_notice(about.last);
  if (about.unsent)
    wait_for_room(true);
}

/// The places that have ever been used; those behind them are free.
struct used_places {
  static inline std::size_t count = 0;
  job* begin() const { return jobs; }
  job* end() const { return jobs + count; }
};

std::size_t place_of(const job& which) {
  return static_cast<std::size_t>(&which - jobs);
}

pid_t pid_of(const job& which) {
  return children[place_of(which)];
}

job* find(std::uint64_t id) {
  for (auto& each : used_places{})
    if (each.id == id)
      return &each;
  return nullptr;
}

/// A fresh place, or none if all are taken.
job* add(std::uint64_t id, op what) {
  job* place = find(0);
  if (place == nullptr && used_places::count < max_jobs)
    place = &jobs[used_places::count++];
  if (place != nullptr) {
    *place = job{};
    place->id = id;
    place->what = what;
    children[place_of(*place)] = none;
  }
  return place;
}

void tell_failure(std::uint64_t id, exec_step step, int error) {
  notice what{};
  what.what = event::failed;
  what.id = id;
  what.value = error;
  what.step = static_cast<std::uint32_t>(step);
  if (send_notice(what) || id == 0)
    return;
  if (job* place = add(id, op{}); place != nullptr) { // Until there is room in the socket.
    place->ended = true;
    place->last = what;
    tell(*place);
  }
}

/// Where a session or a terminal goes whose directory is not there.
const char* home_of(const command& wanted) {
  for (char** each = wanted.env; *each != nullptr; ++each)
    if (std::strncmp(*each, "HOME=", 5) == 0)
      return *each + 5;
  return "/";
}

/// A copy of `fd`, but in place of /dev/null of the machine, whose locks and watches all sandboxes
/// would share, the sandbox's own, which PID 1 has as its stdin.
int copy_of_own(int fd) {
  constexpr unsigned memory = 1, null = 3; // Numbers that Linux never changes.
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISCHR(info.st_mode) || info.st_rdev != makedev(memory, null))
    return ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  const int own = ::open("/proc/self/fd/0", (::fcntl(fd, F_GETFL) & O_ACCMODE) | O_CLOEXEC);
  return own >= 0 ? own : ::fcntl(0, F_DUPFD_CLOEXEC, 3); // An image without /proc.
}

/// stdin, stdout, stderr, and maybe a script.
bool attach_output(const int* fds, int count) {
  int own[3];
  for (int target = 0; target < 3; ++target)
    if (own[target] = copy_of_own(fds[target]); own[target] < 0)
      return false;
  for (int target = 0; target < 3; ++target)
    if (::dup2(own[target], target) < 0)
      return false;
  // The descriptors came in above the cgroup files and close on exec; the script is the one that
  // stays.
  return count <= 3 ||
         (fds[3] == script_fd ? ::fcntl(script_fd, F_SETFD, 0) : ::dup2(fds[3], script_fd)) >= 0;
}

/// A name without a slash is looked for along the command's PATH. Returns with errno, if at all.
void become_program(const command& wanted) {
  const char* const name = wanted.argv[0];
  const char* path = nullptr;
  for (char** each = wanted.env; *each != nullptr && path == nullptr; ++each)
    if (::strncmp(*each, "PATH=", 5) == 0)
      path = *each + 5;
  if (path == nullptr || *name == '\0' || ::strchr(name, '/') != nullptr) {
    ::execve(name, wanted.argv, wanted.env);
    return;
  }
  static char file[PATH_MAX];
  int why = ENOENT;
  for (;; ++path) {
    const char* const end = ::strchrnul(path, ':');
    const int length = static_cast<int>(end - path);
    const int bytes = length == 0 ? ::snprintf(file, sizeof file, "./%s", name)
                                  : ::snprintf(file, sizeof file, "%.*s/%s", length, path, name);
    if (bytes > 0 && bytes < static_cast<int>(sizeof file)) {
      ::execve(file, wanted.argv, wanted.env);
      if (errno != ENOENT && errno != ENOTDIR)
        why = errno; // It is there, and cannot be run; another one may be.
    }
    if (*end == '\0')
      break;
    path = end;
  }
  errno = why;
}

/// The rest of a child's life up to exec. Returns only what failed.
start_failure run_command(const request& req, const command& wanted, const int* fds, int count,
                          const cgroup_set* enters) {
  if (enters != nullptr && !enter(*enters))
    return {exec_step::cgroup, errno};
  stay_on_processors();
  ::setsid();
  if (!become_user(req.uid, req.gid))
    return {exec_step::user, errno};
  if (req.what == op::open_terminal) {
    if (!enter_terminal(fds[0], static_cast<std::uint32_t>(req.value)))
      return {exec_step::terminal, errno};
  } else if (!attach_output(fds, count)) {
    return {exec_step::stdio, errno};
  }
  struct sigaction as_usual {};
  as_usual.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number)
    ::sigaction(number, &as_usual, nullptr);
  ::sigprocmask(SIG_SETMASK, &nothing_blocked, nullptr);
  const bool shell = req.what == op::open_shell;
  const bool must_be_there = req.what == op::exec || (req.flags & needs_cwd) != 0;
  if (::chdir("/") != 0) // From where the launcher has left the agent.
    return {exec_step::cwd, errno};
  if (::chdir(wanted.cwd) != 0 && (must_be_there || ::chdir(home_of(wanted)) != 0))
    return {exec_step::cwd, errno};
  if (shell)
    ::execve("/proc/self/exe", wanted.argv, wanted.env);
  else
    become_program(wanted);
  return {exec_step::exec, errno};
}

/// A command's child. The last descriptor is the error pipe, which closes when the command runs.
[[noreturn]] void live_as_command(const order& what, const cgroup_set* enters) {
  const int error_pipe = what.fds[what.count - 1];
  static string_list strings;
  command wanted;
  const start_failure failed = read_command(*what.what, what.text, strings, wanted)
                                 ? run_command(*what.what, wanted, what.fds, what.count - 1, enters)
                                 : start_failure{exec_step::exec, EINVAL};
  [[maybe_unused]] const auto told = ::write(error_pipe, &failed, sizeof failed);
  ::_exit(127);
}

/// The kernel gives the descriptors of one packet rising numbers. All others are closed.
void close_all_but(const int* fds, int count) {
  int next = control_fd;
  for (int i = 0; i < count; ++i) {
    if (fds[i] < next)
      ::_exit(1);
    if (fds[i] > next)
      ::close_range(static_cast<unsigned>(next), static_cast<unsigned>(fds[i] - 1), 0);
    next = fds[i] + 1;
  }
  ::close_range(static_cast<unsigned>(next), ~0u, 0);
}

/// A file operation's child, which becomes the sandbox's user. How it went is said through the
/// channel; if there is no child, its end closes and the asker sees that.
[[noreturn]] void live_for_files(const order& what, const cgroup_set* enters) {
  const int channel = what.fds[0];
  const request& req = *what.what;
  if (!let_go_of_children() || (enters != nullptr && !enter(*enters)))
    ::_exit(1);
  close_all_but(what.fds, what.count);
  if (req.what == op::write_file || req.what == op::file_task)
    open_workshop();
  if (::chdir("/") != 0 || !become_user(req.uid, req.gid))
    ::_exit(1);
  ::sigprocmask(SIG_SETMASK, &nothing_blocked, nullptr);
  ::umask(022);
  if (req.what == op::list_ports) {
    send_ports(channel);
    ::_exit(0);
  }
  if (req.what == op::list_quiet_shells) {
    send_quiet_shells(channel);
    ::_exit(0);
  }
  static string_list words;
  if (!read_words(req, what.text, words))
    ::_exit(1);
  switch (req.what) {
    case op::read_file: send_file(channel, words[0]); break;
    case op::write_file: receive_file(channel, words[0]); break;
    case op::read_tree: send_tree(channel, words[0], words + 1, req.value); break;
    case op::write_tree:
      receive_tree(channel, words[0], static_cast<tree_writing>(req.value));
      break;
    case op::read_disk:
      if (what.count > 1)
        send_disk(channel, what.fds[1]);
      break;
    case op::compare_disks:
      if (what.count > 1)
        compare_trees(channel, what.fds[1], what.count > 2 ? what.fds[2] : -1, words[0], req.value);
      break;
    case op::file_task:
      run_file_task(channel, static_cast<enum file_task>(req.value), words,
                    static_cast<int>(req.argc));
      break;
    default: break;
  }
  ::_exit(0);
}

/// What is a job until its end is known.
bool is_command(op what) {
  return what == op::exec || what == op::open_shell || what == op::open_terminal;
}

[[noreturn]] void live(const order& what, const cgroup_set* enters) {
  if (is_command(what.what->what))
    live_as_command(what, enters);
  live_for_files(what, enters);
}

/// Milliseconds; -1: that moment is not awaited.
int until(long moment) {
  return moment < 0 ? -1 : static_cast<int>(std::max(0L, moment - now_ms()));
}

/// Once something has been started.
void look_around_soon() {
  if (next_look < 0)
    next_look = now_ms() + look_pause_ms;
}

void look_around() {
  const bool waits = take_what_waits();
  next_look = empty_reserve() || waits ? now_ms() + look_pause_ms : -1;
}

void exec(const request& req, char* text, const int* fds, int count) {
  static string_list strings;
  command wanted;
  const int needed = req.what == op::open_terminal ? 1 : 3;
  if (count < needed || count >= max_fds || req.id == 0 ||
      !read_command(req, text, strings, wanted))
    return tell_failure(req.id, exec_step::exec, EINVAL);
  job* place = add(req.id, req.what);
  if (place == nullptr)
    return tell_failure(req.id, exec_step::full, EAGAIN);
  int error_pipe[2];
  if (::pipe2(error_pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
    const int why = errno;
    *place = job{};
    return tell_failure(req.id, exec_step::fork, why);
  }
  place->error_pipe = error_pipe[0];
  epoll_event wish{};
  wish.events = EPOLLIN;
  wish.data.fd = error_pipe[0];
  ::epoll_ctl(poller, EPOLL_CTL_ADD, error_pipe[0], &wish);
  int all[max_fds];
  std::memcpy(all, fds, static_cast<std::size_t>(count) * sizeof *all);
  all[count] = error_pipe[1];
  children[place_of(*place)] = ordered;
  show_processors();
  make_child({place_of(*place), &req, text, all, count + 1});
  look_around_soon();
  ::close(error_pipe[1]);
}

/// What is inside can stop these children, but not have any number of them.
void file_operation(const request& req, char* text, int* fds, int count) {
  std::size_t place = max_jobs;
  while (place < max_places && children[place] != none)
    ++place;
  if (count < 1 || place == max_places)
    return;
  children[place] = ordered;
  make_child({place, &req, text, fds, count});
  look_around_soon();
}

/// Its number cannot be another's as long as any of them lives.
void end_session(pid_t session, pid_t spared) {
  ending* place = nullptr;
  for (auto& each : endings)
    if (each.session == session || (place == nullptr && each.session == 0))
      place = &each;
  if (place == nullptr)
    return;
  *place = {session, spared, 0};
  next_round = 0;
}

/// A command is asked to end (SIGTERM), or has to. What its group does not have is asked now, and
/// killed after a while: a server that is told of the command's end says no more.
void begin_hunt(const job& of, pid_t leader, int number) {
  hunted_command* place = nullptr;
  for (auto& each : hunts) {
    if (each.id == of.id) {
      place = &each;
      break;
    }
    if (place == nullptr && each.id == 0)
      place = &each;
  }
  if (place == nullptr || (place->id != of.id && of.ended)) // It was not asked while it ran.
    return;
  if (place->id != of.id) {
    place->id = of.id;
    place->known.count = 0;
    place->rounds = 0;
    place->kill_at = now_ms() + hunt_grace_ms;
  }
  place->leader = of.ended ? 0 : leader;
  if (number == SIGKILL)
    place->kill_at = now_ms();
  look_at_processes();
  hunt(place->leader, number, leader, place->known);
  next_round = next_round < 0 ? place->kill_at : std::min(next_round, place->kill_at);
}

/// Milliseconds until the next round; -1: there is none.
int kill_hunted() {
  int pause = -1;
  for (auto& each : hunts) {
    if (each.id == 0)
      continue;
    if (const long left = each.kill_at - now_ms(); left > 0) {
      pause = pause < 0 ? static_cast<int>(left) : std::min(pause, static_cast<int>(left));
      continue;
    }
    const auto* const of = find(each.id);
    const bool runs = of != nullptr && !of->ended;
    if (hunt(runs ? each.leader : 0, SIGKILL, 0, each.known) == 0 || ++each.rounds > quick_rounds)
      each.id = 0;
    else
      pause = quick_round_ms;
  }
  return pause;
}

void end_sessions() {
  if (until(next_round) != 0)
    return;
  look_at_processes();
  int pause = kill_hunted();
  for (auto& each : endings) {
    if (each.session == 0)
      continue;
    const bool any = signal_session(each.session, SIGKILL, each.spared);
    if (each.spared != 0 && (!any || each.rounds >= quick_rounds)) {
      ::kill(each.spared, SIGKILL);
      each.spared = 0;
    } else if (!any) {
      each = ending{};
      continue;
    }
    const int wanted = each.rounds++ < quick_rounds ? quick_round_ms : slow_round_ms;
    pause = pause < 0 || wanted < pause ? wanted : pause;
  }
  next_round = pause < 0 ? -1 : now_ms() + pause;
}

void send_signal(job& target, int number) {
  const pid_t pid = pid_of(target);
  if (pid <= 0) {
    target.signal = number;
    return;
  }
  // An ended leader's number could have been taken by another command's group in the meantime.
  for (const auto& other : used_places{})
    if (other.id != 0 && other.id != target.id && pid_of(other) == pid)
      return;
  if (number == SIGKILL && target.what == op::open_shell)
    return end_session(pid, target.ended ? 0 : pid);
  if (number == SIGKILL && target.what == op::open_terminal)
    end_session(pid, 0); // And at once, since it may not have begun a session yet.
  // What leads a group of its own is found while its parents live, so before the signal.
  if (target.what == op::exec && (number == SIGTERM || number == SIGKILL))
    begin_hunt(target, pid, number);
  // Before it has a group of its own it is alone, and the signal still finds it.
  if (::kill(-pid, number) != 0 && errno == ESRCH && !target.ended)
    ::kill(pid, number);
}

/// The keeper of a session's shell, the shell, which is its first child, and what a command has
/// begun so far, also what it begins while that is moved.
void move_session(int keeper) {
  open_process_list(); // That of PID 1 has one position for both.
  move_to_reserve(keeper);
  if (const pid_t shell = first_child_of(keeper); shell > 0) {
    move_to_reserve(shell);
    pid_t young[64];
    for (int round = 0; round < 2; ++round)
      for (int i = 0, count = young_descendants_of(shell, young); i < count; ++i)
        move_to_reserve(young[i]);
  }
}

/// A shell forks where it is.
void make_room(const job& of) {
  const pid_t keeper = pid_of(of);
  if (of.what != op::open_shell || of.ended || keeper <= 0 || !is_short())
    return;
  use_reserve();
  move_in_child(move_session, keeper);
  look_around_soon();
}

void handle(const request& req, char* text, int* fds, int count) {
  if (!fence.admits(req.epoch)) // Of a file operation the channel closes without a word.
    return is_command(req.what) ? tell_failure(req.id, exec_step::epoch, ESTALE) : void();
  switch (req.what) {
    case op::exec:
    case op::open_shell:
    case op::open_terminal: return exec(req, text, fds, count);
    case op::read_file:
    case op::write_file:
    case op::read_tree:
    case op::write_tree:
    case op::list_ports:
    case op::list_quiet_shells:
    case op::compare_disks:
    case op::read_disk:
    case op::file_task: return file_operation(req, text, fds, count);
    case op::signal: {
      job* target = find(req.id);
      if (target == nullptr || req.id == 0)
        return;
      send_signal(*target, req.value);
      return;
    }
    case op::forget:
      if (job* known = find(req.id); known != nullptr && req.id != 0 && known->ended)
        *known = job{};
      return;
    case op::report:
      for (auto& each : used_places{}) {
        if (each.id == 0)
          continue;
        if (each.last.what == event{}) {
          each.last.what = event::starting;
          each.last.id = each.id;
        }
        tell(each);
        if (each.last.what == event::failed && !each.unsent)
          each = job{};
      }
      return;
    case op::make_room:
      if (const job* at = find(req.id); at != nullptr && req.id != 0)
        make_room(*at);
      return;
    case op::ping:
      owed_pong = req.id;
      if (backlog || !send_pong())
        wait_for_room(true);
      return;
  }
}

/// Takes one packet. False: the last one who held the other end is gone.
bool receive() {
  int fds[max_fds];
  int count = 0;
  const iovec text{packet, sizeof packet - 1};
  const ssize_t n = receive_packet(control_fd, text, fds, count, MSG_DONTWAIT);
  if (n < 0)
    return errno == EAGAIN;
  if (n == 0)
    return false;
  packet[n] = '\0';
  if (const auto* req = request_in(packet, static_cast<std::size_t>(n)); req != nullptr)
    handle(*req, packet + sizeof *req, fds, count);
  for (int i = 0; i < count; ++i)
    ::close(fds[i]);
  return true;
}

/// The error pipe says how a start went: nothing and closed means that the command runs. Whose
/// process has `ended` without a word has run, whoever else may still hold the pipe.
void settle_start(job& about, bool ended = false) {
  start_failure failed{};
  const ssize_t n = ::read(about.error_pipe, &failed, sizeof failed);
  if (n < 0 && !ended)
    return;
  // Taken out by hand: a file operation that was forked meanwhile holds a copy, and closing would
  // not do it.
  ::epoll_ctl(poller, EPOLL_CTL_DEL, about.error_pipe, nullptr);
  ::close(about.error_pipe);
  about.error_pipe = -1;
  about.last = notice{};
  about.last.id = about.id;
  if (n != sizeof failed && pid_of(about) <= 0) // There is none, and there will be none.
    failed = {exec_step::fork, EAGAIN};
  if (failed.step != exec_step::none) {
    about.last.what = event::failed;
    about.last.value = failed.error;
    about.last.step = static_cast<std::uint32_t>(failed.step);
    about.ended = true;
  } else {
    about.last.what = event::started;
    about.last.value = pid_of(about);
    if (about.signal != 0)
      send_signal(about, about.signal);
  }
  tell(about);
  if (about.last.what == event::failed && !about.unsent)
    about = job{}; // Nobody acknowledges what never ran.
}

/// Of a session or a terminal, whose leader nobody else could have go on. What a command or its
/// children have stopped stays so. Each look asks about all leaders, so there are not many a
/// second, however often something inside is stopped or ends.
void let_stopped_go_on() {
  stops_at = -1;
  next_stops = now_ms() + stops_pause_ms;
  for (const auto& each : used_places{}) {
    const bool alone = each.what == op::open_shell || each.what == op::open_terminal;
    const pid_t leader = alone && !each.ended ? pid_of(each) : none;
    siginfo_t stopped{};
    if (leader > 0 &&
        ::waitid(P_PID, static_cast<id_t>(leader), &stopped, WSTOPPED | WNOHANG) == 0 &&
        stopped.si_pid == leader)
      ::kill(leader, SIGCONT);
  }
  let_movers_go_on();
}

/// At most a few at a time: whoever forks and dies as fast as it can must not keep PID 1 from its
/// other duties. True: there may be more.
bool reap() {
  signalfd_siginfo ignored[16];
  while (::read(signals, ignored, sizeof ignored) > 0) {
  }
  handle_stopped_starter();
  stops_at = stops_at < 0 ? std::max(now_ms(), next_stops) : stops_at;
  int status = 0;
  rusage used{};
  for (int i = 0; i < ends_per_turn; ++i) {
    const pid_t pid = ::wait4(-1, &status, WNOHANG, &used);
    if (pid <= 0)
      return false;
    if (starter_ended(pid) || mover_ended(pid))
      continue;
    for (std::size_t place = max_jobs; place < max_places; ++place)
      if (children[place] == pid)
        children[place] = none;
    for (auto& each : used_places{}) {
      if (each.id == 0 || pid_of(each) != pid || each.ended)
        continue;
      if (each.error_pipe >= 0)
        settle_start(each, true);
      if (each.id == 0 || each.ended)
        break;
      each.ended = true;
      if (each.what == op::open_shell)
        end_session(pid, 0);
      each.last = notice{};
      each.last.what = event::exited;
      each.last.id = each.id;
      each.last.value = status;
      each.last.max_rss_kb = static_cast<std::uint32_t>(used.ru_maxrss);
      each.last.user_us = static_cast<std::uint64_t>(used.ru_utime.tv_sec) * 1'000'000u +
                          static_cast<std::uint64_t>(used.ru_utime.tv_usec);
      each.last.system_us = static_cast<std::uint64_t>(used.ru_stime.tv_sec) * 1'000'000u +
                            static_cast<std::uint64_t>(used.ru_stime.tv_usec);
      tell(each);
      break;
    }
  }
  return true;
}

void send_backlog() {
  for (auto& each : used_places{}) {
    if (!each.unsent)
      continue;
    if (!send_notice(each.last))
      return;
    each.unsent = false;
    if (each.last.what == event::failed)
      each = job{};
  }
  if (send_pong())
    wait_for_room(false);
}

/// Until the earlier of two moments; -1: there is none.
int earlier(int one, int other) {
  return one < 0 || other < 0 ? std::max(one, other) : std::min(one, other);
}

int run(char* title, int cgroup_files, std::uint64_t launched_ns) {
  // After exec, and before anything else can run: nothing in the sandbox may trace PID 1 or look
  // into it.
  ::prctl(PR_SET_DUMPABLE, 0);
  const int told = first_cgroup_fd + cgroup_files; // Two files, if the second is there.
  for (int i = control_fd; i < told + 2; ++i)
    ::fcntl(i, F_SETFD, FD_CLOEXEC);
  open_processors(told, ::fcntl(told + 1, F_GETFD) >= 0 ? told + 1 : -1);
  if (!open_cgroups(cgroup_files))
    return 1;
  open_shortage();
  sigset_t children;
  ::sigemptyset(&children);
  ::sigaddset(&children, SIGCHLD);
  ::sigemptyset(&nothing_blocked);
  ::sigprocmask(SIG_SETMASK, &children, nullptr);
  signals = ::signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
  poller = ::epoll_create1(EPOLL_CLOEXEC);
  open_process_list();
  const int returns = open_starter(live, title);
  for (const int fd : {control_fd, signals, returns}) {
    epoll_event wish{};
    wish.events = EPOLLIN;
    wish.data.fd = fd;
    if (::epoll_ctl(poller, EPOLL_CTL_ADD, fd, &wish) != 0)
      return 1;
  }
  notice ready{};
  ready.what = event::ready;
  ready.value = static_cast<std::int32_t>(version);
  ready.id = launched_ns;
  if (!send_notice(ready))
    return 1;
  bool more_ends = false;
  for (;;) {
    epoll_event events[32];
    const int patience =
      more_ends ? 0 : earlier(until(next_round), earlier(until(next_look), until(stops_at)));
    const int count = ::epoll_wait(poller, events, 32, patience);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == control_fd) {
        if ((events[i].events & EPOLLOUT) != 0)
          send_backlog();
        if ((events[i].events & (EPOLLIN | EPOLLHUP)) != 0 && !receive())
          return 0; // The sandbox ends with PID 1.
      } else if (fd == signals) {
        more_ends = true;
      } else if (fd == returns) {
        take_back();
      } else {
        for (auto& each : used_places{})
          if (each.id != 0 && each.error_pipe == fd) {
            settle_start(each);
            break;
          }
      }
    }
    if (more_ends)
      more_ends = reap();
    if (until(stops_at) == 0)
      let_stopped_go_on();
    if (until(next_look) == 0)
      look_around();
    end_sessions();
  }
}

} // namespace
} // namespace insula::runtime::agent

int main(int argc, char** argv) {
  using namespace insula::runtime::agent;
  if (argc > 0 && std::strcmp(argv[0], keeper_name) == 0)
    return keep_shell(argv);
  return run(argv[0], argc > 1 ? std::atoi(argv[1]) : 0,
             argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0);
}
