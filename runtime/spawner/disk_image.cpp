#include "runtime/spawner/disk_image.hpp"

#include "runtime/spawner/disk_parts.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/loop.h>
#include <memory>
#include <optional>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

struct loop_device {
  std::string path;
  unique_fd open; ///< Keeps it attached until it is mounted.
};

/// The device that has this file already: the processes of an earlier spawner are on their way out,
/// and two devices for one file would each write what the other does not know of. None: no device
/// has it.
std::optional<loop_device> attached_loop(int file) {
  struct stat wanted {};
  const std::unique_ptr<DIR, int (*)(DIR*)> all{::opendir("/sys/block"), ::closedir};
  if (!all || ::fstat(file, &wanted) != 0)
    return std::nullopt;
  while (const dirent* each = ::readdir(all.get())) {
    if (std::strncmp(each->d_name, "loop", 4) != 0)
      continue;
    const auto path = std::string{"/dev/"} + each->d_name;
    unique_fd loop{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
    loop_info64 is{};
    if (loop && ::ioctl(loop.get(), LOOP_GET_STATUS64, &is) == 0 && is.lo_inode == wanted.st_ino &&
        is.lo_device == wanted.st_dev)
      return loop_device{path, std::move(loop)};
  }
  return std::nullopt;
}

/// Attaches `file` to a free loop device that detaches itself once nothing uses it any more.
result<loop_device> attach_loop(int file) {
  const unique_fd control{::open("/dev/loop-control", O_RDWR | O_CLOEXEC)};
  if (!control)
    return failed_disk("/dev/loop-control");
  for (int attempt = 0; attempt < 64; ++attempt) {
    const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0)
      return failed_disk("no free loop device");
    const auto path = "/dev/loop" + std::to_string(number);
    unique_fd loop{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
    if (!loop)
      return failed_disk(path);
    loop_config config{};
    config.fd = static_cast<std::uint32_t>(file);
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
    if (::ioctl(loop.get(), LOOP_CONFIGURE, &config) == 0)
      return loop_device{path, std::move(loop)};
    if (errno != EBUSY) // Else somebody was quicker.
      return failed_disk(path);
  }
  return error{errc::launch_failed, "no loop device could be taken"};
}

/// Not of the machine or of the kernel, but of the bytes.
bool is_broken(int error) {
  return error == EINVAL || error == EIO || error == EUCLEAN || error == EBADMSG ||
         error == ENOENT || error == EFBIG || error == ENODATA;
}

} // namespace

result<unique_fd> new_image(const std::string& image, std::uint64_t bytes) {
  const auto half = image + ".new";
  ::unlink(half.c_str());
  unique_fd file{::open(half.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return failed_disk(half);
  const char* const argv[] = {"mkfs.btrfs", "-q", "-m", "single", half.c_str(), nullptr};
  if (const int status = run_program(argv); status != 0)
    return error{errc::launch_failed,
                 "mkfs.btrfs (package btrfs-progs) ended with " + std::to_string(status)};
  if (::fsync(file.get()) != 0 || ::rename(half.c_str(), image.c_str()) != 0)
    return failed_disk(image);
  return file;
}

result<unique_fd> mount_image(int file, const std::string& target, std::uint64_t bytes) {
  struct stat is {};
  if (::fstat(file, &is) != 0 || (static_cast<std::uint64_t>(is.st_size) < bytes &&
                                  ::ftruncate(file, static_cast<off_t>(bytes)) != 0))
    return failed_disk("the image of disks");
  auto device = attached_loop(file);
  if (!device) {
    auto made = attach_loop(file);
    if (!made)
      return made.reason();
    device = std::move(*made);
  }
  static_cast<void>(::ioctl(device->open.get(), LOOP_SET_CAPACITY)); // It may have been smaller.
  if (::mount(device->path.c_str(), target.c_str(), "btrfs", MS_NOATIME | MS_NODEV | MS_NOSUID,
              "discard=async") != 0) {
    auto why = failed_disk("mounting the image of disks");
    if (is_broken(errno))
      why.code = errc::io_failed;
    return why;
  }
  unique_fd top{::open(target.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  btrfs_ioctl_vol_args all{};
  std::snprintf(all.name, sizeof all.name, "1:max");
  if (!top || ::ioctl(top.get(), BTRFS_IOC_RESIZE, &all) != 0)
    return failed_disk(target);
  return top;
}

} // namespace insula::runtime::spawner
