#pragma once

#include "base/unique_fd.hpp"
#include "runtime/agent/protocol.hpp"
#include "runtime/packet_socket.hpp"
#include "runtime/spawner/protocol.hpp"
#include "tests/support/catch.hpp"

#include <array>
#include <cstring>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <vector>

namespace insula::test {

/// One end of a SOCK_SEQPACKET connection, as plain as the kernel gives it: for playing those who
/// misbehave.
class plain_end {
public:
  explicit plain_end(unique_fd socket)
      : socket_(std::move(socket)) {}

  static std::array<unique_fd, 2> pair() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    return {unique_fd{ends[0]}, unique_fd{ends[1]}};
  }

  bool send(std::string_view bytes, std::vector<int> fds = {}, int flags = 0) const {
    iovec data{const_cast<char*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 64)> space{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = space.data();
      message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
      auto* part = CMSG_FIRSTHDR(&message);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
      std::memcpy(CMSG_DATA(part), fds.data(), sizeof(int) * fds.size());
    }
    return ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | flags) ==
           static_cast<ssize_t>(bytes.size());
  }

  struct packet {
    std::string bytes; ///< Empty: the other side is gone.
    std::vector<unique_fd> fds;
  };

  packet next() const {
    pollfd ready{socket_.get(), POLLIN, 0};
    if (::poll(&ready, 1, 20'000) != 1)
      throw std::runtime_error("no packet came in time");
    packet got;
    got.bytes.resize(512 * 1024);
    iovec data{got.bytes.data(), got.bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 16)> space{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = space.data();
    message.msg_controllen = space.size();
    const ssize_t n = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    got.bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    for (auto* part = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr; part != nullptr;
         part = CMSG_NXTHDR(&message, part))
      for (std::size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
        got.fds.emplace_back(fd);
      }
    return got;
  }

  int fd() const { return socket_.get(); }
  void close() { socket_.reset(); }

private:
  unique_fd socket_;
};

/// An agent that says what the test wants it to say.
class played_agent {
public:
  explicit played_agent(unique_fd socket)
      : end(std::move(socket)) {}

  void say(runtime::agent::event what, std::uint64_t id = 0, std::int32_t value = 0,
           std::uint32_t step = 0) const {
    runtime::agent::notice said{};
    said.what = what;
    said.id = id;
    said.value = value;
    said.step = step;
    REQUIRE(end.send(runtime::as_bytes(said)));
  }

  struct asked {
    runtime::agent::request head{};
    std::string text;
    std::vector<unique_fd> fds;
  };

  /// The next request, which must be of the kind `what`.
  asked next(runtime::agent::op what) const {
    auto got = end.next();
    asked wanted;
    REQUIRE(got.bytes.size() >= sizeof wanted.head);
    got.bytes.copy(reinterpret_cast<char*>(&wanted.head), sizeof wanted.head);
    REQUIRE(wanted.head.what == what);
    wanted.text = got.bytes.substr(sizeof wanted.head);
    REQUIRE(wanted.head.text_bytes == wanted.text.size());
    wanted.fds = std::move(got.fds);
    return wanted;
  }

  plain_end end;
};

/// A spawner that makes no sandbox, but says so, or says something else.
class played_spawner {
public:
  explicit played_spawner(unique_fd socket)
      : end(std::move(socket)) {}

  runtime::spawner::request next() const {
    const auto got = end.next().bytes;
    REQUIRE(got.size() >= sizeof(runtime::spawner::request));
    runtime::spawner::request wanted{};
    got.copy(reinterpret_cast<char*>(&wanted), sizeof wanted);
    return wanted;
  }
  /// The next one of this kind; what is asked between is passed over.
  runtime::spawner::request next(runtime::spawner::op what) const {
    for (;;)
      if (auto wanted = next(); wanted.what == what)
        return wanted;
  }

  void say(runtime::spawner::event what, std::uint32_t slot, std::int32_t error = 0,
           runtime::spawner::launch_step step = {}, std::vector<int> fds = {}) const {
    runtime::spawner::notice said{};
    said.what = what;
    said.slot = slot;
    said.error = error;
    said.step = static_cast<std::uint32_t>(step);
    said.version = runtime::spawner::version;
    REQUIRE(end.send(runtime::as_bytes(said), std::move(fds)));
  }

  /// Answers the next create with a sandbox whose agent the test plays.
  std::pair<std::uint32_t, played_agent> make() const {
    const auto wanted = next(runtime::spawner::op::create);
    auto ends = plain_end::pair();
    constexpr int buffer = 1 << 20;
    for (const auto& each : ends)
      ::setsockopt(each.get(), SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    say(runtime::spawner::event::created, wanted.slot, 0, {}, {ends[0].get()});
    return {wanted.slot, played_agent{std::move(ends[1])}};
  }

  plain_end end;
};

} // namespace insula::test
