#pragma once

#include "tests/fuzz/bytes.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

namespace insula::fuzz {

/// A connection to the server. The fuzzer's alarm can come in mid-connect, which goes on without us
/// then.
inline int connection_to(std::uint16_t port) {
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int failed = 0;
  if (::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    failed = errno;
  if (failed == EINTR) {
    pollfd made{client, POLLOUT, 0};
    wait_for(made, "an interrupted connection is made");
    socklen_t length = sizeof failed;
    ::getsockopt(client, SOL_SOCKET, SO_ERROR, &failed, &length);
  }
  must(failed == 0, "the server takes a connection");
  return client;
}

/// Says everything, then that there is no more, unless it `stays`, and listens until the other side
/// has closed.
inline std::string converse(std::uint16_t port, std::string_view bytes, bool stays = false) {
  const int client = connection_to(port);
  bool all_said = false;
  std::string heard;
  for (;;) {
    pollfd ready{client, static_cast<short>(all_said ? POLLIN : POLLIN | POLLOUT), 0};
    wait_for(ready, "a connection whose client has said all is closed");
    if ((ready.revents & POLLOUT) != 0 && !all_said) {
      const auto sent = ::send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      bytes.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(0, sent)));
      if (bytes.empty() || (sent < 0 && errno != EAGAIN && errno != EINTR)) {
        all_said = true;
        if (!stays)
          ::shutdown(client, SHUT_WR);
      }
    }
    if ((ready.revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
      char buffer[16'384];
      const auto got = ::recv(client, buffer, sizeof buffer, MSG_DONTWAIT);
      if (got > 0)
        heard.append(buffer, static_cast<std::size_t>(got));
      else if (got == 0 || (errno != EAGAIN && errno != EINTR))
        break;
    }
  }
  ::close(client);
  return heard;
}

} // namespace insula::fuzz
