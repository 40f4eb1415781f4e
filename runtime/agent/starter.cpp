#include "runtime/agent/starter.hpp"

#include "runtime/agent/cgroups.hpp"
#include "runtime/agent/clock.hpp"
#include "runtime/agent/shortage.hpp"
#include "runtime/descriptors.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace insula::runtime::agent {

pid_t* children = nullptr;

namespace {

child_life live = nullptr;
char* name = nullptr;
pid_t starter = 0; ///< 0: there is none.
int here = -1, there = -1;

/// Whoever stops it twice in this time may go on doing so.
constexpr long recently_ms = 1000;
long stopped_at = -1; ///< Last.

struct packet {
  std::uint64_t place;
  request what;
  char text[max_text_bytes + 1];
};
packet incoming;

bool send(int way, const order& what) {
  const std::uint64_t place = what.place;
  iovec parts[] = {{const_cast<std::uint64_t*>(&place), sizeof place},
                   {const_cast<request*>(what.what), sizeof *what.what},
                   {what.text, what.what->text_bytes}};
  return send_packet<max_fds>(way, parts, 3, what.fds, what.count) > 0;
}

/// Into `incoming`. False: nothing came.
bool receive(int way, int flags, int (&fds)[max_fds], order& what) {
  const iovec bytes{&incoming, sizeof incoming - 1};
  if (receive_packet(way, bytes, fds, what.count, flags) <= 0)
    return false;
  incoming.text[incoming.what.text_bytes] = '\0';
  what.place = incoming.place;
  what.what = &incoming.what;
  what.text = incoming.text;
  what.fds = fds;
  return true;
}

void close_all(const order& what) {
  for (int i = 0; i < what.count; ++i)
    ::close(what.fds[i]);
}

/// A child of our own, which has to enter the cgroups itself: one by one, which no limit refuses.
void make_child_here(const order& what, cgroup_set where) {
  if (where == cgroup_set::reserve)
    use_reserve();
  const pid_t pid = ::fork();
  if (pid == 0)
    live(what, &where);
  children[what.place] = pid > 0 ? pid : none;
}

/// Whatever lies at this end of the way.
void make_all_here(int way, cgroup_set where) {
  int fds[max_fds];
  order what{};
  while (receive(way, MSG_DONTWAIT, fds, what)) {
    make_child_here(what, where);
    close_all(what);
  }
}

/// For what the starter has not begun.
cgroup_set where_there_is_room() {
  return is_short() ? cgroup_set::reserve : cgroup_set::commands;
}

bool has_orders() {
  return std::find(children, children + max_places, ordered) != children + max_places;
}

/// The starter's life. The children that it makes are the agent's.
[[noreturn]] void make_children() {
  constexpr char ours[] = "insula-start"; // No longer than the agent's.
  std::memcpy(name, ours, std::min(std::strlen(name), sizeof ours - 1));
  // Of what the agent holds, it keeps its end of the way, at the number of the agent's own socket.
  if (!enter(cgroup_set::commands) || ::dup3(there, control_fd, O_CLOEXEC) < 0 ||
      ::close_range(control_fd + 1, ~0u, 0) != 0)
    ::_exit(1);
  int fds[max_fds];
  order what{};
  while (receive(control_fd, 0, fds, what)) {
    // The number is in its place before the child runs: the agent may bury it the next moment.
    const long pid = ::syscall(SYS_clone, CLONE_PARENT | CLONE_PARENT_SETTID | SIGCHLD, nullptr,
                               &children[what.place], nullptr, nullptr);
    if (pid == 0)
      live(what, nullptr);
    if (pid < 0 && !send(control_fd, what))
      children[what.place] = none;
    close_all(what);
  }
  ::_exit(1);
}

void start() {
  starter = ::fork();
  if (starter == 0)
    make_children();
  if (starter < 0)
    starter = 0;
}

} // namespace

bool let_go_of_children() {
  return ::munmap(children, max_places * sizeof(pid_t)) == 0;
}

int open_starter(child_life life, char* title) {
  name = title;
  live = life;
  void* const shared = ::mmap(nullptr, max_places * sizeof(pid_t), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int ends[2];
  if (shared == MAP_FAILED || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return -1;
  children = static_cast<pid_t*>(shared);
  here = ends[0];
  there = ends[1];
  start();
  return here;
}

void make_child(const order& what) {
  if (is_short())
    return make_child_here(what, cgroup_set::reserve);
  if (starter == 0)
    start();
  // The way may be full: the starter is slow, or something inside has stopped it a moment ago.
  if (starter == 0 || !send(here, what))
    make_child_here(what, cgroup_set::commands);
}

void take_back() {
  // The kernel has refused it a process, whatever the figures say by now.
  make_all_here(here, cgroup_set::reserve);
}

bool take_what_waits() {
  if (!has_orders())
    return false;
  if (is_short())
    make_all_here(there, cgroup_set::reserve);
  return true;
}

void handle_stopped_starter() {
  siginfo_t stopped{};
  if (starter != 0 &&
      ::waitid(P_PID, static_cast<id_t>(starter), &stopped, WSTOPPED | WNOHANG) == 0 &&
      stopped.si_pid == starter) {
    const bool again = stopped_at >= 0 && now_ms() - stopped_at < recently_ms;
    stopped_at = now_ms();
    ::kill(starter, again ? SIGKILL : SIGCONT);
  }
}

bool starter_ended(pid_t pid) {
  if (pid != starter)
    return false;
  starter = 0;
  take_back(); // First: the place of what it has sent back is still an `ordered` one.
  // We hold its end of the way too, so that nothing in there is lost.
  make_all_here(there, where_there_is_room());
  // What it had just taken is lost. The commands' pipes say so; the others' channels do.
  for (std::size_t place = 0; place < max_places; ++place)
    if (children[place] == ordered)
      children[place] = none;
  return true;
}

} // namespace insula::runtime::agent
