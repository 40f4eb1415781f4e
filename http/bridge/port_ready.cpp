#include "http/bridge/port_ready.hpp"

#include "http/bridge/error_response.hpp"
#include "http/bridge/network_json.hpp"
#include "http/json/json.hpp"
#include "http/sandboxes/ask_sandbox.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <memory>
#include <utility>

namespace insula::http::bridge {

namespace {

using namespace std::chrono_literals;
using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr auto first_pause = 50ms;
constexpr auto longest_pause = 250ms;
/// For one connection: on a loopback it takes microseconds, unless a queue is full.
constexpr auto connect_patience = 1s;

/// One request's waiting. On the connection's strand, but for ask().
class port_wait : public std::enable_shared_from_this<port_wait> {
public:
  port_wait(std::shared_ptr<const services> with, std::string id, std::uint16_t port,
            std::chrono::milliseconds timeout, reply to)
      : with_(std::move(with))
      , id_(std::move(id))
      , port_(port)
      , to_(std::move(to))
      , strand_(to_->strand())
      , timer_(strand_.executor())
      , began_(std::chrono::steady_clock::now())
      , until_(began_ + timeout) {}

  /// For a socket of this kind in the sandbox's network.
  void ask(bool ipv6) {
    question{*with_, id_, open_sockets_request{ipv6, 1, {}}, to_}
      .starts(false)
      .or_else(failing(step::network))
      .then<sandbox_sockets>([self = shared_from_this(), ipv6](const sandbox_sockets& got) {
        boost::asio::post(self->strand_.executor(),
                          [self, got, ipv6] { self->try_out(got, ipv6); });
      });
  }

private:
  void try_out(const sandbox_sockets& got, bool ipv6) {
    if (got.sockets->empty())
      return later();
    use_ = got.use;
    error_code failed;
    socket_ = std::make_shared<tcp::socket>(strand_.executor());
    socket_->assign(ipv6 ? tcp::v6() : tcp::v4(), got.sockets->front().get(), failed);
    if (failed) // One that is not open would be opened anew, in this node's own network.
      return later();
    static_cast<void>(got.sockets->front().release());
    const auto where = ipv6 ? boost::asio::ip::address{boost::asio::ip::address_v6::loopback()}
                            : boost::asio::ip::address{boost::asio::ip::address_v4::loopback()};
    timer_.expires_after(connect_patience);
    // It may come when that connection has just been answered.
    timer_.async_wait(
      [self = shared_from_this(), late = std::weak_ptr{socket_}](const error_code& stopped) {
        error_code ignored;
        if (const auto socket = late.lock(); socket && !stopped)
          socket->close(ignored);
      });
    socket_->async_connect({where, port_},
                           [self = shared_from_this(), ipv6](const error_code& why) {
                             self->timer_.cancel();
                             self->socket_.reset();
                             self->use_.reset();
                             if (!why)
                               return self->ready();
                             ipv6 ? self->later() : self->ask(true);
                           });
  }

  void ready() {
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began_);
    to_->respond({200, json::write_port_ready(static_cast<std::uint64_t>(waited.count()))});
  }

  /// When the time is up, the exchange answers by itself, and has to be there for that.
  void later() {
    if (std::chrono::steady_clock::now() + pause_ >= until_) {
      timer_.expires_at(until_ + longest_pause);
      return timer_.async_wait([self = shared_from_this()](const error_code&) {});
    }
    timer_.expires_after(pause_);
    pause_ = std::min<std::chrono::milliseconds>(2 * pause_, longest_pause);
    timer_.async_wait([self = shared_from_this()](const error_code& stopped) {
      if (!stopped)
        self->ask(false);
    });
  }

  const std::shared_ptr<const services> with_;
  const std::string id_;
  const std::uint16_t port_;
  const reply to_;
  const strand_handle strand_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<tcp::socket> socket_;
  std::shared_ptr<void> use_;
  const std::chrono::steady_clock::time_point began_, until_;
  std::chrono::milliseconds pause_{first_pause};
};

} // namespace

void wait_for_port(std::shared_ptr<const services> with, std::string id, std::uint16_t port,
                   std::chrono::milliseconds timeout, const reply& to) {
  to->answer_within(timeout,
                    {504, json::write_error("nothing listens at port " + std::to_string(port) +
                                              " after " + std::to_string(timeout.count()) + " ms",
                                            "port_not_ready")});
  std::make_shared<port_wait>(std::move(with), std::move(id), port, timeout, to)->ask(false);
}

} // namespace insula::http::bridge
