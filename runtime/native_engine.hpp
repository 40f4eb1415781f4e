#pragma once

#include "base/io_pool.hpp"
#include "base/limits.hpp"
#include "base/secret_box.hpp"
#include "runtime/cgroup.hpp"
#include "runtime/engine.hpp"
#include "runtime/shell_patience.hpp"
#include "runtime/spawner_client.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace insula::runtime {

struct native_options {
  std::string key; ///< node_key(): where the cgroups are.
  std::string
    log_directory; ///< For the files of output logs; they have no names and leave nothing.
  std::uint32_t first_slot = 0;
  std::uint32_t slots = 4096; ///< How many sandboxes there can be: each has a range of user ids.
  std::vector<std::string> resolvers; ///< As of gateway_settings, and the next.
  std::vector<std::string> allowed_private;
  std::uint64_t memory_reserve = 0; ///< As of spawner_options.
  std::chrono::milliseconds reader_patience = limits::reader_patience;
  shell_patience shells;
  /// Opens what request_orders have sealed. Null: no requests are carried.
  std::shared_ptr<const secret_box> secrets = nullptr;
  token_signer sign = nullptr; ///< Null: none is signed, and nothing is forwarded.
  /// The authorities by which servers are known, as PEM.
  std::string trusted = {};
  bool seccomp_filters = true; ///< Processes in sandboxes may load filters of system calls.
};

struct native_engine_core;

/// Namespaces, overlays and cgroups, made by the spawner; commands started by the agent in each
/// sandbox. `spawner` is what connect_to_spawner() gave.
///
/// Owner: the caller. `pool` outlives it; it is not destroyed on one of its threads. What belongs
/// to
///        one sandbox runs on one of them.
class native_engine final : public engine {
public:
  native_engine(io_pool& pool, native_options options, spawner_link spawner);
  ~native_engine() override;

  void create(sandbox_spec spec, sandbox_listener listener) override;
  std::vector<std::string> survivors() const override;
  bool survives(const std::string& name) const override;
  void adopt(const sandbox_spec& spec, sandbox_listener listener) override;
  void disown(const std::string& name, std::function<void()> on_gone) override;
  void drop_snapshot(const std::string& name,
                     std::function<void(result<void>)> on_dropped) override;
  bool keeps_snapshots() const override;
  result<made_authority> make_authority() const override;
  void list_snapshots(std::function<void(result<std::vector<std::string>>)> tell) override;
  std::vector<std::string> ailments() const override;
  std::optional<error> refuses_more() const override;
  void permit(std::chrono::nanoseconds boottime_deadline) override;

  /// So many sandboxes could not be made, or claimed, for a reason that is this machine's.
  std::uint64_t failed_launches() const;

  /// What has not been on the way out of all sandboxes, as last_totals has it. Waits for the
  /// gateway, but not for long; none: it has never answered.
  std::optional<network_totals> total_network() const;

  /// `tell` is called once, on any thread, when the spawner has ended by itself: nothing runs any
  /// more, and nothing can be made.
  void when_alone(std::function<void()> tell);

  /// From here on nothing is heard or told any more, and what runs goes on until another server
  /// adopts it.
  void hand_over();

  /// Ends every sandbox and the spawner. Blocks until that has happened, or `patience` is over.
  void shut_down(std::chrono::milliseconds patience);

private:
  std::shared_ptr<native_engine_core> core_;
};

} // namespace insula::runtime
