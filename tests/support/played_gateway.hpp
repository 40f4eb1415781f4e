#pragma once

#include "base/network.hpp"
#include "base/unique_fd.hpp"
#include "runtime/gateway/protocol.hpp"

#include <atomic>
#include <mutex>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

namespace insula::test {

/// The other end of the way to an egress gateway: says yes to every policy, and that nothing has
/// happened so far.
class played_gateway {
public:
  played_gateway() {
    int ends[2] = {-1, -1};
    ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
    ours_.reset(ends[0]);
    theirs_.reset(ends[1]);
    answering_ = std::thread{[this] { answer(); }};
  }
  ~played_gateway() {
    hang_up();
    answering_.join();
  }
  played_gateway(const played_gateway&) = delete;
  played_gateway& operator=(const played_gateway&) = delete;

  /// For a server. Once.
  unique_fd take_way() { return std::move(theirs_); }
  void hang_up() { ::shutdown(ours_.get(), SHUT_RDWR); }

  /// From now on nothing is answered.
  std::atomic<bool> silent = false;
  /// With this, from now on: 0, it worked out.
  std::atomic<int> error = 0;

  /// Under which each policy was told.
  std::vector<std::uint64_t> epochs() {
    const std::lock_guard hold{guard_};
    return epochs_;
  }

  /// The policies that were told, as text, each with its slot.
  std::vector<std::pair<std::uint32_t, std::string>> policies() {
    const std::lock_guard hold{guard_};
    return policies_;
  }

private:
  bool read(void* into, std::size_t size) const {
    return size == 0 || ::recv(ours_.get(), into, size, MSG_WAITALL) == static_cast<ssize_t>(size);
  }

  void answer() {
    using runtime::gateway::question;
    runtime::gateway::frame head{};
    while (read(&head, sizeof head)) {
      std::string text(head.bytes, '\0');
      if (!read(text.data(), text.size()))
        return;
      if (head.what == question::policy) {
        const std::lock_guard hold{guard_};
        policies_.emplace_back(head.slot, text);
        epochs_.push_back(head.epoch);
      }
      if (silent)
        continue;
      text = head.what == question::figures  ? to_text(network_figures{})
             : head.what == question::totals ? to_text(network_totals{})
                                             : std::string{};
      head.bytes = static_cast<std::uint32_t>(text.size());
      head.error = error;
      if (::send(ours_.get(), &head, sizeof head, MSG_NOSIGNAL) < 0 ||
          ::send(ours_.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0)
        return;
    }
  }

  unique_fd ours_, theirs_;
  std::mutex guard_; ///< For what follows.
  std::vector<std::pair<std::uint32_t, std::string>> policies_;
  std::vector<std::uint64_t> epochs_;
  std::thread answering_;
};

} // namespace insula::test
