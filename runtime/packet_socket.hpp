#pragma once

#include "base/unique_fd.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace insula::runtime {

/// Our end of a SOCK_SEQPACKET connection to the spawner or to an agent: packets and descriptors,
/// both ways.
///
/// Threads: send() and close() from any; the callbacks run on that of `io`, and none after
/// close() has taken effect
///          there. A callback may close.
/// Ceiling: at most max_waiting packets wait for the socket; then send() fails, since the other
/// side has stopped reading.
class packet_socket : public std::enable_shared_from_this<packet_socket> {
public:
  static constexpr std::size_t max_waiting = 4096;
  static constexpr std::size_t max_fds = 16;
  static constexpr std::size_t max_received_bytes =
    8192; ///< Small structs, and some words behind them.

  packet_socket(boost::asio::io_context& io, unique_fd socket);

  /// on_closed is called once when the other side is gone, or sent a packet that is too large.
  void open(std::function<void(std::string_view, std::vector<unique_fd>)> on_packet,
            std::function<void()> on_closed);

  /// Sends `head` and `tail` as one packet, with descriptors, which stay the caller's. False: it
  /// cannot be sent. `always`: also above the ceiling, for what is bounded by itself and must not
  /// be lost.
  bool send(std::string_view head, std::string_view tail = {}, std::span<const int> fds = {},
            bool always = false);

  /// Nothing waits for the socket: what was sent gets there, whatever becomes of this process.
  bool all_sent();

  /// Hears what has already arrived, at most so many packets. On the thread of `io`.
  void drain(int most);

  void close();

private:
  struct packet {
    std::string bytes;
    std::vector<unique_fd> fds;
  };

  bool send_now(std::string_view head, std::string_view tail, std::span<const int> fds);
  bool receive();
  void wait_for_packet();
  void wait_for_room();

  boost::asio::io_context& io_;
  boost::asio::posix::stream_descriptor socket_;
  std::function<void(std::string_view, std::vector<unique_fd>)> on_packet_;
  std::function<void()> on_closed_;
  std::mutex guard_; ///< For what follows.
  std::deque<packet> waiting_;
  bool closed_ = false;
};

/// A struct as the bytes of a packet, and back; the sizes must match.
template <class Struct>
std::string_view as_bytes(const Struct& value) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <class Struct>
bool from_bytes(std::string_view bytes, Struct& value) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  if (bytes.size() != sizeof value)
    return false;
  bytes.copy(reinterpret_cast<char*>(&value), sizeof value);
  return true;
}

} // namespace insula::runtime
