#pragma once

#include "base/unique_fd.hpp"
#include "runtime/broker/protocol.hpp"
#include "runtime/egress/address.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

namespace insula::runtime::gateway {

class tenant;

/// The way to the broker of one sandbox. What it says is trusted as far as its own sandbox goes: it
/// can ask for connections to hosts with rules, or to which rules forward, in that sandbox's name.
/// Ceilings: limits::gateway_connections that it asks for at once, and as many packets that it has
/// not read.
class broker_link : public std::enable_shared_from_this<broker_link> {
public:
  /// What has gone over a connection, when it is over.
  using over_function = std::function<void(std::uint64_t from_client, std::uint64_t to_client)>;

  broker_link(std::shared_ptr<tenant> of, unique_fd way);

  void listen();
  bool is_open() const { return tenant_ != nullptr; }
  /// Hands it a connection of which nothing is read yet. The number by which it is cut; 0: the
  /// broker does not take it, and the client is as it was. It may be closed then.
  std::uint64_t give(unique_fd& client, const std::string& name, std::uint16_t port,
                     over_function over);
  void cut(std::uint64_t number);
  /// The policy has changed: if it denies an address that the broker was connected to, those
  /// connections end.
  void judge_again();
  /// It has gone, or another one takes its place: what it had is over.
  void close();

private:
  void hear();
  bool take(const broker::gateway_packet& said, std::string text);
  void dial(std::uint64_t id, const std::string& host, std::uint16_t port);
  bool say(const broker::gateway_packet& said, const std::string& text, unique_fd& fd);
  bool say(const broker::gateway_packet& said);
  bool send(const broker::gateway_packet& said, const std::string& text, const unique_fd& fd);
  void send_later();
  void end_reached();

  /// What the broker has had no room for.
  struct waiting_packet {
    broker::gateway_packet said;
    std::string text;
    unique_fd fd;
  };

  std::shared_ptr<tenant> tenant_; ///< Null: it is closed.
  boost::asio::posix::stream_descriptor way_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, over_function> clients_;
  std::deque<waiting_packet> waiting_;
  std::set<egress::ip_address> reached_; ///< To which it has been connected.
  std::size_t dials_ = 0;
};

} // namespace insula::runtime::gateway
