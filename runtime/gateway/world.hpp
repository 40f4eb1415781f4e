#pragma once

#include "base/network.hpp"
#include "runtime/egress/address.hpp"
#include "runtime/gateway/fair_places.hpp"
#include "runtime/gateway/payer.hpp"
#include "runtime/gateway/pipes.hpp"
#include "runtime/gateway/receive_buffers.hpp"
#include "runtime/gateway/resolver.hpp"
#include "runtime/gateway/turns.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>

namespace insula::runtime::gateway {

/// What all sandboxes of the gateway share.
struct world {
  explicit world(boost::asio::io_context& on);

  /// A new tenant's number, and its share of the time.
  payer make_payer() { return {++last_tenant_, std::make_shared<turns::share>(time)}; }
  /// One tenant more has that share; one less. With the last of them what waits for something is
  /// told that there is nothing, and what is remembered goes.
  void join(tenant_number whose) { ++sharers_[whose]; }
  void leave(tenant_number whose);

  /// No policy opens these. The machine's own are looked up anew when they are older than a second.
  const egress::reserved_addresses& reserved();
  void allow(std::vector<egress::subnet> nets) { reserved_.allowed = std::move(nets); }

  /// What has not been, of all tenants that have ever been.
  void count_refusal() { ++totals_.refusals; }
  void count(connection_failure how) { ++totals_.failures[static_cast<std::size_t>(how)]; }
  const network_totals& totals() const { return totals_; }

  boost::asio::io_context& io;
  turns time;
  fair_places connections; ///< That are open, or are to be.
  fair_places dials;       ///< That are on their way to a server.
  pipe_pool pipes;
  const std::shared_ptr<receive_buffers> buffers;
  resolver names;

private:
  egress::reserved_addresses reserved_;
  std::chrono::steady_clock::time_point looked_{};
  network_totals totals_;
  tenant_number last_tenant_ = 0;
  std::map<tenant_number, std::size_t> sharers_;
};

} // namespace insula::runtime::gateway
