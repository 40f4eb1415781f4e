#pragma once

#include "base/unique_fd.hpp"
#include "runtime/cgroup.hpp"
#include "runtime/spawner/gateway_link.hpp"
#include "runtime/spawner/memory_shares.hpp"
#include "runtime/spawner/protocol.hpp"

#include <functional>
#include <linux/filter.h>
#include <string>
#include <sys/types.h>
#include <vector>

namespace insula::runtime::spawner {

/// What is the same for every sandbox.
struct launch_tools {
  int agent = -1;                           ///< The agent's program, as a sealed file in memory.
  int machines_usr = -1;                    ///< The machine's /usr.
  int hidden = -1;                          ///< A layer over that; -1: nothing is to be hidden.
  std::string controllers;                  ///< What /proc/cgroups says.
  std::vector<sock_filter> filter;          ///< System calls that are allowed.
  std::vector<sock_filter> without_filters; ///< The same, but none that loads another filter.
};

inline constexpr std::size_t max_shown_cgroups = 8;

struct launch_request {
  std::uint32_t slot = 0;
  int disk = -1;                     ///< The slot's own directory, with u, w, uu, uw.
  std::function<bool()> fill_layers; ///< Puts into them what is to be there from the first moment.
  int root_layer = -1;               ///< The image's files.
  int over_root = -1;                ///< Those over them; -1: there are none.
  int package_lists = -1;            ///< And over them; -1: there are none.
  bool machines_usr = false;         ///< The machine's /usr goes over that of the image.
  std::string host_name;
  memory_shares memory{};
  std::uint32_t open_files = 0;
  bool seccomp_filters = true; ///< Its processes may load filters of their own.
  int sudo = -1;               ///< A layer over the image, or over its /usr; -1: none.
  bool may_gain_rights =
    false; ///< Its users may become its root, by programs that change the user.
  /// Handed to the agent, for the commands: those of their own groups, then as many of the reserve.
  const std::vector<unique_fd>* cgroup_procs = nullptr;
  /// Appear below /sys/fs/cgroup, at most max_shown_cgroups.
  std::vector<shown_cgroup> shown_cgroups;
};

struct launched {
  pid_t pid = -1;
  unique_fd process; ///< A pidfd of PID 1.
  unique_fd control; ///< Our end of the agent's control socket. Its first packet says whether the
                     ///< launch worked.
  network_sockets network;                ///< What the gateway serves it by.
  launch_step failed = launch_step::none; ///< Set, with `error`, when nothing was started.
  int error = 0;
  std::uint64_t namespaces_done = 0; ///< By monotonic_ns(), as the next.
  std::uint64_t layers_done = 0;
};

/// Makes the namespaces of one sandbox and starts its agent. The working directory must have
/// directories root, l0, o, p, l1, h, s, d, dev, proc, sys and sysfs, to mount on in the child's
/// namespace: the child inherits it there, and need not be able to search its parents. Returns as
/// soon as the child has everything that it needs; the rest of its way to the agent it goes by
/// itself, while the next one is made.
launched launch(const launch_tools& tools, const launch_request& wanted);

/// The files of `directory` as the sandbox whose PID 1 is `process` sees their owners: a mount that
/// nothing can be written to, and that is attached nowhere. None with errno.
unique_fd shown_to(pid_t process, int directory);
/// The same for a drive, in which programs run, none of them with more rights than its caller.
unique_fd drive_for(pid_t process, int directory, bool read_only);

/// Can the file system of `directory` be a layer: can its owners' ids be shown shifted into a
/// sandbox's range? 0, or errno; EINVAL: this kernel cannot do it for this kind of file system.
int try_mapped_copy(int directory);

} // namespace insula::runtime::spawner
