#include "benchmarks/load/spawn.hpp"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <system_error>
#include <unistd.h>

namespace insula::load {

namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (const auto& each : texts)
    all.push_back(const_cast<char*>(each.c_str()));
  all.push_back(nullptr);
  return all;
}

struct file_actions {
  posix_spawn_file_actions_t value{};
  file_actions() { ::posix_spawn_file_actions_init(&value); }
  ~file_actions() { ::posix_spawn_file_actions_destroy(&value); }
  file_actions(const file_actions&) = delete;
  file_actions& operator=(const file_actions&) = delete;
};

struct attributes {
  posix_spawnattr_t value{};
  attributes() { ::posix_spawnattr_init(&value); }
  ~attributes() { ::posix_spawnattr_destroy(&value); }
  attributes(const attributes&) = delete;
  attributes& operator=(const attributes&) = delete;
};

} // namespace

pid_t spawn(const spawn_request& what) {
  file_actions files;
  ::posix_spawn_file_actions_addopen(&files.value, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files.value, what.output, STDOUT_FILENO);
  if (what.errors >= 0)
    ::posix_spawn_file_actions_adddup2(&files.value, what.errors, STDERR_FILENO);
  else
    ::posix_spawn_file_actions_addopen(&files.value, STDERR_FILENO, "/dev/null", O_WRONLY, 0);

  attributes how;
  sigset_t none, changed;
  ::sigemptyset(&none);
  ::sigemptyset(&changed);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE})
    ::sigaddset(&changed, number);
  ::posix_spawnattr_setsigmask(&how.value, &none);
  ::posix_spawnattr_setsigdefault(&how.value, &changed);
  int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  if (what.own_group)
    flags |= POSIX_SPAWN_SETPGROUP;
  ::posix_spawnattr_setflags(&how.value, static_cast<short>(flags));

  pid_t pid = -1;
  const auto argv = pointers(what.argv), env = pointers(what.env);
  if (const int refused =
        ::posix_spawnp(&pid, argv[0], &files.value, &how.value, argv.data(), env.data());
      refused != 0)
    throw std::system_error{refused, std::generic_category(), what.argv[0]};
  return pid;
}

std::pair<unique_fd, unique_fd> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw std::system_error{errno, std::generic_category(), "pipe"};
  return {unique_fd{ends[0]}, unique_fd{ends[1]}};
}

} // namespace insula::load
