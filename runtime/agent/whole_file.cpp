#include "runtime/agent/whole_file.hpp"

#include "runtime/agent/new_file.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

namespace insula::runtime::agent {

namespace {

constexpr off_t most_bytes = 4 << 20;

} // namespace

bool read_whole_file(const char* path, std::string& into, struct stat& is) {
  const int file = ::open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0)
    return errno == ENOENT;
  bool good = ::fstat(file, &is) == 0;
  if (good && (!S_ISREG(is.st_mode) || is.st_size > most_bytes)) {
    errno = EINVAL;
    good = false;
  }
  into.resize(good ? static_cast<std::size_t>(is.st_size) : 0);
  std::size_t at = 0;
  while (good && at < into.size()) {
    const ssize_t n = ::read(file, into.data() + at, into.size() - at);
    if (n < 0 && errno == EINTR)
      continue;
    good = n >= 0;
    if (n <= 0)
      break;
    at += static_cast<std::size_t>(n);
  }
  into.resize(at);
  const int why = errno;
  ::close(file);
  errno = why;
  return good;
}

file_step write_whole_file(const char* path, std::string_view text, const struct stat& is) {
  char real[PATH_MAX];
  if (::realpath(path, real) == nullptr) {
    if (errno != ENOENT)
      return file_step::open;
    std::strcpy(real, path);
  }
  new_file next;
  if (!next.open(real))
    return file_step::open;
  while (!text.empty()) {
    const ssize_t n = ::write(next.fd(), text.data(), text.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n == 0)
      errno = ENOSPC;
    if (n <= 0)
      return file_step::write;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  if (::fchown(next.fd(), is.st_uid, is.st_gid) != 0 ||
      ::fchmod(next.fd(), is.st_mode & 07777) != 0)
    return file_step::owner;
  return next.put_in_place() ? file_step::none : file_step::rename;
}

} // namespace insula::runtime::agent
