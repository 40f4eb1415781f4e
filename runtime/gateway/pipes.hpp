#pragma once

#include "base/unique_fd.hpp"
#include "runtime/gateway/fair_places.hpp"

#include <boost/asio/io_context.hpp>

#include <cstddef>
#include <vector>

namespace insula::runtime::gateway {

/// Pipes through which bytes are moved from one socket to another. A connection has one only while
/// there is something in it: what stands still for want of bytes needs none.
///
/// The kernel counts what all pipes of a user could hold, so there is a fixed number of large ones,
/// made at once and shared by the tenants; one that cannot be made is tried again when it is
/// wanted. What gets none of them gets a small one.
///
/// Single-threaded. Ceilings: limits::gateway_all_pipes large ones; small ones are bounded by what
/// bounds connections.
class pipe_pool {
public:
  struct pipe {
    unique_fd in, out; ///< For what comes, and what goes.
    std::size_t holds = 0;
    bool is_large = false;
    explicit operator bool() const { return static_cast<bool>(in); }
  };

  static constexpr std::size_t wanted_bytes = 256 * 1024; ///< The kernel may give less.
  static constexpr std::size_t small_bytes = 8 * 1024;    ///< It gives no less to anybody.
  static constexpr std::size_t most_kept = 16;            ///< Small ones that nobody uses.

  explicit pipe_pool(boost::asio::io_context& io);

  /// An empty one. None: errno says why.
  pipe take(tenant_number by);
  /// Of the same tenant. One that is not empty is not used again.
  void give_back(tenant_number by, pipe used);

private:
  static pipe make(std::size_t bytes);
  static pipe make_large();

  fair_places places_; ///< Of large ones.
  std::vector<pipe> large_, small_;
};

} // namespace insula::runtime::gateway
