// How bash is made to run one command after the other, and to say how each ended:
//
// It reads lines from a pipe. For each command there are two: one sources the script, with stdio of
// its own that ends with the line, so that no `exec` in a command reaches the next one; the other
// prints the status, with a word that no command can know, to a pipe of ours that commands do not
// inherit. A script that is sourced cannot swallow what follows it, however unfinished its quotes
// are.
//
// Between its lines the shell has neither stdout nor stderr: what is not open, bash need not keep
// aside at 10 and above while a line runs, where commands have their own descriptors. Its stdin it
// keeps aside above a number that nobody uses.
//
// Being interactive, bash comes back to its next line when SIGINT ends a command. It goes on with
// the script, though, if of what it waits for the last to end does so by anything else: for having
// handled SIGINT, for having had it between fork and exec, or by the pipe that another has closed.
// So it has SIGURG first, of which nobody who does not wait for it hears. Its trap is put off
// until what is waited for has ended, and comes before the next command.

#include "runtime/agent/shell_keeper.hpp"
#include "runtime/agent/clock.hpp"

#include "runtime/agent/processes.hpp"
#include "runtime/agent/shell_protocol.hpp"
#include "runtime/descriptors.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

extern char** environ;

namespace insula::runtime::agent {
namespace {

constexpr int channel = shell_channel_fd;
constexpr int script = 0, out = 1, err = 2, command_fds = 3;

/// How often is looked whether the shell has read all of its lines without having said a status.
constexpr int look_ms = 250;
/// The same of a command that is interrupted: is anything left of it?
constexpr int settle_ms = 20;
/// From SIGINT to SIGTERM for what is deaf to the first. Who was in the middle of tidying up has
/// had some time for it.
constexpr long terminate_ms = 500;
/// From SIGINT to the next one for a shell that has not come back, doubled each time.
constexpr long first_again_ms = 100;
/// From SIGINT to SIGKILL for what the command has put into the background: no longer than whoever
/// asked waits before saying the same.
constexpr long leftover_ms = 2500;
/// For all that a session has started to be gone at its end.
constexpr long end_patience_ms = 2000;

constexpr std::size_t max_path = 4096;
constexpr std::size_t nonce_length = 16;

/// Where /dev/null is while a command runs, and above it what the shell has put aside; lower if the
/// shell may not have so many.
constexpr unsigned aside_fd = 231;

/// What the shell was told to do, until it has said how that ended.
struct command {
  bool runs = false;
  std::uint64_t number = 0; ///< 0: the lines with which every shell begins.
  int fds[command_fds] = {-1, -1, -1};
  char nonce[nonce_length + 1] = {};
  unsigned aside = 0;     ///< A descriptor that the shell has open while it runs the script.
  bool elsewhere = false; ///< It has a directory of its own, and the shell goes back afterwards.
  bool sent_back = false; ///< Once more, since the shell was not where it had been.
  int records = 0;        ///< That are still to come; two when it is elsewhere.
  int status = -1;        ///< What the first of them said.
  bool said = false;      ///< The shell has said all, and what was interrupted may still be there.
  bool asked =
    false; ///< An empty line has followed, which the shell reads when it has done the rest.
  int repairs = 0;
  long interrupted_at = 0; ///< 0: it has not been.
  signalled_processes had_interrupt, had_terminate;
  bool had_urgent = false;         ///< The shell has had SIGURG.
  long again_at = 0, again_ms = 0; ///< When the shell is interrupted once more, and the pause.
  process_mark before;             ///< What there was when it began.
  long kill_shell_at = 0;
};

pid_t shell = 0;
int lines = -1;      ///< The shell's stdin.
int records = -1;    ///< What it says,
int record_way = -1; ///< and where it says that.
int signals = -1;
command now;
char directory[max_path], former_directory[max_path]; ///< The shell's $PWD and $OLDPWD.
char heard[3 * max_path];
std::size_t heard_bytes = 0;
char text[16 * max_path]; ///< Three paths in quotes, each at most four times as long, and the lines
                          ///< around them.

long next_look = 0; ///< For what nobody tells.

void tell(shell_event what, std::int32_t value, std::uint64_t number) {
  const shell_notice said{what, value, number};
  while (::send(channel, &said, sizeof said, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

constexpr char no_status[] = "-1";

/// `from` in single quotes, as part of `text` at `at`. Returns where it ends.
std::size_t quoted(const char* from, std::size_t at) {
  text[at++] = '\'';
  for (; *from != '\0'; ++from)
    if (*from == '\'')
      at += static_cast<std::size_t>(std::sprintf(text + at, "'\\''"));
    else
      text[at++] = *from;
  text[at++] = '\'';
  return at;
}

template <class... Values>
std::size_t append(std::size_t at, const char* format, Values... values) {
  return at +
         static_cast<std::size_t>(std::snprintf(text + at, sizeof text - at, format, values...));
}

/// The line with which the shell says a status. `\builtin`: neither aliases nor functions get in
/// its way.
std::size_t append_record(std::size_t at, const char* status = "\"$?\"") {
  return append(at,
                "\\builtin printf '%%s %%s\\0%%s\\0%%s\\0' %s %s \"${PWD-}\" \"${OLDPWD-}\" "
                ">/proc/%d/fd/%d\n",
                now.nonce, status, static_cast<int>(::getpid()), record_way);
}

/// Back from a command's own directory; the status was said before.
std::size_t append_return(std::size_t at) {
  at = append(at, "\\builtin cd -- ");
  at = quoted(directory, at);
  at = append(at, " >/dev/null 2>&1\nOLDPWD=");
  at = quoted(former_directory, at);
  text[at++] = '\n';
  return append_record(at, no_status);
}

/// What is in `text`. Never more than the pipe has room for: the shell has read what came before.
void write_lines(std::size_t bytes) {
  now.asked = false;
  for (std::size_t put = 0; put < bytes;) {
    const ssize_t n = ::write(lines, text + put, bytes - put);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return; // It is gone, and that is heard of.
    put += static_cast<std::size_t>(n);
  }
}

void begin(std::uint64_t number) {
  now = command{};
  now.runs = true;
  now.number = number;
  now.records = 1;
  unsigned char random[nonce_length / 2];
  if (::getrandom(random, sizeof random, 0) != sizeof random)
    ::_exit(1);
  for (std::size_t i = 0; i < sizeof random; ++i)
    std::snprintf(now.nonce + 2 * i, 3, "%02x", random[i]);
  heard_bytes = 0;
  next_look = now_ms() + look_ms;
}

void close_fds(int* fds, int count) {
  for (int i = 0; i < count; ++i)
    if (fds[i] >= 0)
      ::close(std::exchange(fds[i], -1));
}

void finish() {
  close_fds(now.fds, command_fds);
  now.runs = false;
  if (now.number == 0)
    tell(shell_event::ready, 0, 0);
  else
    tell(shell_event::finished, now.status & 0xff, now.number);
}

bool can_be_entered(const char* path) {
  struct stat info {};
  return ::stat(path, &info) == 0 && S_ISDIR(info.st_mode) && ::access(path, X_OK) == 0;
}

/// Commands change the shell's limits.
unsigned above_commands() {
  rlimit files{};
  if (::prlimit(shell, RLIMIT_NOFILE, nullptr, &files) != 0 || files.rlim_cur > aside_fd + 16)
    return aside_fd;
  return files.rlim_cur > 4 ? static_cast<unsigned>(files.rlim_cur) - 3 : 1;
}

void run(const shell_request& req, const char* wanted_directory, const int* fds) {
  begin(req.number);
  std::copy_n(fds, command_fds, now.fds);
  tell(shell_event::started, 0, req.number);
  now.elsewhere = *wanted_directory != '\0';
  if (now.elsewhere && !can_be_entered(wanted_directory)) {
    const auto length = append(0, "Failed to change directory to '%s'\n", wanted_directory);
    [[maybe_unused]] const auto told = ::write(fds[err], text, length);
    now.status = 1;
    return finish();
  }
  now.before = mark_processes(shell);
  std::size_t at = 0;
  if (now.elsewhere) {
    at = append(at, "\\builtin cd -- ");
    at = quoted(wanted_directory, at);
    at = append(at, " >/dev/null 2>&1 && ");
    now.records = 2;
  }
  const int self = static_cast<int>(::getpid());
  // What is undone last comes first, since bash stops at what a command has made impossible.
  const unsigned aside = now.aside = above_commands();
  at =
    append(at, "\\builtin . /proc/%d/fd/%d >/proc/%d/fd/%d 2>/proc/%d/fd/%d %u<>/dev/null 0<&%u\n",
           self, fds[script], self, fds[out], self, fds[err], aside, aside);
  at = append_record(at);
  if (now.elsewhere)
    at = append_return(at);
  write_lines(at);
}

/// One record of the shell's: the word, the status, and where it is now.
void take_record(const char* record, const char* end) {
  const char* const where = static_cast<const char*>(std::memchr(record, '\0', end - record)) + 1;
  const char* const former = where + std::strlen(where) + 1;
  if (now.status < 0)
    now.status = std::atoi(record + nonce_length);
  if (--now.records > 0) // It is of a directory that the shell leaves.
    return;
  const bool moved =
    std::strcmp(where, directory) != 0 || std::strcmp(former, former_directory) != 0;
  if (now.elsewhere && moved && now.interrupted_at != 0 && !std::exchange(now.sent_back, true)) {
    now.records = 1; // A SIGINT has met the way back.
    return write_lines(append_return(0));
  }
  std::snprintf(directory, sizeof directory, "%s", where);
  std::snprintf(former_directory, sizeof former_directory, "%s", former);
  if (now.status < 0)
    now.status = 128 + SIGINT;
  if (now.interrupted_at == 0)
    return finish();
  now.said = true;
  now.asked = false;
  next_look = 0;
}

/// Where the third NUL from `at` on is, or null.
const char* record_end(const char* at, const char* end) {
  for (int nul = 0; nul < 3; ++nul, ++at) {
    at = static_cast<const char*>(std::memchr(at, '\0', static_cast<std::size_t>(end - at)));
    if (at == nullptr)
      return nullptr;
  }
  return at;
}

/// Commands can write there as well, if they go out of their way: what does not begin with the word
/// does not count.
void take_records() {
  for (;;) {
    if (heard_bytes == sizeof heard)
      heard_bytes = 0; // No shell says so much.
    const ssize_t n = ::read(records, heard + heard_bytes, sizeof heard - heard_bytes);
    if (n <= 0)
      return;
    heard_bytes += static_cast<std::size_t>(n);
    while (now.runs) {
      const char* const end = heard + heard_bytes;
      const auto* at =
        static_cast<const char*>(::memmem(heard, heard_bytes, now.nonce, nonce_length));
      const char* const after = at == nullptr ? nullptr : record_end(at, end);
      if (after == nullptr)
        break;
      take_record(at, after);
      heard_bytes = static_cast<std::size_t>(end - after);
      std::memmove(heard, after, heard_bytes);
    }
    if (!now.runs)
      heard_bytes = 0;
  }
}

/// Does the shell wait for another line? It takes whatever is in the pipe at once, and more when
/// all of that has been done.
bool waits() {
  int unread = 0;
  if (::ioctl(lines, FIONREAD, &unread) != 0 || unread > 0)
    return false;
  if (std::exchange(now.asked, true))
    return true;
  [[maybe_unused]] const auto put = ::write(lines, "\n", 1);
  return false;
}

std::size_t say_again(std::size_t at) {
  return now.elsewhere ? append_return(at) : append_record(at);
}

/// The shell waits for another line and has not said how the last one ended: a SIGINT has met that
/// line, or a function stands in the way of builtins. First the line is said again. Then the
/// function goes: in POSIX mode, which an assignment switches on, no function hides `unset`.
void repair() {
  if (!waits())
    return;
  take_records(); // It may have been said just now.
  if (!now.runs || now.said || !now.asked)
    return;
  now.records = 1;
  now.asked = false;
  switch (now.repairs++) {
    case 0: ::kill(shell, SIGINT); return; // Of half a line, nothing is left.
    case 1: return write_lines(say_again(0));
    case 2:
      return write_lines(say_again(
        append(0, "POSIXLY_CORRECT=y\n\\unset -f builtin\n\\unset -v POSIXLY_CORRECT\n")));
    default: ::kill(shell, SIGKILL);
  }
}

/// A script gets SIGURG, once, and SIGINT when it has not come back after a while. Not both at the
/// same time: bash loses either in `wait`, and does not survive SIGINT in a trap that it runs while
/// it reads a line.
void interrupt_shell() {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%u", static_cast<int>(shell), now.aside);
  struct stat info {};
  if (!now.had_urgent && ::lstat(path, &info) == 0) {
    now.had_urgent = true;
    ::kill(shell, SIGURG);
  } else
    ::kill(shell, SIGINT);
}

/// What the command has started and has not had SIGINT gets it, after the shell, which leaves the
/// rest of the script once that has ended.
/// `all`: who has had it too, since what was just being started may have lost it.
void interrupt_started(bool all) {
  const int known = now.had_interrupt.count;
  signal_new_processes(shell, now.before, 0, &now.had_interrupt);
  if (!now.said && (all || now.had_interrupt.count > known))
    interrupt_shell();
  if (all)
    signal_new_processes(shell, now.before, SIGINT);
  else
    for (int i = known; i < now.had_interrupt.count; ++i)
      ::kill(now.had_interrupt.all[i], SIGINT);
}

/// Unless it has come back by then; later and later, since a line that it reads then is lost.
void interrupt_again(long at, long pause_ms) {
  now.again_ms = pause_ms;
  now.again_at = at + pause_ms;
}

void interrupt() {
  if (now.interrupted_at == 0)
    now.interrupted_at = now_ms();
  const long at = now_ms();
  next_look = at + settle_ms;
  interrupt_again(at, first_again_ms);
  interrupt_started(true);
}

/// What was being forked at that moment has not heard it, and the shell waits for that. What does
/// not listen to it gets SIGTERM, or force. A script that has put its own in place of the shell's
/// trap goes on after that: the shell is interrupted again.
void follow_up() {
  const long at = now_ms();
  const bool again = at >= now.again_at;
  if (again)
    interrupt_again(at, 2 * now.again_ms);
  const int terminated = now.had_terminate.count;
  const bool all_known = now.had_interrupt.count < signalled_processes::most;
  bool ended = false;
  if (now.kill_shell_at != 0)
    ended = signal_new_processes(shell, now.before, SIGKILL, nullptr,
                                 all_known ? &now.had_interrupt : nullptr) > 0;
  else if (at >= now.interrupted_at + terminate_ms)
    signal_new_processes(shell, now.before, SIGTERM, &now.had_terminate, &now.had_interrupt);
  if (ended || now.had_terminate.count > terminated)
    interrupt_again(at, settle_ms);
  interrupt_started(again);
}

/// The shell has come back, and has read whatever was written to it: no SIGINT is on its way to
/// the next command's lines. What else there was of the command goes now.
void settle() {
  const bool killed = now.kill_shell_at != 0 || now_ms() >= now.interrupted_at + leftover_ms;
  const int left = killed ? signal_new_processes(shell, now.before, SIGKILL)
                          : signal_new_processes(shell, now.before, SIGTERM, &now.had_terminate);
  if (waits() && left == 0)
    finish();
}

void kill_command(long patience_ms) {
  if (now.kill_shell_at != 0)
    return;
  now.kill_shell_at = now_ms() + patience_ms;
  if (now.interrupted_at == 0)
    interrupt();
  else
    next_look = 0;
}

void look() {
  if (now.said && now.kill_shell_at != 0 && now_ms() >= now.kill_shell_at)
    return finish(); // What the kernel does not let die.
  if (now.kill_shell_at != 0 && now_ms() >= now.kill_shell_at)
    ::kill(shell, SIGKILL);
  if (now.said)
    return settle();
  if (now.interrupted_at != 0)
    follow_up();
  repair();
}

/// Ends everything, and itself. What is forked meanwhile is met in the next round.
[[noreturn]] void end() {
  int status = SIGKILL;
  const long until = now_ms() + end_patience_ms;
  while (now_ms() < until) {
    signal_descendants(SIGKILL);
    int how = 0;
    pid_t ended = 0;
    while ((ended = ::waitpid(-1, &how, WNOHANG)) > 0)
      if (ended == shell)
        status = how;
    if (ended < 0 && errno == ECHILD)
      break;
    pollfd wish{signals, POLLIN, 0};
    ::poll(&wish, 1, 10);
    signalfd_siginfo ignored[16];
    while (::read(signals, ignored, sizeof ignored) > 0) {
    }
  }
  tell(shell_event::ended, status, 0);
  ::_exit(0);
}

/// Ready comes last: who hears it knows what runs.
void report() {
  if (now.number != 0) {
    tell(shell_event::started, 0, now.number);
    if (!now.runs)
      tell(shell_event::finished, now.status & 0xff, now.number);
  }
  if (now.number != 0 || !now.runs)
    tell(shell_event::ready, 0, 0);
}

void take_request() {
  struct {
    shell_request req;
    char text[max_shell_text + 1];
  } packet;
  const iovec data{&packet, sizeof packet - 1};
  int fds[command_fds] = {-1, -1, -1};
  int count = 0;
  const ssize_t n = receive_packet(channel, data, fds, count, MSG_DONTWAIT);
  if (n < 0 && errno == EAGAIN)
    return;
  if (n < static_cast<ssize_t>(sizeof packet.req))
    end();
  reinterpret_cast<char*>(&packet)[n] = '\0';
  switch (packet.req.what) {
    case shell_op::run:
      if (count == command_fds && !now.runs)
        return run(packet.req, packet.text, fds);
      break;
    case shell_op::interrupt:
      if (now.runs && now.number == packet.req.number)
        interrupt();
      break;
    case shell_op::kill:
      if (now.runs && now.number == packet.req.number)
        kill_command(packet.req.patience_ms);
      break;
    case shell_op::end: end();
    case shell_op::ping: tell(shell_event::pong, 0, packet.req.number); break;
    case shell_op::report: report(); break;
  }
  close_fds(fds, count);
}

/// Buries what has ended; orphans of the session too, since they come to us. A shell that is
/// stopped goes on.
void bury() {
  signalfd_siginfo ignored[16];
  while (::read(signals, ignored, sizeof ignored) > 0) {
  }
  int status = 0;
  for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;)
    if (WIFSTOPPED(status)) {
      if (ended == shell)
        ::kill(shell, SIGCONT); // Nobody else can, and who waits for it would wait for ever.
    } else if (ended == shell) {
      // Its last command may have ended before it did.
      take_records();
      tell(shell_event::ended, status, 0);
      ::_exit(0);
    }
}

[[noreturn]] void become_shell(const char* program, int line_end) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::dup2(line_end, 0) == 0 && ::close(1) == 0 && ::close(2) == 0) {
    char norc[] = "--norc", noprofile[] = "--noprofile", noediting[] = "--noediting",
         interactive[] = "-i", name[] = "bash";
    char* argv[] = {name, norc, noprofile, noediting, interactive, nullptr};
    ::execve(program, argv, environ);
  }
  ::_exit(127);
}

bool start_shell(const char* program) {
  int to[2], from[2];
  if (::access(program, X_OK) != 0 || ::pipe2(to, O_CLOEXEC) != 0 ||
      ::pipe2(from, O_CLOEXEC | O_NONBLOCK) != 0)
    return false;
  lines = to[1];
  records = from[0];
  record_way = from[1];
  shell = ::fork();
  if (shell == 0)
    become_shell(program, to[0]);
  ::close(to[0]);
  return shell > 0;
}

/// How every shell begins: without prompts, history and the like, which nobody would see. Its trap
/// interrupts scripts only, as it is run between lines as well.
void greet() {
  begin(0);
  write_lines(append_record(
    append(0, "PS1= PS2= PROMPT_COMMAND=\n\\builtin set +H +m +o history\n"
              "\\builtin unset -v HISTFILE TMOUT MAILCHECK\n"
              "\\builtin trap '[[ -z ${BASH_SOURCE-} ]] || \\builtin kill -INT \"$$\"' URG\n")));
}

int timeout() {
  if (!now.runs)
    return -1;
  return static_cast<int>(std::clamp<long>(next_look - now_ms(), 0, look_ms));
}

} // namespace

int keep_shell(char** argv) {
  // The shell opens descriptors of ours by their names in /proc.
  ::prctl(PR_SET_DUMPABLE, 1);
  ::prctl(PR_SET_NAME, keeper_name);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::fcntl(channel, F_SETFD, FD_CLOEXEC);
  sigset_t handled;
  ::sigemptyset(&handled);
  ::sigaddset(&handled, SIGCHLD);
  ::sigaddset(&handled, SIGPIPE);
  ::sigprocmask(SIG_SETMASK, &handled, nullptr);
  ::sigdelset(&handled, SIGPIPE);
  signals = ::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
  open_process_list();
  if (argv[1] == nullptr || !start_shell(argv[1])) {
    tell(shell_event::failed, errno, 0);
    return 1;
  }
  greet();
  for (;;) {
    pollfd wishes[] = {{channel, POLLIN, 0}, {records, POLLIN, 0}, {signals, POLLIN, 0}};
    const int ready = ::poll(wishes, 3, timeout());
    if (ready < 0 && errno != EINTR)
      return 1;
    if (wishes[1].revents != 0)
      take_records();
    if (wishes[2].revents != 0)
      bury();
    if (wishes[0].revents != 0)
      take_request();
    if (now.runs && now_ms() >= next_look) {
      next_look = now_ms() + (now.interrupted_at != 0 ? settle_ms : look_ms);
      look();
    }
  }
}

} // namespace insula::runtime::agent
