#include "runtime/spawner/btrfs_volumes.hpp"

#include "runtime/spawner/disk_parts.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <endian.h>
#include <fcntl.h>
#include <filesystem>
#include <linux/btrfs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace insula::runtime::spawner {

namespace {

// In <linux/btrfs_tree.h>, which does not compile as C++ here.
constexpr std::uint64_t first_free_object = 256, quota_tree = 8;
constexpr std::uint32_t quota_usage = 242;

constexpr const char* volume_name = "v";

std::string name_of_ready(const std::string& snapshot) {
  return "ready-" + snapshot;
}

bool is_volume(int file) {
  struct stat is {};
  return ::fstat(file, &is) == 0 && is.st_ino == first_free_object;
}

unique_fd open_directory(int top, const std::string& path) {
  return unique_fd{::openat(top, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
}

} // namespace

bool remove_volume(int directory, const std::string& name) {
  btrfs_ioctl_vol_args unwanted{};
  std::snprintf(unwanted.name, sizeof unwanted.name, "%s", name.c_str());
  return ::ioctl(directory, BTRFS_IOC_SNAP_DESTROY, &unwanted) == 0 || errno == ENOENT;
}

bool copy_volume(int top, int from, const std::string& name, bool read_only) {
  if (::mkdirat(top, name.c_str(), 0700) != 0)
    return false;
  btrfs_ioctl_vol_args_v2 wanted{};
  wanted.fd = from;
  wanted.flags = read_only ? BTRFS_SUBVOL_RDONLY : 0;
  std::snprintf(wanted.name, sizeof wanted.name, "%s", volume_name);
  const auto in = open_directory(top, name);
  if (in && ::ioctl(in.get(), BTRFS_IOC_SNAP_CREATE_V2, &wanted) == 0)
    return true;
  const int why = errno;
  ::unlinkat(top, name.c_str(), AT_REMOVEDIR);
  errno = why;
  return false;
}

unique_fd open_copy(int top, const std::string& name) {
  auto in = open_directory(top, name);
  if (!in)
    return in;
  auto made = open_directory(in.get(), volume_name);
  if (made || !is_volume(in.get()))
    return made;
  return in;
}

bool remove_copy(int top, const std::string& name) {
  const auto in = open_directory(top, name);
  if (!in)
    return errno == ENOENT;
  if (is_volume(in.get()))
    return remove_volume(top, name);
  return remove_volume(in.get(), volume_name) &&
         (::unlinkat(top, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT);
}

std::uint64_t tree_of(int volume) {
  btrfs_ioctl_ino_lookup_args lookup{};
  lookup.objectid = first_free_object; // The subvolume's own root; the answer names its tree.
  return ::ioctl(volume, BTRFS_IOC_INO_LOOKUP, &lookup) == 0 ? lookup.treeid : 0;
}

std::uint64_t charged_bytes(int top, std::uint64_t tree) {
  btrfs_ioctl_search_args asked{};
  auto& key = asked.key;
  key.tree_id = quota_tree;
  key.min_objectid = key.max_objectid = 0;
  key.min_type = key.max_type = quota_usage;
  key.min_offset = key.max_offset = tree;
  key.max_transid = UINT64_MAX;
  key.nr_items = 1;
  if (::ioctl(top, BTRFS_IOC_TREE_SEARCH, &asked) != 0 || asked.key.nr_items == 0)
    return 0;
  std::uint64_t usage[2]; // The generation, then what is referred to.
  static_assert(sizeof usage <= sizeof asked.buf - sizeof(btrfs_ioctl_search_header));
  std::memcpy(usage, asked.buf + sizeof(btrfs_ioctl_search_header), sizeof usage);
  return le64toh(usage[1]);
}

bool forget_mount(int disk) {
  if (::unlinkat(disk, "charged", 0) != 0 && errno != ENOENT)
    return false;
  const auto path = "/proc/self/fd/" + std::to_string(disk) + "/";
  for (const char* each : {"w", "uw"}) {
    std::error_code failed;
    std::filesystem::remove_all(path + each, failed);
    if (failed) {
      errno = failed.value();
      return false;
    }
    if (::mkdirat(disk, each, 0755) != 0)
      return false;
  }
  return true;
}

bool move_copy(int top, const std::string& name, const std::string& to) {
  if (::renameat(top, (name + '/' + volume_name).c_str(), top, to.c_str()) != 0) {
    const int why = errno;
    remove_copy(top, name);
    errno = why;
    return false;
  }
  ::unlinkat(top, name.c_str(), AT_REMOVEDIR);
  return true;
}

// ---- Copies for the next sandbox

/// With the guard. The name of one that is to be removed; empty: none is.
std::string ready_copies::make_room() {
  if (made_.size() < most)
    return {};
  auto oldest = std::move(made_.front());
  made_.pop_front();
  all_.erase(oldest);
  return oldest;
}

void ready_copies::make(const std::string& snapshot) {
  std::string unneeded;
  {
    const std::lock_guard hold{guard_};
    if (!all_.emplace(snapshot, copy{}).second)
      return;
    unneeded = make_room();
  }
  if (!unneeded.empty())
    remove_copy(top_, name_of_ready(unneeded));
  const auto name = name_of_ready(snapshot);
  const auto from = open_copy(top_, std::string{snapshot_prefix} + snapshot);
  bool made = from && copy_volume(top_, from.get(), name, false);
  if (const auto copied = made ? open_copy(top_, name) : unique_fd{}; made)
    made = copied && forget_mount(copied.get());
  bool unwanted = false;
  {
    const std::lock_guard hold{guard_};
    const auto at = all_.find(snapshot);
    unwanted = !made || at->second.unwanted;
    if (unwanted)
      all_.erase(at);
    else
      at->second.made = true;
    if (!unwanted && !at->second.awaited)
      made_.push_back(snapshot);
  }
  if (unwanted)
    remove_copy(top_, name);
  news_.notify_all();
}

bool ready_copies::take(const std::string& snapshot, const std::string& to) {
  const auto name = name_of_ready(snapshot);
  {
    std::unique_lock hold{guard_};
    auto at = all_.find(snapshot);
    if (at == all_.end() || at->second.awaited)
      return false;
    at->second.awaited = true;
    std::erase(made_, snapshot);
    news_.wait(hold, [&] {
      at = all_.find(snapshot);
      return at == all_.end() || at->second.made;
    });
    if (at == all_.end())
      return false;
  }
  const bool moved = move_copy(top_, name, to);
  const std::lock_guard hold{guard_};
  all_.erase(snapshot);
  return moved;
}

void ready_copies::drop(const std::string& snapshot) {
  {
    const std::lock_guard hold{guard_};
    const auto at = all_.find(snapshot);
    if (at == all_.end())
      return;
    if (!at->second.made || at->second.awaited) {
      at->second.unwanted = true; // What makes it removes it.
      return;
    }
    std::erase(made_, snapshot);
    all_.erase(at);
  }
  remove_copy(top_, name_of_ready(snapshot));
}

} // namespace insula::runtime::spawner
