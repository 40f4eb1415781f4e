#pragma once

#include "base/network.hpp"
#include "base/unique_fd.hpp"
#include "runtime/descriptors.hpp"
#include "runtime/gateway/protocol.hpp"
#include "runtime/spawner/wire_network.hpp"

#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <linux/sched.h>
#include <map>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace insula::test {

/// A process that does nothing in a user and network namespace of its own, whose network is wired
/// like a sandbox's. Needs root.
class wired_process {
public:
  explicit wired_process(runtime::spawner::wired_for whom = runtime::spawner::wired_for::sandbox) {
    // Not by unshare() in a child: a sanitizer has another thread there.
    clone_args how{};
    how.flags = CLONE_NEWUSER | CLONE_NEWNET;
    how.exit_signal = SIGCHLD;
    pid_ = static_cast<pid_t>(::syscall(SYS_clone3, &how, sizeof how));
    if (pid_ == 0)
      for (;;)
        ::pause();
    const unique_fd process{static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0))};
    if (pid_ < 0 || !runtime::spawner::wire_network(process.get(), sockets_, whom))
      throw std::runtime_error("no network could be wired");
  }
  ~wired_process() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  wired_process(const wired_process&) = delete;
  wired_process& operator=(const wired_process&) = delete;

  /// The words of a program that runs in its network.
  std::vector<std::string> with(std::vector<std::string> argv) const {
    argv.insert(argv.begin(),
                {"/usr/bin/nsenter", "--net=/proc/" + std::to_string(pid_) + "/ns/net"});
    return argv;
  }
  const runtime::spawner::network_sockets& sockets() const { return sockets_; }

private:
  pid_t pid_ = -1;
  runtime::spawner::network_sockets sockets_;
};

/// The gateway's own program in the network of the calling thread, with a test in place of its
/// spawner and of the server.
class driven_gateway {
public:
  /// `files`: how many it may have open; 0: as many as the test.
  explicit driven_gateway(const char* program, rlim_t files = 0) {
    auto [ours, theirs] = pair(SOCK_SEQPACKET);
    spawner_ = std::move(ours);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(theirs.get(), runtime::gateway::spawner_fd);
      ::close_range(runtime::gateway::spawner_fd + 1, ~0u, 0);
      const rlimit most{files, files};
      if (files > 0)
        ::setrlimit(RLIMIT_NOFILE, &most);
      ::execl(program, "insula-gateway", "61234", nullptr);
      ::_exit(127);
    }
    serve();
  }
  ~driven_gateway() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  driven_gateway(const driven_gateway&) = delete;
  driven_gateway& operator=(const driven_gateway&) = delete;

  pid_t pid() const { return pid_; }

  /// `reach` and `pays`: as of gateway::op::add.
  void add(std::uint32_t slot, const wired_process& box, const std::string& reach = {},
           std::uint32_t pays = runtime::gateway::nobody) {
    std::vector<int> fds;
    for (const auto& each : box.sockets())
      if (each)
        fds.push_back(each.get());
    tell({runtime::gateway::op::add, slot, pays}, fds, reach);
  }

  /// Another server in place of the one before.
  void serve() {
    auto [ours, theirs] = pair(SOCK_STREAM);
    tell({runtime::gateway::op::serve, 0}, {theirs.get()});
    server_ = std::move(ours);
  }

  void settings(const std::string& lines) { ask(runtime::gateway::question::settings, 0, lines); }
  void policy(std::uint32_t slot, const egress_policy& rules, std::uint64_t epoch = 0) {
    policies_[slot] = to_text(rules);
    ask(runtime::gateway::question::policy, slot, carried_[slot] + policies_[slot], epoch);
  }
  /// As of gateway::op::broker. Null: none any more.
  void broker(std::uint32_t slot, const unique_fd& way) {
    tell({runtime::gateway::op::broker, slot},
         way ? std::vector<int>{way.get()} : std::vector<int>{});
  }
  /// Beside the policy, as gateway::question::policy has them.
  void carried(std::uint32_t slot, const std::string& lines, std::uint64_t epoch = 0) {
    carried_[slot] = lines;
    ask(runtime::gateway::question::policy, slot, lines + policies_[slot], epoch);
  }
  network_figures figures(std::uint32_t slot) {
    return *figures_from_text(ask(runtime::gateway::question::figures, slot, {}));
  }

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

  void tell(runtime::gateway::request what, const std::vector<int>& fds, std::string text = {}) {
    iovec parts[] = {{&what, sizeof what}, {text.data(), text.size()}};
    if (runtime::send_packet<runtime::gateway::max_fds>(spawner_.get(), parts, 2, fds.data(),
                                                        static_cast<int>(fds.size())) < 0)
      throw std::runtime_error("the gateway does not listen");
  }

  /// The answer's text. Throws when it is an error, or does not come.
  std::string ask(runtime::gateway::question what, std::uint32_t slot, const std::string& text,
                  std::uint64_t epoch = 0) {
    runtime::gateway::frame head{};
    head.bytes = static_cast<std::uint32_t>(text.size());
    head.what = what;
    head.slot = slot;
    head.epoch = epoch;
    const timeval patience{60, 0};
    ::setsockopt(server_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (::send(server_.get(), &head, sizeof head, MSG_NOSIGNAL) != sizeof head ||
        ::send(server_.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0 ||
        ::recv(server_.get(), &head, sizeof head, MSG_WAITALL) != sizeof head)
      throw std::runtime_error("the gateway does not answer");
    if (head.error != 0)
      throw std::runtime_error(std::string{"the gateway refuses: "} + std::strerror(head.error));
    std::string answer(head.bytes, '\0');
    if (head.bytes > 0 && ::recv(server_.get(), answer.data(), answer.size(), MSG_WAITALL) !=
                            static_cast<ssize_t>(answer.size()))
      throw std::runtime_error("the gateway's answer ends too soon");
    return answer;
  }

  pid_t pid_ = -1;
  unique_fd spawner_, server_;
  std::map<std::uint32_t, std::string> policies_, carried_;
};

} // namespace insula::test
