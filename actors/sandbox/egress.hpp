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

  /// What the engine is given with the start: what it may reach, and what is done with its
  /// requests.
  struct orders {
    egress_policy policy = {};
    runtime::request_orders requests = {};

    bool operator==(const orders&) const = default;
  };
  /// The record is loaded.
  const orders& of_start();

  void starting() override;
  /// The engine knows what is durable by now, and the sandbox's programs believe its authority.
  bool settle(const then_function& then, const otherwise_function& failed) override;
  bool delays(const request_context& context, const then_function& then,
              const otherwise_function& otherwise) override;

private:
  egress_policy recorded() const;
  network_state state(bool running) const;
  void write(const egress_policy& policy, const std::optional<sealed_rules>& requests,
             const reply<network_state>& to, const request_context& context);
  void apply(const egress_policy& policy, const reply<network_state>& to);
  void tell_engine(std::function<void(const result<void>&)> told);
  bool lacks_authority() const;
  void trust_authority(std::function<void()> then);
  void note_trust(const result<void>& outcome);
  template <class... Ts>
  void when_alive(const reply<Ts...>& to, const request_context& context, then_function go);

  // Of this start.
  orders durable_;                 ///< As it is durable,
  orders told_;                    ///< and as the engine has been told.
  bool told_of_authority_ = false; ///< Its programs were, or were tried to be.
};

} // namespace insula::actors::inside_sandbox
