#pragma once

#include "runtime/gateway/protocol.hpp"
#include "runtime/gateway/tenant.hpp"
#include "runtime/gateway/world.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <deque>
#include <map>
#include <memory>
#include <string>

namespace insula::runtime::gateway {

/// All sandboxes of a node, what the spawner says of them, and what the server wants of them. Lives
/// until the spawner hangs up.
class gateway {
public:
  gateway(boost::asio::io_context& io, unique_fd spawner);
  ~gateway();
  gateway(const gateway&) = delete;
  gateway& operator=(const gateway&) = delete;

  /// Listens to the spawner. All else is done by the io_context that it was made with.
  void begin() { wait_for_spawner(); }
  /// Begins, and goes on until the spawner hangs up.
  void run();

private:
  /// One server, until the next one.
  struct server {
    server(boost::asio::io_context& io, unique_fd way)
        : stream(io, way.release()) {}
    boost::asio::posix::stream_descriptor stream;
    frame head{};
    std::string text;
    std::deque<std::string> answers; ///< That wait; the first is on its way.
    std::size_t waiting_bytes = 0;
  };
  using server_pointer = std::shared_ptr<server>;

  void wait_for_spawner();
  bool hear_spawner(); ///< All that it has said. False: it has hung up.
  void handle(const request& said, std::string_view text, std::vector<unique_fd> fds);
  void read_next(const server_pointer& from);
  void handle(const server_pointer& from);
  int apply_settings(std::string_view text);
  void answer(const server_pointer& to, frame head, std::string text);
  void write_next(const server_pointer& to);

  boost::asio::io_context& io_;
  world world_;
  boost::asio::posix::stream_descriptor spawner_;
  std::map<std::uint32_t, std::shared_ptr<tenant>> tenants_;
  server_pointer server_;
};

} // namespace insula::runtime::gateway
