#pragma once

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <grp.h>
#include <initializer_list>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

/// How a program of the spawner's that reads what comes out of sandboxes gives up its rights.
namespace insula::runtime {

/// The system calls that a program makes, and no others: all else fails with EPERM, and the
/// kernel's log names it. Names that this machine's architecture does not have are left out.
class call_filter {
public:
  call_filter()
      : filter_(::seccomp_init(SCMP_ACT_ERRNO(EPERM))) {
    if (filter_ == nullptr) {
      good_ = false;
      return;
    }
    ::seccomp_attr_set(filter_, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    ::seccomp_attr_set(filter_, SCMP_FLTATR_CTL_OPTIMIZE, 2); // A binary tree.
    // The kernel's log names what was refused, where there is one.
    ::seccomp_attr_set(filter_, SCMP_FLTATR_CTL_LOG, 1);
  }
  ~call_filter() {
    if (filter_ != nullptr)
      ::seccomp_release(filter_);
  }
  call_filter(const call_filter&) = delete;
  call_filter& operator=(const call_filter&) = delete;

  template <class... Comparisons>
  void add(const char* name, Comparisons... comparisons) {
    const int number = ::seccomp_syscall_resolve_name(name);
    if (!good_ || number == __NR_SCMP_ERROR)
      return;
    const int failed =
      ::seccomp_rule_add(filter_, SCMP_ACT_ALLOW, number, sizeof...(comparisons), comparisons...);
    good_ = failed == 0 || failed == -EDOM; // It is of another architecture.
  }

  void add_options(const char* call, int level, std::initializer_list<int> names) {
    for (const int each : names)
      add(call, SCMP_A1(SCMP_CMP_EQ, static_cast<scmp_datum_t>(level)),
          SCMP_A2(SCMP_CMP_EQ, static_cast<scmp_datum_t>(each)));
  }

  bool load() { return good_ && ::seccomp_load(filter_) == 0; }

private:
  scmp_filter_ctx filter_;
  bool good_ = true;
};

/// It becomes this user without capabilities, sees its own open files, as long as it lives, and no
/// others, and cannot be traced. It ends with its parent, and leaves no image of its memory. False:
/// errno says why.
inline bool become_nobody(uid_t user) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  constexpr rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  if (::chroot("/proc/self/fdinfo") != 0 || ::chdir("/") != 0)
    return false;
  if (::setgroups(0, nullptr) != 0 || ::setresgid(user, user, user) != 0 ||
      ::setresuid(user, user, user) != 0)
    return false;
  // After the change of user, which would clear it.
  return ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
}

} // namespace insula::runtime
