#include "storage/blobs/directory_blobs.hpp"

#include "base/limits.hpp"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <random>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace insula::storage {

namespace {

/// Files that are being written. No name begins with a dot.
constexpr const char* incoming = ".incoming";
constexpr std::time_t leftover_age_s = 24 * 60 * 60;

constexpr int most_tries = 10; ///< To put a blob where others remove the last one.

constexpr int directory_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

std::string fresh_name() {
  thread_local std::random_device source;
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz234567";
  std::string name;
  for (int i = 0; i < 26; ++i)
    name += letters[source() % letters.size()];
  return name;
}

int write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return n == 0 ? EIO : errno;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

struct close_directory {
  void operator()(DIR* each) const { ::closedir(each); }
};
using open_directory = std::unique_ptr<DIR, close_directory>;

open_directory entries_of(int directory) {
  const int copy = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* open = copy < 0 ? nullptr : ::fdopendir(copy);
  if (open == nullptr && copy >= 0)
    ::close(copy);
  return open_directory{open};
}

std::string last_part(const std::string& name) {
  return name.substr(name.rfind('/') + 1); // npos + 1 is 0.
}

const error closing{errc::sandbox_not_running, "the node is going down"};

} // namespace

directory_blobs::directory_blobs(unique_fd directory, std::string shown)
    : directory_(std::move(directory))
    , shown_(std::move(shown)) {
  remove_leftovers();
}

error directory_blobs::failed(const std::string& what, int code) const {
  return {errc::store_failed,
          shown_ + (what.empty() ? "" : "/" + what) + ": " + std::strerror(code)};
}

std::optional<error> directory_blobs::refusal(const std::string& name) const {
  if (closed_)
    return closing;
  if (!is_blob_name(name))
    return error{errc::invalid_request, "a malformed name of a blob"};
  return std::nullopt;
}

/// Of several who make one at the same time all get it. Not found, if it is to be made: it has just
/// been removed again.
result<unique_fd> directory_blobs::open_parent(const std::string& name, bool make) {
  unique_fd at{::openat(directory_.get(), ".", directory_flags)};
  for (std::size_t begin = 0;;) {
    if (!at)
      return failed(name.substr(0, begin == 0 ? 0 : begin - 1), errno);
    const auto end = name.find('/', begin);
    if (end == std::string::npos)
      return at;
    const auto part = name.substr(begin, end - begin);
    unique_fd next{::openat(at.get(), part.c_str(), directory_flags)};
    if (!next && errno == ENOENT && make) {
      ::mkdirat(at.get(), part.c_str(), 0700);
      next.reset(::openat(at.get(), part.c_str(), directory_flags));
    }
    if (!next && errno == ENOENT)
      return error{errc::not_found, "there is no " + name};
    // Who finds it may be faster than who has just made it.
    if (next && make && ::fsync(at.get()) != 0)
      return failed(name.substr(0, end), errno);
    at = std::move(next);
    begin = end + 1;
  }
}

result<void> directory_blobs::put(const std::string& name, std::string_view bytes) {
  if (const auto no = refusal(name))
    return *no;
  if (bytes.size() > limits::blob_bytes)
    return error{errc::invalid_request, "a blob is too large"};
  // Files that nobody has finished are in a place of their own, where nobody looks for blobs.
  const auto draft = std::string{incoming} + "/" + fresh_name();
  if (::mkdirat(directory_.get(), incoming, 0700) != 0 && errno != EEXIST)
    return failed(incoming, errno);
  const unique_fd file{
    ::openat(directory_.get(), draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
  if (!file)
    return failed(draft, errno);
  int bad = write_all(file.get(), bytes);
  if (bad == 0 && ::fsync(file.get()) != 0)
    bad = errno;
  if (bad == 0) {
    auto moved = move_to(draft, name);
    for (int i = 1; !moved && moved.reason().code == errc::not_found && i < most_tries; ++i)
      moved = move_to(draft, name); // Its directory went, which was empty until now.
    if (moved)
      return {};
    ::unlinkat(directory_.get(), draft.c_str(), 0);
    if (moved.reason().code != errc::not_found)
      return moved;
    bad = ENOENT;
  }
  ::unlinkat(directory_.get(), draft.c_str(), 0);
  return failed(name, bad);
}

result<void> directory_blobs::move_to(const std::string& draft, const std::string& name) {
  const auto parent = open_parent(name, true);
  if (!parent)
    return parent.reason();
  if (::renameat(directory_.get(), draft.c_str(), parent->get(), last_part(name).c_str()) == 0 &&
      ::fsync(parent->get()) == 0)
    return {};
  if (errno == ENOENT)
    return error{errc::not_found, "there is no " + name};
  return failed(name, errno);
}

result<std::string> directory_blobs::get(const std::string& name, std::size_t max_bytes) {
  if (const auto no = refusal(name))
    return *no;
  const auto parent = open_parent(name, false);
  if (!parent)
    return parent.reason();
  const unique_fd file{
    ::openat(parent->get(), last_part(name).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC)};
  struct stat info {};
  if (!file && errno == ENOENT)
    return error{errc::not_found, "there is no " + name};
  if (!file || ::fstat(file.get(), &info) != 0)
    return failed(name, errno);
  if (!S_ISREG(info.st_mode))
    return error{errc::not_found, "there is no " + name};
  if (static_cast<std::uint64_t>(info.st_size) > std::min(max_bytes, limits::blob_bytes))
    return error{errc::payload_too_large, name + " is too large"};
  std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::read(file.get(), bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return failed(name, n == 0 ? EIO : errno);
    at += static_cast<std::size_t>(n);
  }
  return bytes;
}

result<bool> directory_blobs::exists(const std::string& name) {
  if (const auto no = refusal(name))
    return *no;
  const auto parent = open_parent(name, false);
  if (!parent && parent.reason().code == errc::not_found)
    return false;
  if (!parent)
    return parent.reason();
  struct stat info {};
  if (::fstatat(parent->get(), last_part(name).c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0)
    return S_ISREG(info.st_mode);
  if (errno == ENOENT)
    return false;
  return failed(name, errno);
}

/// With the directories that have nothing in them any more: put() makes them again, also where they
/// go under its hands.
result<void> directory_blobs::remove(const std::string& name) {
  if (const auto no = refusal(name))
    return *no;
  const auto parent = open_parent(name, false);
  if (!parent && parent.reason().code != errc::not_found)
    return parent.reason();
  if (parent && ::unlinkat(parent->get(), last_part(name).c_str(), 0) != 0 && errno != ENOENT)
    return failed(name, errno);
  auto above = name;
  for (auto slash = name.rfind('/'); slash != std::string::npos; slash = above.rfind('/')) {
    above.resize(slash);
    const auto where = open_parent(above, false);
    if (!where || ::unlinkat(where->get(), last_part(above).c_str(), AT_REMOVEDIR) != 0)
      break;
  }
  return {};
}

result<void> directory_blobs::list(const std::string& prefix,
                                   const std::function<bool(const blob_info&)>& tell) {
  if (closed_)
    return closing;
  auto done = list_below(directory_.get(), "", prefix, tell);
  if (!done)
    return done.reason();
  return {};
}

/// False: nobody wants more.
result<bool> directory_blobs::list_below(int directory, const std::string& above,
                                         const std::string& prefix,
                                         const std::function<bool(const blob_info&)>& tell) {
  const auto open = entries_of(directory);
  if (!open && errno == ENOENT)
    return true; // It has just gone.
  if (!open)
    return failed(above, errno);
  while (true) {
    errno = 0;
    const dirent* each = ::readdir(open.get());
    if (each == nullptr && errno != 0 && errno != ENOENT) // Else it has gone meanwhile.
      return failed(above, errno);
    if (each == nullptr)
      return true;
    if (closed_)
      return closing;
    const auto name = above + each->d_name;
    struct stat info {};
    if (each->d_name[0] == '.' ||
        ::fstatat(directory, each->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    if (S_ISDIR(info.st_mode)) {
      const auto inside = name + "/";
      // Either of the two may be the longer one.
      if (inside.compare(0, prefix.size(), prefix.substr(0, inside.size())) != 0)
        continue;
      const unique_fd next{::openat(directory, each->d_name, directory_flags)};
      if (!next)
        continue;
      auto more = list_below(next.get(), inside, prefix, tell);
      if (!more || !*more)
        return more;
    } else if (S_ISREG(info.st_mode) && name.starts_with(prefix)) {
      const auto ms = std::int64_t{info.st_mtim.tv_sec} * 1000 + info.st_mtim.tv_nsec / 1'000'000;
      if (!tell({name, static_cast<std::uint64_t>(info.st_size), ms}))
        return false;
    }
  }
}

void directory_blobs::remove_leftovers() {
  const unique_fd there{::openat(directory_.get(), incoming, directory_flags)};
  const auto open = there ? entries_of(there.get()) : nullptr;
  const auto oldest = std::time(nullptr) - leftover_age_s;
  while (const dirent* each = open ? ::readdir(open.get()) : nullptr) {
    struct stat info {};
    if (::fstatat(there.get(), each->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(info.st_mode) && info.st_mtim.tv_sec < oldest)
      ::unlinkat(there.get(), each->d_name, 0);
  }
}

} // namespace insula::storage
