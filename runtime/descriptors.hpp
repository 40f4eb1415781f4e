#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

/// Packets with descriptors beside them (SCM_RIGHTS).
namespace insula::runtime {

/// As sendmsg(), with at most `Most` descriptors, which stay the caller's.
template <int Most>
ssize_t send_packet(int way, iovec* parts, std::size_t part_count, const int* fds, int count) {
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int) * Most)] = {};
  const auto bytes = sizeof(int) * static_cast<std::size_t>(std::min(count, Most));
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = part_count;
  message.msg_control = space;
  message.msg_controllen = CMSG_SPACE(bytes);
  auto* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(bytes);
  if (bytes > 0) // Else there may be none to point to.
    std::memcpy(CMSG_DATA(part), fds, bytes);
  return ::sendmsg(way, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// As recvmsg(), and not disturbed by signals. The descriptors close on exec and are the caller's;
/// those for which there is no room are closed.
template <int Most>
ssize_t receive_packet(int way, iovec into, int (&fds)[Most], int& count, int flags) {
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int) * Most)];
  msghdr message{};
  message.msg_iov = &into;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  count = 0;
  ssize_t n = 0;
  do
    n = ::recvmsg(way, &message, MSG_CMSG_CLOEXEC | flags);
  while (n < 0 && errno == EINTR);
  for (auto* part = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr; part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
      continue;
    for (std::size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      if (count < Most)
        fds[count++] = fd;
      else
        ::close(fd);
    }
  }
  return n;
}

} // namespace insula::runtime
