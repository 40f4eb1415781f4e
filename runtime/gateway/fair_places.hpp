#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>

namespace insula::runtime::gateway {

/// Which tenant causes something. Each tenant has a number of its own that no later one gets.
using tenant_number = std::uint64_t;

/// A number of places for one kind of work, shared by all tenants. A tenant has a share that it
/// cannot pass. What finds no place waits in a queue of that tenant, and the queues are served in
/// turn, so a tenant waits for its own work and never for the queue of another. The last places are
/// for tenants that have next to none.
///
/// Single-threaded. Ceilings: those that it is made with.
class fair_places {
public:
  struct ceilings {
    std::size_t all = 0;     ///< Places together.
    std::size_t kept = 0;    ///< Of these, only for tenants that have fewer than `few`.
    std::size_t few = 1;     ///< Places.
    std::size_t each = 0;    ///< Places of one tenant.
    std::size_t waiting = 0; ///< Length of one tenant's queue.
    std::chrono::milliseconds patience{}; ///< In the queue.
  };
  /// Called once. True: there is a place, which give_back() ends. False: there was none in time.
  using function = std::function<void(bool has_place)>;

  fair_places(boost::asio::io_context& io, const ceilings& most);

  /// False: the tenant's queue is full, and `then` is not called. Else it is called, at once where
  /// a place is free.
  bool take(tenant_number whose, function then);
  void give_back(tenant_number whose);
  /// The tenant has gone: what waits is told that there is no place. Its places are given back as
  /// ever.
  void forget(tenant_number whose);

  std::size_t taken() const { return taken_; }
  std::size_t taken_by(tenant_number whose) const;
  std::size_t waiting() const { return waiting_; }

private:
  using clock = std::chrono::steady_clock;
  struct waiter {
    clock::time_point until;
    function then;
  };
  struct tenant {
    std::size_t has = 0;
    std::deque<waiter> queue;
  };

  bool may_have(const tenant& mine) const;
  void drop_if_idle(tenant_number whose);
  void serve();
  void watch();
  void expire();

  const ceilings most_;
  std::map<tenant_number, tenant> tenants_; ///< Those that have a place or wait for one.
  std::deque<tenant_number> turns_;         ///< Those that wait, the next one in front.
  std::size_t taken_ = 0, waiting_ = 0;
  boost::asio::steady_timer clock_;
  bool serving_ = false, watching_ = false;
};

} // namespace insula::runtime::gateway
