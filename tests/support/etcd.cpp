#include "tests/support/etcd.hpp"

#include "base/unique_fd.hpp"
#include "tests/support/eventually.hpp"

#include <arpa/inet.h>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <netinet/in.h>
#include <random>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>
#include <vector>

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

/// What is answered to one request; empty: nothing.
std::string answer_to(std::uint16_t port, const std::string& asked) {
  const unique_fd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const auto at = loopback(port);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
    return {};
  timeval patience{2, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (::send(socket.get(), asked.data(), asked.size(), MSG_NOSIGNAL) < 0)
    return {};
  std::string answer;
  char bytes[1024];
  for (ssize_t got = 0; (got = ::recv(socket.get(), bytes, sizeof bytes, 0)) > 0;)
    answer.append(bytes, static_cast<std::size_t>(got));
  return answer;
}

/// Does it say at /health that all is well?
bool is_healthy(std::uint16_t port) {
  return answer_to(port, "GET /health HTTP/1.0\r\n\r\n").find("\"true\"") != std::string::npos;
}

} // namespace

namespace {

/// A socket with a name that one process at a time can have, so that tests which run at the same
/// time get different ports: a port looks free until its server listens. Empty: the port is given
/// already.
unique_fd mark_of(std::uint16_t port) {
  unique_fd mark{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  const auto name = "insula-test-port-" + std::to_string(port);
  name.copy(at.sun_path + 1, sizeof at.sun_path - 1); // Abstract: no file stays behind.
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(mark.get(), reinterpret_cast<const sockaddr*>(&at), size) != 0)
    return {};
  return mark;
}

} // namespace

std::uint16_t free_port() {
  // Not where the kernel takes ports for connections: one would be in use again at once.
  static std::mt19937 random{std::random_device{}()};
  static std::vector<unique_fd> given; // Until this process ends.
  std::uniform_int_distribution<int> below_those{20'000, 32'000};
  for (int tries = 0; tries < 1'000; ++tries) {
    const unique_fd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const auto at = loopback(static_cast<std::uint16_t>(below_those(random)));
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
      continue;
    if (auto mark = mark_of(ntohs(at.sin_port))) {
      given.push_back(std::move(mark));
      return ntohs(at.sin_port);
    }
  }
  throw std::runtime_error{std::string{"no free port: "} + std::strerror(errno)};
}

etcd_server::etcd_server(std::optional<tls_files> tls)
    : tls_(std::move(tls)) {
  // Somebody may take a port between our look and etcd's: then others are tried.
  for (int tries = 0;; ++tries) {
    port_ = free_port();
    peer_port_ = free_port();
    health_port_ = free_port();
    url_ = (tls_ ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port_);
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
  const auto health = "http://127.0.0.1:" + std::to_string(health_port_);
  std::vector<std::string> argv{"/usr/bin/etcd"};
  const auto set = [&](const char* option, std::string value) {
    argv.emplace_back(option);
    argv.push_back(std::move(value));
  };
  set("--data-dir", (where_ / "data").string());
  set("--listen-client-urls", url_);
  set("--advertise-client-urls", url_);
  set("--listen-peer-urls", peer);
  set("--initial-advertise-peer-urls", peer);
  set("--initial-cluster", "default=" + peer);
  set("--listen-metrics-urls", health);
  set("--heartbeat-interval", "50");
  set("--election-timeout", "500");
  set("--max-request-bytes", "33554432");
  set("--max-txn-ops", "4096");
  set("--log-level", "error");
  if (tls_) {
    set("--cert-file", tls_->certificate);
    set("--key-file", tls_->key);
    set("--trusted-ca-file", tls_->authority);
    argv.emplace_back("--client-cert-auth");
    if (!tls_->revoked.empty())
      set("--client-crl-file", tls_->revoked);
  }
  child_program::options how;
  how.error_file = (where_ / "etcd.log").string();
  program_ = std::make_unique<child_program>(argv, how);
  if (!eventually([&] { return is_healthy(health_port_); }, 60s))
    throw std::runtime_error{"etcd does not get ready"};
}

void etcd_server::stop() {
  program_.reset();
}

void etcd_server::forget_before(std::int64_t revision) const {
  const auto body = R"({"physical":true,"revision":")" + std::to_string(revision) + "\"}";
  const auto said = answer_to(port_, "POST /v3/kv/compaction HTTP/1.0\r\nContent-Length: " +
                                       std::to_string(body.size()) + "\r\n\r\n" + body);
  if (said.find(" 200 ") == std::string::npos)
    throw std::runtime_error{"etcd does not compact: " + said};
}

void etcd_server::stand_still() const {
  program_->signal(SIGSTOP);
}

void etcd_server::go_on() const {
  program_->signal(SIGCONT);
}

} // namespace insula::test
