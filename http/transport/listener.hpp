#pragma once

#include "base/error.hpp"
#include "base/io_pool.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace insula::http {

/// Accepts connections for as long as it is open, whatever goes wrong in between: when descriptors
/// run out, clients wait in the kernel's queue until there are some again. Each socket belongs
/// to one thread of the pool.
///
/// Threads: open() and port() before start(); the rest from any thread.
class listener : public std::enable_shared_from_this<listener> {
public:
  using socket_type = boost::asio::ip::tcp::socket;

  /// `take` is given every socket; `has_room` is asked before each accept, when there is a client.
  /// Both on one thread.
  listener(io_pool& io, std::function<void(socket_type)> take, std::function<bool()> has_room);

  /// Takes the one of the inherited sockets that listens there, if there is one, with the clients
  /// that wait in its queue. Port 0: whichever listens at the address. Errors: io_failed, naming
  /// address and reason.
  result<void> open(const std::string& address, std::uint16_t port,
                    std::span<const int> inherited = {});
  std::uint16_t port() const { return port_; }

  void start();
  /// There may be room again.
  void room_changed() { start(); }
  void close();

private:
  void accept_next();
  void accept_one();
  void back_off();

  io_pool& io_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  std::function<void(socket_type)> take_;
  std::function<bool()> has_room_;
  std::uint16_t port_ = 0;
  bool accepting_ = false;
};

} // namespace insula::http
