#include "runtime/spawner/device_nodes.hpp"

#include "base/unique_fd.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

/// Their numbers, which Linux never changes, in the order of device_names.
constexpr std::array<std::array<unsigned, 2>, device_names.size()> device_numbers{
  {{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}}};

struct directory_name {
  explicit directory_name(std::uint32_t slot) {
    std::snprintf(text, sizeof text, "%s/%u", devices_directory, slot);
  }
  char text[32];
};

} // namespace

bool prepare_devices() {
  return ::mkdir(devices_directory, 0755) == 0 &&
         ::mount("devices", devices_directory, "tmpfs", MS_NOSUID | MS_NOEXEC,
                 "mode=755,size=64k,nr_inodes=0") == 0;
}

bool make_devices(std::uint32_t slot, std::uint32_t owner) {
  const directory_name where{slot};
  remove_devices(slot);
  if (::mkdir(where.text, 0755) != 0)
    return false;
  const unique_fd directory{::open(where.text, O_PATH | O_DIRECTORY | O_CLOEXEC)};
  bool made = static_cast<bool>(directory);
  const auto old_mask = ::umask(0);
  for (std::size_t i = 0; i < device_names.size() && made; ++i)
    made = ::mknodat(directory.get(), device_names[i], S_IFCHR | 0666,
                     makedev(device_numbers[i][0], device_numbers[i][1])) == 0 &&
           ::fchownat(directory.get(), device_names[i], owner, owner, AT_SYMLINK_NOFOLLOW) == 0;
  ::umask(old_mask);
  if (made)
    return true;
  const int why = errno;
  remove_devices(slot);
  errno = why;
  return false;
}

void remove_devices(std::uint32_t slot) {
  const directory_name where{slot};
  const unique_fd directory{::open(where.text, O_PATH | O_DIRECTORY | O_CLOEXEC)};
  if (!directory)
    return;
  for (const char* each : device_names)
    ::unlinkat(directory.get(), each, 0);
  ::rmdir(where.text);
}

} // namespace insula::runtime::spawner
