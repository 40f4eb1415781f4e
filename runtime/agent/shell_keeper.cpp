// How bash is made to run one command after the other, and to say how each ended:
//
// It reads lines from a pipe. For each command there are two: one sources the script, with stdio of
// its own that ends with the line, so that no `exec` in a command reaches the next one; the other
// prints the status, with a word that no command can know, to a pipe that commands do not inherit.
// A script that is sourced cannot swallow what follows it, however unfinished its quotes are.
//
// Being interactive, bash comes back to its next line when SIGINT ends a command.

#include "runtime/agent/shell_keeper.hpp"

#include "runtime/agent/processes.hpp"
#include "runtime/agent/shell_protocol.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
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
/// From SIGINT beside SIGKILL for what the command has started to the shell's own SIGKILL.
constexpr long shell_grace_ms = 500;
/// For all that a session has started to be gone at its end.
constexpr long end_patience_ms = 2000;

constexpr std::size_t max_path = 4096;
constexpr std::size_t nonce_length = 16;

/// What the shell was told to do, until it has said how that ended.
struct command {
  bool runs = false;
  std::uint64_t number = 0; ///< 0: the lines with which every shell begins.
  int fds[command_fds] = {-1, -1, -1};
  char nonce[nonce_length + 1] = {};
  int records = 0; ///< That are still to come; two when it has a directory of its own.
  int status = -1; ///< What the first of them said.
  bool asked =
    false; ///< An empty line has followed, which the shell reads when it has done the rest.
  int repairs = 0;
  bool interrupted = false;
  signalled_processes had_interrupt;
  process_mark before; ///< What there was when it began.
  long kill_shell_at = 0;
};

pid_t shell = 0;
int lines = -1;   ///< The shell's stdin.
int records = -1; ///< What it says.
int record_fd = 199;
int signals = -1;
command now;
char directory[max_path], former_directory[max_path]; ///< The shell's $PWD and $OLDPWD.
char heard[3 * max_path];
std::size_t heard_bytes = 0;
char text[16 * max_path]; ///< Three paths in quotes, each at most four times as long, and the lines
                          ///< around them.

long now_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
}

void tell(shell_event what, std::int32_t value, std::uint64_t number) {
  const shell_notice said{what, value, number};
  while (::send(channel, &said, sizeof said, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

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
std::size_t append_record(std::size_t at) {
  return append(at,
                "\\builtin printf '%%s %%s\\0%%s\\0%%s\\0' %s \"$?\" \"${PWD-}\" \"${OLDPWD-}\" "
                ">&%d\n",
                now.nonce, record_fd);
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
}

void close_fds(int* fds, int count) {
  for (int i = 0; i < count; ++i)
    if (fds[i] >= 0)
      ::close(std::exchange(fds[i], -1));
}

void finish() {
  if (now.interrupted) // What it had put into the background has not heard SIGINT.
    signal_new_processes(shell, now.before, SIGKILL);
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

void run(const shell_request& req, const char* wanted_directory, const int* fds) {
  begin(req.number);
  std::copy_n(fds, command_fds, now.fds);
  tell(shell_event::started, 0, req.number);
  const bool elsewhere = *wanted_directory != '\0';
  if (elsewhere && !can_be_entered(wanted_directory)) {
    const auto length = append(0, "Failed to change directory to '%s'\n", wanted_directory);
    [[maybe_unused]] const auto told = ::write(fds[err], text, length);
    now.status = 1;
    return finish();
  }
  now.before = mark_processes(shell);
  std::size_t at = 0;
  if (elsewhere) {
    at = append(at, "\\builtin cd -- ");
    at = quoted(wanted_directory, at);
    at = append(at, " >/dev/null 2>&1 && ");
    now.records = 2;
  }
  const int self = static_cast<int>(::getpid());
  at = append(at, "\\builtin . /proc/%d/fd/%d </dev/null >/proc/%d/fd/%d 2>/proc/%d/fd/%d %d>&-\n",
              self, fds[script], self, fds[out], self, fds[err], record_fd);
  at = append_record(at);
  if (elsewhere) {
    at = append(at, "\\builtin cd -- ");
    at = quoted(directory, at);
    at = append(at, " >/dev/null 2>&1\nOLDPWD=");
    at = quoted(former_directory, at);
    text[at++] = '\n';
    at = append_record(at);
  }
  write_lines(at);
}

/// One record of the shell's: the word, the status, and where it is now.
void take_record(const char* record, const char* end) {
  const char* const where = static_cast<const char*>(std::memchr(record, '\0', end - record)) + 1;
  const char* const former = where + std::strlen(where) + 1;
  if (now.status < 0)
    now.status = std::atoi(record + nonce_length);
  if (now.records == 1) { // Of two, the first is of a directory that it has left.
    std::snprintf(directory, sizeof directory, "%s", where);
    std::snprintf(former_directory, sizeof former_directory, "%s", former);
  }
  if (--now.records == 0)
    finish();
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

/// The shell waits for another line and has not said how the last one ended: a SIGINT has met that
/// line, or a function stands in the way of builtins. First the line is said again. Then the
/// function goes: in POSIX mode, which an assignment switches on, no function hides `unset`.
void repair() {
  if (!waits())
    return;
  take_records(); // It may have been said just now.
  if (!now.runs)
    return;
  now.records = 1;
  switch (now.repairs++) {
    case 0: ::kill(shell, SIGINT); return; // Of half a line, nothing is left.
    case 1: return write_lines(append_record(0));
    case 2:
      return write_lines(append_record(
        append(0, "POSIXLY_CORRECT=y\n\\unset -f builtin\n\\unset -v POSIXLY_CORRECT\n")));
    default: ::kill(shell, SIGKILL);
  }
}

void interrupt() {
  now.interrupted = true;
  signal_new_processes(shell, now.before, SIGINT, &now.had_interrupt);
  ::kill(shell, SIGINT);
}

/// What was being forked at that moment has not heard it, and the shell waits for that.
void follow_up() {
  if (now.kill_shell_at != 0)
    signal_new_processes(shell, now.before, SIGKILL);
  else if (now.interrupted)
    signal_new_processes(shell, now.before, SIGINT, &now.had_interrupt);
}

void kill_command() {
  now.interrupted = true;
  signal_new_processes(shell, now.before, SIGKILL);
  ::kill(shell, SIGINT);
  if (now.kill_shell_at == 0)
    now.kill_shell_at = now_ms() + shell_grace_ms;
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

void take_request() {
  struct {
    shell_request req;
    char text[max_shell_text + 1];
  } packet;
  iovec data{&packet, sizeof packet - 1};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int) * command_fds)];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  const ssize_t n = ::recvmsg(channel, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (n < static_cast<ssize_t>(sizeof packet.req))
    end();
  int fds[command_fds] = {-1, -1, -1};
  int count = 0;
  if (const auto* part = CMSG_FIRSTHDR(&message); part != nullptr) {
    count = static_cast<int>((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(fds, CMSG_DATA(part), static_cast<std::size_t>(count) * sizeof(int));
  }
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
        kill_command();
      break;
    case shell_op::end: end();
    case shell_op::ping: tell(shell_event::pong, 0, packet.req.number); break;
  }
  close_fds(fds, count);
}

/// Buries what has ended; orphans of the session too, since they come to us.
void bury() {
  signalfd_siginfo ignored[16];
  while (::read(signals, ignored, sizeof ignored) > 0) {
  }
  int status = 0;
  for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;)
    if (ended == shell) {
      // Its last command may have ended before it did.
      take_records();
      tell(shell_event::ended, status, 0);
      ::_exit(0);
    }
}

[[noreturn]] void become_shell(const char* program, int line_end, int record_end_fd) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::dup2(line_end, 0) == 0 && ::dup2(record_end_fd, record_fd) == record_fd) {
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
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur <= 199)
    record_fd = static_cast<int>(files.rlim_cur) - 1;
  shell = ::fork();
  if (shell == 0)
    become_shell(program, to[0], from[1]);
  ::close(to[0]);
  ::close(from[1]);
  lines = to[1];
  records = from[0];
  return shell > 0;
}

/// How every shell begins: without prompts, history and the like, which nobody would see.
void greet() {
  begin(0);
  write_lines(append_record(append(0, "PS1= PS2= PROMPT_COMMAND=\n\\builtin set +H +m +o history\n"
                                      "\\builtin unset -v HISTFILE TMOUT MAILCHECK\n")));
}

int timeout() {
  if (!now.runs)
    return -1;
  if (now.kill_shell_at == 0)
    return look_ms;
  return static_cast<int>(std::clamp<long>(now.kill_shell_at - now_ms(), 0, look_ms));
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
    if (now.runs && now.kill_shell_at != 0 && now_ms() >= now.kill_shell_at)
      ::kill(shell, SIGKILL);
    if (ready == 0 && now.runs) {
      follow_up();
      repair();
    }
  }
}

} // namespace insula::runtime::agent
