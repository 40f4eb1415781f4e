#pragma once

#include "base/error.hpp"
#include "runtime/packet_socket.hpp"
#include "runtime/spawner/protocol.hpp"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace insula::runtime {

struct spawner_options {
  std::string state_directory; ///< Absolute.
  std::string key;             ///< The node's, from cgroup_key().
  std::string disk = "auto";
  std::uint64_t pool_bytes = 0;
};

/// The name under which a node's cgroups stand, made from its state directory: nodes on one machine
/// do not meet.
std::string node_key(const std::string& state_directory);

/// Finds the spawner of this state directory, or starts one, and greets it. Needs root. An earlier
/// server's sandboxes are ended by it and waited for before this returns: nobody could adopt them
/// yet. Blocks; for the start of a node. Errors: launch_failed.
result<unique_fd> connect_to_spawner(const spawner_options& options);

/// Asks the spawner for things.
///
/// Threads: any; callbacks run on that of `io`.
class spawner_client {
public:
  spawner_client(boost::asio::io_context& io, unique_fd socket);
  ~spawner_client();

  /// A sandbox that is on its way.
  struct launched {
    unique_fd control;
    unique_fd freezer; ///< Of its cgroup; nothing: this machine has none.
    spawner::launch_clock done{};
  };

  void create(const spawner::request& wanted, std::function<void(result<launched>)> on_created,
              std::function<void()> on_ended);
  void destroy(std::uint32_t slot, std::function<void()> on_gone);
  void hold(std::uint32_t slot, std::uint64_t name, std::span<const int> fds);
  void release(std::uint32_t slot, std::uint64_t name);

  /// Everything ends: every sandbox, and the spawner. Blocks until it is so, or `patience` is over.
  void shut_down(std::chrono::milliseconds patience);

  /// Hangs up and calls nobody back any more: what waits here may hold the one who owns this.
  void let_go();

  bool connected() const;

private:
  struct shared;
  boost::asio::io_context& io_;
  std::shared_ptr<shared> shared_;
};

} // namespace insula::runtime
