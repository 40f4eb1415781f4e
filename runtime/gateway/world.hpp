#pragma once

#include "runtime/egress/address.hpp"
#include "runtime/gateway/pipes.hpp"
#include "runtime/gateway/resolver.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>

namespace insula::runtime::gateway {

/// What all sandboxes of the gateway share.
struct world {
  explicit world(boost::asio::io_context& on)
      : io(on)
      , names(on) {}

  /// No policy opens these. The machine's own are looked up anew when they are older than a second.
  const egress::reserved_addresses& reserved();
  void allow(std::vector<egress::subnet> nets) { reserved_.allowed = std::move(nets); }

  boost::asio::io_context& io;
  pipe_pool pipes;
  resolver names;

private:
  egress::reserved_addresses reserved_;
  std::chrono::steady_clock::time_point looked_{};
};

} // namespace insula::runtime::gateway
