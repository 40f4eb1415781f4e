#include "runtime/spawner/own_program.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

namespace insula::runtime::spawner {

pid_t start_own_program(const unique_fd& program, const unique_fd& socket,
                        const std::vector<std::string>& argv) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, socket.get(), own_program_fd);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, own_program_fd + 1);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const auto path = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(program.get());
  std::vector<char*> words;
  for (const auto& each : argv)
    words.push_back(const_cast<char*>(each.c_str()));
  words.push_back(nullptr);
  std::array<char*, 1> env{nullptr};
  pid_t child = -1;
  const int why =
    ::posix_spawn(&child, path.c_str(), &actions, &attributes, words.data(), env.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  errno = why;
  return why == 0 ? child : -1;
}

} // namespace insula::runtime::spawner
