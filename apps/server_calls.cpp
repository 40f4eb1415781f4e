#include "apps/server_calls.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <net/if.h>
#include <sched.h>
#include <seccomp.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>

namespace insula {

namespace {

// What this machine's architecture or libseccomp does not know is left out. clone, ioctl, prctl,
// socket and socketpair are allowed by their arguments, further down.
// clang-format off
constexpr const char* allowed[] = {
  // Threads and signals
  "exit", "exit_group", "futex", "get_robust_list", "getcpu", "gettid", "membarrier",
  "restart_syscall", "rseq", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigreturn",
  "rt_sigsuspend", "rt_sigtimedwait", "sched_get_priority_max", "sched_get_priority_min",
  "sched_getaffinity", "sched_getparam", "sched_getscheduler", "sched_yield", "set_robust_list",
  "sigaltstack", "tgkill",
  // The end of a child. It has one that reads its configuration.
  "wait4",
  // Itself. Without capabilities, the three that set an id change nothing.
  "getegid", "geteuid", "getgid", "getgroups", "getpgrp", "getpid", "getppid", "getpriority",
  "getresgid", "getresuid", "getrlimit", "getrusage", "getsid", "getuid", "prlimit64", "setgroups",
  "setresgid", "setresuid", "sysinfo", "times", "umask", "uname",
  // Memory
  "brk", "madvise", "memfd_create", "mincore", "mmap", "mprotect", "mremap", "msync", "munmap",
  // Clocks, events
  "clock_getres", "clock_gettime", "clock_nanosleep", "epoll_create1", "epoll_ctl", "epoll_pwait",
  "epoll_wait", "eventfd2", "getrandom", "gettimeofday", "nanosleep", "poll", "ppoll", "pselect6",
  "select", "signalfd4", "time", "timerfd_create", "timerfd_gettime", "timerfd_settime",
  // Sockets
  "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen",
  "recvfrom", "recvmmsg", "recvmsg", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown",
  // Files
  "access", "chmod", "close", "close_range", "copy_file_range", "dup", "dup2", "dup3", "faccessat",
  "fadvise64", "fallocate", "fchmod", "fchmodat", "fchown", "fcntl", "fdatasync", "flock", "fstat",
  "fstatfs", "fsync", "ftruncate", "getcwd", "getdents64", "link", "linkat", "lseek",
  "lstat", "mkdir", "mkdirat", "newfstatat", "open", "openat", "openat2", "pipe2", "pread64", "preadv",
  "pwrite64", "pwritev", "read", "readahead", "readlink", "readlinkat", "readv", "rename",
  "renameat", "renameat2", "rmdir", "sendfile", "splice", "stat", "statfs", "statx",
  "sync_file_range", "tee", "unlink", "unlinkat", "utimensat", "write", "writev",
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  // What a sanitizer does when it starts a thread, stops the others to look for leaks, and reports.
  "clone", "execve", "getdents", "personality", "prctl", "process_vm_readv", "ptrace",
  "sched_setaffinity", "setrlimit", "vfork", "waitid",
#endif
};

/// What leads out of a server, and no library tries in place of something else.
constexpr const char* refused[] = {
  "acct", "add_key", "bpf", "chroot", "delete_module", "execve", "execveat", "finit_module", "fork",
  "fsconfig", "fsmount", "fsopen", "fspick", "init_module", "kcmp", "kexec_file_load", "kexec_load",
  "keyctl", "kill", "lookup_dcookie", "mknod", "mknodat", "mount", "mount_setattr", "move_mount",
  "name_to_handle_at", "open_by_handle_at", "open_tree", "perf_event_open", "pidfd_getfd",
  "pidfd_open", "pidfd_send_signal", "pivot_root", "process_vm_readv", "process_vm_writev",
  "ptrace", "quotactl", "reboot", "request_key", "seccomp", "setdomainname", "sethostname", "setns",
  "settimeofday", "swapoff", "swapon", "syslog", "tkill", "umount2", "unshare", "userfaultfd",
  "vfork", "vhangup",
};
// clang-format on

/// Of devices, sockets and terminals. None puts letters into a terminal, as TIOCSTI and TIOCLINUX
/// do: the one that the server was started from may be root's.
constexpr unsigned ioctls[] = {
  FIOCLEX,       FIONBIO,      FIONCLEX,    FIONREAD, SIOCGIFADDR, SIOCGIFCONF, SIOCGIFFLAGS,
  SIOCGIFHWADDR, SIOCGIFINDEX, SIOCGIFNAME, TCGETS,   TIOCGPTN,    TIOCGWINSZ,  TIOCSWINSZ,
};

struct release {
  void operator()(void* context) const { ::seccomp_release(context); }
};

/// -EDOM, -EEXIST: this architecture has no such call, or there is that rule already.
bool added(int outcome) {
  return outcome == 0 || outcome == -EDOM || outcome == -EEXIST;
}

template <std::size_t N>
bool add(scmp_filter_ctx to, std::uint32_t action, const char* const (&names)[N]) {
  bool good = true;
  for (const char* name : names)
    if (const int number = ::seccomp_syscall_resolve_name(name); number != __NR_SCMP_ERROR)
      good = added(::seccomp_rule_add(to, action, number, 0)) && good;
  return good;
}

bool add_by_arguments(scmp_filter_ctx to) {
  const auto allow = [&](int call, scmp_arg_cmp which) {
    return added(::seccomp_rule_add(to, SCMP_ACT_ALLOW, call, 1, which));
  };
  // A thread, and no process.
  bool good =
    allow(SCMP_SYS(clone), SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD | CLONE_VM | CLONE_SIGHAND,
                                   CLONE_THREAD | CLONE_VM | CLONE_SIGHAND));
  constexpr scmp_datum_t name_of_memory = 0x53564d41; // PR_SET_VMA: malloc() names its arenas.
  for (const scmp_datum_t option :
       {scmp_datum_t{PR_SET_NAME}, scmp_datum_t{PR_GET_NAME}, scmp_datum_t{PR_GET_DUMPABLE},
        scmp_datum_t{PR_SET_TIMERSLACK}, name_of_memory})
    good = allow(SCMP_SYS(prctl), SCMP_A0(SCMP_CMP_EQ, option)) && good;
  // The kernel looks at 32 bits of it, whatever the others are.
  for (const scmp_datum_t request : ioctls)
    good = allow(SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, request)) && good;
  for (const scmp_datum_t family : {AF_UNIX, AF_INET, AF_INET6})
    good = allow(SCMP_SYS(socket), SCMP_A0(SCMP_CMP_EQ, family)) && good;
  good = added(::seccomp_rule_add(to, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2,
                                  SCMP_A0(SCMP_CMP_EQ, AF_NETLINK), SCMP_A2(SCMP_CMP_EQ, 0))) &&
         good;
  return allow(SCMP_SYS(socketpair), SCMP_A0(SCMP_CMP_EQ, AF_UNIX)) && good;
}

} // namespace

result<void> allow_only_server_calls() {
  const auto failed = [](const char* what, int why) {
    return error{errc::io_failed, std::string{"the filter of the server's system calls: "} + what +
                                    ": " + std::strerror(why)};
  };
  // What a C library of tomorrow asks for first it does without where there is no such call.
  const std::unique_ptr<void, release> filter{::seccomp_init(SCMP_ACT_ERRNO(ENOSYS))};
  if (!filter)
    return failed("making it", ENOMEM);
  // A binary tree; a libseccomp that does not know it makes a slower filter.
  ::seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
  if (const int outcome = ::seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_TSYNC, 1); outcome != 0)
    return failed("having it hold for every thread", -outcome);
  if (const int outcome = ::seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_NNP, 0); outcome != 0)
    return failed("leaving the privileges, which are none", -outcome);
  if (!add(filter.get(), SCMP_ACT_ALLOW, allowed) ||
      !add(filter.get(), SCMP_ACT_ERRNO(EPERM), refused) || !add_by_arguments(filter.get()))
    return failed("adding to it", EINVAL);
  // Above zero: the number of a thread that does not take it.
  if (const int outcome = ::seccomp_load(filter.get()); outcome != 0)
    return failed("loading it", outcome > 0 ? ESRCH : -outcome);
  return {};
}

} // namespace insula
