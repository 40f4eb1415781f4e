#include "runtime/agent/file_operations.hpp"

#include "base/stream_frames.hpp"
#include "runtime/agent/channel.hpp"
#include "runtime/agent/new_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

namespace insula::runtime::agent {

void parent_of(const char* path, char (&parent)[PATH_MAX]) {
  std::snprintf(parent, sizeof parent, "%s", path);
  char* last = std::strrchr(parent, '/');
  if (last == parent)
    last[1] = '\0';
  else if (last != nullptr)
    *last = '\0';
}

int make_directories(char* path) {
  for (char* slash = path + 1; (slash = std::strchr(slash, '/')) != nullptr; ++slash) {
    *slash = '\0';
    const int failed = ::mkdir(path, 0777) != 0 && errno != EEXIST ? errno : 0;
    *slash = '/';
    if (failed != 0 && failed != EACCES &&
        failed != EROFS) // A later component may exist all the same.
      return failed;
  }
  if (::mkdir(path, 0777) == 0 || errno == EEXIST)
    return 0;
  return errno;
}

namespace {

file_kind kind_of(const struct stat& info) {
  if (S_ISREG(info.st_mode))
    return file_kind::regular;
  return S_ISDIR(info.st_mode) ? file_kind::directory : file_kind::other;
}

void answer(int channel, int error, file_step step, const struct stat* info = nullptr) {
  file_head head{};
  head.error = error;
  head.step = static_cast<std::uint32_t>(step);
  if (info != nullptr) {
    head.kind = kind_of(*info);
    head.size = static_cast<std::uint64_t>(info->st_size);
    head.mode = info->st_mode & 07777;
  }
  send_all(channel, &head, sizeof head);
}

/// Returns errno.
int write_all(int file, const char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t n = ::write(file, bytes, count);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return n == 0 ? EIO : errno;
    bytes += n;
    count -= static_cast<std::size_t>(n);
  }
  return 0;
}

/// Copies frames into `file`. 0: all of it; -1: the sender was cut off; otherwise errno.
int receive_content(int channel, int file) {
  static char buffer[max_frame_bytes];
  for (;;) {
    frame_head frame{};
    if (!receive_all(channel, &frame, sizeof frame) || frame.bytes > max_frame_bytes)
      return -1;
    if (frame.bytes == 0)
      return 0;
    std::size_t left = frame.bytes;
    while (left > 0) {
      // What has arrived so far: the disk is written while the rest of the frame is still on its
      // way.
      const ssize_t got = ::recv(channel, buffer, left, 0);
      if (got < 0 && errno == EINTR)
        continue;
      if (got <= 0)
        return -1;
      if (const int failed = write_all(file, buffer, static_cast<std::size_t>(got)); failed != 0)
        return failed;
      left -= static_cast<std::size_t>(got);
    }
  }
}

/// After a failure the sender may still be sending, and would miss the answer if it met a closed
/// socket.
void swallow(int channel) {
  static char buffer[max_frame_bytes];
  frame_head frame{};
  while (receive_all(channel, &frame, sizeof frame) && frame.bytes != 0 &&
         frame.bytes <= sizeof buffer)
    if (!receive_all(channel, buffer, frame.bytes))
      return;
}

} // namespace

void refuse(int channel, int error, file_step step, const struct stat* info) {
  answer(channel, error, step, info);
  swallow(channel);
}

namespace {

/// Gives the file the mode and the owners that it is to have. What failed, with errno, or none.
file_step grant(int file, const file_wishes& wishes) {
  constexpr auto nobody = static_cast<uid_t>(-1);
  // First, since it takes bits from the mode.
  if ((wishes.owner != nobody || wishes.group != nobody) &&
      ::fchown(file, wishes.owner, wishes.group) != 0)
    return file_step::owner;
  if (wishes.mode >= 0 && ::fchmod(file, static_cast<mode_t>(wishes.mode)) != 0)
    return file_step::mode;
  return file_step::none;
}

/// As a symlink at `path` leads on, to a place where nothing may be yet. False: it cannot be
/// followed, with errno.
bool follow_links(char (&path)[PATH_MAX]) {
  char target[PATH_MAX], parent[PATH_MAX];
  constexpr int most = 40; // As many as the kernel follows.
  for (int i = 0; i < most; ++i) {
    const ssize_t length = ::readlink(path, target, sizeof target - 1);
    if (length < 0)
      return errno == EINVAL || errno == ENOENT; // It is no link, or nothing is there.
    target[length] = '\0';
    parent_of(path, parent);
    const int whole = target[0] == '/' ? std::snprintf(path, sizeof path, "%s", target)
                                       : std::snprintf(path, sizeof path, "%s/%s", parent, target);
    if (whole >= static_cast<int>(sizeof path)) {
      errno = ENAMETOOLONG;
      return false;
    }
  }
  errno = ELOOP;
  return false;
}

/// All of a file, in place of what another one has. Returns errno.
int copy_over(int from, int to) {
  if (::ftruncate(to, 0) != 0)
    return errno;
  static char buffer[max_frame_bytes];
  for (off_t at = 0;;) {
    const ssize_t n = ::pread(from, buffer, sizeof buffer, at);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return n == 0 ? 0 : errno;
    if (const int failed = write_all(to, buffer, static_cast<std::size_t>(n)); failed != 0)
      return failed;
    at += n;
  }
}

/// For places where no second file can be made. The content is kept elsewhere until it is whole, if
/// there is such a place: a sender that is cut off has changed nothing.
void write_in_place(int channel, const char* path, const file_wishes& wishes) {
  const int file =
    ::open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, wishes.new_mode);
  if (file < 0)
    return refuse(channel, errno, file_step::open);
  struct stat info {};
  if (::fstat(file, &info) != 0)
    return refuse(channel, errno, file_step::type);
  if (!S_ISREG(info.st_mode))
    return refuse(channel, EINVAL, file_step::type, &info);
  new_file whole;
  const bool kept = whole.open_for_copy();
  if (!kept && ::ftruncate(file, 0) != 0)
    return refuse(channel, errno, file_step::write);
  const int failed = receive_content(channel, kept ? whole.fd() : file);
  if (failed == -1)
    return;
  if (failed != 0)
    return refuse(channel, failed, file_step::write);
  if (const int uncopied = kept ? copy_over(whole.fd(), file) : 0; uncopied != 0)
    return answer(channel, uncopied, file_step::write);
  if (const auto unmet = grant(file, wishes); unmet != file_step::none)
    return answer(channel, errno, unmet);
  if (::fstat(file, &info) != 0 || ::close(file) != 0)
    return answer(channel, errno, file_step::write);
  answer(channel, 0, file_step::none, &info);
}

} // namespace

void send_file(int channel, const char* path) {
  // O_NONBLOCK: a FIFO without a writer opens at once, and is then refused by its type.
  const int file = ::open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0)
    return answer(channel, errno, file_step::open);
  struct stat info {};
  if (::fstat(file, &info) != 0)
    return answer(channel, errno, file_step::type);
  if (!S_ISREG(info.st_mode))
    return answer(channel, S_ISDIR(info.st_mode) ? EISDIR : EINVAL, file_step::type, &info);
  static char buffer[max_frame_bytes];
  answer(channel, 0, file_step::none, &info);
  for (;;) {
    const ssize_t n = ::read(file, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return; // Without the last frame: the reader sees that the content was cut.
    const frame_head frame{static_cast<std::uint32_t>(n)};
    if (!send_all(channel, &frame, sizeof frame, n > 0 ? MSG_MORE : 0) ||
        !send_all(channel, buffer, static_cast<std::size_t>(n)) || n == 0)
      return;
  }
}

void receive_file(int channel, const char* path, const file_wishes& wishes) {
  char real[PATH_MAX], parent[PATH_MAX];
  if (std::strlen(path) >= sizeof parent)
    return refuse(channel, ENAMETOOLONG, file_step::setup);
  // Through symlinks to the file itself, which is then replaced whole, or made.
  if (::realpath(path, real) == nullptr) {
    parent_of(path, parent);
    if (const int failed = make_directories(parent); failed != 0)
      return refuse(channel, failed, file_step::parents);
    std::snprintf(real, sizeof real, "%s", path);
    if (!follow_links(real))
      return refuse(channel, errno, file_step::open);
  }
  path = real;

  struct stat before {};
  const bool exists = ::lstat(path, &before) == 0;
  if (!exists && errno != ENOENT)
    return refuse(channel, errno, file_step::open);
  if (exists && S_ISDIR(before.st_mode))
    return refuse(channel, EISDIR, file_step::type, &before);
  if (exists && !S_ISREG(before.st_mode))
    return write_in_place(channel, path, wishes);
  // Replacing a file by renaming would otherwise be a way around its permissions.
  if (exists && ::access(path, W_OK) != 0)
    return refuse(channel, errno, file_step::open);

  new_file next;
  if (!next.open(path)) {
    if (errno == EACCES || errno == EROFS || errno == EPERM)
      return write_in_place(channel, path, wishes);
    return refuse(channel, errno, file_step::open);
  }
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(next.fd(), exists ? before.st_mode & 07777 : wishes.new_mode & ~mask) != 0)
    return refuse(channel, errno, file_step::open);
  const int failed = receive_content(channel, next.fd());
  if (failed == -1)
    return;
  if (failed != 0)
    return refuse(channel, failed, file_step::write);
  if (const auto unmet = grant(next.fd(), wishes); unmet != file_step::none)
    return answer(channel, errno, unmet);
  struct stat after {};
  if (::fstat(next.fd(), &after) != 0)
    return answer(channel, errno, file_step::write);
  if (!next.put_in_place())
    return answer(channel, errno, file_step::rename);
  answer(channel, 0, file_step::none, &after);
}

} // namespace insula::runtime::agent
