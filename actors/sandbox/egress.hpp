#pragma once

#include "actors/sandbox/core.hpp"

namespace insula::actors::inside_sandbox {

/// The key of the policy in the sandbox's record.
inline constexpr const char* network_key = "network";

/// The network of the sandbox: its egress policy, which stands in its record, and the ways into it.
class egress final : public part {
public:
  using part::part;

  void get_network(const get_network_request& asked, const reply<network_state>& to);
  /// Durable first: a client that was told of it can build on it.
  void set_network(const set_network_request& wanted, const reply<network_state>& to);
  void change_network(const change_network_request& wanted, const reply<network_state>& to);
  void open_sockets(const open_sockets_request& wanted, const reply<sandbox_sockets>& to);
  void list_ports(const list_ports_request& wanted, const reply<std::vector<listening_port>>& to);

  /// The policy that the engine is given with the start. The record is loaded.
  const egress_policy& of_start();

  /// The engine knows the policy that is durable by now.
  bool settle(const then_function& then, const otherwise_function& failed) override;

private:
  egress_policy recorded() const;
  void write(const egress_policy& policy, const reply<network_state>& to,
             const request_context& context);
  void apply(const egress_policy& policy, const reply<network_state>& to);
  void tell_engine(std::function<void(const result<void>&)> told);
  template <class... Ts>
  void when_alive(const reply<Ts...>& to, const request_context& context, then_function go);

  // Of this start.
  egress_policy durable_; ///< As it is durable,
  egress_policy told_;    ///< and as the engine has been told.
};

} // namespace insula::actors::inside_sandbox
