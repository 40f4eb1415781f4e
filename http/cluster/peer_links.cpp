#include "http/cluster/peer_links.hpp"

#include "http/transport/certificate.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/query.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <netinet/tcp.h>
#include <stdexcept>
#include <sys/socket.h>
#include <utility>

namespace insula::http::cluster {

namespace asio = boost::asio;
using boost::system::error_code;
using namespace std::chrono_literals;

namespace {

/// For a connection and both handshakes: members are near each other.
constexpr auto connect_patience = 2s;
constexpr auto idle_time = 10s;
/// To each member, in all threads.
constexpr std::size_t most_idle = 64;

/// Finds a member that has gone without a word, if nobody else does before. What has been sent and
/// is not acknowledged keeps the kernel from asking, so that has a limit as well; it counts too
/// while the member takes nothing, which it may do for a minute.
void ask_often(int socket) {
  constexpr int unacknowledged_ms = 90'000;
  const auto set = [socket](int name, int value) {
    ::setsockopt(socket, IPPROTO_TCP, name, &value, sizeof value);
  };
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  set(TCP_NODELAY, 1);
  set(TCP_KEEPIDLE, 5);
  set(TCP_KEEPINTVL, 3);
  set(TCP_KEEPCNT, 3);
  set(TCP_USER_TIMEOUT, unacknowledged_ms);
}

} // namespace

peer_link::peer_link(const asio::any_io_executor& executor, asio::ssl::context& tls, peer to,
                     std::size_t lane)
    : to_(std::move(to))
    , lane_(lane)
    , stream_(executor, tls)
    , patience_(executor, [this] { too_late(); }) {}

void peer_link::too_late() {
  close();
  if (const auto tell = std::exchange(tired_, nullptr))
    tell();
}

bool peer_link::is_alive() {
  if (!is_open())
    return false;
  char unasked = 0;
  return ::recv(stream_.lowest_layer().native_handle(), &unasked, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         (errno == EAGAIN || errno == EWOULDBLOCK);
}

void peer_link::break_off() {
  broken_off_ = true;
  close();
}

void peer_link::close() {
  // Otherwise OpenSSL would take its session for a bad one, and resume it no more.
  SSL_set_shutdown(stream_.native_handle(), SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
  error_code ignored;
  stream_.lowest_layer().close(ignored);
  patience_.disarm();
}

peer_links::peer_links(io_pool& io, tls_files tls)
    : io_(io)
    , files_(std::move(tls))
    , tls_(asio::ssl::context::tls_client)
    , lanes_(io.size())
    , most_idle_(std::max<std::size_t>(1, most_idle / io.size())) {}

result<void> peer_links::prepare() {
  using context = asio::ssl::context;
  error_code ec;
  const auto unusable = [&](const std::string& file) {
    return error{errc::invalid_request, "cannot use " + file + " for TLS: " + ec.message()};
  };
  tls_.set_options(context::default_workarounds | context::no_sslv2 | context::no_sslv3 |
                     context::no_tlsv1 | context::no_tlsv1_1 | context::no_tlsv1_2,
                   ec);
  tls_.set_verify_mode(asio::ssl::verify_peer, ec);
  if (tls_.load_verify_file(files_.authority, ec); ec)
    return unusable(files_.authority);
  if (tls_.use_certificate_chain_file(files_.certificate, ec); ec)
    return unusable(files_.certificate);
  if (tls_.use_private_key_file(files_.key, context::pem, ec); ec)
    return unusable(files_.key);
  return {};
}

std::size_t peer_links::number_of(const asio::any_io_executor& on) const {
  const auto* where = &asio::query(on, asio::execution::context_as<asio::execution_context&>);
  for (std::size_t i = 0; i < lanes_.size(); ++i)
    if (where == &io_.context(i))
      return i;
  throw std::logic_error("not one of the pool's threads");
}

std::shared_ptr<peer_link> peer_links::take(const asio::any_io_executor& on, const peer& to) {
  auto& idle = lanes_[number_of(on)].idle[to.name];
  while (!idle.empty()) {
    auto link = std::move(idle.back());
    idle.pop_back();
    link->patience_.disarm();
    link->tired_ = nullptr;
    if (link->to() == to && link->is_alive())
      return link;
    link->close();
  }
  return nullptr;
}

void peer_links::connect(const asio::any_io_executor& on, const peer& to, connected_fn done) {
  const auto number = number_of(on);
  auto& mine = lanes_[number];
  error_code ec;
  const asio::ip::tcp::endpoint where{asio::ip::make_address(to.address, ec), to.port};
  if (ec || mine.closed)
    return asio::post(on, [done = std::move(done)] { done(nullptr); });
  auto link = std::make_shared<peer_link>(on, tls_, to, number);
  std::erase_if(mine.open, [](const auto& each) { return each.expired(); });
  mine.open.push_back(link);
  link->patience_.expires_after(connect_patience);
  link->stream_.lowest_layer().async_connect(
    where,
    [self = shared_from_this(), link, done = std::move(done)](const error_code& why) mutable {
      if (why || !link->is_open()) {
        link->close();
        return done(nullptr);
      }
      ask_often(link->stream_.lowest_layer().native_handle());
      self->shake_hands(link, std::move(done));
    });
}

void peer_links::shake_hands(const std::shared_ptr<peer_link>& link, connected_fn done) {
  auto& sessions = lanes_[link->lane_].sessions;
  if (const auto known = sessions.find(link->to().name); known != sessions.end())
    SSL_set_session(link->stream_.native_handle(), known->second.get());
  link->stream_.async_handshake(
    asio::ssl::stream_base::client,
    [self = shared_from_this(), link, done = std::move(done)](const error_code& why) {
      link->patience_.disarm();
      const bool in_time = link->is_open(); // Its time may have run out just now.
      if (!why && in_time && certificate_name(link->stream_.native_handle()) == link->to().name)
        return done(link);
      self->lanes_[link->lane_].sessions.erase(link->to().name);
      link->close();
      done(nullptr);
    });
}

void peer_links::rest(const std::shared_ptr<peer_link>& link) {
  auto& mine = lanes_[link->lane_];
  auto& idle = mine.idle[link->to().name];
  if (mine.closed || idle.size() >= most_idle_)
    return link->close();
  // What can be resumed has come before the answer.
  if (auto* session = SSL_get1_session(link->stream_.native_handle());
      session != nullptr && SSL_SESSION_is_resumable(session) != 0)
    mine.sessions[link->to().name].reset(session);
  else
    SSL_SESSION_free(session);
  idle.push_back(link);
  link->patience_.expires_after(idle_time);
  link->tired_ = [weak = weak_from_this(), each = link.get()] {
    const auto self = weak.lock();
    if (!self)
      return;
    // Not here, where its own timer strikes.
    asio::post(self->io_.context(each->lane_),
               [self, number = each->lane_, each, name = each->to().name] {
                 std::erase_if(self->lanes_[number].idle[name],
                               [&](const auto& known) { return known.get() == each; });
               });
  };
}

void peer_links::break_off(const std::string& member, bool all) {
  for (std::size_t i = 0; i < lanes_.size(); ++i)
    asio::post(io_.context(i), [self = shared_from_this(), i, member, all] {
      auto& mine = self->lanes_[i];
      mine.idle.erase(member);
      mine.sessions.erase(member);
      for (const auto& each : mine.open)
        if (const auto link = each.lock();
            link && link->to().name == member && (all || !link->is_answered()))
          link->break_off();
    });
}

void peer_links::close() {
  for (std::size_t i = 0; i < lanes_.size(); ++i)
    asio::post(io_.context(i), [self = shared_from_this(), i] {
      auto& mine = self->lanes_[i];
      mine.closed = true;
      mine.idle.clear();
      mine.sessions.clear();
      for (const auto& each : mine.open)
        if (const auto link = each.lock())
          link->break_off();
    });
}

} // namespace insula::http::cluster
