#include "runtime/agent/starter.hpp"

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
bool (*enter)() = nullptr;
char* name = nullptr;
pid_t starter = 0; ///< 0: there is none.
int here = -1, there = -1;

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

/// A child of our own, which has to enter the cgroups itself.
void make_child_here(const order& what) {
  const pid_t pid = ::fork();
  if (pid == 0)
    live(what, true);
  children[what.place] = pid > 0 ? pid : none;
}

/// Whatever lies at this end of the way.
void make_all_here(int way) {
  int fds[max_fds];
  order what{};
  while (receive(way, MSG_DONTWAIT, fds, what)) {
    make_child_here(what);
    close_all(what);
  }
}

/// The starter's life. The children that it makes are the agent's.
[[noreturn]] void make_children() {
  constexpr char ours[] = "insula-start"; // No longer than the agent's.
  std::memcpy(name, ours, std::min(std::strlen(name), sizeof ours - 1));
  // Of what the agent holds, it keeps its end of the way, at the number of the agent's own socket.
  if (!enter() || ::dup3(there, control_fd, O_CLOEXEC) < 0 ||
      ::close_range(control_fd + 1, ~0u, 0) != 0)
    ::_exit(1);
  int fds[max_fds];
  order what{};
  while (receive(control_fd, 0, fds, what)) {
    // The number is in its place before the child runs: the agent may bury it the next moment.
    const long pid = ::syscall(SYS_clone, CLONE_PARENT | CLONE_PARENT_SETTID | SIGCHLD, nullptr,
                               &children[what.place], nullptr, nullptr);
    if (pid == 0)
      live(what, false);
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

int open_starter(child_life life, bool (*enter_cgroups)(), char* title) {
  name = title;
  live = life;
  enter = enter_cgroups;
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
  if (starter == 0)
    start();
  // The way may be full: the starter is slow, or something inside has stopped it a moment ago.
  if (starter == 0 || !send(here, what))
    make_child_here(what);
}

void take_back() {
  make_all_here(here);
}

void end_stopped_starter() {
  siginfo_t stopped{};
  if (starter != 0 &&
      ::waitid(P_PID, static_cast<id_t>(starter), &stopped, WSTOPPED | WNOHANG) == 0 &&
      stopped.si_pid == starter)
    ::kill(starter, SIGKILL);
}

bool starter_ended(pid_t pid) {
  if (pid != starter)
    return false;
  starter = 0;
  take_back();          // First: the place of what it has sent back is still an `ordered` one.
  make_all_here(there); // We hold its end of the way too, so that nothing in there is lost.
  // What it had just taken is lost. The commands' pipes say so; the others' channels do.
  for (std::size_t place = max_jobs; place < max_places; ++place)
    if (children[place] == ordered)
      children[place] = none;
  return true;
}

} // namespace insula::runtime::agent
