#pragma once

#include "base/unique_fd.hpp"
#include "runtime/broker/broker.hpp"
#include "runtime/broker/protocol.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace insula::runtime::broker {

/// The broker of one sandbox with the ways to the spawner, the gateway and a server. One thread,
/// that of the io_context. Ends it when the spawner has gone.
/// Ceilings: what waits to be dialled or to have a token, `most_open` each, for a patience. Clients
/// that come before the first rules wait for these, as many as the gateway hands over.
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
  struct gateway_way;
  struct server_way;

  void hear_spawner();
  void hear_gateway(const std::shared_ptr<gateway_way>& way);
  void lose_gateway();
  bool take_packet(const std::shared_ptr<gateway_way>& way, const gateway_packet& said,
                   std::string text, unique_fd fd);
  task<void> serve(std::shared_ptr<gateway_way> way, gateway_packet said, std::string name,
                   unique_fd client);
  bool tell_gateway(const std::shared_ptr<gateway_way>& way, const gateway_packet& said,
                    const std::string& text);
  static bool send(gateway_way& way, const gateway_packet& said, const std::string& text);
  void send_later(const std::shared_ptr<gateway_way>& way);
  task<void> hear_server(std::shared_ptr<server_way> way);
  task<void> write_server(std::shared_ptr<server_way> way);
  void handle(const std::shared_ptr<server_way>& way, const frame& head, std::string text);
  void say(const std::shared_ptr<server_way>& way, frame head, const std::string& text);
  result<void> use(const std::string& text);
  std::string figures() const;
  void forget_questions();

  boost::asio::io_context& io_;
  socket spawner_;
  boost::asio::steady_timer alone_;      ///< Without a gateway.
  std::shared_ptr<gateway_way> gateway_; ///< Null: there is none now.
  std::shared_ptr<server_way> server_;
  std::shared_ptr<broker> broker_;
  std::set<std::shared_ptr<answer_place>> want_orders_; ///< Of clients.
  std::string trusted_, digest_; ///< That broker_ goes by; of all that it was told.
  std::uint64_t last_ = 0;
  struct asked_token {
    std::shared_ptr<answer_place> place;
    std::string audience;
  };
  std::map<std::uint64_t, asked_token> tokens_;
  std::map<std::string, std::shared_ptr<answer_place>> asked_tokens_; ///< The same, by audience.
  struct known_token {
    std::string text;
    std::int64_t until_s = 0;
  };
  std::map<std::string, known_token> known_tokens_;
};

} // namespace insula::runtime::broker
