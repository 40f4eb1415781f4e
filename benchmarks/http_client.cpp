#include "benchmarks/http_client.hpp"

#include "benchmarks/clock.hpp"
#include "benchmarks/load/interrupt.hpp"

#include <array>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdexcept>
#include <sys/socket.h>
#include <sys/uio.h>
#include <system_error>

namespace insula::bench {

namespace {

constexpr double patience_ms = 60'000;

/// What a blocked call waits before it looks whether somebody wants to stop.
constexpr timeval look_every{0, 200'000};

constexpr std::size_t receive_bytes = 262'144;

/// Up to here a body travels with its head, as it does from every client.
constexpr std::size_t small_body_bytes = 16'384;

[[noreturn]] void fail(const char* what) {
  throw std::system_error{errno, std::generic_category(), what};
}

void wait_on(clock::time_point since, const char* what) {
  if (errno != EAGAIN && errno != EINTR)
    fail(what);
  load::throw_if_interrupted();
  if (ms_since(since) > patience_ms)
    throw std::runtime_error(std::string{what} + ": nothing for a minute");
}

} // namespace

unique_fd connect_to(std::uint16_t port) {
  unique_fd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int on = 1;
  if (!socket || ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &look_every, sizeof look_every) != 0 ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &look_every, sizeof look_every) != 0)
    fail("socket");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
    fail("connect");
  return socket;
}

std::string request_text(std::string_view method, std::string_view target, std::string_view key,
                         std::string_view body, std::string_view fields) {
  std::string text;
  text.append(method).append(" ").append(target).append(" HTTP/1.1\r\nHost: 127.0.0.1\r\n");
  if (!key.empty())
    text.append("Authorization: Bearer ").append(key).append("\r\n");
  if (!body.empty() || method == "POST" || method == "PUT")
    text.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n");
  return text.append(fields).append("\r\n").append(body);
}

http_client::http_client(std::uint16_t port, std::string key)
    : port_(port)
    , key_(std::move(key))
    , buffer_(receive_bytes) {}

void http_client::ready() {
  char unexpected = 0;
  if (socket_ && ::recv(socket_.get(), &unexpected, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
      errno == EAGAIN)
    return;
  socket_ = connect_to(port_);
}

int http_client::ask(std::string_view method, std::string_view target, std::string_view body,
                     response_reader::body_fn on_body, std::string_view fields) {
  if (!socket_)
    socket_ = connect_to(port_);
  try {
    if (body.size() <= small_body_bytes) {
      send(request_text(method, target, key_, body, fields), {});
    } else {
      auto head = request_text(method, target, key_, {}, fields);
      const std::string_view zero = "Content-Length: 0\r\n";
      head.replace(head.find(zero), zero.size(),
                   "Content-Length: " + std::to_string(body.size()) + "\r\n");
      send(head, body);
    }
    reader_.start(std::move(on_body));
    while (!reader_.done())
      receive();
  } catch (...) {
    socket_.reset();
    throw;
  }
  if (!reader_.keeps_alive())
    socket_.reset();
  return reader_.status();
}

int http_client::ask(std::string_view method, std::string_view target, std::string_view body,
                     std::string& answer) {
  answer.clear();
  return ask(method, target, body, [&answer](std::string_view piece) { answer.append(piece); });
}

void http_client::send(std::string_view head, std::string_view body) {
  const auto since = clock::now();
  while (!head.empty() || !body.empty()) {
    std::array<iovec, 2> parts{iovec{const_cast<char*>(head.data()), head.size()},
                               iovec{const_cast<char*>(body.data()), body.size()}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const auto sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      wait_on(since, "send");
      continue;
    }
    auto left = static_cast<std::size_t>(sent);
    const auto of_head = std::min(left, head.size());
    head.remove_prefix(of_head);
    body.remove_prefix(left - of_head);
  }
}

void http_client::receive() {
  const auto since = clock::now();
  for (;;) {
    const auto got = ::recv(socket_.get(), buffer_.data(), buffer_.size(), 0);
    if (got > 0)
      return reader_.feed({buffer_.data(), static_cast<std::size_t>(got)});
    if (got == 0)
      throw std::runtime_error(reader_.begun() ? "the answer was cut" : "closed without an answer");
    wait_on(since, "receive");
  }
}

} // namespace insula::bench
