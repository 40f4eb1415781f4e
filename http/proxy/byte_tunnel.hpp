#pragma once

#include "http/proxy/frame_walk.hpp"
#include "http/transport/connection.hpp"

#include <boost/asio/write.hpp>

#include <array>
#include <chrono>
#include <memory>
#include <netinet/tcp.h>
#include <optional>
#include <string>
#include <sys/socket.h>

namespace insula::http {

/// For a server to end when its client has.
inline constexpr std::chrono::seconds tunnel_farewell{60};

/// Finds a client that has gone without a word, after about two minutes.
inline void ask_now_and_then(int socket) {
  const auto set = [socket](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 15);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

/// Carries bytes both ways, after an upgrade, until both have ended or one is gone. On the client's
/// strand. `Server` has stream(), close(), and end_sending(), after which it may go on sending.
/// Where it carries frames, a client whose server is lost is told by one that it has gone away.
template <class Server>
class byte_tunnel : public std::enable_shared_from_this<byte_tunnel<Server>> {
public:
  byte_tunnel(std::shared_ptr<connection> client, std::shared_ptr<Server> server)
      : client_(std::move(client))
      , server_(std::move(server))
      , last_words_(client_->socket().get_executor(), [this] { cut(); }) {
    client_->counts().web_sockets.add();
  }
  ~byte_tunnel() { client_->counts().web_sockets.subtract(); }

  /// `frames`: of a WebSocket, as far as `first` goes.
  void start(std::string first, std::optional<frame_walk> frames = {}) {
    ask_now_and_then(client_->socket().native_handle());
    client_->on_drain([weak = this->weak_from_this()] {
      if (const auto self = weak.lock())
        self->end_server();
    });
    first_ = std::move(first);
    frames_ = frames;
    client_->write_upgraded(
      boost::asio::buffer(first_),
      [self = this->shared_from_this()](const boost::system::error_code& ec, std::size_t) {
        self->first_ = {};
        if (ec)
          return self->cut();
        self->read_server();
      });
    read_client();
  }

private:
  void read_client() {
    client_->read_upgraded(
      boost::asio::buffer(from_client_),
      [self = this->shared_from_this()](const boost::system::error_code& ec, std::size_t bytes) {
        if (ec == boost::asio::error::eof)
          return self->client_ended();
        if (ec)
          return self->cut();
        boost::asio::async_write(self->server_->stream(),
                                 boost::asio::buffer(self->from_client_, bytes),
                                 [self](const boost::system::error_code& failed, std::size_t) {
                                   failed ? self->end_server() : self->read_client();
                                 });
      });
  }

  void read_server() {
    server_->stream().async_read_some(
      boost::asio::buffer(from_server_),
      [self = this->shared_from_this()](const boost::system::error_code& ec, std::size_t bytes) {
        const bool closed_here = !self->server_->stream().lowest_layer().is_open();
        if (ec == boost::asio::error::eof && !closed_here)
          return self->server_ended();
        if (ec)
          return self->server_lost();
        if (self->frames_)
          self->frames_->pass({self->from_server_.data(), bytes});
        self->client_->write_upgraded(boost::asio::buffer(self->from_server_, bytes),
                                      [self](const boost::system::error_code& failed, std::size_t) {
                                        failed ? self->cut() : self->read_server();
                                      });
      });
  }

  void client_ended() {
    server_->end_sending();
    last_words_.expires_after(tunnel_farewell);
  }

  void server_ended() {
    last_words_.disarm();
    server_->close();
    client_->on_drain(nullptr);
    client_->hang_up();
  }

  /// Between two reads from it: nothing is being written to the client.
  void server_lost() {
    last_words_.disarm();
    server_->close();
    client_->on_drain(nullptr);
    if (!frames_ || !frames_->may_close())
      return client_->end_upgraded();
    const auto farewell = going_away_frame();
    client_->write_upgraded(
      boost::asio::buffer(farewell.data(), farewell.size()),
      [self = this->shared_from_this()](const boost::system::error_code& ec, std::size_t) {
        ec ? self->client_->end_upgraded() : self->client_->hang_up();
      });
  }

  /// A WebSocket's is noticed to be lost once what is being written has been taken.
  void end_server() {
    if (!frames_)
      return cut();
    server_->close();
  }

  void cut() {
    server_->close();
    client_->end_upgraded();
  }

  const std::shared_ptr<connection> client_;
  const std::shared_ptr<Server> server_;
  watchdog last_words_;
  std::string first_;
  std::optional<frame_walk> frames_; ///< Of the server's.
  std::array<char, 16 * 1024> from_client_{};
  std::array<char, 16 * 1024> from_server_{};
};

} // namespace insula::http
