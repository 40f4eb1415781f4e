#include "runtime/spawner/claim.hpp"

#include "base/log.hpp"
#include "base/unique_fd.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <string>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

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

int resize_shm(pid_t pid, const memory_shares& given) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/root/dev/shm", static_cast<int>(pid));
  const auto size = std::to_string(given.shm_bytes), files = std::to_string(given.shm_files);
  const unique_fd mounted{static_cast<int>(
    ::syscall(SYS_fspick, AT_FDCWD, path, FSPICK_CLOEXEC | FSPICK_SYMLINK_NOFOLLOW))};
  const auto set = [&](const char* key, const std::string& value) {
    return ::syscall(SYS_fsconfig, mounted.get(), FSCONFIG_SET_STRING, key, value.c_str(), 0) == 0;
  };
  const bool done =
    mounted && set("size", size) && set("nr_inodes", files) &&
    ::syscall(SYS_fsconfig, mounted.get(), FSCONFIG_CMD_RECONFIGURE, nullptr, nullptr, 0) == 0;
  return done ? 0 : errno;
}

namespace {

/// In the namespace of whoever calls it.
bool write_system_v(const memory_shares& given) {
  const auto bytes = std::to_string(given.segments);
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  // A set of few takes as much as eight.
  const auto sets = std::clamp<std::uint64_t>(given.semaphores / 8, 1, 32'000);
  for (const auto& [file, value] :
       {std::pair<const char*, std::string>{"shmall", std::to_string(given.segments / page)},
        {"shmmax", bytes},
        {"msgmni", std::to_string(given.queues)},
        {"sem", "32000 " + std::to_string(given.semaphores) + " 500 " + std::to_string(sets)}}) {
    const unique_fd open{
      ::open((std::string{"/proc/sys/kernel/"} + file).c_str(), O_WRONLY | O_CLOEXEC)};
    if (!open || ::write(open.get(), value.data(), value.size()) < 0)
      return false;
  }
  return true;
}

} // namespace

int limit_system_v(int process, uid_t creator, const memory_shares& given) {
  const unique_fd ours{::open("/proc/self/ns/ipc", O_RDONLY | O_CLOEXEC)};
  if (!ours || ::setns(process, CLONE_NEWIPC) != 0)
    return errno;
  // Since Linux 6.9 they are those of the user who is root in there, before that the machine's
  // root's.
  int why = 0;
  if (::syscall(SYS_setresuid, -1, creator, -1) != 0 || !write_system_v(given))
    why = errno;
  if (::syscall(SYS_setresuid, -1, 0, -1) != 0)
    std::abort(); // A spawner that is not root any more is none.
  if (why == EACCES || why == EPERM)
    why = write_system_v(given) ? 0 : errno;
  if (::setns(ours.get(), CLONE_NEWIPC) != 0)
    std::abort(); // It would be in a sandbox.
  static bool warned = false;
  if (why != 0 && !std::exchange(warned, true))
    log::warning("spawner.system_v_unlimited",
                 {{"reason", std::strerror(why)},
                  {"consequence", "what System V keeps can fill a sandbox's memory"}});
  return 0;
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
