#pragma once

#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <linux/mount.h>
#include <stdexcept>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

namespace insula::test {

/// A file system of `bytes` that is mounted nowhere: it goes with its last descriptor, whatever
/// happens. Needs root.
class small_disk {
public:
  explicit small_disk(std::size_t bytes) {
    const unique_fd context{static_cast<int>(::syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC))};
    const auto size = std::to_string(bytes);
    if (!context ||
        ::syscall(SYS_fsconfig, context.get(), FSCONFIG_SET_STRING, "size", size.c_str(), 0) != 0 ||
        ::syscall(SYS_fsconfig, context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
      throw std::runtime_error("no small disk; are we root?");
    mount_.reset(static_cast<int>(::syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, 0)));
  }

  std::string path() const { return "/proc/self/fd/" + std::to_string(mount_.get()); }

  /// Not while something on it is open for writing.
  void make_read_only(bool yes) const {
    mount_attr change{};
    (yes ? change.attr_set : change.attr_clr) = MOUNT_ATTR_RDONLY;
    if (::syscall(SYS_mount_setattr, mount_.get(), "", AT_EMPTY_PATH, &change, sizeof(change)) != 0)
      throw std::runtime_error("the small disk stays as it is");
  }

private:
  unique_fd mount_;
};

} // namespace insula::test
