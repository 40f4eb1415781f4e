#include "apps/server_calls.hpp"

#include "apps/call_filter.hpp"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>

namespace insula {

namespace {

// clone, ioctl, prctl, socket and socketpair are allowed by their arguments, further down.
// clang-format off
constexpr const char* allowed[] = {
  // Threads and signals
  "exit", "exit_group", "futex", "get_robust_list", "getcpu", "gettid", "membarrier",
  "restart_syscall", "rseq", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigreturn",
  "rt_sigsuspend", "rt_sigtimedwait", "sched_get_priority_max", "sched_get_priority_min",
  "sched_getaffinity", "sched_getparam", "sched_getscheduler", "sched_yield", "set_robust_list",
  "sigaltstack", "tgkill",
  // The ends of children. One reads its configuration, one brings images.
  "wait4",
  // Itself. Without capabilities, the three that set an id change nothing.
  "getegid", "geteuid", "getgid", "getgroups", "getpgrp", "getpid", "getppid", "getpriority",
  "getresgid", "getresuid", "getrlimit", "getrusage", "getsid", "getuid", "prlimit64", "setgroups",
  "setresgid", "setresuid", "sysinfo", "times", "umask", "uname",
  // Memory
  "brk", "madvise", "mincore", "mmap", "mprotect", "mremap", "msync", "munmap",
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
};
// clang-format on

constexpr const char* files_in_memory[] = {"memfd_create"};

/// Of devices, sockets and terminals. None puts letters into a terminal, as TIOCSTI and TIOCLINUX
/// do: the one that the server was started from may be root's.
constexpr unsigned ioctls[] = {
  FIOCLEX,       FIONBIO,      FIONCLEX,    FIONREAD, SIOCGIFADDR, SIOCGIFCONF, SIOCGIFFLAGS,
  SIOCGIFHWADDR, SIOCGIFINDEX, SIOCGIFNAME, TCGETS,   TIOCGPTN,    TIOCGWINSZ,  TIOCSWINSZ,
};

void allow_by_arguments(call_filter& filter) {
  // A thread, and no process.
  filter.allow(SCMP_SYS(clone), SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD | CLONE_VM | CLONE_SIGHAND,
                                        CLONE_THREAD | CLONE_VM | CLONE_SIGHAND));
  constexpr scmp_datum_t name_of_memory = 0x53564d41; // PR_SET_VMA: malloc() names its arenas.
  for (const scmp_datum_t option :
       {scmp_datum_t{PR_SET_NAME}, scmp_datum_t{PR_GET_NAME}, scmp_datum_t{PR_GET_DUMPABLE},
        scmp_datum_t{PR_SET_TIMERSLACK}, name_of_memory})
    filter.allow(SCMP_SYS(prctl), SCMP_A0(SCMP_CMP_EQ, option));
  // The kernel looks at 32 bits of it, whatever the others are.
  for (const scmp_datum_t request : ioctls)
    filter.allow(SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, request));
  for (const scmp_datum_t family : {AF_UNIX, AF_INET, AF_INET6})
    filter.allow(SCMP_SYS(socket), SCMP_A0(SCMP_CMP_EQ, family));
  filter.allow(SCMP_SYS(socket), SCMP_A0(SCMP_CMP_EQ, AF_NETLINK), SCMP_A2(SCMP_CMP_EQ, 0));
  filter.allow(SCMP_SYS(socketpair), SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
}

} // namespace

result<void> allow_only_server_calls() {
  call_filter filter{"the server"};
  filter.allow(allowed);
  filter.allow(files_in_memory);
  allow_by_arguments(filter);
  return filter.load();
}

result<void> allow_only_fetch_calls() {
  call_filter filter{"the process that fetches"};
  filter.allow(allowed);
  allow_by_arguments(filter);
  return filter.load();
}

} // namespace insula
