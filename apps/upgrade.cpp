#include "apps/upgrade.hpp"

#include "apps/serve.hpp"
#include "apps/server_record.hpp"
#include "base/error.hpp"
#include "base/program_words.hpp"
#include "base/unique_fd.hpp"
#include "runtime/spawner/protocol.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <poll.h>
#include <spawn.h>
#include <sstream>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern char** environ;

namespace insula {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto end_patience = 60s;
constexpr auto ready_patience = 60s;
constexpr auto check_patience = 20s;
const error needs_root{errc::invalid_request,
                       "insula upgrade needs root, as the server does at its start"};

error failed(const std::string& what) {
  return {errc::io_failed, what + ": " + std::strerror(errno)};
}

/// All that the next server needs of the one that runs.
struct running_server {
  pid_t pid = 0;
  unique_fd process, program, out, err;
  std::vector<unique_fd> sockets; ///< That listen.
  server_record record;
};

unique_fd descriptor_of(const running_server& server, int number) {
  return unique_fd{static_cast<int>(::syscall(SYS_pidfd_getfd, server.process.get(), number, 0))};
}

bool listens(int socket) {
  int yes = 0, family = 0;
  socklen_t size = sizeof yes;
  return ::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &yes, &size) == 0 && yes != 0 &&
         ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 &&
         (family == AF_INET || family == AF_INET6);
}

/// It holds its lock for as long as it lives, and its number stands in there. Without a lock, or
/// without the directory, there is no server.
result<pid_t> server_of(const std::string& state_directory) {
  const auto path = state_directory + "/lock";
  const unique_fd lock{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  const bool is_missing = !lock && (errno == ENOENT || errno == ENOTDIR);
  if (!lock && !is_missing && ::geteuid() != 0)
    return needs_root;
  if (!lock && !is_missing)
    return failed(path);
  char text[16] = {};
  if (is_missing || ::flock(lock.get(), LOCK_SH | LOCK_NB) == 0)
    return error{errc::not_found, "no server runs with the state directory " + state_directory +
                                    "; `insula serve` starts one"};
  if (::pread(lock.get(), text, sizeof text - 1, 0) <= 0)
    return error{errc::io_failed, path + " does not say which process the server is"};
  return static_cast<pid_t>(std::atoi(text));
}

result<running_server> look_at(pid_t pid, const std::string& state_directory) {
  running_server server;
  server.pid = pid;
  server.process.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!server.process)
    return failed("the server, process " + std::to_string(pid));
  const auto proc = "/proc/" + std::to_string(pid);
  server.program.reset(::open((proc + "/exe").c_str(), O_PATH | O_CLOEXEC));
  auto record = find_server_record(pid, server.process.get(), server.program.get());
  if (!record)
    return record.reason();
  server.record = std::move(*record);
  std::error_code refused;
  if (server.record.state != fs::canonical(state_directory, refused).string())
    return error{errc::invalid_request,
                 "process " + std::to_string(pid) +
                   " serves another state directory: " + server.record.state};
  server.out = descriptor_of(server, 1);
  server.err = descriptor_of(server, 2);
  if (!server.program || !server.out || !server.err)
    return failed("looking at the server, process " + std::to_string(pid));
  for (const auto& each : server.record.environment)
    if (each.starts_with("INVOCATION_ID="))
      return error{errc::invalid_request,
                   "systemd runs this server and would take its successor for a stranger; "
                   "restart the unit instead"};
  for (const auto& each : fs::directory_iterator{proc + "/fd", refused})
    if (auto copy = descriptor_of(server, std::atoi(each.path().filename().c_str()));
        copy && listens(copy.get()))
      server.sockets.push_back(std::move(copy));
  return server;
}

void set_variable(std::vector<std::string>& environment, const std::string& name,
                  const std::string& value) {
  std::erase_if(environment, [&](const auto& each) { return each.starts_with(name + "="); });
  environment.push_back(name + "=" + value);
}

/// Whether this program can begin where that server ends, and as it was started: with its
/// configuration, and beside the nodes of its cluster. The reason why not stands on stderr.
result<void> check_program(const running_server& like, const std::string& program) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addchdir_np(&actions, like.record.directory.c_str());
  auto arguments = like.record.arguments;
  auto environment = like.record.environment;
  set_variable(environment, check_variable, "1");
  pid_t pid = 0;
  const int why = ::posix_spawn(&pid, program.c_str(), &actions, nullptr,
                                program_words(arguments).data(), program_words(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (why != 0) {
    errno = why;
    return failed("starting " + program);
  }
  const unique_fd process{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
  pollfd over{process.get(), POLLIN, 0};
  const auto patience = std::chrono::milliseconds{check_patience}.count();
  if (!process || ::poll(&over, 1, static_cast<int>(patience)) != 1)
    ::kill(pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return {};
  return {{errc::invalid_request,
           "this program cannot serve in place of the one that does, which goes on"}};
}

/// A child of a process that is about to end is nobody's, which is what a server wants to be.
struct started_server {
  pid_t pid = 0;
  unique_fd ready;
};

result<started_server> start(const running_server& like, const std::string& program) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return failed("pipe");
  started_server made{0, unique_fd{ends[0]}};
  const unique_fd told{ends[1]};
  // Above all that we have open, so that nothing is overwritten before it has been copied.
  constexpr int first = 500;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  ::posix_spawn_file_actions_addchdir_np(&actions, like.record.directory.c_str());
  std::string sockets;
  int next = first;
  for (const auto& each : like.sockets) {
    ::posix_spawn_file_actions_adddup2(&actions, each.get(), next);
    sockets += std::to_string(next++) + ' ';
  }
  ::posix_spawn_file_actions_adddup2(&actions, told.get(), next);
  ::posix_spawn_file_actions_adddup2(&actions, like.out.get(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, like.err.get(), 2);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  auto arguments = like.record.arguments;
  auto environment = like.record.environment;
  set_variable(environment, listen_variable, sockets);
  set_variable(environment, ready_variable, std::to_string(next));
  const int why = ::posix_spawn(&made.pid, program.c_str(), &actions, &attributes,
                                program_words(arguments).data(), program_words(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (why == 0)
    return made;
  errno = why;
  return failed("starting " + program);
}

/// How many sandboxes it has adopted; none if it has ended, or has hung, and is ended then.
std::optional<int> wait_until_ready(const started_server& server) {
  pollfd said{server.ready.get(), POLLIN, 0};
  char text[32] = {};
  if (::poll(&said, 1, static_cast<int>(std::chrono::milliseconds{ready_patience}.count())) == 1 &&
      ::read(server.ready.get(), text, sizeof text - 1) > 0)
    return std::atoi(text + std::strlen("ready "));
  ::kill(server.pid, SIGKILL);
  ::waitpid(server.pid, nullptr, 0);
  return std::nullopt;
}

result<void> replace(const std::string& state_directory, bool end_sandboxes) {
  const auto pid = server_of(state_directory);
  if (!pid)
    return pid.reason();
  if (::geteuid() != 0)
    return needs_root;
  auto old = look_at(*pid, state_directory);
  if (!old)
    return old.reason();
  const bool other = old->record.protocol != runtime::spawner::version;
  if (other && !end_sandboxes)
    return {{errc::invalid_request,
             "this program cannot take over the sandboxes of the one that serves, which talks to "
             "them in another way; with --end-sandboxes it replaces it, and they end"}};
  std::error_code refused;
  const auto program = fs::read_symlink("/proc/self/exe", refused).string();
  if (auto ok = check_program(*old, program); !ok)
    return ok;

  std::cout << "ending the server, process " << old->pid
            << (other ? ", and its sandboxes" : "; its sandboxes go on") << std::endl;
  const auto began = std::chrono::steady_clock::now();
  if (::syscall(SYS_pidfd_send_signal, old->process.get(), SIGTERM, nullptr, 0) != 0)
    return failed("ending the server");
  pollfd gone{old->process.get(), POLLIN, 0};
  if (::poll(&gone, 1, static_cast<int>(std::chrono::milliseconds{end_patience}.count())) != 1)
    return {{errc::deadline_exceeded, "the server does not end; nothing has been started"}};

  const auto tell = [&](const started_server& made, int adopted) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    std::cout << "process " << made.pid << " serves, with " << adopted << " sandboxes, after "
              << took.count() << " s" << std::endl;
  };
  const auto next = start(*old, program);
  if (next)
    if (const auto adopted = wait_until_ready(*next)) {
      tell(*next, *adopted);
      return {};
    }
  std::cout << "the new server did not get ready; starting the old program again" << std::endl;
  const auto again = start(*old, "/proc/self/fd/" + std::to_string(old->program.get()));
  if (!again)
    return again.reason();
  const auto adopted = wait_until_ready(*again);
  if (!adopted)
    return {{errc::launch_failed, "neither program starts; what runs waits for `insula serve`"}};
  tell(*again, *adopted);
  return {{errc::launch_failed, next ? "the new server did not get ready; its reason stands in the "
                                       "server's log"
                                     : next.reason().message}};
}

} // namespace

int upgrade(const std::string& state_directory, bool end_sandboxes) {
  const auto done = replace(state_directory, end_sandboxes);
  if (done)
    return 0;
  std::cerr << "insula: " << done.reason().message << '\n';
  return 1;
}

} // namespace insula
