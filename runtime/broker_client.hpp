#pragma once

#include "base/error.hpp"
#include "base/network.hpp"
#include "runtime/spawner_client.hpp"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace insula::runtime {

/// What the broker of a sandbox is to do.
struct broker_orders {
  /// What broker::question::use has. Made when it is sent, since it has secrets.
  std::function<result<std::string>()> text;
  /// A signed token for that audience, which says which sandbox has asked. Quick.
  std::function<result<std::string>(const std::string& audience)> token;
};

/// What a broker has done.
struct broker_figures {
  std::vector<rule_figures> rules;                ///< In their order.
  std::uint64_t from_clients = 0, to_clients = 0; ///< Bytes of connections that are there.
};

/// Has brokers started, and tells them what they are to do. One that ends is started again, and
/// told again.
///
/// Threads: any; callbacks run on that of `io`, each once, unless this goes before.
/// Ceilings: limits::gateway_patience for an answer; of each slot the orders that came last, and
///           limits::gateway_questions that wait.
class broker_client {
public:
  broker_client(boost::asio::io_context& io, spawner_client& spawner);
  ~broker_client();

  /// Answers once the broker goes by these orders, or by later ones. Errors: invalid_request (an
  /// expression that is none), node_unreachable, io_failed, sandbox_not_running, stale_epoch.
  void use(held_slot where, broker_orders orders, std::function<void(result<void>)> on_set);
  /// It ends. That there is none is fine.
  void end(held_slot where);
  /// Without a broker: nothing. Errors: node_unreachable, limit_reached.
  void measure(std::uint32_t slot, std::function<void(result<broker_figures>)> tell);
  /// The sandbox of this slot has ended.
  void forget(std::uint32_t slot);

  /// Calls nobody back any more, and lets go of what waits. Brokers go on.
  void let_go();

private:
  class shared;
  std::shared_ptr<shared> shared_;
};

} // namespace insula::runtime
