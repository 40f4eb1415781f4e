#pragma once

#include "base/unique_fd.hpp"
#include "runtime/gateway/protocol.hpp"
#include "runtime/spawner/wire_network.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>

namespace insula::runtime::spawner {

/// The egress gateway, a process of the spawner's own: started with the first sandbox, and again
/// when it ends, with what it has to know; until a server has said anew what each sandbox may
/// reach, nothing passes. Never blocks: a gateway that does not read is killed.
class gateway_link {
public:
  using clock = std::chrono::steady_clock;

  /// `node`: the state directory, for those who list processes.
  explicit gateway_link(std::string node)
      : node_(std::move(node)) {}

  /// Starts it. False: errno says why.
  bool start();

  /// Has it serve this sandbox. What it is told is kept for the next one.
  void add(std::uint32_t slot, network_sockets sockets, std::string host_name) {
    keep(slot, {std::move(sockets)});
    rename(slot, std::move(host_name));
  }
  /// The same for a mount's program: `reach` as of gateway::op::add. The sandbox `of` pays, as long
  /// as it is there.
  void add_mount(std::uint32_t slot, network_sockets sockets, std::string reach, std::uint32_t of) {
    keep(slot, {std::move(sockets), std::move(reach), of});
  }
  /// The sandbox has this host name from now on.
  void rename(std::uint32_t slot, std::string host_name);
  void remove(std::uint32_t slot);
  /// The way to the broker of a sandbox, in place of the one before; none: it has none any more.
  /// False: the gateway does not run, and the next one has to be told.
  bool set_broker(std::uint32_t slot, const unique_fd& way);

  /// Gives it a new server, and answers that one's end. None: it does not run.
  unique_fd serve();

  /// Was this child, which has ended with `status`, the gateway? It is started again by restart().
  bool ended(pid_t child, int status);

  /// How long until restart() is due, in milliseconds for epoll_wait(); -1: it is not.
  int until_restart() const;
  /// Starts it again, if that is due. True: it runs, and the server needs another way to it.
  bool restart();

  void end(); ///< Kills it, for good.

private:
  struct served {
    network_sockets sockets;
    std::string reach = {};
    std::uint32_t of = gateway::nobody;
    std::string host_name = {}; ///< Empty: it has none.
  };

  void keep(std::uint32_t slot, served whom);
  void send(gateway::op what, std::uint32_t slot, const served& whom);
  void send_name(std::uint32_t slot, const served& whom);
  bool send(gateway::request said, std::string_view text, const int* fds, int count);

  const std::string node_;
  pid_t pid_ = -1; ///< -1: it does not run.
  unique_fd socket_;
  std::map<std::uint32_t, served> served_;
  bool ending_ = false;
  clock::time_point started_{};
  clock::time_point due_{};
  std::chrono::milliseconds pause_{}; ///< Between its end and its start: it grows.
};

} // namespace insula::runtime::spawner
