#include "apps/import_calls.hpp"

#include "apps/call_filter.hpp"

#include <sys/ioctl.h>
#include <sys/stat.h>

namespace insula {

namespace {

// clang-format off
constexpr const char* allowed[] = {
  // Threads, of which there is one, and signals
  "exit", "exit_group", "futex", "get_robust_list", "gettid", "membarrier", "restart_syscall",
  "rseq", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sched_getaffinity", "sched_yield",
  "set_robust_list", "sigaltstack",
  // Itself
  "getegid", "geteuid", "getgid", "getpid", "getppid", "getrlimit", "getuid", "sysinfo", "umask",
  "uname",
  // Memory
  "brk", "madvise", "mmap", "mprotect", "mremap", "munmap",
  // Clocks
  "clock_getres", "clock_gettime", "clock_nanosleep", "getrandom", "gettimeofday", "nanosleep",
  "time",
  // Its answers, to the process that has started it
  "sendmsg",
  // Files
  "access", "chmod", "close", "copy_file_range", "faccessat", "faccessat2", "fadvise64",
  "fallocate", "fchmod", "fchmodat", "fchmodat2", "fchown", "fchownat", "fcntl", "fdatasync",
  "fgetxattr", "flistxattr", "flock", "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync",
  "ftruncate", "getcwd", "getdents64", "link", "linkat", "lseek", "lstat", "mkdir", "mkdirat",
  "newfstatat", "open", "openat", "openat2", "pread64", "preadv", "pwrite64", "pwritev", "read",
  "readlink", "readlinkat", "readv", "rename", "renameat", "renameat2", "rmdir", "sendfile", "stat",
  "statfs", "statx", "symlink", "symlinkat", "sync_file_range", "syncfs", "unlink", "unlinkat",
  "utimensat", "write", "writev",
};
// clang-format on

} // namespace

result<void> allow_only_import_calls() {
  call_filter filter{"the process that unpacks images"};
  filter.allow(allowed);
  // FIFOs are in images, and devices are not.
  filter.allow(SCMP_SYS(mknod), SCMP_A1(SCMP_CMP_MASKED_EQ, S_IFMT, S_IFIFO));
  filter.allow(SCMP_SYS(mknodat), SCMP_A2(SCMP_CMP_MASKED_EQ, S_IFMT, S_IFIFO));
  // To read the limits of this process: the new ones are none.
  filter.allow(SCMP_SYS(prlimit64), SCMP_A0(SCMP_CMP_EQ, 0), SCMP_A2(SCMP_CMP_EQ, 0));
  // A command shows on a terminal how far it is.
  for (const scmp_datum_t request : {scmp_datum_t{TCGETS}, scmp_datum_t{TIOCGWINSZ}})
    filter.allow(SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, request));
  constexpr scmp_datum_t name_of_memory = 0x53564d41; // PR_SET_VMA: malloc() names its arenas.
  filter.allow(SCMP_SYS(prctl), SCMP_A0(SCMP_CMP_EQ, name_of_memory));
  return filter.load();
}

} // namespace insula
