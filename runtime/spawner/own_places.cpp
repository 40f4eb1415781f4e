#include "runtime/spawner/own_places.hpp"

#include "base/log.hpp"
#include "base/unique_fd.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <string_view>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

constexpr std::size_t max_plans = 64;
constexpr uid_t user = 1000; ///< The user and the group that commands of a sandbox have.
constexpr const char* opaque_mark = "user.overlay.opaque";

bool user_may_write(const struct stat& what) {
  return (what.st_mode & S_IWOTH) != 0 || what.st_uid == user ||
         (what.st_gid == user && (what.st_mode & S_IWGRP) != 0);
}

std::string way_to(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

/// Beside the label that SELinux gives every file.
bool has_attributes(int fd) {
  std::array<char, 4096> list;
  const ssize_t size = ::listxattr(way_to(fd).c_str(), list.data(), list.size());
  if (size < 0)
    return errno != ENOTSUP;
  using namespace std::string_view_literals;
  const std::string_view names{list.data(), static_cast<std::size_t>(size)};
  return !names.empty() && names != "security.selinux\0"sv;
}

/// The names in a directory. None: it cannot be read.
std::vector<std::string> names_in(int directory) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> open{
    ::fdopendir(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), ::closedir};
  while (const dirent* each = open ? ::readdir(open.get()) : nullptr) {
    const std::string_view name{each->d_name};
    if (name != "." && name != "..")
      names.emplace_back(name);
  }
  return names;
}

} // namespace

/// One walk through an image. Links are not followed.
class own_places::search {
public:
  explicit search(std::vector<std::string>& merged)
      : merged_(merged) {}

  void look(int directory, const std::string& path, const std::vector<entry>& above) {
    for (const auto& name : names_in(directory)) {
      if (++looked_at_ > max_looked_at)
        return;
      if (path.empty() && std::find(not_ours.begin(), not_ours.end(), name) != not_ours.end())
        continue;
      struct stat info {};
      if (::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
          !S_ISDIR(info.st_mode))
        continue;
      const unique_fd there{
        ::openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
      if (!there)
        continue;
      const auto full = path.empty() ? name : path + "/" + name;
      if (user_may_write(info))
        take(there.get(), full, info, above);
      else if (above.size() + 1 < static_cast<std::size_t>(max_depth)) {
        auto parents = above;
        parents.push_back({full, info.st_mode, info.st_uid, info.st_gid, false, {}});
        look(there.get(), full, parents);
      }
    }
  }

  std::vector<entry> found;

private:
  /// The kernel's own, and the machine's.
  static constexpr std::array<std::string_view, 4> not_ours{"proc", "sys", "dev", "usr"};

  void take(int directory, const std::string& path, const struct stat& info,
            const std::vector<entry>& above) {
    std::vector<entry> all{{path, info.st_mode, info.st_uid, info.st_gid, true, {}}};
    const auto bytes_before = bytes_;
    if (!collect(directory, path, all)) {
      bytes_ = bytes_before;
      merged_.push_back("/" + path);
      return;
    }
    for (const auto& each : above)
      if (std::none_of(found.begin(), found.end(),
                       [&](const auto& known) { return known.path == each.path; }))
        found.push_back(each);
    std::move(all.begin(), all.end(), std::back_inserter(found));
  }

  /// False: it is too much, or of a kind that is not copied.
  bool collect(int directory, const std::string& path, std::vector<entry>& all) {
    if (has_attributes(directory))
      return false;
    for (const auto& name : names_in(directory)) {
      struct stat info {};
      if (all.size() > max_entries ||
          ::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
      entry made{path + "/" + name, info.st_mode, info.st_uid, info.st_gid, false, {}};
      unique_fd there;
      if (S_ISLNK(info.st_mode)) {
        std::array<char, 4096> target;
        const ssize_t n = ::readlinkat(directory, name.c_str(), target.data(), target.size());
        if (n <= 0)
          return false;
        made.content.assign(target.data(), static_cast<std::size_t>(n));
      } else if (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) {
        there.reset(::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
        if (!there ||
            (S_ISREG(info.st_mode) && (info.st_nlink > 1 || !read_into(there.get(), made.content) ||
                                       has_attributes(there.get()))))
          return false;
      } else {
        return false;
      }
      all.push_back(std::move(made));
      if (S_ISDIR(info.st_mode) && !collect(there.get(), path + "/" + name, all))
        return false;
    }
    return true;
  }

  bool read_into(int file, std::string& content) {
    std::array<char, 8192> buffer;
    ssize_t n = 0;
    while ((n = ::read(file, buffer.data(), buffer.size())) > 0) {
      bytes_ += static_cast<std::size_t>(n);
      if (bytes_ > max_bytes)
        return false;
      content.append(buffer.data(), static_cast<std::size_t>(n));
    }
    return n == 0;
  }

  std::vector<std::string>& merged_;
  std::size_t looked_at_ = 0, bytes_ = 0;
};

const own_places::plan* own_places::plan_of(int image) {
  struct stat info {};
  if (::fstat(image, &info) != 0)
    return nullptr;
  const auto changed = std::int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec;
  for (const auto& each : plans_)
    if (each.device == info.st_dev && each.inode == info.st_ino && each.changed_ns == changed)
      return &each;
  merged_.clear();
  search through{merged_};
  through.look(image, {}, {});
  for (const auto& each : merged_)
    log::warning("spawner.merged_directory",
                 {{"path", each},
                  {"consequence", "its names may take the machine's memory; it holds too much, or "
                                  "special files, to be copied for each sandbox"}});
  if (plans_.size() >= max_plans)
    plans_.pop_front();
  plans_.push_back({info.st_dev, info.st_ino, changed, std::move(through.found)});
  return &plans_.back();
}

bool own_places::mark(const std::string& directory) {
  if (::setxattr(directory.c_str(), opaque_mark, "y", 1, 0) == 0)
    return true;
  if (errno != ENOTSUP)
    return false;
  if (!std::exchange(merges_all_, true))
    log::warning("spawner.no_opaque_directories",
                 {{"consequence", "the file system of sandboxes' disks keeps no such marks, so all "
                                  "directories are merged, and their names take the machine's "
                                  "memory until the watch ends a sandbox"}});
  return true;
}

bool own_places::make(int image, int upper) {
  const auto* const wanted = plan_of(image);
  if (wanted == nullptr)
    return false;
  const auto base = way_to(upper) + "/";
  const auto put = [&](const entry& each) {
    const char* path = each.path.c_str();
    constexpr mode_t given_by_mkdir = 01777;
    const mode_t mode = each.mode & 07777;
    bool complete = true; // Its mode is the one wanted.
    if (S_ISDIR(each.mode)) {
      if (::mkdirat(upper, path, mode & given_by_mkdir) != 0)
        return false;
      complete = (mode & ~given_by_mkdir) == 0;
    } else if (S_ISLNK(each.mode)) {
      if (::symlinkat(each.content.c_str(), upper, path) != 0)
        return false;
    } else {
      const unique_fd file{::openat(upper, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
      if (!file || ::write(file.get(), each.content.data(), each.content.size()) !=
                     static_cast<ssize_t>(each.content.size()))
        return false;
      complete = false;
    }
    if ((each.owner != 0 || each.group != 0) &&
        ::fchownat(upper, path, each.owner, each.group, AT_SYMLINK_NOFOLLOW) != 0)
      return false;
    if (!complete && ::fchmodat(upper, path, mode, 0) != 0)
      return false;
    return !each.opaque || mark(base + each.path);
  };
  const auto mask = ::umask(0);
  const bool made = std::all_of(wanted->entries.begin(), wanted->entries.end(), put);
  const int why = errno;
  ::umask(mask);
  errno = why;
  return made;
}

} // namespace insula::runtime::spawner
