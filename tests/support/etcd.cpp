#include "tests/support/etcd.hpp"

#include "base/unique_fd.hpp"
#include "tests/support/eventually.hpp"

#include <arpa/inet.h>
#include <csignal>
#include <cstring>
#include <netinet/in.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

namespace insula::test {

using namespace std::chrono_literals;

namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return at;
}

/// Does it say at /health that all is well?
bool is_healthy(std::uint16_t port) {
  const unique_fd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const auto at = loopback(port);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
    return false;
  timeval patience{2, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const std::string asked = "GET /health HTTP/1.0\r\n\r\n";
  if (::send(socket.get(), asked.data(), asked.size(), MSG_NOSIGNAL) < 0)
    return false;
  std::string answer;
  char bytes[1024];
  for (ssize_t got = 0; (got = ::recv(socket.get(), bytes, sizeof bytes, 0)) > 0;)
    answer.append(bytes, static_cast<std::size_t>(got));
  return answer.find("\"true\"") != std::string::npos;
}

} // namespace

std::uint16_t free_port() {
  const unique_fd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  auto at = loopback(0);
  socklen_t size = sizeof at;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0)
    throw std::runtime_error{std::string{"no free port: "} + std::strerror(errno)};
  return ntohs(at.sin_port);
}

etcd_server::etcd_server() {
  // Somebody may take a port between our look and etcd's: then others are tried.
  for (int tries = 0;; ++tries) {
    port_ = free_port();
    peer_port_ = free_port();
    url_ = "http://127.0.0.1:" + std::to_string(port_);
    try {
      start();
      return;
    } catch (const std::runtime_error&) {
      if (tries == 3)
        throw;
    }
  }
}

etcd_server::~etcd_server() = default;

void etcd_server::start() {
  const auto peer = "http://127.0.0.1:" + std::to_string(peer_port_);
  child_program::options how;
  how.error_file = (where_ / "etcd.log").string();
  program_ =
    std::make_unique<child_program>(std::vector<std::string>{"/usr/bin/etcd",
                                                             "--data-dir",
                                                             (where_ / "data").string(),
                                                             "--listen-client-urls",
                                                             url_,
                                                             "--advertise-client-urls",
                                                             url_,
                                                             "--listen-peer-urls",
                                                             peer,
                                                             "--initial-advertise-peer-urls",
                                                             peer,
                                                             "--initial-cluster",
                                                             "default=" + peer,
                                                             "--heartbeat-interval",
                                                             "50",
                                                             "--election-timeout",
                                                             "500",
                                                             "--max-request-bytes",
                                                             "33554432",
                                                             "--max-txn-ops",
                                                             "4096",
                                                             "--log-level",
                                                             "error"},
                                    how);
  if (!eventually([&] { return is_healthy(port_); }, 60s))
    throw std::runtime_error{"etcd does not get ready"};
}

void etcd_server::stop() {
  program_.reset();
}

void etcd_server::stand_still() const {
  program_->signal(SIGSTOP);
}

void etcd_server::go_on() const {
  program_->signal(SIGCONT);
}

} // namespace insula::test
