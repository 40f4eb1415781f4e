#pragma once

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <tuple>
#include <utility>

namespace insula::runtime::gateway {

/// The time of the gateway's one thread, shared by all tenants: a deficit round-robin. What has to
/// be done for a tenant is put into that tenant's queue, in small pieces. The processor's time for
/// each piece is measured and charged to the tenant, and a tenant that has used up its turn waits
/// until all others have had theirs. A tenant that had nothing to do goes first, once.
///
/// A queue holds a piece for each event that its tenant waits for, so what bounds the tenant's
/// sockets and timers bounds the queue.
///
/// Single-threaded. Lives as long as all shares. What is still to be done when it ends is dropped.
class turns {
public:
  /// One tenant's queue, and what the tenant has used.
  class share : public std::enable_shared_from_this<share> {
  public:
    explicit share(turns& in)
        : in_(in) {}

    void add(std::function<void()> piece) { in_.add(shared_from_this(), std::move(piece)); }

    /// A handler for Asio that has `piece` called with the same arguments, when it is its turn.
    template <class Piece>
    auto wrap(Piece piece) {
      return [self = shared_from_this(), piece = std::move(piece)](auto... with) mutable {
        self->add([piece = std::move(piece), with = std::make_tuple(with...)]() mutable {
          std::apply(piece, with);
        });
      };
    }

    /// Of the processor, so far.
    std::chrono::nanoseconds used() const { return used_; }
    /// Inside of a piece: is the turn not over yet? For loops that may take long.
    bool has_time() const;

  private:
    friend class turns;
    turns& in_;
    std::deque<std::function<void()>> queue_;
    std::chrono::nanoseconds credit_{}, used_{};
    bool listed_ = false;
  };

  /// What the thread has used of the processor. Tests play it.
  using clock = std::function<std::chrono::nanoseconds()>;

  explicit turns(boost::asio::io_context& io)
      : turns(io, time_of_thread) {}
  turns(boost::asio::io_context& io, clock now)
      : io_(io)
      , now_(std::move(now)) {}
  ~turns();

  /// Of the processor, for all tenants that have ever been.
  std::chrono::nanoseconds used() const { return used_; }

private:
  using list = std::deque<std::shared_ptr<share>>;

  static std::chrono::nanoseconds time_of_thread();
  void add(const std::shared_ptr<share>& whose, std::function<void()> piece);
  void schedule();
  void run();

  boost::asio::io_context& io_;
  const clock now_;
  list fresh_, busy_; ///< Those with something to do; the fresh ones had nothing before.
  std::chrono::nanoseconds used_{}, piece_began_{};
  bool scheduled_ = false;
};

} // namespace insula::runtime::gateway
