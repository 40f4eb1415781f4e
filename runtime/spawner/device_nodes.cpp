#include "runtime/spawner/device_nodes.hpp"

#include "base/hex.hpp"

#include <algorithm>
#include <array>
#include <fcntl.h>
#include <linux/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

struct node {
  const char* name;
  unsigned major, minor; ///< Linux never changes them.
};
constexpr std::array nodes{node{"null", 1, 3},   node{"zero", 1, 5},    node{"full", 1, 7},
                           node{"random", 1, 8}, node{"urandom", 1, 9}, node{"tty", 5, 0}};

struct link {
  const char* name;
  const char* target;
};
constexpr std::array links{link{"ptmx", "pts/ptmx"}, link{"fd", "/proc/self/fd"},
                           link{"stdin", "/proc/self/fd/0"}, link{"stdout", "/proc/self/fd/1"},
                           link{"stderr", "/proc/self/fd/2"}};

unique_fd empty_file_system() {
  const unique_fd made{static_cast<int>(::syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC))};
  const auto set = [&](const char* key, const char* value) {
    return ::syscall(SYS_fsconfig, made.get(), FSCONFIG_SET_STRING, key, value, 0) == 0;
  };
  if (!made || !set("source", "tmpfs") || !set("mode", "755") || !set("size", "64k") ||
      !set("nr_inodes", "64") ||
      ::syscall(SYS_fsconfig, made.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return {};
  return unique_fd{static_cast<int>(
    ::syscall(SYS_fsmount, made.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC))};
}

/// 32 digits as systemd and D-Bus have them, which say which machine this is.
bool make_machine_id(int directory) {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return false;
  const auto text = to_hex(bytes) + '\n';
  const unique_fd file{
    ::openat(directory, "machine-id", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444)};
  return file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

} // namespace

unique_fd make_devices(std::uint32_t root_group) {
  auto devices = empty_file_system();
  if (!devices)
    return {};
  const int in = devices.get();
  const auto old_mask = ::umask(0);
  const bool filled =
    std::all_of(nodes.begin(), nodes.end(),
                [in](const node& each) {
                  return ::mknodat(in, each.name, S_IFCHR | 0666,
                                   makedev(each.major, each.minor)) == 0;
                }) &&
    std::all_of(links.begin(), links.end(),
                [in](const link& each) { return ::symlinkat(each.target, in, each.name) == 0; }) &&
    make_machine_id(in) && ::mkdirat(in, "pts", 0755) == 0 && ::mkdirat(in, "shm", 0755) == 0 &&
    ::fchownat(in, ".", 0, root_group, AT_SYMLINK_NOFOLLOW) == 0 &&
    ::fchmodat(in, ".", 01775, 0) == 0;
  ::umask(old_mask);
  if (!filled)
    devices.reset();
  return devices;
}

} // namespace insula::runtime::spawner
