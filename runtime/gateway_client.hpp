#pragma once

#include "base/error.hpp"
#include "base/network.hpp"
#include "base/unique_fd.hpp"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace insula::runtime {

/// What the gateway has to know of the machine's network.
struct gateway_settings {
  /// Addresses that names are asked of, as gateway/protocol.hpp has them: "ADDRESS" or "ADDRESS
  /// PORT".
  std::vector<std::string> resolvers;
  std::vector<std::string> allowed_private; ///< Normal subnets.
};

/// Tells the egress gateway what each sandbox may reach, and asks it what each has had. A gateway
/// that comes in place of one that has ended is told everything again.
///
/// Threads: any; callbacks run on that of `io`, each once, unless this goes before.
/// Ceilings: limits::gateway_patience for an answer; of each slot one policy waits to be sent, and
///           of questions limits::gateway_questions.
class gateway_client {
public:
  gateway_client(boost::asio::io_context& io, gateway_settings settings);
  ~gateway_client();

  /// The way to a gateway, in place of the one before.
  void connect(unique_fd way);

  /// Answers once the policy holds, or one that was given later does. `carried`: lines as of
  /// gateway::question::policy. Errors: io_failed (it does
  /// not answer; the policy is told to the next one that does), sandbox_not_running, stale_epoch.
  void set_policy(std::uint32_t slot, std::uint64_t epoch, const egress_policy& policy,
                  const std::string& carried, std::function<void(result<void>)> on_set);
  /// Errors: io_failed, sandbox_not_running, limit_reached.
  void measure(std::uint32_t slot, std::function<void(result<network_figures>)> tell);
  /// Of all slots. Errors: io_failed, limit_reached.
  void total(std::function<void(result<network_totals>)> tell);
  /// The sandbox of this slot has ended.
  void forget(std::uint32_t slot);

  /// Calls nobody back any more, and lets go of what waits.
  void let_go();

private:
  class shared;
  std::shared_ptr<shared> shared_;
};

} // namespace insula::runtime
