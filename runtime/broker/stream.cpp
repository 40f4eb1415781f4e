#include "runtime/broker/stream.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <cerrno>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace insula::runtime::broker {

namespace {

namespace asio = boost::asio;

constexpr std::string_view offered_protocols{"\x02h2\x08http/1.1", 12};

} // namespace

void stream::frees::operator()(SSL* what) const {
  SSL_free(what);
}

struct patience::shared {
  stream* with; ///< Null: it does not matter any more.
  asio::steady_timer timer;
  bool over = false;
};

patience::patience(stream& with, std::chrono::milliseconds longest)
    : shared_(
        std::make_shared<shared>(shared{&with, asio::steady_timer{with.executor(), longest}})) {
  shared_->timer.async_wait([mine = shared_](const boost::system::error_code& stopped) {
    if (stopped || mine->with == nullptr)
      return;
    mine->over = true;
    mine->with->cut();
  });
}

patience::~patience() {
  shared_->with = nullptr;
  shared_->timer.cancel();
}

bool patience::is_over() const {
  return shared_->over;
}

stream::stream(asio::io_context& io, unique_fd socket)
    : socket_(io, socket.release()) {}

stream::~stream() = default;

error stream::broken() const {
  return {errc::io_failed, cut_ ? "the connection was cut" : "the connection has ended"};
}

void stream::cut() {
  cut_ = true;
  boost::system::error_code ignored;
  socket_.close(ignored);
}

task<bool> stream::wait(next for_what) {
  if (cut_)
    co_return false;
  boost::system::error_code failed;
  co_await socket_.async_wait(for_what == next::read ? asio::posix::stream_descriptor::wait_read
                                                     : asio::posix::stream_descriptor::wait_write,
                              asio::redirect_error(asio::use_awaitable, failed));
  co_return !failed && !cut_;
}

/// As wait(), and interrupt_reading() ends it.
task<bool> stream::wait_to_read(next for_what) {
  if (cut_)
    co_return false;
  boost::system::error_code failed;
  read_waits_ = true;
  co_await socket_.async_wait(
    for_what == next::read ? asio::posix::stream_descriptor::wait_read
                           : asio::posix::stream_descriptor::wait_write,
    asio::bind_cancellation_slot(interrupts_.slot(),
                                 asio::redirect_error(asio::use_awaitable, failed)));
  read_waits_ = false;
  co_return !failed && !cut_;
}

void stream::interrupt_reading() {
  if (read_waits_ && !cut_)
    interrupts_.emit(asio::cancellation_type::terminal);
}

bool stream::is_quiet() {
  if (cut_)
    return false;
  char one = 0;
  if (!tls_) {
    const auto n = ::recv(socket_.native_handle(), &one, 1, MSG_PEEK | MSG_DONTWAIT);
    return n < 0 && errno == EAGAIN;
  }
  // What is TLS's own business is done on the way.
  std::size_t size = 0;
  ERR_clear_error();
  const int outcome = SSL_peek_ex(tls_.get(), &one, 1, &size);
  const bool is = outcome != 1 && judge(outcome) == next::read;
  ERR_clear_error();
  return is;
}

stream::next stream::judge(int outcome) const {
  switch (SSL_get_error(tls_.get(), outcome)) {
    case SSL_ERROR_NONE: return next::done;
    case SSL_ERROR_WANT_READ: return next::read;
    case SSL_ERROR_WANT_WRITE: return next::write;
    case SSL_ERROR_ZERO_RETURN: return next::ended;
    default: return next::failed;
  }
}

task<result<void>> stream::accept_tls(SSL_CTX& with, std::chrono::milliseconds longest) {
  tls_.reset(SSL_new(&with));
  if (!tls_ || SSL_set_fd(tls_.get(), socket_.native_handle()) != 1)
    co_return error{errc::internal, "there is no memory for TLS"};
  SSL_set_accept_state(tls_.get());
  auto done = co_await shake_hands(longest);
  if (const char* name = SSL_get_servername(tls_.get(), TLSEXT_NAMETYPE_host_name))
    server_name_ = name;
  co_return done;
}

task<result<void>> stream::connect_tls(SSL_CTX& with, const std::string& name,
                                       std::chrono::milliseconds longest, bool offers_http2) {
  tls_.reset(SSL_new(&with));
  const auto offered = offers_http2 ? offered_protocols : offered_protocols.substr(3);
  if (!tls_ || SSL_set_fd(tls_.get(), socket_.native_handle()) != 1 ||
      SSL_set_tlsext_host_name(tls_.get(), name.c_str()) != 1 ||
      SSL_set1_host(tls_.get(), name.c_str()) != 1 ||
      SSL_set_alpn_protos(tls_.get(), reinterpret_cast<const unsigned char*>(offered.data()),
                          static_cast<unsigned>(offered.size())) != 0)
    co_return error{errc::internal, "there is no memory for TLS"};
  SSL_set_connect_state(tls_.get());
  auto done = co_await shake_hands(longest);
  const auto verified = SSL_get_verify_result(tls_.get());
  if (!done && verified != X509_V_OK)
    co_return error{errc::io_failed, "the certificate of " + name +
                                       " is not good: " + X509_verify_cert_error_string(verified)};
  co_return done;
}

task<result<void>> stream::shake_hands(std::chrono::milliseconds longest) {
  const patience waits{*this, longest};
  for (;;) {
    ERR_clear_error();
    const auto then = judge(SSL_do_handshake(tls_.get()));
    if (then == next::done)
      break;
    bool goes_on = then == next::read || then == next::write;
    if (goes_on)
      goes_on = co_await wait(then);
    if (!goes_on) {
      ERR_clear_error();
      co_return waits.is_over() ? error{errc::deadline_exceeded, "there was no TLS in time"}
                                : broken();
    }
  }
  const unsigned char* chosen = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(tls_.get(), &chosen, &size);
  if (chosen != nullptr)
    protocol_.assign(reinterpret_cast<const char*>(chosen), size);
  co_return result<void>{};
}

task<result<std::size_t>> stream::read(char* into, std::size_t room) {
  for (;;) {
    if (cut_)
      co_return broken();
    next then = next::read;
    std::size_t size = 0;
    if (tls_) {
      ERR_clear_error();
      const int outcome = SSL_read_ex(tls_.get(), into, room, &size);
      then = outcome == 1 ? next::done : judge(outcome);
    } else {
      const auto n = ::recv(socket_.native_handle(), into, room, MSG_DONTWAIT);
      then = n > 0                               ? next::done
             : n == 0                            ? next::ended
             : errno == EAGAIN || errno == EINTR ? next::read
                                                 : next::failed;
      size = n > 0 ? static_cast<std::size_t>(n) : 0;
    }
    if (then == next::done || then == next::ended) {
      read_ += size;
      co_return size;
    }
    bool goes_on = then != next::failed;
    if (goes_on)
      goes_on = co_await wait_to_read(then);
    if (!goes_on) {
      ERR_clear_error();
      co_return broken();
    }
  }
}

task<result<void>> stream::write(std::string_view all) {
  while (!all.empty()) {
    if (cut_)
      co_return broken();
    next then = next::write;
    std::size_t size = 0;
    if (tls_) {
      ERR_clear_error();
      const int outcome = SSL_write_ex(tls_.get(), all.data(), all.size(), &size);
      then = outcome == 1 ? next::done : judge(outcome);
    } else {
      const auto n =
        ::send(socket_.native_handle(), all.data(), all.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      then = n >= 0 ? next::done : errno == EAGAIN || errno == EINTR ? next::write : next::failed;
      size = n > 0 ? static_cast<std::size_t>(n) : 0;
    }
    if (then == next::done) {
      written_ += size;
      all.remove_prefix(size);
      continue;
    }
    bool goes_on = then == next::read || then == next::write;
    if (goes_on) {
      const patience waits{*this, longest_stall_};
      goes_on = co_await wait(then);
    }
    if (!goes_on) {
      ERR_clear_error();
      co_return broken();
    }
  }
  co_return result<void>{};
}

task<void> stream::end() {
  if (cut_)
    co_return;
  const patience waits{*this, longest_stall_};
  while (tls_) {
    ERR_clear_error();
    const int outcome = SSL_shutdown(tls_.get());
    const auto then = outcome >= 0 ? next::done : judge(outcome);
    bool goes_on = then == next::read || then == next::write;
    if (goes_on)
      goes_on = co_await wait(then);
    if (!goes_on)
      break;
  }
  ERR_clear_error();
  if (!cut_)
    ::shutdown(socket_.native_handle(), SHUT_WR);
}

result<std::shared_ptr<SSL_CTX>> make_client_context(const std::string& trusted_pem) {
  std::shared_ptr<SSL_CTX> made{SSL_CTX_new(TLS_client_method()), SSL_CTX_free};
  if (!made || SSL_CTX_set_min_proto_version(made.get(), TLS1_2_VERSION) != 1)
    return error{errc::internal, "there is no memory for TLS"};
  SSL_CTX_set_verify(made.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_options(made.get(),
                      SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
  SSL_CTX_set_session_cache_mode(made.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(made.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                 SSL_MODE_RELEASE_BUFFERS);
  if (trusted_pem.empty()) {
    if (SSL_CTX_set_default_verify_paths(made.get()) != 1)
      return error{errc::internal, "the machine trusts no authority"};
    return made;
  }
  const std::unique_ptr<BIO, decltype(&BIO_free)> text{
    BIO_new_mem_buf(trusted_pem.data(), static_cast<int>(trusted_pem.size())), &BIO_free};
  std::size_t count = 0;
  while (X509* each = PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr)) {
    count += X509_STORE_add_cert(SSL_CTX_get_cert_store(made.get()), each) == 1 ? 1 : 0;
    X509_free(each);
  }
  ERR_clear_error();
  if (count == 0)
    return error{errc::invalid_request, "there is no certificate in what is to be trusted"};
  return made;
}

} // namespace insula::runtime::broker
