#pragma once

#include "base/unique_fd.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/must.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <utility>

namespace insula::test {

/// The server's end of a connection: what the test says, and no more.
class inner_connection {
public:
  explicit inner_connection(int fd)
      : fd_(fd) {
    const timeval patience{20, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  }

  std::string read_until(std::string_view mark) {
    std::size_t at = 0;
    while ((at = buffer_.find(mark)) == std::string::npos)
      if (!fill())
        return std::exchange(buffer_, {});
    return read(at + mark.size());
  }
  std::string head() { return read_until("\r\n\r\n"); }
  std::string read(std::size_t count) {
    while (buffer_.size() < count && fill()) {
    }
    auto got = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return got;
  }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0)
        return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  bool at_end() { return buffer_.empty() && !fill(); }
  void close() { fd_.reset(); }

private:
  bool fill() {
    std::array<char, 64 * 1024> bytes{};
    const auto n = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
    if (n > 0)
      buffer_.append(bytes.data(), static_cast<std::size_t>(n));
    return n > 0;
  }

  unique_fd fd_;
  std::string buffer_;
};

/// A server in a sandbox, of which the test plays every byte. `sandbox` is this network here.
class inner_server {
public:
  explicit inner_server(bool ipv6 = false)
      : fd_(::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage where{};
    socklen_t size = 0;
    if (ipv6) {
      auto& six = reinterpret_cast<sockaddr_in6&>(where);
      six.sin6_family = AF_INET6;
      six.sin6_addr = in6addr_loopback;
      size = sizeof six;
    } else {
      auto& four = reinterpret_cast<sockaddr_in&>(where);
      four.sin_family = AF_INET;
      four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      size = sizeof four;
    }
    must(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&where), size) == 0);
    must(::listen(fd_.get(), 64) == 0);
    size = sizeof where;
    ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&where), &size);
    port_ = ntohs(ipv6 ? reinterpret_cast<sockaddr_in6&>(where).sin6_port
                       : reinterpret_cast<sockaddr_in&>(where).sin_port);
  }

  inner_connection accept() {
    pollfd ready{fd_.get(), POLLIN, 0};
    must(::poll(&ready, 1, 20'000) == 1);
    return inner_connection{::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
  }
  bool is_asked(std::chrono::milliseconds within) {
    pollfd ready{fd_.get(), POLLIN, 0};
    return ::poll(&ready, 1, static_cast<int>(within.count())) == 1;
  }
  std::uint16_t port() const { return port_; }
  std::string prefix() const { return "/v1/sandbox/abc/port/" + std::to_string(port_); }
  std::string host() const { return std::to_string(port_) + "-abc.localhost"; }

private:
  unique_fd fd_;
  std::uint16_t port_ = 0;
};

/// More than fits on the way to a client that does not read. Each is of another letter, so that
/// bytes of another place show.
inline std::string large_hints() {
  std::string hints;
  for (char letter = 'a'; letter < 'a' + 16; ++letter)
    hints += "HTTP/1.1 103 Early Hints\r\nX-Hint: " + std::string(60'000, letter) + "\r\n\r\n";
  return hints;
}

/// As they were sent, up to anywhere; or whole ones, and a refusal behind them.
inline bool is_nothing_but_hints(const std::string& hints, const std::string& got) {
  const auto refusal = got.find("HTTP/1.1 4");
  const auto told = std::string_view{got}.substr(0, refusal);
  return hints.starts_with(told) && (refusal == std::string::npos || told.ends_with("\r\n\r\n"));
}

} // namespace insula::test
