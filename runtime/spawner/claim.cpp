#include "runtime/spawner/claim.hpp"

#include "base/unique_fd.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace insula::runtime::spawner {

int rename_host(int process, const char* name) {
  const unique_fd ours{::open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC)};
  if (!ours || ::setns(process, CLONE_NEWUTS) != 0)
    return errno;
  const int why = ::sethostname(name, std::strlen(name)) == 0 ? 0 : errno;
  if (::setns(ours.get(), CLONE_NEWUTS) != 0)
    std::abort(); // Every sandbox from now on would begin with this one's name.
  return why;
}

int resize_shm(pid_t pid, std::uint64_t bytes) {
  char path[64], size[32];
  std::snprintf(path, sizeof path, "/proc/%d/root/dev/shm", static_cast<int>(pid));
  std::snprintf(size, sizeof size, "%llu", static_cast<unsigned long long>(bytes));
  const unique_fd mounted{static_cast<int>(
    ::syscall(SYS_fspick, AT_FDCWD, path, FSPICK_CLOEXEC | FSPICK_SYMLINK_NOFOLLOW))};
  const bool done =
    mounted && ::syscall(SYS_fsconfig, mounted.get(), FSCONFIG_SET_STRING, "size", size, 0) == 0 &&
    ::syscall(SYS_fsconfig, mounted.get(), FSCONFIG_CMD_RECONFIGURE, nullptr, nullptr, 0) == 0;
  return done ? 0 : errno;
}

namespace {

/// A root that may not raise limits (a container's, say) may not touch those of other users either.
/// The user who has made its namespace may: no higher than they are.
int limit_one(pid_t pid, uid_t creator, std::uint32_t count) {
  // None of its own is what this process may have.
  rlimit both{count, count};
  if (count == 0)
    ::getrlimit(RLIMIT_NOFILE, &both);
  if (::prlimit(pid, RLIMIT_NOFILE, &both, nullptr) == 0)
    return 0;
  if (errno != EPERM || ::syscall(SYS_setresuid, -1, creator, -1) != 0)
    return errno;
  const int why = ::prlimit(pid, RLIMIT_NOFILE, &both, nullptr) == 0 ? 0 : errno;
  if (::syscall(SYS_setresuid, -1, 0, -1) != 0)
    std::abort(); // A spawner that is not root any more is none.
  return why;
}

} // namespace

int limit_open_files(pid_t pid, uid_t creator, std::uint32_t count) {
  if (const int why = limit_one(pid, creator, count); why != 0)
    return why;
  char path[64], children[256] = {};
  std::snprintf(path, sizeof path, "/proc/%d/task/%d/children", static_cast<int>(pid),
                static_cast<int>(pid));
  const unique_fd list{::open(path, O_RDONLY | O_CLOEXEC)};
  if (!list || ::read(list.get(), children, sizeof children - 1) < 0)
    return errno;
  char* rest = children;
  for (long child; (child = std::strtol(rest, &rest, 10)) > 0;)
    if (const int why = limit_one(static_cast<pid_t>(child), creator, count); why != 0)
      return why;
  return 0;
}

} // namespace insula::runtime::spawner
