#include "runtime/spawner/launch.hpp"

#include "runtime/agent/protocol.hpp"
#include "runtime/spawner/claim.hpp"
#include "runtime/spawner/device_nodes.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <grp.h>
#include <initializer_list>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <span>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace insula::runtime::spawner {

namespace {

/// The layers that come from the spawner, and where they are attached: the image's files, what goes
/// over them and lists of packages, the disk, the machine's /usr and what hides some of it, and
/// sudo, which goes over the last that is there of both.
enum layer : std::size_t {
  of_image,
  over_image,
  of_packages,
  of_disk,
  of_usr,
  over_usr,
  of_sudo,
  max_layers
};
constexpr std::array<const char*, max_layers> layer_places{"l0", "o", "p", "d", "l1", "h", "s"};
/// Which of them there are, a bit for each.
using layer_set = unsigned char;
constexpr bool has(layer_set set, std::size_t which) {
  return (set >> which & 1u) != 0;
}

/// The layers, then the groups that are shown.
constexpr std::size_t max_mounts = max_layers + max_shown_cgroups;
using mount_list = std::array<int, max_mounts>;

std::size_t cgroups_shown_to(const launch_request& wanted) {
  return std::min(wanted.shown_cgroups.size(), max_shown_cgroups);
}

// ---- The child: from the namespaces to the agent. It allocates nothing, and whatever fails ends
// it. --------------

[[noreturn]] void give_up(int control, launch_step step) {
  agent::notice why{};
  why.what = agent::event::launch_failed;
  why.value = errno;
  why.step = static_cast<std::uint32_t>(step);
  [[maybe_unused]] const auto sent = ::send(control, &why, sizeof why, MSG_NOSIGNAL);
  ::_exit(1);
}

/// Waits for mounts, and says which layers are among them; they come in this order.
layer_set receive_mounts(int control, mount_list& mounts) {
  layer_set which = 0;
  iovec data{&which, 1};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int) * max_mounts)];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  if (::recvmsg(control, &message, MSG_CMSG_CLOEXEC) != 1)
    ::_exit(1); // The spawner is gone, or gave up.
  const auto* part = CMSG_FIRSTHDR(&message);
  if (part == nullptr)
    ::_exit(1);
  const auto count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  std::memcpy(mounts.data(), CMSG_DATA(part), count * sizeof(int));
  return which;
}

bool attach(int tree, const char* target) {
  return ::syscall(SYS_move_mount, tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH) == 0;
}

/// To the same name in the new root, which is the working directory. An image's link is not
/// followed.
bool move_in(const char* name) {
  char from[16];
  std::snprintf(from, sizeof from, "../%s", name);
  return ::syscall(SYS_move_mount, AT_FDCWD, from, AT_FDCWD, name, 0) == 0;
}

/// `volatile`: unmounting must not wait for the disk, and a sandbox's fsync must not stop its
/// neighbours. `xino`: a directory keeps its number when the kernel has forgotten it. With another
/// one, a walk that comes back to it takes it for another directory. Numbers of the image's files
/// have a high bit then. Programs that change their user are of effect only where the sandbox may
/// gain rights, and devices never are.
bool mount_root(layer_set layers, bool gaining_rights) {
  const unsigned long flags = gaining_rights ? MS_NODEV : MS_NODEV | MS_NOSUID;
  const auto overlay = [&](const char* target, std::initializer_list<const char*> over,
                           const char* own) {
    char options[96];
    int length = std::snprintf(options, sizeof options, "volatile,userxattr,xino=on,lowerdir=");
    const auto add = [&](const char* text) {
      const auto used = static_cast<std::size_t>(length);
      length += std::snprintf(options + used, sizeof options - used, "%s", text);
    };
    for (const char* each : over)
      add(each);
    add(own);
    return ::mount("overlay", target, "overlay", flags, options) == 0;
  };
  const auto if_there = [&](layer which, const char* place) {
    return has(layers, which) ? place : "";
  };
  const bool usr = has(layers, of_usr);
  const char* const sudo = if_there(of_sudo, "s:");
  return overlay("root", {usr ? "" : sudo, if_there(of_packages, "p:"), if_there(over_image, "o:")},
                 "l0,upperdir=d/u,workdir=d/w") &&
         (!usr ||
          overlay("root/usr", {sudo, if_there(over_usr, "h:")}, "l1,upperdir=d/uu,workdir=d/uw"));
}

/// The rest of /dev is there already.
bool fill_dev(const memory_shares& memory) {
  char shm[96];
  std::snprintf(shm, sizeof shm, "mode=1777,nr_inodes=%llu,size=%llu",
                static_cast<unsigned long long>(memory.shm_files),
                static_cast<unsigned long long>(memory.shm_bytes));
  return ::mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
                 "newinstance,ptmxmode=0666,mode=0620,gid=5,max=64") == 0 &&
         ::mount("tmpfs", "dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, shm) == 0;
}

/// A copy of the mount that `file` is on, or of `path` below it, that nothing can be written to.
/// -1 with errno.
int read_only_copy(int file, const char* path) {
  const auto flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH;
  const auto tree = static_cast<int>(::syscall(SYS_open_tree, file, path, flags));
  mount_attr attributes{};
  attributes.attr_set =
    MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  if (tree >= 0 &&
      ::syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) == 0)
    return tree;
  const int why = errno;
  if (tree >= 0)
    ::close(tree);
  errno = why;
  return -1;
}

bool attach_and_close(int tree, const char* target) {
  const bool attached = tree >= 0 && attach(tree, target);
  if (tree >= 0)
    ::close(tree);
  return attached;
}

/// Below /sys/fs/cgroup, where the machine has v1: a directory for each controller, and the names
/// of v2 for what these have in the same form. The agent writes cpu.max.
bool name_limits(const launch_request& wanted) {
  constexpr std::array<std::pair<const char*, const char*>, 7> names{
    {{"memory.max", "memory/memory.limit_in_bytes"},
     {"memory.current", "memory/memory.usage_in_bytes"},
     {"memory.peak", "memory/memory.max_usage_in_bytes"},
     {"memory.stat", "memory/memory.stat"},
     {"pids.max", "pids/pids.max"},
     {"pids.current", "pids/pids.current"},
     {"cpuset.cpus.effective", "../../devices/system/cpu/online"}}};
  const auto in_view = [](char(&to)[64], const char* name) {
    std::snprintf(to, sizeof to, "sys/fs/cgroup/%s", name);
    return to;
  };
  char path[64];
  bool own_cpuacct = false;
  for (std::size_t i = 0; i < cgroups_shown_to(wanted); ++i) {
    const auto& name = wanted.shown_cgroups[i].name;
    own_cpuacct |= name == "cpuacct";
    if (!name.empty() && ::mkdir(in_view(path, name.c_str()), 0755) != 0)
      return false;
  }
  for (const auto& [name, target] : names)
    if (::symlink(target, in_view(path, name)) != 0)
      return false;
  // Where both are one hierarchy.
  return own_cpuacct || ::symlink("cpu", in_view(path, "cpuacct")) == 0;
}

/// A group's path is one beside the agent's, /../sandboxes/sb-1, and some programs look for it
/// below /sys/fs/cgroup. In v2 what is shown is the group of the commands in that, and stands for
/// the reserve's as well.
bool name_group(const launch_request& wanted) {
  char path[64], inner[80];
  std::snprintf(path, sizeof path, "sys/fs/sandboxes/sb-%u", wanted.slot);
  if (wanted.shown_cgroups.empty() || !wanted.shown_cgroups.front().name.empty())
    return ::symlink("../cgroup", path) == 0;
  if (::mkdir(path, 0755) != 0)
    return false;
  for (const char* part : {"commands", "reserve"}) {
    std::snprintf(inner, sizeof inner, "%s/%s", path, part);
    if (::symlink("../../cgroup", inner) != 0)
      return false;
  }
  return true;
}

/// A small file.
bool copy_text(const char* from, int to) {
  const int file = ::open(from, O_RDONLY | O_CLOEXEC);
  char text[4096];
  const auto n = file < 0 ? -1 : ::read(file, text, sizeof text);
  if (file >= 0)
    ::close(file);
  return n >= 0 && ::write(to, text, static_cast<std::size_t>(n)) == n;
}

/// The files that the agent keeps true.
struct told_by_agent {
  int cpu_limit = -1;  ///< cpu.max, as v2 has it.
  int processors = -1; ///< Those that are online.
};

/// Of a sysfs of the sandbox's own, which knows its network, what programs look for: how many
/// processors there are and of what kind, memory by node, pages, and the interface; and the
/// sandbox's limits. A list of what is there, since the rest tells of disks, of other sandboxes'
/// use of them, and of the kernel's memory.
bool make_sys(const launch_tools& tools, const launch_request& wanted, told_by_agent& files) {
  constexpr auto inert = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  constexpr const char* online = "sys/devices/system/cpu/online";
  if (::mount("sysfs", "sysfs", "sysfs", inert | MS_RDONLY, nullptr) != 0 ||
      ::mount("tmpfs", "sys", "tmpfs", inert, "mode=755,size=1m,nr_inodes=64") != 0)
    return false;
  for (const char* each :
       {"sys/class", "sys/devices", "sys/devices/system", "sys/devices/virtual", "sys/class/net",
        "sys/fs", "sys/fs/bpf", "sys/fs/cgroup", "sys/fs/sandboxes", "sys/kernel", "sys/kernel/mm"})
    if (::mkdir(each, 0755) != 0)
      return false;
  constexpr std::array parts{"devices/system/cpu", "devices/system/node", "devices/virtual/net",
                             "kernel/mm/transparent_hugepage"};
  std::array<bool, parts.size()> there{};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    char from[64], to[64];
    std::snprintf(from, sizeof from, "sysfs/%s", parts[i]);
    std::snprintf(to, sizeof to, "sys/%s", parts[i]);
    there[i] = ::access(from, F_OK) == 0; // Not every kernel has all of them.
    if (there[i] && ::mkdir(to, 0755) != 0)
      return false;
  }
  const auto make_file = [](const char* name) {
    return ::open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
  };
  if (!name_group(wanted) ||
      ::symlink("../../devices/virtual/net/lo", "sys/class/net/lo") != 0 || // The only one.
      !name_limits(wanted) || (files.cpu_limit = make_file("sys/fs/cgroup/cpu.max")) < 0 ||
      (there[0] && ((files.processors = make_file(online)) < 0 ||
                    !copy_text("sysfs/devices/system/cpu/online", files.processors))))
    return false;
  // Java looks at it. Each sandbox has a file of its own, since a file's locks and
  // watches are felt by all that have it. What is mounted over it hides this name.
  if (const auto& text = tools.controllers; !text.empty()) {
    const int list =
      make_file(there[0] ? "sys/devices/system/cpu/cgroups" : "sys/devices/system/cgroups");
    if (list < 0 || ::write(list, text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
        !attach_and_close(read_only_copy(list, ""), "proc/cgroups"))
      return false;
    ::close(list);
  }
  // The mount that the two files were opened on has to stay as it is, so another one goes over it.
  if (!attach_and_close(read_only_copy(AT_FDCWD, "sys"), "sys"))
    return false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    char from[64], to[64];
    std::snprintf(from, sizeof from, "sysfs/%s", parts[i]);
    std::snprintf(to, sizeof to, "sys/%s", parts[i]);
    if (there[i] && ::mount(from, to, nullptr, MS_BIND, nullptr) != 0)
      return false;
  }
  return !there[0] || attach_and_close(read_only_copy(files.processors, ""), online);
}

/// A name that this kernel does not have needs nothing.
bool cover(const char* with, const char* path) {
  return ::mount(with, path, nullptr, MS_BIND, nullptr) == 0 || errno == ENOENT;
}

/// What of /proc tells about the machine, or about what others do on it, is covered; what could
/// change it is read-only. Files read as empty.
bool mask() {
  for (const char* path :
       {"proc/buddyinfo",  "proc/cmdline", "proc/config.gz",     "proc/diskstats",
        "proc/interrupts", "proc/iomem",   "proc/ioports",       "proc/kallsyms",
        "proc/kcore",      "proc/keys",    "proc/latency_stats", "proc/locks",
        "proc/mdstat",     "proc/modules", "proc/partitions",    "proc/sched_debug",
        "proc/schedstat",  "proc/swaps",   "proc/timer_list",    "proc/timer_stats",
        "proc/zoneinfo"})
    if (!cover("dev/null", path))
      return false;
  // An empty directory that nothing can be written to.
  for (const char* path :
       {"proc/acpi", "proc/asound", "proc/bus", "proc/fs", "proc/irq", "proc/scsi"})
    if (!cover("sys/fs/bpf", path))
      return false;
  constexpr auto flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
  for (const char* path : {"proc/sys", "proc/sysrq-trigger"}) {
    if (::mount(path, path, nullptr, MS_BIND, nullptr) != 0) {
      if (errno == ENOENT)
        continue;
      return false;
    }
    if (::mount(nullptr, path, nullptr, flags, nullptr) != 0)
      return false;
  }
  return true;
}

/// What a package manager needs inside its own tree, and nothing that reaches the kernel's own
/// state.
constexpr std::uint64_t kept_capabilities =
  1ull << CAP_CHOWN | 1ull << CAP_DAC_OVERRIDE | 1ull << CAP_FSETID | 1ull << CAP_FOWNER |
  1ull << CAP_SETGID | 1ull << CAP_SETUID | 1ull << CAP_SETFCAP | 1ull << CAP_SETPCAP |
  1ull << CAP_NET_BIND_SERVICE | 1ull << CAP_SYS_CHROOT | 1ull << CAP_KILL |
  1ull << CAP_AUDIT_WRITE;

/// For good: no program that is started later has more, whatever its file says.
bool drop_bounding_set() {
  for (int each = 0; each <= CAP_LAST_CAP; ++each)
    if ((kept_capabilities >> each & 1) == 0 && ::prctl(PR_CAPBSET_DROP, each, 0, 0, 0) != 0 &&
        errno != EINVAL)
      return false;
  return true;
}

bool drop_own_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const auto low = static_cast<std::uint32_t>(kept_capabilities);
  const auto high = static_cast<std::uint32_t>(kept_capabilities >> 32);
  const __user_cap_data_struct data[2] = {{low, low, 0}, {high, high, 0}};
  return ::syscall(SYS_capset, &header, data) == 0;
}

void limit(int resource, std::uint64_t value) {
  const rlimit both{value, value};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

/// The machine's memory for compiled filters has a ceiling, at which a little patience helps where
/// what holds it goes. Nobody else waits meanwhile: this is the sandbox's own process.
bool load_filter(const std::vector<sock_filter>& filter) {
  const sock_fprog program{static_cast<unsigned short>(filter.size()),
                           const_cast<sock_filter*>(filter.data())};
  const auto load = [&program] {
    return ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
  };
  constexpr timespec patience{0, 200'000'000};
  if (load())
    return true;
  if (!no_room_for_filter(errno))
    return false;
  ::nanosleep(&patience, nullptr);
  return load();
}

[[noreturn]] void become_sandbox(const launch_tools& tools, const launch_request& wanted,
                                 int control, std::span<const int> cgroup_procs) {
  const auto need = [&control](bool worked, launch_step step) {
    if (!worked)
      give_up(control, step);
  };
  mount_list mounts{};
  if (receive_mounts(control, mounts) != 1)
    ::_exit(1);
  const int devices = mounts[0];

  // By number: libc does not know of this copy, and would have the spawner's other thread do the
  // same, which is not here.
  need(::syscall(SYS_setgroups, 0, nullptr) == 0 && ::syscall(SYS_setresgid, 0, 0, 0) == 0 &&
         ::syscall(SYS_setresuid, 0, 0, 0) == 0,
       launch_step::become_root);
  // After the last change of user, which would clear it. If the spawner died before this line, our
  // socket says so.
  need(::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0, launch_step::become_root);

  need(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0,
       launch_step::private_mounts);

  // What needs no layer is made beside the root, while the spawner wires the network.
  constexpr auto inert = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  need(attach(devices, "dev") && fill_dev(wanted.memory), launch_step::dev);
  need(::mount("proc", "proc", "proc", inert, nullptr) == 0, launch_step::proc);
  told_by_agent told;
  need(make_sys(tools, wanted, told), launch_step::sys);
  need(mask(), launch_step::masks);

  const auto layers = receive_mounts(control, mounts);
  std::size_t next = 0;
  for (std::size_t i = 0; i < max_layers; ++i)
    if (has(layers, i))
      need(attach(mounts[next++], layer_places[i]), launch_step::attach_layers);
  for (std::size_t i = 0; i < cgroups_shown_to(wanted); ++i) {
    char place[64];
    std::snprintf(place, sizeof place, "sys/fs/cgroup/%s", wanted.shown_cgroups[i].name.c_str());
    need(attach(mounts[next++], place), launch_step::sys);
  }
  need(mount_root(layers, wanted.may_gain_rights) && ::chdir("root") == 0, launch_step::overlay);
  // The directory under /proc is out of everybody's reach. The agent is left there: new_file.hpp.
  const int below_proc = ::open("proc", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  need(below_proc >= 0, launch_step::proc);
  need(move_in("dev"), launch_step::dev);
  need(move_in("proc"), launch_step::proc);
  need(move_in("sys"), launch_step::sys);
  // The new root on top of the old one, then the old one away from under it.
  need(::syscall(SYS_pivot_root, ".", ".") == 0 && ::umount2(".", MNT_DETACH) == 0 &&
         ::fchdir(below_proc) == 0,
       launch_step::pivot);
  need(::sethostname(wanted.host_name.c_str(), wanted.host_name.size()) == 0,
       launch_step::host_name);

  ::setsid();
  ::umask(022);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_MEMLOCK, 8u << 20);
  // To where the agent looks for them, by way of numbers above all of these that nobody uses.
  constexpr int above = agent::first_cgroup_fd + static_cast<int>(agent::max_cgroup_fds) + 2;
  const auto move_up = [&](int fd) {
    const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, above);
    need(moved >= 0, launch_step::agent);
    return moved;
  };
  const int program = move_up(tools.agent);
  const int null = move_up(::open("/dev/null", O_RDWR | O_CLOEXEC));
  control = move_up(control);
  std::array<int, agent::max_cgroup_fds> procs{};
  for (std::size_t i = 0; i < cgroup_procs.size(); ++i)
    procs[i] = move_up(cgroup_procs[i]);
  const int told_files[] = {move_up(told.cpu_limit),
                            told.processors < 0 ? -1 : move_up(told.processors)};
  for (int target = 0; target < 3; ++target)
    need(::dup2(null, target) >= 0, launch_step::agent);
  need(::dup2(control, agent::control_fd) >= 0, launch_step::agent);
  for (std::size_t i = 0; i < cgroup_procs.size(); ++i)
    need(::dup2(procs[i], agent::first_cgroup_fd + static_cast<int>(i)) >= 0, launch_step::agent);
  auto first_free = agent::first_cgroup_fd + static_cast<int>(cgroup_procs.size());
  for (const int each : told_files)
    if (each >= 0)
      need(::dup2(each, first_free++) >= 0, launch_step::agent);
  need(::close_range(static_cast<unsigned>(first_free), ~0u, CLOSE_RANGE_CLOEXEC) == 0,
       launch_step::agent);

  // Not sooner: this still has all that the spawner has open, and numbers above that.
  if (wanted.open_files > 0)
    limit(RLIMIT_NOFILE, wanted.open_files);

  need(::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) >= 0 || errno == ENOSYS,
       launch_step::keyring);
  need(drop_bounding_set(), launch_step::capabilities);
  // While this still is its namespace's administrator: nobody else loads a filter without giving up
  // that programs may change their user.
  need(load_filter(wanted.seccomp_filters ? tools.filter : tools.without_filters),
       launch_step::seccomp);
  need(drop_own_capabilities() &&
         (wanted.may_gain_rights || ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0),
       launch_step::capabilities);

  char groups[8], now[24];
  std::snprintf(groups, sizeof groups, "%zu", cgroup_procs.size());
  std::snprintf(now, sizeof now, "%llu", static_cast<unsigned long long>(monotonic_ns()));
  char name[] = "insula-agent";
  char* argv[] = {name, groups, now, nullptr};
  char* env[] = {nullptr};
  ::syscall(SYS_execveat, program, "", argv, env, AT_EMPTY_PATH);
  give_up(control, launch_step::agent);
}

// ---- The parent
// ---------------------------------------------------------------------------------------------------

/// Another effective user has no capability in effect, and some machines let nobody make a user
/// namespace without this one. It is still permitted, because the real user is root.
bool regain_admin() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capget, &header, data) != 0)
    return false;
  data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective |= CAP_TO_MASK(CAP_SYS_ADMIN);
  return ::syscall(SYS_capset, &header, data) == 0;
}

bool write_map(pid_t child, const char* file, std::uint32_t slot) {
  char path[64], map[64];
  std::snprintf(path, sizeof path, "/proc/%d/%s", static_cast<int>(child), file);
  const int length =
    std::snprintf(map, sizeof map, "0 %u %u\n", first_uid + slot * uids_per_slot, uids_per_slot);
  const unique_fd to{::open(path, O_WRONLY | O_CLOEXEC)};
  return to && ::write(to.get(), map, static_cast<std::size_t>(length)) == length;
}

/// Where the machine itself runs out of memory, sandboxes go before the server and everybody else.
/// What is inside cannot take it back.
void prefer_as_victim(pid_t child) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/oom_score_adj", static_cast<int>(child));
  const unique_fd score{::open(path, O_WRONLY | O_CLOEXEC)};
  [[maybe_unused]] const auto written = ::write(score.get(), "500", 3);
}

/// A private copy of the mount at `directory` in which the ids on disk appear shifted into the
/// sandbox's range.
unique_fd mapped_copy(int directory, int user_namespace, std::uint64_t more_attributes = 0) {
  unique_fd tree{static_cast<int>(
    ::syscall(SYS_open_tree, directory, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH))};
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_IDMAP | more_attributes;
  attributes.userns_fd = static_cast<std::uint64_t>(user_namespace);
  if (tree && ::syscall(SYS_mount_setattr, tree.get(), "", AT_EMPTY_PATH, &attributes,
                        sizeof attributes) != 0) {
    const int why = errno;
    tree.reset();
    errno = why;
  }
  return tree;
}

bool send_mounts(int control, layer_set which, std::span<const unique_fd> mounts) {
  iovec data{&which, 1};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int) * max_mounts)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = CMSG_SPACE(sizeof(int) * mounts.size());
  auto* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int) * mounts.size());
  for (std::size_t i = 0; i < mounts.size(); ++i) {
    const int fd = mounts[i].get();
    std::memcpy(CMSG_DATA(part) + i * sizeof fd, &fd, sizeof fd);
  }
  return ::sendmsg(control, &message, MSG_NOSIGNAL) == 1;
}

} // namespace

launched launch(const launch_tools& tools, const launch_request& wanted) {
  launched made;
  const auto fail = [&](launch_step step) {
    made.failed = step;
    made.error = errno;
    // A child that is gone already has said why, and what failed here comes of that.
    agent::notice told{};
    if (made.pid >= 0 &&
        ::recv(made.control.get(), &told, sizeof told, MSG_DONTWAIT) == sizeof told &&
        told.what == agent::event::launch_failed) {
      made.failed = static_cast<launch_step>(told.step);
      made.error = static_cast<int>(told.value);
    }
    made.control.reset(); // A child that has come to life meets a closed socket and ends.
    return std::move(made);
  };

  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return fail(launch_step::socket);
  made.control.reset(ends[0]);
  unique_fd theirs{ends[1]};
  // A whole command line travels in one packet, and several may be under way.
  constexpr int buffer = 4 * static_cast<int>(agent::max_text_bytes);
  for (const int end : ends)
    if (::setsockopt(end, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer) != 0)
      return fail(launch_step::socket);

  std::array<int, agent::max_cgroup_fds> procs{};
  const auto count = wanted.cgroup_procs->size();
  if (count > procs.size()) {
    errno = E2BIG;
    return fail(launch_step::cgroup);
  }
  for (std::size_t i = 0; i < count; ++i)
    procs[i] = (*wanted.cgroup_procs)[i].get();

  int process = -1;
  clone_args how{};
  how.flags = CLONE_PIDFD | CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
              CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
  how.pidfd = reinterpret_cast<std::uint64_t>(&process);
  how.exit_signal = SIGCHLD;
  // What the kernel counts per user (inotify instances, queued signals, locked memory, message
  // queues) it counts for the user who has made the namespace as well. That is somebody else for
  // each sandbox, or one could use up what there is for all.
  const auto creator = first_uid + wanted.slot * uids_per_slot;
  if (::syscall(SYS_setresuid, -1, creator, -1) != 0)
    return fail(launch_step::clone);
  const auto pid =
    regain_admin() ? static_cast<pid_t>(::syscall(SYS_clone3, &how, sizeof how)) : -1;
  if (pid == 0) {
    ::close(ends[0]); // Else it would never see our end close.
    become_sandbox(tools, wanted, ends[1], {procs.data(), count});
  }
  const int why = errno;
  if (::syscall(SYS_setresuid, -1, 0, -1) != 0)
    std::abort(); // A spawner that is not root any more is none.
  errno = why;
  if (pid < 0)
    return fail(launch_step::clone);
  made.pid = pid;
  made.process.reset(process);
  theirs.reset();
  prefer_as_victim(pid);

  if (!write_map(pid, "uid_map", wanted.slot) || !write_map(pid, "gid_map", wanted.slot))
    return fail(launch_step::id_maps);
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/ns/user", static_cast<int>(pid));
  const unique_fd user_namespace{::open(path, O_RDONLY | O_CLOEXEC)};
  if (!user_namespace)
    return fail(launch_step::id_maps);
  const auto devices = make_devices(creator);
  if (!devices || !send_mounts(made.control.get(), 1, {&devices, 1}))
    return fail(launch_step::dev);
  // From here on two processors have something to do.
  errno = limit_system_v(made.process.get(), creator, wanted.memory);
  if (errno != 0)
    return fail(launch_step::limits);
  if (!wanted.fill_layers())
    return fail(launch_step::disk);
  if (!wire_network(made.process.get(), made.network))
    return fail(launch_step::network);
  made.namespaces_done = monotonic_ns();
  const int machines_usr = wanted.machines_usr ? tools.machines_usr : -1;
  const std::array<int, max_layers> from{wanted.root_layer,    wanted.over_root,
                                         wanted.package_lists, wanted.disk,
                                         machines_usr,         machines_usr < 0 ? -1 : tools.hidden,
                                         wanted.sudo};
  std::array<unique_fd, max_mounts> mounts;
  layer_set which = 0;
  std::size_t used = 0;
  for (std::size_t i = 0; i < max_layers; ++i) {
    if (from[i] < 0)
      continue;
    if (mounts[used] = mapped_copy(from[i], user_namespace.get()); !mounts[used])
      return fail(launch_step::layers);
    which = static_cast<layer_set>(which | 1u << i);
    ++used;
  }
  for (std::size_t i = 0; i < cgroups_shown_to(wanted); ++i, ++used) {
    mounts[used].reset(read_only_copy(AT_FDCWD, wanted.shown_cgroups[i].directory.c_str()));
    if (!mounts[used])
      return fail(launch_step::cgroup);
  }
  // Before the child has them: from then on the child's part runs, and may be over before this one.
  made.layers_done = monotonic_ns();
  // A child that has given up meanwhile has said why.
  if (!send_mounts(made.control.get(), which, {mounts.data(), used}) && errno != EPIPE)
    return fail(launch_step::hand_over);
  return made;
}

namespace {

unique_fd mapped_for(pid_t process, int directory, std::uint64_t attributes) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/ns/user", static_cast<int>(process));
  const unique_fd user_namespace{::open(path, O_RDONLY | O_CLOEXEC)};
  return user_namespace ? mapped_copy(directory, user_namespace.get(), attributes) : unique_fd{};
}

} // namespace

unique_fd shown_to(pid_t process, int directory) {
  return mapped_for(process, directory,
                    MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
}

unique_fd drive_for(pid_t process, int directory, bool read_only) {
  return mapped_for(process, directory,
                    MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (read_only ? MOUNT_ATTR_RDONLY : 0));
}

int try_mapped_copy(int directory) {
  int ends[2], process = -1;
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return errno;
  const unique_fd wait{ends[0]};
  unique_fd release{ends[1]};
  clone_args how{};
  how.flags = CLONE_PIDFD | CLONE_NEWUSER;
  how.pidfd = reinterpret_cast<std::uint64_t>(&process);
  how.exit_signal = SIGCHLD;
  const auto pid = static_cast<pid_t>(::syscall(SYS_clone3, &how, sizeof how));
  if (pid < 0)
    return errno;
  if (pid == 0) { // Its user namespace lives as long as it does.
    ::close(ends[1]);
    char byte = 0;
    [[maybe_unused]] const auto end = ::read(ends[0], &byte, 1);
    ::_exit(0);
  }
  const unique_fd child{process};
  int why = 0;
  if (!write_map(pid, "uid_map", 0) || !write_map(pid, "gid_map", 0)) {
    why = errno;
  } else {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/ns/user", static_cast<int>(pid));
    const unique_fd user_namespace{::open(path, O_RDONLY | O_CLOEXEC)};
    if (!user_namespace || !mapped_copy(directory, user_namespace.get()))
      why = errno;
  }
  release.reset();
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return why;
}

} // namespace insula::runtime::spawner
