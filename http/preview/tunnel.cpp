#include "http/preview/tunnel.hpp"

#include "http/connection.hpp"

#include <boost/asio/write.hpp>

#include <array>
#include <chrono>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace insula::http::preview {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;

/// For a server to end when its client has.
constexpr std::chrono::seconds farewell{60};

/// Finds a client that has gone without a word, after about two minutes.
void ask_now_and_then(int socket) {
  const auto set = [socket](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 15);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

class both_ways : public std::enable_shared_from_this<both_ways> {
public:
  both_ways(std::shared_ptr<connection> client, std::shared_ptr<upstream> server)
      : client_(std::move(client))
      , server_(std::move(server))
      , last_words_(client_->socket().get_executor(), [this] { cut(); }) {
    client_->counts().web_sockets.add();
  }
  ~both_ways() { client_->counts().web_sockets.subtract(); }

  void start(std::string first) {
    ask_now_and_then(client_->socket().native_handle());
    client_->on_drain([weak = weak_from_this()] {
      if (const auto self = weak.lock())
        self->cut();
    });
    first_ = std::move(first);
    client_->write_upgraded(asio::buffer(first_),
                            [self = shared_from_this()](const error_code& ec, std::size_t) {
                              self->first_ = {};
                              if (ec)
                                return self->cut();
                              self->read_server();
                            });
    read_client();
  }

private:
  void read_client() {
    client_->read_upgraded(asio::buffer(from_client_), [self = shared_from_this()](
                                                         const error_code& ec, std::size_t bytes) {
      if (ec == asio::error::eof)
        return self->client_ended();
      if (ec)
        return self->cut();
      asio::async_write(self->server_->socket(), asio::buffer(self->from_client_, bytes),
                        [self](const error_code& failed, std::size_t) {
                          failed ? self->cut() : self->read_client();
                        });
    });
  }

  void read_server() {
    server_->socket().async_read_some(
      asio::buffer(from_server_),
      [self = shared_from_this()](const error_code& ec, std::size_t bytes) {
        if (ec == asio::error::eof)
          return self->server_ended();
        if (ec)
          return self->cut();
        self->client_->write_upgraded(asio::buffer(self->from_server_, bytes),
                                      [self](const error_code& failed, std::size_t) {
                                        failed ? self->cut() : self->read_server();
                                      });
      });
  }

  void client_ended() {
    error_code ignored;
    server_->socket().shutdown(upstream::socket_type::shutdown_send, ignored);
    last_words_.expires_after(farewell);
  }

  void server_ended() {
    last_words_.disarm();
    server_->close();
    client_->on_drain(nullptr);
    client_->hang_up();
  }

  void cut() {
    server_->close();
    client_->end_upgraded();
  }

  const std::shared_ptr<connection> client_;
  const std::shared_ptr<upstream> server_;
  watchdog last_words_;
  std::string first_;
  std::array<char, 16 * 1024> from_client_{};
  std::array<char, 16 * 1024> from_server_{};
};

} // namespace

void tunnel(std::shared_ptr<connection> client, std::shared_ptr<upstream> server,
            std::string first) {
  std::make_shared<both_ways>(std::move(client), std::move(server))->start(std::move(first));
}

} // namespace insula::http::preview
