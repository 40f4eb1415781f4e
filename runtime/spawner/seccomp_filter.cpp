#include "runtime/spawner/seccomp_filter.hpp"

#include "base/unique_fd.hpp"

#include <cerrno>
#include <initializer_list>
#include <linux/sched.h>
#include <memory>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

// Names that this machine's architecture or libseccomp does not know are left out. clone,
// personality and socket are allowed by their arguments, further down.
// clang-format off
constexpr const char* allowed[] = {
  // Processes and threads
  "alarm", "arch_prctl", "execve", "execveat", "exit", "exit_group", "fork", "futex",
  "futex_requeue", "futex_time64", "futex_wait", "futex_waitv", "futex_wake", "get_robust_list",
  "get_thread_area", "getcpu", "getpgrp", "getpid", "getppid", "getpriority", "getrlimit",
  "getrusage", "getsid", "gettid", "ioprio_get", "ioprio_set", "kill", "landlock_add_rule",
  "landlock_create_ruleset", "landlock_restrict_self", "membarrier", "pause", "pidfd_open",
  "pidfd_send_signal", "prctl", "prlimit64", "process_madvise", "process_mrelease", "ptrace",
  "restart_syscall", "rseq", "sched_get_priority_max", "sched_get_priority_min",
  "sched_getaffinity", "sched_getattr", "sched_getparam", "sched_getscheduler",
  "sched_rr_get_interval", "sched_rr_get_interval_time64", "sched_setaffinity", "sched_setattr",
  "sched_setparam", "sched_setscheduler", "sched_yield", "seccomp", "set_robust_list",
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
  "brk", "cachestat", "madvise", "map_shadow_stack", "memfd_create", "mincore", "mlock",
  "mlock2", "mlockall", "mmap", "mmap2", "mprotect", "mremap", "msync", "munlock", "munlockall",
  "munmap", "pkey_alloc", "pkey_free", "pkey_mprotect", "remap_file_pages",
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
  "setsockopt", "shutdown", "socketpair",
  // System V and POSIX queues
  "ipc", "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedreceive_time64",
  "mq_timedsend", "mq_timedsend_time64", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd",
  "semctl", "semget", "semop", "semtimedop", "semtimedop_time64", "shmat", "shmctl", "shmdt",
  "shmget",
  // Events and polling
  "_newselect", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_ctl_old", "epoll_pwait",
  "epoll_pwait2", "epoll_wait", "epoll_wait_old", "eventfd", "eventfd2", "inotify_add_watch",
  "inotify_init", "inotify_init1", "inotify_rm_watch", "io_cancel", "io_destroy",
  "io_getevents", "io_setup", "io_submit", "poll", "ppoll", "ppoll_time64", "pselect6",
  "pselect6_time64", "select",
  // Files
  "_llseek", "access", "chdir", "chmod", "chown", "chown32", "chroot", "close", "close_range",
  "copy_file_range", "creat", "dup", "dup2", "dup3", "faccessat", "faccessat2", "fadvise64",
  "fadvise64_64", "fallocate", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown",
  "fchown32", "fchownat", "fcntl", "fcntl64", "fdatasync", "fgetxattr", "flistxattr", "flock",
  "fremovexattr", "fsetxattr", "fstat", "fstat64", "fstatat64", "fstatfs", "fstatfs64", "fsync",
  "ftruncate", "ftruncate64", "futimesat", "getcwd", "getdents", "getdents64", "getpgid",
  "getrandom", "getxattr", "ioctl", "lchown", "lchown32", "lgetxattr", "link", "linkat",
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

constexpr auto new_namespaces =
  static_cast<scmp_datum_t>(CLONE_NEWNS | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET |
                            CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP);

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
  // clone3 hides its flags behind a pointer, so it stays unknown and libc uses clone.
  bool ok = seccomp_rule_add(to, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                             SCMP_A0(SCMP_CMP_MASKED_EQ, new_namespaces, 0)) == 0;
  // What it is, Linux as usual, and without address randomisation (debuggers).
  for (const scmp_datum_t persona : {0xffffffffu, 0u, 0x0040000u})
    ok &= seccomp_rule_add(to, SCMP_ACT_ALLOW, SCMP_SYS(personality), 1,
                           SCMP_A0(SCMP_CMP_EQ, persona)) == 0;
  // It would write the whole machine's files back, and keep nothing here: unmounting throws
  // everything away.
  ok &= seccomp_rule_add(to, SCMP_ACT_ERRNO(0), SCMP_SYS(sync), 0) == 0;
  // A family that is not there answers as an unknown family would; NETLINK_ROUTE is what
  // getifaddrs() asks, and the audit library takes only EINVAL for "there is no audit here".
  for (const scmp_datum_t family : {AF_UNIX, AF_INET, AF_INET6})
    ok &=
      seccomp_rule_add(to, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_EQ, family)) == 0;
  ok &= seccomp_rule_add(to, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2, SCMP_A0(SCMP_CMP_EQ, AF_NETLINK),
                         SCMP_A2(SCMP_CMP_EQ, 0)) == 0;
  ok &= seccomp_rule_add(to, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(socket), 2,
                         SCMP_A0(SCMP_CMP_EQ, AF_NETLINK), SCMP_A2(SCMP_CMP_NE, 0)) == 0;
  ok &= seccomp_rule_add(to, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                         SCMP_A0(SCMP_CMP_GT, AF_NETLINK)) == 0;
  for (scmp_datum_t family = AF_INET + 1; family < AF_NETLINK; ++family)
    if (family != AF_INET6)
      ok &= seccomp_rule_add(to, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                             SCMP_A0(SCMP_CMP_EQ, family)) == 0;
  return ok;
}

bool refuse_mounts(scmp_filter_ctx to) {
  return seccomp_rule_add(to, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(mount), 0) == 0 &&
         seccomp_rule_add(to, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(umount2), 0) == 0;
}

} // namespace

std::vector<sock_filter> compile_seccomp_filter(filter_for whom) {
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
  std::vector<sock_filter> program(static_cast<std::size_t>(bytes) / sizeof(sock_filter));
  if (::pread(file.get(), program.data(), static_cast<std::size_t>(bytes), 0) != bytes)
    return {};
  return program;
}

} // namespace insula::runtime::spawner
