#pragma once

#include "base/packed_text.hpp"
#include "base/request_rules.hpp"
#include "base/unique_fd.hpp"
#include "runtime/broker/authority.hpp"
#include "runtime/broker/protocol.hpp"
#include "runtime/descriptors.hpp"

#include <csignal>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace insula::test {

/// The broker's own program, with a test in place of its spawner and of the server.
class driven_broker {
public:
  explicit driven_broker(const char* program)
      : sandbox(*runtime::broker::make_authority(std::time(nullptr))) {
    auto [ours, theirs] = pair(SOCK_SEQPACKET);
    spawner_ = std::move(ours);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(theirs.get(), runtime::broker::spawner_fd);
      ::close_range(runtime::broker::spawner_fd + 1, ~0u, 0);
      ::execl(program, "insula-broker", "61235", "test", nullptr);
      ::_exit(127);
    }
    auto [server, its] = pair(SOCK_STREAM);
    tell(runtime::broker::order::serve, its);
    server_ = std::move(server);
  }
  ~driven_broker() { end(); }
  driven_broker(const driven_broker&) = delete;
  driven_broker& operator=(const driven_broker&) = delete;

  void end() {
    if (pid_ < 0)
      return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  /// The gateway's end of a new way between the two.
  unique_fd way() {
    auto [ours, theirs] = pair(SOCK_SEQPACKET);
    tell(runtime::broker::order::gateway, theirs);
    return std::move(ours);
  }
  /// `trusted`: PEM.
  void use(const std::vector<request_rule>& rules, const std::string& trusted) {
    packed_writer all;
    all.text(sandbox.certificate).text(sandbox.key).text(trusted).text(to_text(rules));
    all.text("the sandbox of this test");
    const auto text = all.take();
    runtime::broker::frame head{static_cast<std::uint32_t>(text.size()),
                                runtime::broker::question::use, 1, 0, 0};
    const timeval patience{60, 0};
    ::setsockopt(server_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (::send(server_.get(), &head, sizeof head, MSG_NOSIGNAL) != sizeof head ||
        ::send(server_.get(), text.data(), text.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(text.size()) ||
        ::recv(server_.get(), &head, sizeof head, MSG_WAITALL) != sizeof head || head.error != 0)
      throw std::runtime_error("the broker does not take its rules");
  }

  const runtime::broker::authority_text sandbox;

private:
  struct ends {
    unique_fd ours, theirs;
  };
  static ends pair(int type) {
    int made[2];
    if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, made) != 0)
      throw std::runtime_error("no sockets");
    return {unique_fd{made[0]}, unique_fd{made[1]}};
  }
  void tell(runtime::broker::order what, const unique_fd& way) {
    runtime::broker::spawner_packet head{what};
    iovec part{&head, sizeof head};
    const int fd = way.get();
    if (runtime::send_packet<1>(spawner_.get(), &part, 1, &fd, 1) < 0)
      throw std::runtime_error("the broker does not listen");
  }

  pid_t pid_ = -1;
  unique_fd spawner_, server_;
};

} // namespace insula::test
