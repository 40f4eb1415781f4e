#include "runtime/kept_logs.hpp"

#include "base/failpoint.hpp"
#include "base/log.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace insula::runtime {

namespace {

constexpr std::uint64_t least_bytes = 4096; ///< For the inode of one that is empty.

/// A name of one file in a directory.
bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= NAME_MAX && text.front() != '.' &&
         text.find_first_of(std::string_view{"/\0", 2}) == std::string_view::npos;
}

std::string path_of(const std::string& owner, const std::string& key) {
  return owner + '/' + key;
}

std::uint64_t bytes_of(const struct stat& file) {
  constexpr std::uint64_t block = 512;
  return std::max(least_bytes, static_cast<std::uint64_t>(file.st_blocks) * block);
}

std::vector<std::string> names_in(int directory, const char* path) {
  std::vector<std::string> names;
  const int fd = ::openat(directory, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  DIR* const all = fd < 0 ? nullptr : ::fdopendir(fd);
  if (all == nullptr) {
    if (fd >= 0)
      ::close(fd);
    return names;
  }
  while (const auto* each = ::readdir(all))
    if (is_name(each->d_name))
      names.emplace_back(each->d_name);
  ::closedir(all);
  return names;
}

} // namespace

kept_logs::kept_logs(std::string directory, ceilings most)
    : most_(most)
    , directory_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!directory_)
    log::error("kept_logs.no_directory", {{"reason", std::strerror(errno)}});
}

kept_logs::~kept_logs() {
  changes_.join();
  readers_.join(); // Whom the changes have given work.
}

void kept_logs::take_over(const known_keys& wanted) {
  struct found {
    timespec changed;
    std::string owner, key;
    std::uint64_t bytes;
  };
  std::vector<found> all;
  std::size_t orphans = 0;
  for (const auto& owner : names_in(directory_.get(), ".")) {
    struct stat is {};
    if (::fstatat(directory_.get(), owner.c_str(), &is, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(is.st_mode))
      continue;
    give_away(directory_.get(), owner.c_str());
    const auto known = wanted(owner);
    for (const auto& key : names_in(directory_.get(), owner.c_str())) {
      const auto path = path_of(owner, key);
      if ((!known || known->count(key) > 0) &&
          ::fstatat(directory_.get(), path.c_str(), &is, AT_SYMLINK_NOFOLLOW) == 0 &&
          S_ISREG(is.st_mode))
        all.push_back({is.st_mtim, owner, key, bytes_of(is)});
      else
        orphans += ::unlinkat(directory_.get(), path.c_str(), 0) == 0 ? 1 : 0;
    }
    ::unlinkat(directory_.get(), owner.c_str(), AT_REMOVEDIR); // If nothing is left in it.
  }
  std::sort(all.begin(), all.end(), [](const found& a, const found& b) {
    return std::pair{a.changed.tv_sec, a.changed.tv_nsec} <
           std::pair{b.changed.tv_sec, b.changed.tv_nsec};
  });
  for (const auto& each : all)
    count(each.owner, each.key, each.bytes);
  for (const auto& each : all)
    enforce(each.owner);
  if (!all.empty() || orphans > 0)
    log::info("kept_logs.taken_over",
              {{"files", all.size()}, {"bytes", bytes_}, {"orphans", orphans}});
}

// ---- What is counted

bool kept_logs::has(const std::string& owner, const std::string& key) const {
  const auto at = owners_.find(owner);
  return at != owners_.end() && at->second.files.count(key) > 0;
}

void kept_logs::count(const std::string& owner, const std::string& key, std::uint64_t bytes) {
  auto& mine = owners_[owner];
  auto& is = mine.files[key];
  if (is.age == 0) {
    is.age = ++last_age_;
    by_age_.emplace(is.age, std::pair{owner, key});
  }
  mine.bytes += bytes - is.bytes;
  bytes_ += bytes - is.bytes;
  is.bytes = bytes;
}

/// False: it was not there.
bool kept_logs::drop(const std::string& owner, const std::string& key) {
  const auto at = owners_.find(owner);
  const auto gone =
    at == owners_.end() ? decltype(at->second.files)::node_type{} : at->second.files.extract(key);
  if (!gone)
    return false;
  at->second.bytes -= gone.mapped().bytes;
  bytes_ -= gone.mapped().bytes;
  by_age_.erase(gone.mapped().age);
  ::unlinkat(directory_.get(), path_of(owner, key).c_str(), 0);
  if (at->second.files.empty()) {
    owners_.erase(at);
    ::unlinkat(directory_.get(), owner.c_str(), AT_REMOVEDIR);
  }
  return true;
}

void kept_logs::drop_oldest_of(const std::string& owner) {
  const auto& files = owners_.at(owner).files;
  const auto oldest =
    std::min_element(files.begin(), files.end(),
                     [](const auto& a, const auto& b) { return a.second.age < b.second.age; });
  drop(owner, std::string{oldest->first});
}

void kept_logs::drop_oldest() {
  const auto which = by_age_.begin()->second;
  drop(which.first, which.second);
}

std::uint64_t kept_logs::lacking_on(const struct statvfs& disk, const ceilings& most) {
  const auto used = std::uint64_t{disk.f_blocks} - disk.f_bfree;
  const auto reachable = (used + disk.f_bavail) * disk.f_frsize;
  const auto free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  const auto wanted = std::min(reachable / 100 * most.free_percent, most.free_bytes);
  return free < wanted ? wanted - free : 0;
}

std::uint64_t kept_logs::lacking_on_disk() const {
  struct statvfs disk {};
  return ::fstatvfs(directory_.get(), &disk) == 0 ? lacking_on(disk, most_) : 0;
}

void kept_logs::enforce(const std::string& owner) {
  for (auto at = owners_.find(owner); at != owners_.end() && at->second.bytes > most_.of_owner;
       at = owners_.find(owner))
    drop_oldest_of(owner);
  const auto lacking = lacking_on_disk();
  const auto room = lacking < bytes_ ? bytes_ - lacking : 0;
  while (!by_age_.empty() &&
         (bytes_ > std::min(most_.of_all, room) || by_age_.size() > most_.files))
    drop_oldest();
}

/// To the owner of the directory: while a server starts it is still root.
void kept_logs::give_away(int directory, const char* path) const {
  struct stat is {};
  if (::geteuid() != 0 || ::fstat(directory_.get(), &is) != 0)
    return;
  if (::fchownat(directory, path, is.st_uid, is.st_gid, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0)
    log::warning("kept_logs.not_given_away", {{"path", path}, {"reason", std::strerror(errno)}});
}

// ---- What is asked

bool kept_logs::link(const std::string& owner, const std::string& key, int file) {
  if (!is_name(owner) || !is_name(key) || !directory_ || most_.of_owner == 0 || most_.of_all == 0)
    return false;
  struct stat is {};
  if (file < 0 || ::fstat(file, &is) != 0)
    return false;
  const bool made = ::mkdirat(directory_.get(), owner.c_str(), 0700) == 0;
  const bool there = made || errno == EEXIST;
  if (made)
    give_away(directory_.get(), owner.c_str());
  give_away(file, "");
  if (!there || (::linkat(AT_FDCWD, ("/proc/self/fd/" + std::to_string(file)).c_str(),
                          directory_.get(), path_of(owner, key).c_str(), AT_SYMLINK_FOLLOW) != 0 &&
                 errno != EEXIST)) { // It may have it since the server before this one.
    log::warning("kept_logs.not_kept", {{"owner", owner}, {"reason", std::strerror(errno)}});
    ::unlinkat(directory_.get(), owner.c_str(), AT_REMOVEDIR); // If nothing else is in it.
    return false;
  }
  failpoint("logs.linked");
  count(owner, key, bytes_of(is));
  enforce(owner);
  return has(owner, key);
}

void kept_logs::keep(const std::string& owner, const std::string& key,
                     std::shared_ptr<unique_fd> file, std::function<void(bool)> told) {
  boost::asio::post(changes_,
                    [this, owner, key, file = std::move(file), told = std::move(told)]() mutable {
                      const bool kept = link(owner, key, file ? file->get() : -1);
                      file.reset();
                      told(kept);
                    });
}

void kept_logs::settle(const std::string& owner) {
  boost::asio::post(changes_, [this, owner] {
    const auto at = owners_.find(owner);
    if (at == owners_.end())
      return;
    for (auto& [key, each] : at->second.files) {
      struct stat is {};
      if (::fstatat(directory_.get(), path_of(owner, key).c_str(), &is, AT_SYMLINK_NOFOLLOW) == 0)
        count(owner, key, bytes_of(is));
    }
    enforce(owner);
  });
}

unique_fd kept_logs::open_file(const std::string& owner, const std::string& key) const {
  return unique_fd{
    ::openat(directory_.get(), path_of(owner, key).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW)};
}

void kept_logs::open(const std::string& owner, const std::string& key, std::uint64_t least_end,
                     std::function<void(std::shared_ptr<reader>)> told) {
  boost::asio::post(changes_, [this, owner, key, least_end, told = std::move(told)]() mutable {
    if (!has(owner, key))
      return told(nullptr);
    auto file = std::make_shared<unique_fd>(open_file(owner, key));
    if (!*file)
      return told(nullptr);
    // The next change need not wait until its heads are read.
    boost::asio::post(readers_, [file, least_end, told = std::move(told)] {
      auto made = std::make_shared<reader>(output_log{std::move(*file), 0});
      made->log.recover();
      told(made->log.end() < least_end ? nullptr : made);
    });
  });
}

void kept_logs::read(std::shared_ptr<reader> of, std::uint64_t offset, std::size_t max_bytes,
                     std::function<void(output_log::piece)> told) {
  boost::asio::post(readers_, [of = std::move(of), offset, max_bytes, told = std::move(told)] {
    told(of->log.read(offset, max_bytes));
  });
}

void kept_logs::remove(const std::string& owner, const std::string& key) {
  boost::asio::post(changes_, [this, owner, key] { drop(owner, key); });
}

void kept_logs::remove(const std::string& owner) {
  boost::asio::post(changes_, [this, owner] {
    while (owners_.count(owner) > 0)
      drop_oldest_of(owner);
  });
}

void kept_logs::when_done(std::function<void()> then) {
  boost::asio::post(changes_, std::move(then));
}

} // namespace insula::runtime
