#pragma once

#include "runtime/agent/cgroups.hpp"
#include "runtime/agent/protocol.hpp"

#include <cstddef>
#include <sys/types.h>

/// A process of the agent's that is in the sandbox's cgroups already, and in which the agent's
/// children are made: they are PID 1's all the same (CLONE_PARENT). Moving a process into a cgroup
/// waits for every fork on the machine that is under way, so that a fork bomb next door would be
/// felt in each command; being born there costs nothing.
///
/// What is inside can end it, by lack of memory or as root: the agent then takes back what it had
/// not begun, and makes another. One that is stopped goes on; the second time it ends. At the limit
/// of processes it gives back what it cannot make. The agent does such work itself: its own
/// children enter the cgroups one by one, which no limit refuses. Where the commands are short of
/// something (shortage.hpp) the agent does not ask the starter, and its children enter the reserve.
namespace insula::runtime::agent {

/// Places of children: those of commands, then those of file operations.
inline constexpr std::size_t max_places = max_jobs + max_file_children;

/// Descriptors that come with a request, and the pipe that the agent adds to them.
inline constexpr int max_fds = 5;

/// Something to be done by a child. Whoever gives an order keeps its descriptors, and closes them.
struct order {
  std::size_t place;
  const request* what;
  char* text;
  int* fds;
  int count;
};

/// A child's whole life; it has been handed its own copy of everything. `enters`: the cgroups that
/// it has to enter first; none: it is where it belongs.
using child_life = void (*)(const order& what, const cgroup_set* enters);

/// What there is of a child at a place, in memory that is shared with the starter: its process
/// number, which is there before the child runs. `none`: nothing; `ordered`: it is being made.
inline constexpr pid_t none = 0;
inline constexpr pid_t ordered = -1;
extern pid_t* children;

/// For a child that will handle what the sandbox controls: it must not be able to write there.
bool let_go_of_children();

/// Starts it. `title`: the agent's argv[0], over which it writes its own name. Answers the agent's
/// end of the way there, which is readable when something comes back; -1 with errno.
int open_starter(child_life life, char* title);

/// Has a child made for a place that is marked as `ordered`. If there can be none, the place is
/// `none` again once nobody holds the descriptors any more.
void make_child(const order& what);

/// Does what has come back.
void take_back();

/// Does what the starter has not begun, if the commands are short of something: it may not get to
/// its work then. To be called each second as long as it answers true: the starter has orders.
bool take_what_waits();

/// To be called when any child has stopped or ended: a starter that is stopped goes on, with what
/// it has just taken. One that is stopped again soon is ended, since orders would wait in front of
/// it for ever.
void handle_stopped_starter();

/// True: it was the starter that has ended. What it had not begun is done here.
bool starter_ended(pid_t pid);

} // namespace insula::runtime::agent
