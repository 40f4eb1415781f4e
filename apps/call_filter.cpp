#include "apps/call_filter.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

namespace insula {

namespace {

// clang-format off
/// What leads out of a process, and no library tries in place of something else.
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

/// What a sanitizer does when it starts a thread, stops the others to look for leaks, and reports.
[[maybe_unused]] constexpr const char* of_sanitizers[] = {
  "clone", "execve", "getdents", "personality", "prctl", "process_vm_readv", "ptrace",
  "sched_setaffinity", "setrlimit", "vfork", "waitid",
};
// clang-format on

/// -EDOM, -EEXIST: this architecture has no such call, or there is that rule already.
bool added(int outcome) {
  return outcome == 0 || outcome == -EDOM || outcome == -EEXIST;
}

} // namespace

call_filter::call_filter(std::string whose)
    : whose_(std::move(whose))
    , filter_(::seccomp_init(SCMP_ACT_ERRNO(ENOSYS))) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  allow(of_sanitizers);
#endif
}

void call_filter::allow(std::span<const char* const> names) {
  for (const char* name : names)
    if (const int call = ::seccomp_syscall_resolve_name(name); filter_ && call != __NR_SCMP_ERROR)
      good_ = added(::seccomp_rule_add(filter_.get(), SCMP_ACT_ALLOW, call, 0)) && good_;
}

void call_filter::allow(int call, scmp_arg_cmp which) {
  by_argument_.insert(call);
  if (filter_)
    good_ = added(::seccomp_rule_add(filter_.get(), SCMP_ACT_ALLOW, call, 1, which)) && good_;
}

void call_filter::allow(int call, scmp_arg_cmp which, scmp_arg_cmp and_which) {
  by_argument_.insert(call);
  if (filter_)
    good_ =
      added(::seccomp_rule_add(filter_.get(), SCMP_ACT_ALLOW, call, 2, which, and_which)) && good_;
}

result<void> call_filter::load() {
  const auto failed = [this](const char* what, int why) {
    return error{errc::io_failed, "the filter of the system calls of " + whose_ + ": " + what +
                                    ": " + std::strerror(why)};
  };
  if (!filter_)
    return failed("making it", ENOMEM);
  // A binary tree; a libseccomp that does not know it makes a slower filter.
  ::seccomp_attr_set(filter_.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
  if (const int outcome = ::seccomp_attr_set(filter_.get(), SCMP_FLTATR_CTL_TSYNC, 1); outcome != 0)
    return failed("having it hold for every thread", -outcome);
  for (const char* name : refused)
    if (const int call = ::seccomp_syscall_resolve_name(name);
        call != __NR_SCMP_ERROR && !by_argument_.contains(call)) // It would hold for all of them.
      good_ = added(::seccomp_rule_add(filter_.get(), SCMP_ACT_ERRNO(EPERM), call, 0)) && good_;
  if (!good_)
    return failed("adding to it", EINVAL);
  // Above zero: the number of a thread that does not take it.
  if (const int outcome = ::seccomp_load(filter_.get()); outcome != 0)
    return failed("loading it", outcome > 0 ? ESRCH : -outcome);
  return {};
}

} // namespace insula
