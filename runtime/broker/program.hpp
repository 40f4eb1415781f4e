#pragma once

#include "base/unique_fd.hpp"
#include "runtime/broker/broker.hpp"
#include "runtime/broker/protocol.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace insula::runtime::broker {

/// The broker of one sandbox with the ways to the spawner, the gateway and a server. One thread,
/// that of the io_context. Ends it when the spawner has gone.
/// Ceilings: what waits to be dialled or to have a token, `most_open` each, for a patience.
class program final : public surroundings {
public:
  static constexpr std::size_t most_open = 4096;

  program(boost::asio::io_context& io, unique_fd spawner);
  ~program() override;

  void begin();

  task<result<unique_fd>> dial(const std::string& host, std::uint16_t port) override;
  task<result<std::string>> token(const std::string& audience) override;
  void refused(const std::string& name, std::uint16_t port, const std::string& why) override;

private:
  using socket = boost::asio::posix::stream_descriptor;
  struct answer_place;
  struct server_way;

  void hear_spawner();
  void hear_gateway(const std::shared_ptr<socket>& way);
  bool take_packet(const gateway_packet& said, std::string text, unique_fd fd);
  bool tell_gateway(const gateway_packet& said, const std::string& text);
  task<void> hear_server(std::shared_ptr<server_way> way);
  task<void> write_server(std::shared_ptr<server_way> way);
  void handle(const std::shared_ptr<server_way>& way, const frame& head, std::string text);
  void say(const std::shared_ptr<server_way>& way, frame head, const std::string& text);
  result<void> use(const std::string& text);
  std::string figures() const;

  boost::asio::io_context& io_;
  socket spawner_;
  std::shared_ptr<socket> gateway_;
  std::shared_ptr<server_way> server_;
  std::shared_ptr<broker> broker_;
  std::string trusted_; ///< That broker_ goes by.
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, std::shared_ptr<answer_place>> dials_, tokens_;
  std::map<std::uint64_t, std::function<void()>> cuts_; ///< Of the clients of the gateway.
  struct known_token {
    std::string text;
    std::int64_t until_s = 0;
  };
  std::map<std::string, known_token> known_tokens_;
};

} // namespace insula::runtime::broker
