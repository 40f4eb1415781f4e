#include "http/preview/upstream.hpp"

#include "http/sandboxes/ask_sandbox.hpp"

#include <boost/asio/post.hpp>

#include <cerrno>
#include <optional>
#include <sys/socket.h>

namespace insula::http::preview {

namespace {

using namespace std::chrono_literals;
using boost::asio::ip::tcp;
using boost::system::error_code;

/// Shorter than what freezes a sandbox, longer than what lies between two requests of one page.
constexpr auto rest_time = 3s;
/// On a loopback it takes microseconds, unless the server's queue is full.
constexpr auto connect_patience = 10s;

failure failed(const error& why, std::uint16_t port) {
  switch (why.code) {
    case errc::sandbox_not_running: return is_not_running(port);
    case errc::deadline_exceeded: return {504, "network_error", why.message};
    case errc::key_ceiling: return {429, "key_limit_reached", why.message};
    default:
      return {502, "network_error", why.code == errc::internal ? "internal error" : why.message};
  }
}

/// On the strand, but for ask()'s answers.
class connecting : public std::enable_shared_from_this<connecting> {
public:
  connecting(std::shared_ptr<const services> with, strand_handle strand, std::string id,
             std::uint16_t port, request_context context, connected_fn done)
      : with_(std::move(with))
      , strand_(std::move(strand))
      , id_(std::move(id))
      , port_(port)
      , context_(std::move(context))
      , done_(std::move(done))
      , late_(strand_.executor(), [this] { too_late(); }) {
    late_.expires_after(sandbox_patience);
  }

  void ask(bool ipv6) {
    sandbox_question<open_sockets_request, sandbox_sockets> asked{
      with_->directory,
      id_,
      {ipv6, 1, context_},
      [self = shared_from_this(), ipv6](const sandbox_sockets& got) {
        boost::asio::post(self->strand_.executor(),
                          [self, got, ipv6] { self->try_out(got, ipv6); });
      },
      [self = shared_from_this()](question_stage, const error& why) {
        boost::asio::post(self->strand_.executor(),
                          [self, why] { self->end(nullptr, failed(why, self->port_)); });
      }};
    asked.starts_it = false;
    ask_sandbox(*with_, std::move(asked));
  }

private:
  void try_out(const sandbox_sockets& got, bool ipv6) {
    if (!done_)
      return;
    if (got.sockets->empty())
      return end(nullptr, {502, "network_error", "the sandbox has no socket to give"});
    error_code ec;
    socket_.emplace(strand_.executor());
    socket_->assign(ipv6 ? tcp::v6() : tcp::v4(), got.sockets->front().get(), ec);
    if (ec) // One that is not open would be opened anew, in this node's own network.
      return end(nullptr, {502, "network_error", "using a socket of the sandbox: " + ec.message()});
    static_cast<void>(got.sockets->front().release());
    socket_->set_option(tcp::no_delay{true}, ec);
    const auto where = ipv6 ? boost::asio::ip::address{boost::asio::ip::address_v6::loopback()}
                            : boost::asio::ip::address{boost::asio::ip::address_v4::loopback()};
    late_.expires_after(connect_patience);
    socket_->async_connect(
      {where, port_}, [self = shared_from_this(), use = got.use, ipv6](const error_code& why) {
        if (!self->done_)
          return;
        if (!why)
          return self->end(
            std::make_shared<upstream>(std::move(*self->socket_), self->id_, self->port_, use), {});
        if (!ipv6)
          return self->ask(true);
        self->end(nullptr,
                  {502, "port_not_listening",
                   "nothing listens at port " + std::to_string(self->port_) + " in the sandbox"});
      });
  }

  void too_late() {
    error_code ignored;
    if (socket_)
      socket_->close(ignored);
    end(nullptr, {504, "deadline_exceeded",
                  "port " + std::to_string(port_) + " in the sandbox takes no connection"});
  }

  void end(std::shared_ptr<upstream> made, failure why) {
    late_.disarm();
    if (const auto tell = std::exchange(done_, nullptr))
      tell(std::move(made), std::move(why));
  }

  const std::shared_ptr<const services> with_;
  const strand_handle strand_;
  const std::string id_;
  const std::uint16_t port_;
  const request_context context_;
  connected_fn done_;
  watchdog late_;
  std::optional<tcp::socket> socket_;
};

} // namespace

failure is_not_running(std::uint16_t port) {
  return {502, "sandbox_not_running",
          "the sandbox does not run, so nothing listens at port " + std::to_string(port)};
}

upstream::upstream(socket_type socket, std::string id, std::uint16_t port,
                   std::shared_ptr<void> use)
    : socket_(std::move(socket))
    , id_(std::move(id))
    , port_(port)
    , use_(std::move(use))
    , idle_(socket_.get_executor(), [this] { close(); }) {}

bool upstream::is_alive() {
  if (!socket_.is_open())
    return false;
  char unasked = 0;
  return ::recv(socket_.native_handle(), &unasked, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         (errno == EAGAIN || errno == EWOULDBLOCK);
}

void upstream::rest() {
  idle_.expires_after(rest_time);
}

void upstream::end_sending() {
  error_code ignored;
  socket_.shutdown(socket_type::shutdown_send, ignored);
}

void upstream::close() {
  error_code ignored;
  socket_.close(ignored);
  use_.reset();
}

void connect(std::shared_ptr<const services> with, strand_handle strand, std::string id,
             std::uint16_t port, request_context context, connected_fn done) {
  std::make_shared<connecting>(std::move(with), std::move(strand), std::move(id), port,
                               std::move(context), std::move(done))
    ->ask(false);
}

} // namespace insula::http::preview
