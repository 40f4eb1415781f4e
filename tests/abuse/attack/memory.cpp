#include "tests/abuse/attack/attacks.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace insula::attack {

namespace {

constexpr std::size_t mebibyte = 1 << 20;

/// Takes memory and uses it, so that it is really there.
void take(std::size_t bytes) {
  void* const at =
    ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at != MAP_FAILED)
    std::memset(at, 1, bytes);
}

/// Opens one more descriptor of that kind. -1: it could not.
int open_one(const char* kind) {
  int ends[2];
  switch (kind[0]) {
    case 'f': return ::open("/dev/null", O_RDONLY);
    case 's': return ::socket(AF_INET, SOCK_STREAM, 0);
    case 'u': return ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    case 'p': return ::pipe(ends);
    case 'i': return ::inotify_init();
    case 't': return ::timerfd_create(CLOCK_MONOTONIC, 0);
    case 'l': {
      const int file = ::open("locked", O_CREAT | O_RDONLY, 0600);
      return file >= 0 && ::flock(file, LOCK_SH) == 0 && ::fcntl(file, F_SETLEASE, F_RDLCK) == 0
               ? file
               : -1;
    }
    case 'e': {
      const int poller = ::epoll_create1(0);
      epoll_event wish{};
      ::epoll_ctl(poller, EPOLL_CTL_ADD, ::eventfd(0, 0), &wish);
      return poller;
    }
    default: return -1;
  }
}

/// Sends descriptors through a socket and closes its own: nobody's table holds them any more.
int send_one(int through, int fd) {
  char byte = 'x';
  iovec data{&byte, 1};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  auto* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(part), &fd, sizeof fd);
  return static_cast<int>(::sendmsg(through, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

long fill_flight() {
  long count = 0;
  for (;;) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
      return count;
    const int file = ::open("/dev/null", O_RDONLY);
    if (file < 0)
      return count;
    while (send_one(ends[0], file) == 1)
      ++count;
    if (errno != EAGAIN) // Else this pair is full: one more.
      return count;
    ::close(file);
  }
}

long fill_table(const char* kind) {
  if (kind[0] == 'r')
    return fill_flight();
  long count = 0;
  while (open_one(kind) >= 0)
    ++count;
  return count;
}

} // namespace

void memory_hog() {
  for (;;)
    take(mebibyte);
}

void many_hogs(long processes, long mebibytes) {
  be_many(processes, [mebibytes] {
    for (long taken = 0; taken < mebibytes; ++taken)
      take(mebibyte);
  });
}

void many_descriptors(const char* kind, long processes) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (processes > 1)
    be_many(processes, [kind] { fill_table(kind); });
  met_limit(fill_table(kind));
  press_on();
}

void many_terminals() {
  long count = 0;
  while (::open("/dev/ptmx", O_RDWR | O_NOCTTY) >= 0)
    ++count;
  met_limit(count);
  press_on();
}

} // namespace insula::attack
