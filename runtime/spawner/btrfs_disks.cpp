#include "base/log.hpp"
#include "base/unique_fd.hpp"
#include "runtime/spawner/btrfs_volumes.hpp"
#include "runtime/spawner/disk.hpp"
#include "runtime/spawner/disk_image.hpp"
#include "runtime/spawner/disk_parts.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <deque>
#include <fcntl.h>
#include <filesystem>
#include <linux/btrfs.h>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

// In <linux/btrfs.h> from 6.7 on.
constexpr std::uint64_t enable_simple_quotas = 4;

constexpr std::string_view leftover_prefix = "gone-", half_made_prefix = "half-";

class btrfs_copy final : public disk_copy {
public:
  btrfs_copy(int top, unique_fd from, const std::string& name)
      : top_(top)
      , from_(std::move(from))
      , name_(std::string{snapshot_prefix} + name)
      , first_(std::string{leftover_prefix} + name) {}

  /// A snapshot writes what is dirty of its own subvolume, and of no other one. This one is thrown
  /// away.
  result<void> flush() override {
    if (!copy_volume(top_, from_.get(), first_, true))
      return copy_failed();
    remove_copy(top_, first_);
    return {};
  }

  result<std::uint64_t> take() override {
    if (!copy_volume(top_, from_.get(), name_, true))
      return copy_failed();
    return charged_bytes(top_, tree_of(from_.get()));
  }

private:
  const int top_; ///< The pool's, which is there for longer.
  const unique_fd from_;
  const std::string name_, first_;
};

class btrfs_pool final : public disk_pool {
public:
  btrfs_pool(unique_fd top, std::uint64_t pool_bytes)
      : top_(std::move(top))
      , most_(pool_bytes / 2)
      , ready_(top_.get()) {}

  result<std::unique_ptr<disk_copy>> copy(std::uint32_t slot, const std::string& name) override {
    if (open_snapshot(name))
      return error{errc::already_exists, "there is a snapshot " + name};
    auto from = open(slot);
    if (!from)
      return from.reason();
    return std::unique_ptr<disk_copy>{
      std::make_unique<btrfs_copy>(top_.get(), std::move(*from), name)};
  }

  result<unique_fd> open(std::uint32_t slot) override {
    unique_fd there{
      ::openat(top_.get(), name_of_slot(slot).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!there)
      return error{errc::not_found, "there is no such disk"};
    return there;
  }

  result<unique_fd> open_snapshot(const std::string& name) override {
    auto there = open_copy(top_.get(), std::string{snapshot_prefix} + name);
    if (!there)
      return error{errc::not_found, "there is no snapshot " + name};
    return there;
  }

  bool drop_snapshot(const std::string& name) override {
    ready_.drop(name);
    return remove_copy(top_.get(), std::string{snapshot_prefix} + name);
  }

  std::vector<std::string> snapshots() const override {
    return without_prefix(names_with(top_.get(), snapshot_prefix), snapshot_prefix);
  }

  bool keeps_snapshots() const override { return true; }

  result<unique_fd> create(std::uint32_t slot, std::uint64_t wanted_bytes) override {
    auto made = make(name_of_slot(slot), wanted_bytes);
    if (made && !make_overlay_directories(made->get())) {
      auto why = failed_disk("preparing a subvolume");
      destroy(slot);
      return why;
    }
    return made;
  }

  result<unique_fd> create_from(const std::string& snapshot, std::uint32_t slot,
                                std::uint64_t bytes) override {
    const auto from = open_snapshot(snapshot);
    if (!from)
      return from.reason();
    const auto name = name_of_slot(slot);
    const bool is_ready = ready_.take(snapshot, name);
    if (const auto half = std::string{half_made_prefix} + name;
        !is_ready &&
        (!copy_volume(top_.get(), from->get(), half, false) || !move_copy(top_.get(), half, name)))
      return copy_failed("making a disk of a snapshot");
    unique_fd made{::openat(top_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (made && limit(made.get(), bytes) && (is_ready || forget_mount(made.get())))
      return made;
    auto why = copy_failed("preparing a disk of a snapshot");
    made.reset();
    remove_volume(top_.get(), name);
    return why;
  }

  void expect_use(const std::string& snapshot) override { ready_.make(snapshot); }

  result<unique_fd> create_shared(const std::string& name, std::uint64_t bytes) override {
    return make(name, std::min(bytes, most_));
  }

  result<void> resize(std::uint32_t slot, std::uint64_t bytes) override {
    const unique_fd made{
      ::openat(top_.get(), name_of_slot(slot).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!made || !limit(made.get(), bytes))
      return failed_disk("limiting a subvolume");
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
    if (!remove_volume(top_.get(), name))
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
      return failed_disk("making a subvolume");
    unique_fd made{::openat(top_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!made || !limit(made.get(), bytes)) {
      auto why = failed_disk("preparing a subvolume");
      destroy_shared(name);
      return why;
    }
    if (const auto tree = tree_of(made.get()); tree != 0)
      live_.push_back({name, tree});
    return made;
  }

  bool limit(int subvolume, std::uint64_t wanted) {
    if (wanted > most_ && !told_.exchange(true))
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
  std::atomic<bool> told_ = false;
  std::deque<volume> live_;
  std::deque<std::uint64_t> retired_;
  ready_copies ready_;
};

/// All but the snapshots was an earlier spawner's.
void sweep(int top, const std::string& path) {
  for (const auto& each : names_with(top, "")) {
    if (each == "." || each == "..")
      continue;
    if (each.starts_with(snapshot_prefix)) {
      ::unlinkat(top, each.c_str(), AT_REMOVEDIR); // One that was not taken is empty.
      continue;
    }
    if (remove_copy(top, each))
      continue;
    // Not a volume, or one that is still busy: the next spawner tries again.
    const auto away =
      each.starts_with(leftover_prefix) ? each : std::string{leftover_prefix} + each;
    std::error_code ignored;
    if (::renameat(top, each.c_str(), top, away.c_str()) == 0)
      std::filesystem::remove_all(path + "/" + away, ignored);
  }
}

} // namespace

result<std::unique_ptr<disk_pool>> make_btrfs_pool(const std::string& state_directory,
                                                   std::uint64_t bytes) {
  const auto image = state_directory + "/disk.btrfs";
  const auto target = state_directory + "/disk";
  if (::mkdir(target.c_str(), 0700) != 0 && errno != EEXIST)
    return failed_disk(target);
  unique_fd file{::open(image.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC)};
  if (!file && errno != ENOENT)
    return failed_disk(image);
  auto top = file ? mount_image(file.get(), target, bytes) : result<unique_fd>{unique_fd{}};
  if (!top) {
    if (top.reason().code != errc::io_failed)
      return top.reason();
    // Its snapshots are lost here; a person may be able to read more of it than the kernel.
    const auto aside = image + ".broken-" + std::to_string(std::time(nullptr));
    log::error("spawner.disk_broken", {{"reason", top.reason().message}, {"kept_as", aside}});
    if (::rename(image.c_str(), aside.c_str()) != 0)
      return failed_disk(aside);
  }
  if (!top || !*top) {
    auto made = new_image(image, bytes);
    if (!made)
      return made.reason();
    top = mount_image(made->get(), target, bytes);
    if (!top)
      return top.reason();
  }
  // Simple quotas charge a write to the subvolume that made it, and cost nothing (6.7 and later);
  // the older kind counts exactly and slows down with snapshots.
  btrfs_ioctl_quota_ctl_args quotas{};
  quotas.cmd = enable_simple_quotas;
  if (::ioctl(top->get(), BTRFS_IOC_QUOTA_CTL, &quotas) != 0) {
    quotas.cmd = BTRFS_QUOTA_CTL_ENABLE;
    if (::ioctl(top->get(), BTRFS_IOC_QUOTA_CTL, &quotas) != 0)
      return failed_disk("turning quotas on");
  }
  sweep(top->get(), target);
  return std::unique_ptr<disk_pool>{std::make_unique<btrfs_pool>(std::move(*top), bytes)};
}

} // namespace insula::runtime::spawner
