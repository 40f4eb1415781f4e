#include "benchmarks/loopback_peer.hpp"

#include "benchmarks/http_client.hpp"

#include <algorithm>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <system_error>

namespace insula::bench {

namespace {

/// What is wanted of the other end.
struct wish {
  std::uint64_t take;
  std::uint64_t give;
};

constexpr std::size_t buffer_bytes = 262'144;

[[noreturn]] void fail(const char* what) {
  throw std::system_error{errno, std::generic_category(), what};
}

bool send_all(int fd, const void* bytes, std::uint64_t count) {
  const auto* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const auto sent = ::send(fd, at, count, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
      return false;
    at += std::max<ssize_t>(sent, 0);
    count -= static_cast<std::uint64_t>(std::max<ssize_t>(sent, 0));
  }
  return true;
}

/// Into the same buffer again and again, or into one that is large enough.
bool receive_all(int fd, void* buffer, std::size_t size, std::uint64_t count) {
  while (count > 0) {
    const auto got = ::recv(fd, buffer, std::min<std::uint64_t>(size, count), 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
      return false;
    count -= static_cast<std::uint64_t>(std::max<ssize_t>(got, 0));
  }
  return true;
}

} // namespace

loopback_peer::loopback_peer()
    : buffer_(buffer_bytes) {
  const unique_fd door{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof any;
  auto* address = reinterpret_cast<sockaddr*>(&any);
  if (::bind(door.get(), address, size) != 0 || ::listen(door.get(), 1) != 0 ||
      ::getsockname(door.get(), address, &size) != 0)
    fail("loopback");
  mine_ = connect_to(ntohs(any.sin_port));
  other_.reset(::accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const int on = 1;
  if (!other_ || ::setsockopt(other_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
    fail("loopback");
  thread_ = std::thread{[this] { serve(); }};
}

loopback_peer::~loopback_peer() {
  ::shutdown(mine_.get(), SHUT_RDWR);
  thread_.join();
}

void loopback_peer::serve() {
  std::vector<char> bytes(buffer_bytes);
  for (wish next{}; receive_all(other_.get(), &next, sizeof next, sizeof next);) {
    const char done = 0;
    if (!receive_all(other_.get(), bytes.data(), bytes.size(), next.take))
      return;
    if (next.take > 0 && !send_all(other_.get(), &done, 1))
      return;
    for (auto left = next.give; left > 0; left -= std::min<std::uint64_t>(left, bytes.size()))
      if (!send_all(other_.get(), bytes.data(), std::min<std::uint64_t>(left, bytes.size())))
        return;
  }
}

void loopback_peer::write(std::string_view bytes) {
  const wish what{bytes.size(), 0};
  char done = 0;
  if (!send_all(mine_.get(), &what, sizeof what) ||
      !send_all(mine_.get(), bytes.data(), bytes.size()) || !receive_all(mine_.get(), &done, 1, 1))
    fail("loopback");
}

void loopback_peer::read(std::uint64_t count) {
  const wish what{0, count};
  if (!send_all(mine_.get(), &what, sizeof what) ||
      !receive_all(mine_.get(), buffer_.data(), buffer_.size(), count))
    fail("loopback");
}

} // namespace insula::bench
