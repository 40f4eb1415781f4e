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
#include <sys/wait.h>
#include <unistd.h>

namespace insula::runtime::agent {
namespace {

/// What has been made there may enter it a little later, and what has to be moved may fork.
constexpr long settle_ms = 10'000;
constexpr int most_rounds = 20;

int hierarchies = 0;
bool divided[max_cgroup_fds / 2]; ///< Those in which the two sets are not the same group,
int listed = -1;                  ///< and the reserve in one of these.
long used_at = -settle_ms;

/// Children that move others.
struct mover {
  pid_t pid = 0; ///< 0: there is none.
  long began = 0;
};
mover emptier, movers[4];

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

void move_all(int) {
  char pids[4096];
  for (int round = 0; round < most_rounds && list_reserve(pids); ++round)
    for (char *rest = nullptr, *pid = ::strtok_r(pids, "\n", &rest); pid != nullptr;
         pid = ::strtok_r(nullptr, "\n", &rest))
      move_to(cgroup_set::commands, pid);
}

void start(mover& which, void (*work)(int), int about) {
  which.began = now_ms();
  which.pid = std::max(::fork(), -1);
  if (which.pid == 0) {
    work(about);
    ::_exit(0);
  }
}

template <class Do>
void each_mover(Do what) {
  if (emptier.pid > 0)
    what(emptier);
  for (auto& each : movers)
    if (each.pid > 0)
      what(each);
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
  char number[16];
  std::snprintf(number, sizeof number, "%d", pid);
  move_to(cgroup_set::reserve, number);
}

void move_in_child(void (*work)(int), int about) {
  for (auto& each : movers)
    if (each.pid <= 0)
      return start(each, work, about);
}

void use_reserve() {
  used_at = now_ms();
}

bool empty_reserve() {
  each_mover([](mover& each) { // Something inside may keep it from its end.
    if (now_ms() - each.began > settle_ms)
      ::kill(each.pid, SIGKILL);
  });
  if (emptier.pid > 0)
    return true;
  char pids[4096];
  const bool any = list_reserve(pids);
  if (any && !is_short())
    start(emptier, move_all, 0);
  return any || now_ms() - used_at < settle_ms;
}

bool mover_ended(int pid) {
  bool found = false;
  each_mover([&](mover& each) {
    if (each.pid == pid) {
      each.pid = 0;
      found = true;
    }
  });
  return found;
}

void let_movers_go_on() {
  each_mover([](mover& each) {
    siginfo_t stopped{};
    if (::waitid(P_PID, static_cast<id_t>(each.pid), &stopped, WSTOPPED | WNOHANG) == 0 &&
        stopped.si_pid == each.pid)
      ::kill(each.pid, SIGCONT);
  });
}

} // namespace insula::runtime::agent
