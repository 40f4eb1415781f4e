#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <sys/socket.h>

namespace insula::runtime::agent {

/// False: the other end is gone.
inline bool send_all(int channel, const void* data, std::size_t count, int flags = 0) {
  const auto* at = static_cast<const char*>(data);
  while (count > 0) {
    const ssize_t n = ::send(channel, at, count, MSG_NOSIGNAL | flags);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    at += n;
    count -= static_cast<std::size_t>(n);
  }
  return true;
}

inline bool receive_all(int channel, void* data, std::size_t count) {
  auto* at = static_cast<char*>(data);
  while (count > 0) {
    const ssize_t n = ::recv(channel, at, count, MSG_WAITALL);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    at += n;
    count -= static_cast<std::size_t>(n);
  }
  return true;
}

} // namespace insula::runtime::agent
