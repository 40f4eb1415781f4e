#include "runtime/gateway/rights.hpp"

#include <cerrno>
#include <csignal>
#include <grp.h>
#include <initializer_list>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace insula::runtime::gateway {

namespace {

/// What somebody would need who had taken it over, and what it never calls.
bool forbid_calls() {
  auto* filter = ::seccomp_init(SCMP_ACT_ALLOW);
  if (filter == nullptr)
    return false;
  bool good = true;
  for (const char* name : {"execve",
                           "execveat",
                           "fork",
                           "vfork",
                           "clone",
                           "clone3",
                           "ptrace",
                           "process_vm_readv",
                           "process_vm_writev",
                           "kcmp",
                           "pidfd_getfd",
                           "mount",
                           "umount2",
                           "move_mount",
                           "open_tree",
                           "fsopen",
                           "fsmount",
                           "mount_setattr",
                           "pivot_root",
                           "chroot",
                           "setns",
                           "unshare",
                           "bpf",
                           "perf_event_open",
                           "keyctl",
                           "add_key",
                           "request_key",
                           "io_uring_setup",
                           "io_uring_enter",
                           "io_uring_register",
                           "userfaultfd",
                           "init_module",
                           "finit_module",
                           "kexec_load",
                           "kexec_file_load",
                           "open_by_handle_at",
                           "open",
                           "openat",
                           "openat2",
                           "creat"}) {
    const int number = ::seccomp_syscall_resolve_name(name);
    // One that this architecture has not got needs nothing.
    good = good && (number == __NR_SCMP_ERROR ||
                    ::seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 0) == 0);
  }
  good = good && ::seccomp_load(filter) == 0;
  ::seccomp_release(filter);
  return good;
}

} // namespace

bool give_up_rights(uid_t user) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  // Its own open files, as long as it lives, and nothing else.
  if (::chroot("/proc/self/fdinfo") != 0 || ::chdir("/") != 0)
    return false;
  if (::setgroups(0, nullptr) != 0 || ::setresgid(user, user, user) != 0 ||
      ::setresuid(user, user, user) != 0)
    return false;
  // After the change of user, which would clear it.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
    return false;
  return forbid_calls();
}

} // namespace insula::runtime::gateway
