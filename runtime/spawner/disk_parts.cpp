#include "runtime/spawner/disk_parts.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace insula::runtime::spawner {

error failed_disk(const std::string& what) {
  return {errc::launch_failed, what + ": " + std::strerror(errno)};
}

std::string name_of_slot(std::uint32_t slot) {
  return "sb-" + std::to_string(slot);
}

bool make_overlay_directories(int directory) {
  for (const char* each : {"u", "w", "uu", "uw"})
    if (::mkdirat(directory, each, 0755) != 0)
      return false;
  return true;
}

int run_program(const char* const* argv, int out) {
  pid_t child = 0;
  int status = 0;
  static const char* environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", nullptr};
  posix_spawn_file_actions_t quiet;
  ::posix_spawn_file_actions_init(&quiet);
  for (const int stream : {0, 1, 2})
    ::posix_spawn_file_actions_addopen(&quiet, stream, "/dev/null", O_RDWR, 0);
  if (out >= 0)
    ::posix_spawn_file_actions_adddup2(&quiet, out, 1);
  const int failed_to_start = ::posix_spawnp(
    &child, argv[0], &quiet, nullptr, const_cast<char**>(argv), const_cast<char**>(environment));
  ::posix_spawn_file_actions_destroy(&quiet);
  if (failed_to_start != 0)
    return -1;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::vector<std::string> names_with(int top, std::string_view prefix) {
  std::vector<std::string> all;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries{
    ::fdopendir(::openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), ::closedir};
  while (const dirent* each = entries ? ::readdir(entries.get()) : nullptr)
    if (std::string_view{each->d_name}.starts_with(prefix))
      all.emplace_back(each->d_name);
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<std::string> without_prefix(std::vector<std::string> names, std::string_view prefix) {
  for (auto& each : names)
    each.erase(0, prefix.size());
  return names;
}

error copy_failed(const std::string& what) {
  return {errno == ENOSPC || errno == EDQUOT ? errc::disk_full : errc::io_failed,
          what + ": " + std::strerror(errno)};
}

} // namespace insula::runtime::spawner
