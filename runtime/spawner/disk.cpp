#include "runtime/spawner/disk.hpp"

#include "base/log.hpp"
#include "base/unique_fd.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <filesystem>
#include <linux/btrfs.h>
#include <linux/loop.h>
#include <map>
#include <mutex>
#include <optional>
#include <spawn.h>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

// In <linux/btrfs.h> from 6.7 on.
constexpr std::uint64_t enable_simple_quotas = 4;

// In <linux/btrfs_tree.h>, which does not compile as C++ here.
constexpr std::uint64_t first_free_object = 256, quota_tree = 8;
constexpr std::uint32_t quota_usage = 242;

constexpr std::string_view snapshot_prefix = "snap-", leftover_prefix = "gone-";

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

/// Where nobody else waits for children, answers the exit status. `out`: a descriptor; -1: nobody
/// reads what it says. Below 0: it has not run, or was killed.
int run(const char* const* argv, int out = -1) {
  pid_t child = 0;
  int status = 0;
  static const char* environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", nullptr};
  posix_spawn_file_actions_t quiet;
  ::posix_spawn_file_actions_init(&quiet);
  for (const int stream : {0, 1, 2})
    ::posix_spawn_file_actions_addopen(&quiet, stream, "/dev/null", O_RDWR, 0);
  if (out >= 0)
    ::posix_spawn_file_actions_adddup2(&quiet, out, 1);
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

bool remove_volume(int top, const std::string& name) {
  btrfs_ioctl_vol_args unwanted{};
  std::snprintf(unwanted.name, sizeof unwanted.name, "%s", name.c_str());
  return ::ioctl(top, BTRFS_IOC_SNAP_DESTROY, &unwanted) == 0 || errno == ENOENT;
}

/// Of a subvolume. 0: it could not be asked.
std::uint64_t tree_of(int volume) {
  btrfs_ioctl_ino_lookup_args lookup{};
  lookup.objectid = first_free_object; // The subvolume's own root; the answer names its tree.
  return ::ioctl(volume, BTRFS_IOC_INO_LOOKUP, &lookup) == 0 ? lookup.treeid : 0;
}

/// What a subvolume is charged for, as of the last commit. 0: that is not known.
std::uint64_t bytes_of(int top, std::uint64_t tree) {
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

/// Names below `top`, in their order, that begin so.
std::vector<std::string> names_in(int top, std::string_view prefix) {
  std::vector<std::string> all;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries{
    ::fdopendir(::openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), ::closedir};
  while (const dirent* each = entries ? ::readdir(entries.get()) : nullptr)
    if (std::string_view{each->d_name}.starts_with(prefix))
      all.emplace_back(each->d_name);
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<std::string> without_prefix(std::vector<std::string> names, std::string_view prefix) {
  for (auto& each : names)
    each.erase(0, prefix.size());
  return names;
}

error copy_failed(const std::string& what = "taking a snapshot of a disk") {
  return {errno == ENOSPC || errno == EDQUOT ? errc::disk_full : errc::io_failed,
          what + ": " + std::strerror(errno)};
}

/// What a subvolume has, in another one. False: errno says why.
bool take_volume(int top, int from, const std::string& name, std::uint64_t flags) {
  btrfs_ioctl_vol_args_v2 wanted{};
  wanted.fd = from;
  wanted.flags = flags;
  std::snprintf(wanted.name, sizeof wanted.name, "%s", name.c_str());
  return ::ioctl(top, BTRFS_IOC_SNAP_CREATE_V2, &wanted) == 0;
}

/// Of the disk that it was before it was a snapshot: what was reserved for logs, and the overlays'
/// work, which a `volatile` one leaves marked as not to be used again. False: errno says why.
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
    if (!take_volume(top_, from_.get(), first_, BTRFS_SUBVOL_RDONLY))
      return copy_failed();
    remove_volume(top_, first_);
    return {};
  }

  result<std::uint64_t> take() override {
    if (!take_volume(top_, from_.get(), name_, BTRFS_SUBVOL_RDONLY))
      return copy_failed();
    return bytes_of(top_, tree_of(from_.get()));
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
      , most_(pool_bytes / 2) {}

  result<std::unique_ptr<disk_copy>> copy(std::uint32_t slot, const std::string& name) override {
    if (open_snapshot(name))
      return error{errc::already_exists, "there is a snapshot " + name};
    unique_fd from{
      ::openat(top_.get(), name_of_slot(slot).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!from)
      return error{errc::not_found, "there is no such disk"};
    return std::unique_ptr<disk_copy>{
      std::make_unique<btrfs_copy>(top_.get(), std::move(from), name)};
  }

  result<unique_fd> open_snapshot(const std::string& name) override {
    unique_fd there{::openat(top_.get(), (std::string{snapshot_prefix} + name).c_str(),
                             O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (!there)
      return error{errc::not_found, "there is no snapshot " + name};
    return there;
  }

  bool drop_snapshot(const std::string& name) override {
    return remove_volume(top_.get(), std::string{snapshot_prefix} + name);
  }

  std::vector<std::string> snapshots() const override {
    return without_prefix(names_in(top_.get(), snapshot_prefix), snapshot_prefix);
  }

  bool keeps_snapshots() const override { return true; }

  result<unique_fd> create(std::uint32_t slot, std::uint64_t wanted_bytes) override {
    auto made = make(name_of_slot(slot), wanted_bytes);
    if (made && !make_overlay_directories(made->get())) {
      auto why = failed("preparing a subvolume");
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
    if (!take_volume(top_.get(), from->get(), name, 0))
      return copy_failed("making a disk of a snapshot");
    unique_fd made{::openat(top_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (made && limit(made.get(), bytes) && forget_mount(made.get()))
      return made;
    auto why = copy_failed("preparing a disk of a snapshot");
    made.reset();
    remove_volume(top_.get(), name);
    return why;
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
      return failed("making a subvolume");
    unique_fd made{::openat(top_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!made || !limit(made.get(), bytes)) {
      auto why = failed("preparing a subvolume");
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
};

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
  const bool began = run(argv, says.get()) >= 0;
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
    return without_prefix(names_in(top.get(), snapshot_prefix), snapshot_prefix);
  }

  bool keeps_snapshots() const override { return false; }

  result<unique_fd> create(std::uint32_t slot, std::uint64_t bytes) override {
    auto made = create_shared(name_of_slot(slot), bytes);
    if (made && !make_overlay_directories(made->get())) {
      auto why = failed(path_ + "/" + name_of_slot(slot));
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

namespace {

/// All but the snapshots was an earlier spawner's.
void sweep(int top, const std::string& path) {
  for (const auto& each : names_in(top, "")) {
    if (each == "." || each == ".." || each.starts_with(snapshot_prefix) ||
        remove_volume(top, each))
      continue;
    // Not a volume, or one that is still busy: the next spawner tries again.
    const auto away =
      each.starts_with(leftover_prefix) ? each : std::string{leftover_prefix} + each;
    std::error_code ignored;
    if (::renameat(top, each.c_str(), top, away.c_str()) == 0)
      std::filesystem::remove_all(path + "/" + away, ignored);
  }
}

/// Not of the machine or of the kernel, but of the bytes.
bool is_broken(int error) {
  return error == EINVAL || error == EIO || error == EUCLEAN || error == EBADMSG ||
         error == ENOENT || error == EFBIG || error == ENODATA;
}

/// A new image, under its name only once it can be mounted.
result<unique_fd> new_image(const std::string& image, std::uint64_t bytes) {
  const auto half = image + ".new";
  ::unlink(half.c_str());
  unique_fd file{::open(half.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return failed(half);
  const char* const argv[] = {"mkfs.btrfs", "-q", "-m", "single", half.c_str(), nullptr};
  if (const int status = run(argv); status != 0)
    return error{errc::launch_failed,
                 "mkfs.btrfs (package btrfs-progs) ended with " + std::to_string(status)};
  if (::fsync(file.get()) != 0 || ::rename(half.c_str(), image.c_str()) != 0)
    return failed(image);
  return file;
}

/// What is mounted at `target` afterwards is the file system in `file`, with room for so many bytes
/// at least. Errors: launch_failed; io_failed: there is none in it that can be used.
result<unique_fd> mount_image(int file, const std::string& target, std::uint64_t bytes) {
  struct stat is {};
  if (::fstat(file, &is) != 0 || (static_cast<std::uint64_t>(is.st_size) < bytes &&
                                  ::ftruncate(file, static_cast<off_t>(bytes)) != 0))
    return failed("the image of disks");
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
    auto why = failed("mounting the image of disks");
    if (is_broken(errno))
      why.code = errc::io_failed;
    return why;
  }
  unique_fd top{::open(target.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  btrfs_ioctl_vol_args all{};
  std::snprintf(all.name, sizeof all.name, "1:max");
  if (!top || ::ioctl(top.get(), BTRFS_IOC_RESIZE, &all) != 0)
    return failed(target);
  return top;
}

} // namespace

result<std::unique_ptr<disk_pool>> make_btrfs_pool(const std::string& state_directory,
                                                   std::uint64_t bytes) {
  const auto image = state_directory + "/disk.btrfs";
  const auto target = state_directory + "/disk";
  if (::mkdir(target.c_str(), 0700) != 0 && errno != EEXIST)
    return failed(target);
  unique_fd file{::open(image.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC)};
  if (!file && errno != ENOENT)
    return failed(image);
  auto top = file ? mount_image(file.get(), target, bytes) : result<unique_fd>{unique_fd{}};
  if (!top) {
    if (top.reason().code != errc::io_failed)
      return top.reason();
    // Its snapshots are lost here; a person may be able to read more of it than the kernel.
    const auto aside = image + ".broken-" + std::to_string(std::time(nullptr));
    log::error("spawner.disk_broken", {{"reason", top.reason().message}, {"kept_as", aside}});
    if (::rename(image.c_str(), aside.c_str()) != 0)
      return failed(aside);
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
      return failed("turning quotas on");
  }
  sweep(top->get(), target);
  return std::unique_ptr<disk_pool>{std::make_unique<btrfs_pool>(std::move(*top), bytes)};
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
