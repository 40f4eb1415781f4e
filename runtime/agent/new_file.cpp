#include "runtime/agent/new_file.hpp"

#include "runtime/agent/file_operations.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utility>

namespace insula::runtime::agent {

namespace {

constexpr const char* workshop_name = ".insula";

int workshop = -1;

/// A name that is the number of a process which is not there was left by that process.
void clear(int directory) {
  DIR* const all = ::fdopendir(directory);
  if (all == nullptr) {
    ::close(directory);
    return;
  }
  while (const dirent* each = ::readdir(all))
    if (const int writer = std::atoi(each->d_name);
        writer > 0 && ::kill(writer, 0) != 0 && errno == ESRCH)
      ::unlinkat(::dirfd(all), each->d_name, 0);
  ::closedir(all);
}

/// Whether a file can be moved from one directory to the other one.
bool same_mount(int directory, const char* path) {
  struct statx one {};
  struct statx other {};
  return ::statx(directory, "", AT_EMPTY_PATH, STATX_MNT_ID, &one) == 0 &&
         ::statx(AT_FDCWD, path, 0, STATX_MNT_ID, &other) == 0 &&
         (one.stx_mask & other.stx_mask & STATX_MNT_ID) != 0 && one.stx_mnt_id == other.stx_mnt_id;
}

/// A set-group-id bit, or an access list: what is made in `directory` takes after it.
bool hands_on(const char* directory) {
  struct stat info {};
  return (::stat(directory, &info) == 0 && (info.st_mode & S_ISGID) != 0) ||
         ::getxattr(directory, "system.posix_acl_default", nullptr, 0) > 0;
}

/// Beside a place, which is everybody's: no name that somebody else could have chosen before.
bool name_beside(const char* directory, char* name, std::size_t size) {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != static_cast<ssize_t>(sizeof random))
    return false;
  std::snprintf(name, size, "%s/.insula-%016llx", directory,
                static_cast<unsigned long long>(random));
  return true;
}

} // namespace

void open_workshop() {
  struct stat here {};
  struct stat root {};
  if (::stat(".", &here) != 0 || ::stat("/", &root) != 0 ||
      (here.st_dev == root.st_dev && here.st_ino == root.st_ino))
    return; // Nobody has left the agent there.
  // Everybody's, as /tmp is: users of the sandbox write here one beside the other.
  constexpr mode_t mode = 01777;
  ::mkdir(workshop_name, mode);
  constexpr int flags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  if (const int listed = ::open(workshop_name, O_RDONLY | flags); listed >= 0) {
    // The umask has taken from it, or an image has brought one.
    if (::fstat(listed, &here) != 0 || (here.st_mode & 07777) != mode)
      ::fchmod(listed, mode);
    clear(listed);
  }
  workshop = ::open(workshop_name, O_PATH | flags);
}

bool new_file::make(int directory, const char* named) {
  directory_ = directory;
  fd_ = ::openat(directory, named == nullptr ? "." : named, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  return fd_ >= 0;
}

bool new_file::open(const char* path) {
  path_ = path;
  char parent[PATH_MAX];
  parent_of(path, parent);
  if (::access(parent, W_OK | X_OK) != 0)
    return false;
  if (workshop >= 0 && same_mount(workshop, parent) && !hands_on(parent)) {
    std::snprintf(name_, sizeof name_, "%d", static_cast<int>(::getpid()));
    if (make(workshop, nullptr))
      return true;
    fd_ = ::openat(workshop, name_, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    named_ = fd_ >= 0;
    return named_;
  }
  if (!name_beside(parent, name_, sizeof name_))
    return false;
  if (make(AT_FDCWD, parent))
    return true;
  fd_ = ::open(name_, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  named_ = fd_ >= 0;
  return named_;
}

bool new_file::open_for_copy() {
  return workshop >= 0 && make(workshop, nullptr);
}

/// By way of /proc: to link a descriptor itself takes a capability that nobody has here.
bool new_file::give_name() {
  char link[32];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd_);
  // Closed as something that is written before anybody can find it by a name.
  const int held = ::open(link, O_PATH | O_CLOEXEC);
  if (held < 0 || ::close(std::exchange(fd_, held)) != 0)
    return false;
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", held);
  const auto link_at = [&](int directory, const char* name) {
    return ::linkat(AT_FDCWD, link, directory, name, AT_SYMLINK_FOLLOW) == 0;
  };
  if (directory_ == AT_FDCWD) {
    if (link_at(AT_FDCWD, path_)) {
      path_ = nullptr; // It is there.
      return true;
    }
    if (errno != EEXIST)
      return false;
  }
  named_ = link_at(directory_, name_);
  // An earlier process of the same number may have been killed before it could move its file.
  if (!named_ && errno == EEXIST && directory_ == workshop)
    named_ = ::unlinkat(directory_, name_, 0) == 0 && link_at(directory_, name_);
  return named_;
}

bool new_file::put_in_place() {
  bool done = named_ ? ::close(std::exchange(fd_, -1)) == 0 : give_name();
  if (done && path_ != nullptr) {
    done = ::renameat(directory_, name_, AT_FDCWD, path_) == 0;
    named_ = named_ && !done;
  }
  give_up();
  return done;
}

void new_file::give_up() {
  const int why = errno;
  if (fd_ >= 0)
    ::close(std::exchange(fd_, -1));
  if (std::exchange(named_, false))
    ::unlinkat(directory_, name_, 0);
  errno = why;
}

} // namespace insula::runtime::agent
