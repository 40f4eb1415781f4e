#include "http/transport/listener.hpp"

#include "base/inherited_sockets.hpp"
#include "base/log.hpp"

#include <boost/asio/dispatch.hpp>

namespace insula::http {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

namespace {
constexpr auto pause_after_failure = std::chrono::milliseconds{50};
constexpr int backlog = 4096; // Of connections the kernel holds for us; it cuts this to somaxconn.
} // namespace

listener::listener(io_pool& io, std::function<void(socket_type)> take,
                   std::function<bool()> has_room)
    : io_(io)
    , acceptor_(io.context(0))
    , pause_(io.context(0))
    , take_(std::move(take))
    , has_room_(std::move(has_room)) {}

result<void> listener::open(const std::string& address, std::uint16_t port,
                            std::span<const int> inherited) {
  boost::system::error_code ec;
  const auto failed = [&] {
    return error{errc::io_failed,
                 "cannot listen on " + address + ":" + std::to_string(port) + ": " + ec.message()};
  };
  const tcp::endpoint where{asio::ip::make_address(address, ec), port};
  if (ec)
    return failed();
  if (auto socket = find_inherited(inherited, where)) {
    if (acceptor_.assign(where.protocol(), socket.get(), ec); ec)
      return failed();
    static_cast<void>(socket.release());
    port_ = acceptor_.local_endpoint(ec).port();
    acceptor_.non_blocking(true, ec);
    return {};
  }
  if (acceptor_.open(where.protocol(), ec); ec)
    return failed();
  if (acceptor_.set_option(tcp::acceptor::reuse_address{true}, ec); ec)
    return failed();
  if (acceptor_.bind(where, ec); ec)
    return failed();
  if (acceptor_.listen(backlog, ec); ec)
    return failed();
  port_ = acceptor_.local_endpoint(ec).port();
  acceptor_.non_blocking(true, ec);
  return {};
}

void listener::start() {
  asio::dispatch(acceptor_.get_executor(), [self = shared_from_this()] { self->accept_next(); });
}

/// Whether there is room is known only once somebody comes.
void listener::accept_next() {
  if (accepting_ || !acceptor_.is_open())
    return;
  accepting_ = true;
  acceptor_.async_wait(tcp::acceptor::wait_read,
                       [self = shared_from_this()](const boost::system::error_code& ec) {
                         self->accepting_ = false;
                         if (ec == asio::error::operation_aborted || !self->acceptor_.is_open())
                           return;
                         if (ec)
                           return self->back_off();
                         if (self->has_room_())
                           self->accept_one();
                       });
}

void listener::accept_one() {
  boost::system::error_code ec;
  auto accepted = acceptor_.accept(io_.next().get_executor(), ec);
  if (!ec)
    take_(socket_type{std::move(accepted)});
  // A client that was gone before it was accepted is no reason to wait, nor one that another
  // process has taken.
  else if (ec != asio::error::connection_aborted && ec != asio::error::would_block &&
           ec != asio::error::try_again)
    return back_off();
  accept_next();
}

void listener::back_off() {
  accepting_ = true; // Nothing else may start it meanwhile.
  pause_.expires_after(pause_after_failure);
  pause_.async_wait([self = shared_from_this()](const boost::system::error_code&) {
    self->accepting_ = false;
    self->accept_next();
  });
}

void listener::close() {
  asio::dispatch(acceptor_.get_executor(), [self = shared_from_this()] {
    boost::system::error_code ignored;
    self->acceptor_.close(ignored);
    self->pause_.cancel();
  });
}

} // namespace insula::http
