#include "runtime/spawner/disk.hpp"

#include "base/log.hpp"
#include "base/unique_fd.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/loop.h>
#include <map>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

// In <linux/btrfs.h> from 6.7 on.
constexpr std::uint64_t enable_simple_quotas = 4;

// In <linux/btrfs_tree.h>, which does not compile as C++ here.
constexpr std::uint64_t first_free_object = 256;

error failed(const std::string& what) {
  return {errc::launch_failed, what + ": " + std::strerror(errno)};
}

std::string name_of_slot(std::uint32_t slot) {
  return "sb-" + std::to_string(slot);
}

/// The directories below a sandbox's own: upper and work of the root overlay, upper and work of the
/// one on /usr.
bool make_overlay_directories(int directory) {
  for (const char* each : {"u", "w", "uu", "uw"})
    if (::mkdirat(directory, each, 0755) != 0)
      return false;
  return true;
}

int run(const char* const* argv) {
  pid_t child = 0;
  int status = 0;
  static const char* environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", nullptr};
  posix_spawn_file_actions_t quiet;
  ::posix_spawn_file_actions_init(&quiet);
  for (const int stream : {0, 1, 2})
    ::posix_spawn_file_actions_addopen(&quiet, stream, "/dev/null", O_RDWR, 0);
  const int failed_to_start = ::posix_spawnp(
    &child, argv[0], &quiet, nullptr, const_cast<char**>(argv), const_cast<char**>(environment));
  ::posix_spawn_file_actions_destroy(&quiet);
  if (failed_to_start != 0)
    return -1;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct loop_device {
  std::string path;
  unique_fd open; ///< Keeps it attached until it is mounted.
};

/// Attaches `file` to a free loop device that detaches itself once nothing uses it any more.
result<loop_device> attach_loop(int file) {
  const unique_fd control{::open("/dev/loop-control", O_RDWR | O_CLOEXEC)};
  if (!control)
    return failed("/dev/loop-control");
  for (int attempt = 0; attempt < 64; ++attempt) {
    const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0)
      return failed("no free loop device");
    const auto path = "/dev/loop" + std::to_string(number);
    unique_fd loop{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
    if (!loop)
      return failed(path);
    loop_config config{};
    config.fd = static_cast<std::uint32_t>(file);
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
    if (::ioctl(loop.get(), LOOP_CONFIGURE, &config) == 0)
      return loop_device{path, std::move(loop)};
    if (errno != EBUSY) // Else somebody was quicker.
      return failed(path);
  }
  return error{errc::launch_failed, "no loop device could be taken"};
}

class btrfs_pool final : public disk_pool {
public:
  btrfs_pool(unique_fd top, std::uint64_t pool_bytes)
      : top_(std::move(top))
      , most_(pool_bytes / 2) {}

  result<unique_fd> create(std::uint32_t slot, std::uint64_t wanted_bytes) override {
    auto made = make(name_of_slot(slot), wanted_bytes);
    if (made && !make_overlay_directories(made->get())) {
      auto why = failed("preparing a subvolume");
      destroy(slot);
      return why;
    }
    return made;
  }

  result<unique_fd> create_shared(const std::string& name, std::uint64_t bytes) override {
    return make(name, std::min(bytes, most_));
  }

  result<void> resize(std::uint32_t slot, std::uint64_t bytes) override {
    const unique_fd made{
      ::openat(top_.get(), name_of_slot(slot).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!made || !limit(made.get(), bytes))
      return failed("limiting a subvolume");
    return {};
  }

  /// A file beside the overlays' directories, where nobody inside reaches it, has as much reserved
  /// and nothing written: the quota decides, and the image does not grow.
  bool charge(std::uint32_t slot, std::uint64_t bytes) override {
    const auto name = name_of_slot(slot) + "/charged";
    const unique_fd file{::openat(top_.get(), name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
    struct stat before {};
    if (!file || ::fstat(file.get(), &before) != 0)
      return false;
    const auto wanted = static_cast<off_t>(bytes);
    if (wanted <= before.st_size)
      return ::ftruncate(file.get(), wanted) == 0;
    if (::fallocate(file.get(), 0, before.st_size, wanted - before.st_size) == 0)
      return true;
    const int why = errno;
    [[maybe_unused]] const auto as_before = ::ftruncate(file.get(), before.st_size);
    errno = why;
    return false;
  }

  bool destroy(std::uint32_t slot) override { return destroy_shared(name_of_slot(slot)); }

  bool destroy_shared(const std::string& name) override {
    btrfs_ioctl_vol_args unwanted{};
    std::snprintf(unwanted.name, sizeof unwanted.name, "%s", name.c_str());
    if (::ioctl(top_.get(), BTRFS_IOC_SNAP_DESTROY, &unwanted) != 0 && errno != ENOENT)
      return false;
    for (auto at = live_.begin(); at != live_.end(); ++at)
      if (at->name == name) {
        retired_.push_back(at->tree);
        live_.erase(at);
        break;
      }
    forget_quotas();
    return true;
  }

  bool in_memory() const override { return false; }
  const char* name() const override { return "btrfs"; }

private:
  struct volume {
    std::string name;
    std::uint64_t tree;
  };

  result<unique_fd> make(const std::string& name, std::uint64_t bytes) {
    btrfs_ioctl_vol_args wanted{};
    std::snprintf(wanted.name, sizeof wanted.name, "%s", name.c_str());
    if (::ioctl(top_.get(), BTRFS_IOC_SUBVOL_CREATE, &wanted) != 0)
      return failed("making a subvolume");
    unique_fd made{::openat(top_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!made || !limit(made.get(), bytes)) {
      auto why = failed("preparing a subvolume");
      destroy_shared(name);
      return why;
    }
    btrfs_ioctl_ino_lookup_args lookup{};
    lookup.objectid = first_free_object; // The subvolume's own root; the answer names its tree.
    if (::ioctl(made.get(), BTRFS_IOC_INO_LOOKUP, &lookup) == 0)
      live_.push_back({name, lookup.treeid});
    return made;
  }

  bool limit(int subvolume, std::uint64_t wanted) {
    if (wanted > most_ && !std::exchange(told_, true))
      log::warning("spawner.small_disk", {{"limit_bytes", wanted}, {"instead", most_}});
    btrfs_ioctl_qgroup_limit_args limit{};
    limit.lim.flags = BTRFS_QGROUP_LIMIT_MAX_RFER;
    limit.lim.max_rfer = wanted > 0 ? std::min(wanted, most_) : most_;
    return ::ioctl(subvolume, BTRFS_IOC_QGROUP_LIMIT, &limit) == 0;
  }

  /// A quota group outlives its subvolume, and can go only once the kernel's cleaner has freed what
  /// was in it. A few are tried each time; newer kernels do it by themselves.
  void forget_quotas() {
    for (std::size_t tries = std::min<std::size_t>(retired_.size(), 4); tries > 0; --tries) {
      btrfs_ioctl_qgroup_create_args group{};
      group.create = 0;
      group.qgroupid = retired_.front();
      retired_.pop_front();
      if (::ioctl(top_.get(), BTRFS_IOC_QGROUP_CREATE, &group) != 0 && errno == EBUSY)
        retired_.push_back(group.qgroupid);
    }
    if (retired_.size() > 65'536)
      retired_.pop_front();
  }

  unique_fd top_;
  const std::uint64_t most_; ///< One sandbox never gets more: others need room as well.
  bool told_ = false;
  std::deque<volume> live_;
  std::deque<std::uint64_t> retired_;
};

class tmpfs_pool final : public disk_pool {
public:
  explicit tmpfs_pool(std::string path)
      : path_(std::move(path)) {}

  result<unique_fd> create(std::uint32_t slot, std::uint64_t bytes) override {
    auto made = create_shared(name_of_slot(slot), bytes);
    if (made && !make_overlay_directories(made->get())) {
      auto why = failed(path_ + "/" + name_of_slot(slot));
      destroy(slot);
      return why;
    }
    limits_[slot] = bytes;
    return made;
  }

  result<unique_fd> create_shared(const std::string& name, std::uint64_t bytes) override {
    const auto path = path_ + "/" + name;
    const auto options = "mode=755" + ceilings(bytes, bytes);
    if (::mkdir(path.c_str(), 0755) != 0)
      return failed(path);
    unique_fd made;
    if (::mount("insula", path.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) == 0)
      made.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (made)
      return made;
    auto why = failed(path);
    destroy_shared(name);
    return why;
  }

  result<void> resize(std::uint32_t slot, std::uint64_t bytes) override {
    if (!give(slot, bytes, bytes))
      return failed(path_ + "/" + name_of_slot(slot));
    limits_[slot] = bytes;
    return {};
  }

  /// What is elsewhere takes none of its memory, so it has less of that. The kernel refuses what is
  /// less than it holds.
  bool charge(std::uint32_t slot, std::uint64_t bytes) override {
    const auto limit = limits_[slot];
    if (limit == 0)
      return true;
    errno = ENOSPC;
    return bytes < limit && give(slot, limit - bytes, limit);
  }

  bool destroy(std::uint32_t slot) override {
    limits_.erase(slot);
    return destroy_shared(name_of_slot(slot));
  }

  bool destroy_shared(const std::string& name) override {
    const auto path = path_ + "/" + name;
    ::umount2(path.c_str(), MNT_DETACH);
    return ::rmdir(path.c_str()) == 0 || errno == ENOENT;
  }

  bool in_memory() const override { return true; }
  const char* name() const override { return "tmpfs"; }

private:
  /// Each file takes some of the kernel's memory, however small it is. 0: as much as there is.
  static std::string ceilings(std::uint64_t bytes, std::uint64_t limit) {
    constexpr std::uint64_t bytes_per_file = 8192, fewest_files = 1024;
    const auto files = limit > 0 ? std::max(limit / bytes_per_file, fewest_files) : 0;
    return ",size=" + std::to_string(bytes) + ",nr_inodes=" + std::to_string(files);
  }

  bool give(std::uint32_t slot, std::uint64_t bytes, std::uint64_t limit) {
    const auto path = path_ + "/" + name_of_slot(slot);
    return ::mount(nullptr, path.c_str(), nullptr, MS_REMOUNT | MS_NOSUID | MS_NODEV,
                   ceilings(bytes, limit).c_str() + 1) == 0;
  }

  std::string path_;
  std::map<std::uint32_t, std::uint64_t> limits_; ///< 0: none.
};

} // namespace

result<std::unique_ptr<disk_pool>> make_btrfs_pool(const std::string& state_directory,
                                                   std::uint64_t bytes) {
  const auto image = state_directory + "/disk.btrfs";
  const auto target = state_directory + "/disk";
  // What an earlier spawner kept here ended with it. Its file may still be in use for a moment,
  // hence a new one.
  ::unlink(image.c_str());
  const unique_fd file{::open(image.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return failed(image);
  const char* const argv[] = {"mkfs.btrfs", "-q", "-m", "single", image.c_str(), nullptr};
  if (const int status = run(argv); status != 0)
    return error{errc::launch_failed,
                 "mkfs.btrfs (package btrfs-progs) ended with " + std::to_string(status)};
  const auto device = attach_loop(file.get());
  if (!device)
    return device.reason();
  if (::mkdir(target.c_str(), 0700) != 0 && errno != EEXIST)
    return failed(target);
  // No barriers: the image is made anew with every spawner, so nothing has to outlive a power cut,
  // and kernels before 6.2 write a whole transaction for each new subvolume.
  if (::mount(device->path.c_str(), target.c_str(), "btrfs", MS_NOATIME | MS_NODEV | MS_NOSUID,
              "discard=async,nobarrier") != 0)
    return failed("mounting " + image);
  unique_fd top{::open(target.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!top)
    return failed(target);
  // Simple quotas charge a write to the subvolume that made it, and cost nothing (6.7 and later);
  // the older kind counts exactly and slows down with snapshots.
  btrfs_ioctl_quota_ctl_args quotas{};
  quotas.cmd = enable_simple_quotas;
  if (::ioctl(top.get(), BTRFS_IOC_QUOTA_CTL, &quotas) != 0) {
    quotas.cmd = BTRFS_QUOTA_CTL_ENABLE;
    if (::ioctl(top.get(), BTRFS_IOC_QUOTA_CTL, &quotas) != 0)
      return failed("turning quotas on");
  }
  return std::unique_ptr<disk_pool>{std::make_unique<btrfs_pool>(std::move(top), bytes)};
}

result<std::unique_ptr<disk_pool>> make_tmpfs_pool(const std::string& state_directory) {
  const auto target = state_directory + "/disk";
  if (::mkdir(target.c_str(), 0700) != 0 && errno != EEXIST)
    return failed(target);
  if (::mount("insula", target.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=700,size=4m") != 0)
    return failed(target);
  return std::unique_ptr<disk_pool>{std::make_unique<tmpfs_pool>(target)};
}

} // namespace insula::runtime::spawner
