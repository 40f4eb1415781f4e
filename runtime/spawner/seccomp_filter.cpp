#include "runtime/spawner/seccomp_filter.hpp"

#include "base/unique_fd.hpp"

#include <asm/ioctls.h>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <seccomp.h>
#include <span>
#include <string_view>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace insula::runtime::spawner {

namespace {

// Names that this machine's architecture or libseccomp does not know are left out. The calls whose
// arguments decide are not here but further down. ipc() is nowhere: it hides which call it is, and
// every kernel that makes sandboxes has the calls behind it.
// clang-format off
constexpr const char* allowed[] = {
  // Processes and threads
  "alarm", "arch_prctl", "execve", "execveat", "exit", "exit_group", "fork", "futex",
  "futex_requeue", "futex_time64", "futex_wait", "futex_waitv", "futex_wake", "get_robust_list",
  "get_thread_area", "getcpu", "getpgrp", "getpid", "getppid", "getpriority", "getrlimit",
  "getrusage", "getsid", "gettid", "ioprio_get", "ioprio_set", "kill", "landlock_add_rule",
  "landlock_create_ruleset", "landlock_restrict_self", "membarrier", "pause", "pidfd_open",
  "pidfd_send_signal", "prlimit64", "process_mrelease", "ptrace",
  "restart_syscall", "rseq", "sched_get_priority_max", "sched_get_priority_min",
  "sched_getaffinity", "sched_getattr", "sched_getparam", "sched_getscheduler",
  "sched_rr_get_interval", "sched_rr_get_interval_time64", "sched_setaffinity", "sched_setattr",
  "sched_setparam", "sched_setscheduler", "sched_yield", "set_robust_list",
  "set_thread_area", "set_tid_address", "setpgid", "setpriority", "setrlimit", "setsid",
  "tgkill", "times", "tkill", "ugetrlimit", "vfork", "wait4", "waitid", "waitpid",
  // Signals
  "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn",
  "rt_sigsuspend", "rt_sigtimedwait", "rt_sigtimedwait_time64", "rt_tgsigqueueinfo",
  "sigaction", "sigaltstack", "signal", "signalfd", "signalfd4", "sigpending", "sigprocmask",
  "sigreturn", "sigsuspend",
  // Users, groups, capabilities
  "capget", "capset", "getegid", "getegid32", "geteuid", "geteuid32", "getgid", "getgid32",
  "getgroups", "getgroups32", "getresgid", "getresgid32", "getresuid", "getresuid32", "getuid",
  "getuid32", "setfsgid", "setfsgid32", "setfsuid", "setfsuid32", "setgid", "setgid32",
  "setgroups", "setgroups32", "setregid", "setregid32", "setresgid", "setresgid32", "setresuid",
  "setresuid32", "setreuid", "setreuid32", "setuid", "setuid32",
  // Memory
  "brk", "cachestat", "map_shadow_stack", "mincore", "mlock", "mlock2", "mlockall", "mprotect",
  "mremap", "msync", "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free",
  "pkey_mprotect", "remap_file_pages",
  "set_mempolicy_home_node",
  // Clocks and timers
  "adjtimex", "clock_adjtime", "clock_adjtime64", "clock_getres", "clock_getres_time64",
  "clock_gettime", "clock_gettime64", "clock_nanosleep", "clock_nanosleep_time64", "getitimer",
  "gettimeofday", "nanosleep", "setitimer", "time", "timer_create", "timer_delete",
  "timer_getoverrun", "timer_gettime", "timer_gettime64", "timer_settime", "timer_settime64",
  "timerfd", "timerfd_create", "timerfd_gettime", "timerfd_gettime64", "timerfd_settime",
  "timerfd_settime64",
  // Sockets
  "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen",
  "recv", "recvfrom", "recvmmsg", "recvmmsg_time64", "recvmsg", "sendmmsg", "sendmsg", "sendto",
  "shutdown",
  // System V and POSIX queues
  "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedreceive_time64",
  "mq_timedsend", "mq_timedsend_time64", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd",
  "semctl", "semget", "semop", "semtimedop", "semtimedop_time64", "shmat", "shmctl", "shmdt",
  // Events and polling
  "_newselect", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_ctl_old", "epoll_pwait",
  "epoll_pwait2", "epoll_wait", "epoll_wait_old", "eventfd", "eventfd2", "inotify_add_watch",
  "inotify_init", "inotify_init1", "inotify_rm_watch", "poll", "ppoll", "ppoll_time64", "pselect6",
  "pselect6_time64", "select",
  // Files
  "_llseek", "access", "chdir", "chmod", "chown", "chown32", "chroot", "close", "close_range",
  "copy_file_range", "creat", "dup", "dup2", "dup3", "faccessat", "faccessat2", "fadvise64",
  "fadvise64_64", "fallocate", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown",
  "fchown32", "fchownat", "fcntl", "fcntl64", "fdatasync", "fgetxattr", "flistxattr", "flock",
  "fremovexattr", "fsetxattr", "fstat", "fstat64", "fstatat64", "fstatfs", "fstatfs64", "fsync",
  "ftruncate", "ftruncate64", "futimesat", "getcwd", "getdents", "getdents64", "getpgid",
  "getrandom", "getxattr", "lchown", "lchown32", "lgetxattr", "link", "linkat",
  "listxattr", "llistxattr", "lremovexattr", "lseek", "lsetxattr", "lstat", "lstat64", "mkdir",
  "mkdirat", "mknod", "mknodat", "newfstatat", "open", "openat", "openat2", "pipe", "pipe2",
  "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readahead",
  "readdir", "readlink", "readlinkat", "readv", "removexattr", "rename", "renameat",
  "renameat2", "rmdir", "send", "sendfile", "sendfile64", "setxattr", "splice", "stat",
  "stat64", "statfs", "statfs64", "statx", "symlink", "symlinkat", "sync_file_range",
  "syncfs", "sysinfo", "tee", "truncate", "truncate64", "umask", "uname", "unlink", "unlinkat",
  "utime", "utimensat", "utimensat_time64", "utimes", "write", "writev",
};
// clang-format on

// ---- Calls whose arguments decide

/// Looks at the lower 32 bits of an argument, which are all that the kernel takes of it in each of
/// the calls below: a filter that compared 64 could be passed by setting one of the others.
struct condition {
  enum class kind { equal, any_of_bits };
  unsigned argument;
  std::uint32_t mask;
  kind how;
  std::uint32_t value;
};

constexpr condition is(unsigned argument, std::uint32_t value, std::uint32_t mask = ~0u) {
  return {argument, mask, condition::kind::equal, value};
}

constexpr condition has(unsigned argument, std::uint32_t bits) {
  return {argument, ~0u, condition::kind::any_of_bits, bits};
}

#ifndef PR_SET_MEMORY_MERGE // Since Linux 6.4.
constexpr std::uint32_t PR_SET_MEMORY_MERGE = 67;
#endif

// The kernel's headers of these cannot be included together with the C library's.
constexpr std::uint32_t ipv6_packet_options = 6; ///< IPV6_2292PKTOPTIONS
constexpr std::uint32_t ipv6_flow_label = 32;    ///< IPV6_FLOWLABEL_MGR
constexpr std::uint32_t tcp_ao_add_key = 38;     ///< TCP_AO_ADD_KEY, since Linux 6.7.

constexpr int allow = 0; ///< In place of an errno.

/// Where all conditions hold, `answer` is what the call gets.
struct rule {
  std::vector<condition> where;
  int answer;
};

/// The first rule that holds decides; where none does, the call is allowed.
struct judged_call {
  const char* name;
  std::vector<rule> rules;
};

constexpr std::uint32_t new_namespaces = CLONE_NEWNS | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET |
                                         CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
constexpr std::uint32_t socket_kind = 0xf; ///< Without SOCK_CLOEXEC and SOCK_NONBLOCK.

/// A family or protocol that is not there answers as one that is unknown would. NETLINK_ROUTE is
/// what getifaddrs() asks, and the audit library takes only EINVAL for "there is no audit here".
std::vector<rule> rules_of_socket() {
  std::vector<rule> rules;
  for (const std::uint32_t protocol : {0, PF_UNIX})
    rules.push_back({{is(0, AF_UNIX), is(2, protocol)}, allow});
  rules.push_back({{is(0, AF_UNIX)}, EPROTONOSUPPORT});
  for (const std::uint32_t family : {AF_INET, AF_INET6}) {
    for (const std::uint32_t protocol : {0, static_cast<int>(IPPROTO_TCP)})
      rules.push_back({{is(0, family), is(1, SOCK_STREAM, socket_kind), is(2, protocol)}, allow});
    for (const std::uint32_t protocol : {0, static_cast<int>(IPPROTO_UDP)})
      rules.push_back({{is(0, family), is(1, SOCK_DGRAM, socket_kind), is(2, protocol)}, allow});
    for (const std::uint32_t known : {SOCK_STREAM, SOCK_DGRAM})
      rules.push_back({{is(0, family), is(1, known, socket_kind)}, EPROTONOSUPPORT});
    rules.push_back({{is(0, family), is(1, SOCK_RAW, socket_kind)}, EPERM});
    rules.push_back({{is(0, family)}, ESOCKTNOSUPPORT});
  }
  rules.push_back({{is(0, AF_NETLINK), is(2, NETLINK_ROUTE)}, allow});
  rules.push_back({{is(0, AF_NETLINK)}, EINVAL});
  rules.push_back({{}, EAFNOSUPPORT});
  return rules;
}

/// Of the families that are there only AF_UNIX has pairs.
std::vector<rule> rules_of_socketpair() {
  std::vector<rule> rules;
  for (const std::uint32_t protocol : {0, PF_UNIX})
    rules.push_back({{is(0, AF_UNIX), is(2, protocol)}, allow});
  rules.push_back({{is(0, AF_UNIX)}, EPROTONOSUPPORT});
  for (const std::uint32_t family : {AF_INET, AF_INET6, AF_NETLINK})
    rules.push_back({{is(0, family)}, EOPNOTSUPP});
  rules.push_back({{}, EAFNOSUPPORT});
  return rules;
}

/// Options for which the kernel keeps lists or texts that it charges to nobody, up to 128 KiB for
/// each socket (net.core.optmem_max). Flow labels are one table of the machine. All of them answer
/// as a kernel does that was built without. Groups of multicast may be joined, without a list of
/// senders.
constexpr std::pair<std::uint32_t, std::uint32_t> options_with_memory[] = {
  {SOL_SOCKET, SO_ZEROCOPY},
  {IPPROTO_TCP, TCP_MD5SIG},
  {IPPROTO_TCP, TCP_MD5SIG_EXT},
  {IPPROTO_TCP, tcp_ao_add_key},
  {IPPROTO_IP, IP_OPTIONS},
  {IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP},
  {IPPROTO_IP, IP_BLOCK_SOURCE},
  {IPPROTO_IP, IP_MSFILTER},
  {IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP},
  {IPPROTO_IP, MCAST_BLOCK_SOURCE},
  {IPPROTO_IP, MCAST_MSFILTER},
  {IPPROTO_IPV6, IPV6_JOIN_ANYCAST},
  {IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP},
  {IPPROTO_IPV6, MCAST_BLOCK_SOURCE},
  {IPPROTO_IPV6, MCAST_MSFILTER},
  {IPPROTO_IPV6, ipv6_flow_label},
  {IPPROTO_IPV6, ipv6_packet_options},
  {IPPROTO_IPV6, IPV6_HOPOPTS},
  {IPPROTO_IPV6, IPV6_RTHDRDSTOPTS},
  {IPPROTO_IPV6, IPV6_RTHDR},
  {IPPROTO_IPV6, IPV6_DSTOPTS},
};

/// The kernel has one ceiling for compiled filters per machine, and charges nobody for them. What
/// else attaches one needs a family or a right that is not there: packet sockets, netfilter,
/// traffic control, bpf(). A ULP is another protocol inside of TCP, in code of its own.
std::vector<rule> rules_of_setsockopt() {
  std::vector<rule> rules;
  for (const std::uint32_t option :
       {SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF})
    rules.push_back({{is(1, SOL_SOCKET), is(2, option)}, EPERM});
  rules.push_back({{is(1, IPPROTO_TCP), is(2, TCP_ULP)}, ENOPROTOOPT});
  for (const auto& [level, option] : options_with_memory)
    rules.push_back({{is(1, level), is(2, option)}, ENOPROTOOPT});
  return rules;
}

/// Typing for whoever reads a terminal, its line disciplines, which are modules of the kernel, and
/// what the machine's console shows; and what loads the modules for bridges and VLANs before it
/// asks for rights. Of btrfs, on which drives are, copies of ranges alone: a volume inside of a
/// drive would have no ceiling, be in no snapshot and keep the disk from being removed.
std::vector<rule> rules_of_ioctl() {
  std::vector<rule> rules;
  for (const std::uint32_t number :
       {static_cast<std::uint32_t>(TIOCSTI), static_cast<std::uint32_t>(TIOCLINUX),
        static_cast<std::uint32_t>(TIOCSETD), static_cast<std::uint32_t>(TIOCCONS),
        static_cast<std::uint32_t>(SIOCGIFBR), static_cast<std::uint32_t>(SIOCSIFBR),
        static_cast<std::uint32_t>(SIOCBRADDBR), static_cast<std::uint32_t>(SIOCBRDELBR),
        static_cast<std::uint32_t>(SIOCGIFVLAN), static_cast<std::uint32_t>(SIOCSIFVLAN)})
    rules.push_back({{is(1, number)}, EPERM});
  for (const std::uint32_t number :
       {static_cast<std::uint32_t>(FICLONE), static_cast<std::uint32_t>(FICLONERANGE),
        static_cast<std::uint32_t>(FIDEDUPERANGE)})
    rules.push_back({{is(1, number)}, allow});
  constexpr std::uint32_t kind = 0xff00, of_btrfs = 0x9400;
  rules.push_back({{is(1, of_btrfs, kind)}, ENOTTY}); // As of any other file system.
  return rules;
}

std::vector<judged_call> judged_calls(bool filters_inside) {
  // Pages that are merged tell one sandbox what another one has; a machine's huge pages are no
  // part of a sandbox's memory. Each is refused as by a kernel that has not got it, or that has
  // none left.
  std::vector<judged_call> calls{
    {"mmap", {{{has(3, MAP_HUGETLB)}, ENOMEM}}},
    {"mmap2", {{{has(3, MAP_HUGETLB)}, ENOMEM}}},
    {"ioctl", rules_of_ioctl()},
    {"madvise", {{{is(2, MADV_MERGEABLE)}, EINVAL}}},
    {"prctl", {{{is(0, PR_SET_MEMORY_MERGE)}, EINVAL}}},
    {"socket", rules_of_socket()},
    {"setsockopt", rules_of_setsockopt()},
    {"clone", {{{has(0, new_namespaces)}, EPERM}}},
    {"unshare", {{{has(0, new_namespaces | CLONE_NEWTIME)}, EPERM}}},
    {"setns", {{{}, EPERM}}},
    // A listener is a descriptor that keeps a filter when the process that loaded it has ended, so
    // that processes would not bound them.
    {"seccomp", {{{has(1, SECCOMP_FILTER_FLAG_NEW_LISTENER)}, EINVAL}}},
    {"memfd_create", {{{has(1, MFD_HUGETLB)}, EINVAL}}},
    {"shmget", {{{has(2, SHM_HUGETLB)}, ENOMEM}}},
    {"socketpair", rules_of_socketpair()},
    {"process_madvise", {{{is(3, MADV_MERGEABLE)}, EINVAL}}},
  };
  if (!filters_inside) // As a kernel answers that was built without them.
    for (auto& each : calls) {
      const std::string_view name{each.name};
      if (name == "seccomp")
        each.rules.push_back({{is(0, SECCOMP_SET_MODE_FILTER)}, EINVAL});
      else if (name == "prctl")
        each.rules.push_back({{is(0, PR_SET_SECCOMP), is(1, SECCOMP_MODE_FILTER)}, EINVAL});
    }
  return calls;
}

constexpr std::uint32_t lower_half(unsigned argument) {
  return static_cast<std::uint32_t>(offsetof(seccomp_data, args) + argument * sizeof(__u64) +
                                    (std::endian::native == std::endian::big ? sizeof(__u32) : 0));
}

/// What is judged stands in front, in the order above: each call is one comparison for all those
/// behind it, so the frequent ones are first.
class judge {
public:
  /// False: a way in it is longer than the machine of filters can jump.
  bool write(std::span<const judged_call> calls) {
    load(offsetof(seccomp_data, arch));
    program_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, seccomp_arch_native(), 1, 0));
    program_.push_back(BPF_STMT(BPF_JMP | BPF_JA, 0)); // To the list, which knows what to answer.
    load(offsetof(seccomp_data, nr));
    for (const auto& each : calls)
      if (const int number = seccomp_syscall_resolve_name(each.name); number >= 0)
        write(number, each.rules);
    program_[2].k = static_cast<std::uint32_t>(program_.size() - 3);
    return fits_;
  }

  std::vector<sock_filter> take() { return std::move(program_); }

private:
  void load(std::size_t offset) {
    program_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset)));
  }

  void answer(int what) {
    program_.push_back(BPF_STMT(
      BPF_RET | BPF_K,
      what == allow ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(what)));
  }

  std::uint8_t distance_from(std::size_t jump) {
    const auto far = program_.size() - jump - 1;
    fits_ = fits_ && far <= 255;
    return static_cast<std::uint8_t>(far);
  }

  void write(int number, const std::vector<rule>& rules) {
    const auto head = program_.size();
    program_.push_back(
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 0));
    for (const auto& each : rules) {
      std::vector<std::size_t> ways_out;
      for (const auto& one : each.where) {
        load(lower_half(one.argument));
        if (one.mask != ~0u)
          program_.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, one.mask));
        ways_out.push_back(program_.size());
        const int test = one.how == condition::kind::equal ? BPF_JEQ : BPF_JSET;
        program_.push_back(
          BPF_JUMP(static_cast<std::uint16_t>(BPF_JMP | test | BPF_K), one.value, 0, 0));
      }
      answer(each.answer);
      for (const auto jump : ways_out)
        program_[jump].jf = distance_from(jump);
    }
    answer(allow);
    program_[head].jf = distance_from(head);
  }

  std::vector<sock_filter> program_;
  bool fits_ = true;
};

struct release {
  void operator()(void* context) const { seccomp_release(context); }
};

bool add_rules(scmp_filter_ctx to) {
  for (const char* name : allowed) {
    const int number = seccomp_syscall_resolve_name(name);
    if (number == __NR_SCMP_ERROR)
      continue;
    if (const int failed = seccomp_rule_add(to, SCMP_ACT_ALLOW, number, 0);
        failed != 0 && failed != -EDOM)
      return false;
  }
  bool ok = true;
  // What it is, Linux as usual, and without address randomisation (debuggers).
  for (const scmp_datum_t persona : {0xffffffffu, 0u, 0x0040000u})
    ok &= seccomp_rule_add(to, SCMP_ACT_ALLOW, SCMP_SYS(personality), 1,
                           SCMP_A0(SCMP_CMP_EQ, persona)) == 0;
  // It would write the whole machine's files back, and keep nothing here: unmounting throws
  // everything away.
  ok &= seccomp_rule_add(to, SCMP_ACT_ERRNO(0), SCMP_SYS(sync), 0) == 0;
  return ok;
}

bool refuse_mounts(scmp_filter_ctx to) {
  return seccomp_rule_add(to, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(mount), 0) == 0 &&
         seccomp_rule_add(to, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(umount2), 0) == 0;
}

} // namespace

std::vector<sock_filter> compile_seccomp_filter(bool filters_inside, filter_for whom) {
  judge arguments;
  if (!arguments.write(judged_calls(filters_inside)))
    return {};
  auto program = arguments.take();
  const std::unique_ptr<void, release> context{seccomp_init(SCMP_ACT_ERRNO(ENOSYS))};
  if (!context)
    return {};
  // Programs of a foreign architecture get ENOSYS for everything instead of being killed.
  seccomp_attr_set(context.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
  seccomp_attr_set(context.get(), SCMP_FLTATR_CTL_OPTIMIZE,
                   2); // A binary tree: ten comparisons instead of 400.
  if (!add_rules(context.get()) || (whom == filter_for::mount && !refuse_mounts(context.get())))
    return {};
  const unique_fd file{::memfd_create("filter", MFD_CLOEXEC)};
  if (!file || seccomp_export_bpf(context.get(), file.get()) != 0)
    return {};
  const auto bytes = ::lseek(file.get(), 0, SEEK_END);
  const auto judged = program.size();
  program.resize(judged + static_cast<std::size_t>(bytes) / sizeof(sock_filter));
  if (::pread(file.get(), program.data() + judged, static_cast<std::size_t>(bytes), 0) != bytes)
    return {};
  return program;
}

} // namespace insula::runtime::spawner
