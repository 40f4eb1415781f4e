#pragma once

#include "base/unique_fd.hpp"
#include "runtime/broker/protocol.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace insula::runtime::gateway {

class tenant;

/// The way to the broker of one sandbox. What it says is trusted as far as its own sandbox goes: it
/// can ask for connections, in that sandbox's name. Ceilings: limits::gateway_connections that it
/// asks for at once.
class broker_link : public std::enable_shared_from_this<broker_link> {
public:
  /// What has gone over a connection, when it is over.
  using over_function = std::function<void(std::uint64_t from_client, std::uint64_t to_client)>;

  broker_link(std::shared_ptr<tenant> of, unique_fd way);

  void listen();
  /// Hands it a connection of which nothing is read yet. The number by which it is cut; 0: the
  /// broker does not take it.
  std::uint64_t give(const unique_fd& client, const std::string& name, std::uint16_t port,
                     over_function over);
  void cut(std::uint64_t number);
  /// It has gone, or another one takes its place: what it had is over.
  void close();

private:
  void hear();
  bool take(const broker::gateway_packet& said, std::string text);
  void dial(std::uint64_t id, const std::string& host, std::uint16_t port);
  bool say(const broker::gateway_packet& said, const std::string& text, int fd);

  std::shared_ptr<tenant> tenant_; ///< Null: it is closed.
  boost::asio::posix::stream_descriptor way_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, over_function> clients_;
  std::size_t dials_ = 0;
};

} // namespace insula::runtime::gateway
