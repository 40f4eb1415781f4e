#pragma once

#include "base/unique_fd.hpp"
#include "runtime/broker/protocol.hpp"
#include "runtime/cgroup.hpp"
#include "runtime/spawner/gateway_link.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>

namespace insula::runtime::spawner {

/// The brokers of sandboxes whose requests have rules: a process for each, of a user of its own, in
/// a cgroup of its own, started when a server asks for a way to it. One that ends is not started
/// again before a server asks: nobody but the server knows its rules. Never blocks: a broker that
/// does not read is killed.
class brokers {
public:
  using clock = std::chrono::steady_clock;

  /// `node`: the state directory, for those who list processes.
  brokers(const cgroup_tree& cgroups, gateway_link& gateway, std::string node)
      : cgroups_(cgroups)
      , gateway_(gateway)
      , node_(std::move(node)) {}

  /// A new way to the broker of this sandbox, in place of the one before; it is started if there is
  /// none. None: errno says why; EAGAIN: the one before is still on its way out.
  unique_fd serve(std::uint32_t slot);
  /// It ends. That there is none is fine.
  void end(std::uint32_t slot);

  /// Was this child a broker? `told`: the slot of one that has ended without having been asked.
  bool ended(pid_t child, int status, std::optional<std::uint32_t>& told);
  /// Another gateway has taken the place of the one before.
  void gateway_changed();

  /// True: nothing of one is left. Removes what is.
  bool none_of(std::uint32_t slot);
  /// Of all that have ended.
  void look();
  /// How long until look() is due, in milliseconds for epoll_wait(); -1: it is not.
  int until_look() const;

private:
  struct one {
    pid_t pid = -1; ///< -1: reaped.
    unique_fd socket;
    bool asked_to_end = false;
  };

  bool start(std::uint32_t slot, one& made);
  bool give_gateway(std::uint32_t slot, one& whose);
  bool tell(one& whom, broker::order what, const unique_fd& way);
  void kill(one& which) const;

  const cgroup_tree& cgroups_;
  gateway_link& gateway_;
  const std::string node_;
  unique_fd program_; ///< Of all brokers, which share its pages.
  std::map<std::uint32_t, one> all_;
};

} // namespace insula::runtime::spawner
