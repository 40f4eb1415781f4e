#include "runtime/agent/cgroups.hpp"

#include "runtime/agent/clock.hpp"
#include "runtime/agent/protocol.hpp"
#include "runtime/agent/shortage.hpp"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace insula::runtime::agent {
namespace {

/// What has been made there may enter it a little later, and what has to be moved may fork.
constexpr long settle_ms = 10'000;
constexpr int most_rounds = 20;

int hierarchies = 0;
bool divided[max_cgroup_fds / 2]; ///< Those in which the two sets are not the same group,
int listed = -1;                  ///< and the reserve in one of these.
bool used = false;
long used_at = 0;
pid_t emptier = 0; ///< 0: there is none.
long emptier_at = 0;

int file_of(cgroup_set where, int hierarchy) {
  return first_cgroup_fd + (where == cgroup_set::commands ? 0 : hierarchies) + hierarchy;
}

bool write_to(cgroup_set where, int hierarchy, const char* pid) {
  return ::write(file_of(where, hierarchy), pid, std::strlen(pid)) >= 0;
}

void move_to(cgroup_set where, const char* pid) {
  for (int i = 0; i < hierarchies; ++i)
    if (divided[i])
      write_to(where, i, pid);
}

/// The first of them, as many as there is room for. False: there is none. Version 1 makes a list
/// when the file is opened, and goes on giving that one.
bool list_reserve(char (&pids)[4096]) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", listed);
  const int file = listed < 0 ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
  const auto n = file < 0 ? 0 : ::read(file, pids, sizeof pids - 1);
  if (file >= 0)
    ::close(file);
  pids[std::max<ssize_t>(n, 0)] = '\0';
  if (char* const end = std::strrchr(pids, '\n'); end != nullptr)
    *end = '\0'; // The last may be half a number.
  return n > 0;
}

[[noreturn]] void move_all() {
  char pids[4096];
  for (int round = 0; round < most_rounds && list_reserve(pids); ++round)
    for (char *rest = nullptr, *pid = ::strtok_r(pids, "\n", &rest); pid != nullptr;
         pid = ::strtok_r(nullptr, "\n", &rest))
      move_to(cgroup_set::commands, pid);
  ::_exit(0);
}

} // namespace

bool open_cgroups(int files) {
  if (files < 0 || files > static_cast<int>(max_cgroup_fds) || files % 2 != 0)
    return false;
  hierarchies = files / 2;
  for (int i = 0; i < hierarchies; ++i) {
    struct stat one {};
    struct stat other {};
    divided[i] = ::fstat(file_of(cgroup_set::commands, i), &one) == 0 &&
                 ::fstat(file_of(cgroup_set::reserve, i), &other) == 0 &&
                 (one.st_ino != other.st_ino || one.st_dev != other.st_dev);
    if (divided[i])
      listed = file_of(cgroup_set::reserve, i);
  }
  return true;
}

bool enter(cgroup_set where) {
  for (int i = 0; i < hierarchies; ++i)
    if (!write_to(where, i, "0"))
      return false;
  return true;
}

void move_to_reserve(int pid) {
  use_reserve();
  char number[16];
  std::snprintf(number, sizeof number, "%d", pid);
  move_to(cgroup_set::reserve, number);
}

void use_reserve() {
  used = true;
  used_at = now_ms();
}

bool empty_reserve() {
  if (!used)
    return false;
  if (emptier > 0) { // Something inside may have stopped it.
    if (now_ms() - emptier_at > settle_ms)
      ::kill(emptier, SIGKILL);
    return true;
  }
  char pids[4096];
  if (!list_reserve(pids)) {
    used = now_ms() - used_at < settle_ms;
  } else if (!is_short()) {
    emptier_at = now_ms();
    emptier = ::fork();
    if (emptier == 0)
      move_all();
  }
  return used;
}

bool emptying_ended(int pid) {
  if (emptier <= 0 || pid != emptier)
    return false;
  emptier = 0;
  return true;
}

} // namespace insula::runtime::agent
