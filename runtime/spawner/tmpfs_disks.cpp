#include "base/unique_fd.hpp"
#include "runtime/spawner/disk.hpp"
#include "runtime/spawner/disk_parts.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <string_view>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

/// Copies u and uu of a disk, or of a snapshot. What has become of that is told by a pipe: the
/// spawner's loop, on another thread, takes the ends of all children.
bool copy_files(const std::string& from, const std::string& to) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return false;
  const unique_fd said{ends[0]};
  unique_fd says{ends[1]};
  constexpr const char* script = "cp -a -- \"$1/u\" \"$1/uu\" \"$2\" && echo whole";
  const char* const argv[] = {"sh", "-c", script, "sh", from.c_str(), to.c_str(), nullptr};
  const bool began = run_program(argv, says.get()) >= 0;
  says.reset();
  std::string all;
  char bytes[16];
  for (ssize_t n = 0; began && (n = ::read(said.get(), bytes, sizeof bytes)) > 0;)
    all.append(bytes, static_cast<std::size_t>(n));
  return all == "whole\n";
}

/// All bytes, while the sandbox stands still.
class tmpfs_copy final : public disk_copy {
public:
  tmpfs_copy(std::string from, std::string to)
      : from_(std::move(from))
      , to_(std::move(to)) {}

  result<void> flush() override { return {}; }

  result<std::uint64_t> take() override {
    struct statvfs has {};
    if (::statvfs(from_.c_str(), &has) != 0 || ::mkdir(to_.c_str(), 0755) != 0)
      return copy_failed();
    const auto in_place = [this] {
      if (::mount("insula", to_.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=755") != 0)
        return false;
      if (!copy_files(from_, to_)) {
        errno = EIO;
        return false;
      }
      return ::mount(nullptr, to_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV,
                     nullptr) == 0;
    };
    if (in_place())
      return (has.f_blocks - has.f_bfree) * has.f_frsize;
    auto why = copy_failed();
    ::umount2(to_.c_str(), MNT_DETACH);
    ::rmdir(to_.c_str());
    return why;
  }

private:
  const std::string from_, to_;
};

class tmpfs_pool final : public disk_pool {
public:
  explicit tmpfs_pool(std::string path)
      : path_(std::move(path)) {}

  result<std::unique_ptr<disk_copy>> copy(std::uint32_t slot, const std::string& name) override {
    const auto from = path_ + "/" + name_of_slot(slot), to = path_of(name);
    if (::access(to.c_str(), F_OK) == 0)
      return error{errc::already_exists, "there is a snapshot " + name};
    if (::access(from.c_str(), F_OK) != 0)
      return error{errc::not_found, "there is no such disk"};
    return std::unique_ptr<disk_copy>{std::make_unique<tmpfs_copy>(from, to)};
  }

  result<unique_fd> open(std::uint32_t slot) override {
    const auto path = path_ + "/" + name_of_slot(slot);
    unique_fd there{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!there)
      return error{errc::not_found, "there is no such disk"};
    return there;
  }

  result<unique_fd> open_snapshot(const std::string& name) override {
    unique_fd there{::open(path_of(name).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!there)
      return error{errc::not_found, "there is no snapshot " + name};
    return there;
  }

  bool drop_snapshot(const std::string& name) override {
    return destroy_shared(std::string{snapshot_prefix} + name);
  }

  std::vector<std::string> snapshots() const override {
    const unique_fd top{::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    return without_prefix(names_with(top.get(), snapshot_prefix), snapshot_prefix);
  }

  bool keeps_snapshots() const override { return false; }

  result<unique_fd> create(std::uint32_t slot, std::uint64_t bytes) override {
    auto made = create_shared(name_of_slot(slot), bytes);
    if (made && !make_overlay_directories(made->get())) {
      auto why = failed_disk(path_ + "/" + name_of_slot(slot));
      destroy(slot);
      return why;
    }
    note_limit(slot, bytes);
    return made;
  }

  result<unique_fd> create_from(const std::string& snapshot, std::uint32_t slot,
                                std::uint64_t bytes) override {
    const auto from = path_of(snapshot), to = path_ + "/" + name_of_slot(slot);
    if (::access(from.c_str(), F_OK) != 0)
      return error{errc::not_found, "there is no snapshot " + snapshot};
    auto made = create(slot, bytes);
    if (!made)
      return made;
    if (copy_files(from, to))
      return made;
    made->reset();
    destroy(slot);
    return error{errc::disk_full,
                 "the files of the snapshot " + snapshot + " do not fit into the sandbox's disk"};
  }

  result<unique_fd> create_shared(const std::string& name, std::uint64_t bytes) override {
    const auto path = path_ + "/" + name;
    const auto options = "mode=755" + ceilings(bytes, bytes);
    if (::mkdir(path.c_str(), 0755) != 0)
      return failed_disk(path);
    unique_fd made;
    if (::mount("insula", path.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) == 0)
      made.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (made)
      return made;
    auto why = failed_disk(path);
    destroy_shared(name);
    return why;
  }

  result<void> resize(std::uint32_t slot, std::uint64_t bytes) override {
    if (!give(slot, bytes, bytes))
      return failed_disk(path_ + "/" + name_of_slot(slot));
    note_limit(slot, bytes);
    return {};
  }

  /// What is elsewhere takes none of its memory, so it has less of that. The kernel refuses what is
  /// less than it holds.
  bool charge(std::uint32_t slot, std::uint64_t bytes) override {
    const auto limit = limit_of(slot);
    if (limit == 0)
      return true;
    errno = ENOSPC;
    return bytes < limit && give(slot, limit - bytes, limit);
  }

  bool destroy(std::uint32_t slot) override {
    {
      const std::lock_guard hold{guard_};
      limits_.erase(slot);
    }
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
  std::string path_of(const std::string& snapshot) const {
    return path_ + "/" + std::string{snapshot_prefix} + snapshot;
  }

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

  void note_limit(std::uint32_t slot, std::uint64_t bytes) {
    const std::lock_guard hold{guard_};
    limits_[slot] = bytes;
  }
  std::uint64_t limit_of(std::uint32_t slot) {
    const std::lock_guard hold{guard_};
    const auto at = limits_.find(slot);
    return at == limits_.end() ? 0 : at->second;
  }

  const std::string path_;
  std::mutex guard_;
  std::map<std::uint32_t, std::uint64_t> limits_; ///< 0: none.
};

} // namespace

result<std::unique_ptr<disk_pool>> make_tmpfs_pool(const std::string& state_directory) {
  const auto target = state_directory + "/disk";
  if (::mkdir(target.c_str(), 0700) != 0 && errno != EEXIST)
    return failed_disk(target);
  if (::mount("insula", target.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=700,size=4m") != 0)
    return failed_disk(target);
  return std::unique_ptr<disk_pool>{std::make_unique<tmpfs_pool>(target)};
}

} // namespace insula::runtime::spawner