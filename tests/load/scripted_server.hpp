#pragma once

#include "base/unique_fd.hpp"

#include <arpa/inet.h>
#include <atomic>
#include <mutex>
#include <netinet/in.h>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace insula::test {

/// Answers every request on 127.0.0.1 with the same bytes, and then closes the connection, or
/// leaves it as it is and says nothing more. One that dies answers `answered` requests, cuts the
/// connections of the next `cut`, and then closes its port, as a program does that is killed.
class scripted_server {
public:
  enum class afterwards { closes, is_silent, dies };
  struct life {
    int answered;
    int cut;
  };

  scripted_server(std::string answer, afterwards then, life lives = {0, 0})
      : answer_(std::move(answer))
      , then_(then)
      , lives_(lives)
      , listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), size) != 0 ||
        ::listen(listener_.get(), 16) != 0 ||
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0)
      throw std::runtime_error("no port for a scripted server");
    port_ = ntohs(at.sin_port);
    thread_ = std::jthread{[this] { serve(); }};
  }
  ~scripted_server() { ended_ = true; }
  scripted_server(const scripted_server&) = delete;
  scripted_server& operator=(const scripted_server&) = delete;

  std::uint16_t port() const { return port_; }
  /// How many connections it has closed after an answer.
  int closed() const { return closed_; }
  /// The last request that it has answered.
  std::string heard() const {
    const std::lock_guard lock{mutex_};
    return last_;
  }

private:
  void serve() {
    unique_fd client;
    std::string heard;
    while (!ended_) {
      pollfd ready[2] = {{listener_.get(), POLLIN, 0}, {client.get(), POLLIN, 0}};
      if (::poll(ready, client ? 2 : 1, 20) <= 0)
        continue;
      if (ready[0].revents != 0) {
        client.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        heard.clear();
        continue;
      }
      char bytes[4096];
      const auto got = ::recv(client.get(), bytes, sizeof bytes, 0);
      if (got <= 0) {
        client.reset();
        continue;
      }
      heard.append(bytes, static_cast<std::size_t>(got));
      // The requests of these tests are small, and their bodies come with their heads.
      if (heard.find("\r\n\r\n") == std::string::npos)
        continue;
      {
        const std::lock_guard lock{mutex_};
        last_ = std::exchange(heard, {});
      }
      if (then_ == afterwards::dies && ++requests_ > lives_.answered) {
        client.reset();
        if (requests_ < lives_.answered + lives_.cut)
          continue;
        listener_.reset();
        return;
      }
      if (::send(client.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL) < 0 ||
          then_ == afterwards::closes) {
        client.reset();
        ++closed_;
      }
    }
  }

  const std::string answer_;
  const afterwards then_;
  const life lives_;
  unique_fd listener_;
  int requests_ = 0; ///< Of the thread.
  std::uint16_t port_ = 0;
  std::atomic<bool> ended_{false};
  std::atomic<int> closed_{0};
  mutable std::mutex mutex_;
  std::string last_;
  std::jthread thread_; ///< Last: it ends first.
};

} // namespace insula::test
