#pragma once

#include "base/unique_fd.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace insula::test {

/// Passes connections on to a port of 127.0.0.1, counts what comes back, and can hold it up at a
/// byte, until it is let go.
class counting_relay {
public:
  explicit counting_relay(std::uint16_t to)
      : to_(to)
      , listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    auto where = address(0);
    socklen_t size = sizeof where;
    // So that little is on its way: what the sockets hold is counted and may be lost.
    const int small = 64 << 10;
    ::setsockopt(listener_.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&where), size) != 0 ||
        ::listen(listener_.get(), 16) != 0 ||
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&where), &size) != 0)
      throw std::runtime_error("no socket for a relay");
    port_ = ntohs(where.sin_port);
    thread_ = std::thread{[this] { accept_all(); }};
  }
  ~counting_relay() {
    ends_ = true;
    hold_at(~0ull);
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    for (auto& each : pairs_)
      each.shut();
    for (auto& each : pairs_) {
      each.there.join();
      each.back.join();
    }
  }
  counting_relay(const counting_relay&) = delete;
  counting_relay& operator=(const counting_relay&) = delete;

  std::uint16_t port() const { return port_; }
  std::string host() const { return "127.0.0.1:" + std::to_string(port_); }
  std::uint64_t bytes() const {
    const std::lock_guard hold{guard_};
    return bytes_;
  }

  /// Of all bytes that come back, no more than that pass.
  void hold_at(std::uint64_t most) {
    const std::lock_guard hold{guard_};
    most_ = most;
    changed_.notify_all();
  }
  /// False: nothing has come so far.
  bool wait_until_held(std::chrono::milliseconds patience) {
    std::unique_lock hold{guard_};
    return changed_.wait_for(hold, patience, [&] { return bytes_ >= most_; });
  }

private:
  struct pair {
    unique_fd client, server;
    std::thread there, back;

    void shut() const {
      ::shutdown(client.get(), SHUT_RDWR);
      ::shutdown(server.get(), SHUT_RDWR);
    }
  };

  static sockaddr_in address(std::uint16_t port) {
    sockaddr_in made{};
    made.sin_family = AF_INET;
    made.sin_port = htons(port);
    made.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return made;
  }

  static bool send_all(int to, const char* bytes, std::size_t count) {
    while (count > 0) {
      const auto n = ::send(to, bytes, count, MSG_NOSIGNAL);
      if (n <= 0)
        return false;
      bytes += n;
      count -= static_cast<std::size_t>(n);
    }
    return true;
  }

  void accept_all() {
    while (!ends_) {
      unique_fd client{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
      unique_fd server{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
      const auto where = address(to_);
      if (!client ||
          ::connect(server.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0)
        continue;
      const int on = 1; // Pieces are smaller than what loopback sends at a time.
      for (const int each : {client.get(), server.get()})
        ::setsockopt(each, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      auto& one = pairs_.emplace_back();
      one.client = std::move(client);
      one.server = std::move(server);
      one.there = std::thread{[&one] {
        std::array<char, 16 << 10> piece;
        for (ssize_t n = 0; (n = ::recv(one.client.get(), piece.data(), piece.size(), 0)) > 0;)
          if (!send_all(one.server.get(), piece.data(), static_cast<std::size_t>(n)))
            break;
        one.shut();
      }};
      one.back = std::thread{[this, &one] {
        std::array<char, 16 << 10> piece;
        for (ssize_t n = 0; (n = ::recv(one.server.get(), piece.data(), piece.size(), 0)) > 0;)
          if (!pass(one.client.get(), piece.data(), static_cast<std::size_t>(n)))
            break;
        one.shut();
      }};
    }
  }

  bool pass(int to, const char* bytes, std::size_t count) {
    while (count > 0) {
      std::uint64_t may = 0;
      {
        std::unique_lock hold{guard_};
        changed_.wait(hold, [&] { return bytes_ < most_ || ends_; });
        may = std::min<std::uint64_t>(count, most_ - bytes_);
        bytes_ += may;
        changed_.notify_all();
      }
      if (!send_all(to, bytes, may))
        return false;
      bytes += may;
      count -= may;
    }
    return true;
  }

  const std::uint16_t to_;
  unique_fd listener_;
  std::uint16_t port_ = 0;
  std::atomic<bool> ends_ = false;
  mutable std::mutex guard_;
  std::condition_variable changed_;
  std::uint64_t bytes_ = 0, most_ = ~0ull;
  std::list<pair> pairs_; ///< The thread's, until it has ended.
  std::thread thread_;
};

} // namespace insula::test
