#include "http/transport/connection.hpp"

#include "http/json/json.hpp"
#include "http/transport/certificate.hpp"
#include "http/transport/response_head.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>

namespace insula::http {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

thread_local connection* parsing_now = nullptr;

/// What a refused client may still send before it is cut.
constexpr std::size_t linger_bytes = 64u << 20;

std::string malformed_answer() {
  return closing_response({400, json::write_error("Malformed HTTP request", "invalid_request")});
}

} // namespace

std::string network_of(const std::string& address) {
  error_code ec;
  const auto parsed = asio::ip::make_address(address, ec);
  if (ec || !parsed.is_v6())
    return address;
  return asio::ip::make_network_v6(parsed.to_v6(), 64).canonical().to_string();
}

connection::handling::handling(connection& self, bool fresh_bytes, bool healthy)
    : self_(self)
    , outer_(std::exchange(parsing_now, &self)) {
  self_.fresh_bytes_ = fresh_bytes;
  self_.healthy_ = healthy;
}

connection::handling::~handling() {
  self_.fresh_bytes_ = false;
  self_.healthy_ = false;
  parsing_now = outer_;
}

connection::connection(socket_type socket, asio::ssl::context* tls, const time_limits& limits,
                       const admit_fn& admit, std::shared_ptr<figures> counts,
                       std::shared_ptr<byte_budget> bodies, std::shared_ptr<void> owner)
    : body_memory(std::move(bodies))
    , socket_(std::move(socket))
    , limits_(limits)
    , admit_(admit)
    , counts_(std::move(counts))
    , owner_(std::move(owner))
    , read_watchdog_(socket_.get_executor(), [this] { nothing_comes(); })
    , write_watchdog_(socket_.get_executor(), [this] { time_is_up(); }) {
  if (tls != nullptr)
    tls_.emplace(socket_, *tls);
}

connection::~connection() {
  tell_end();
}

connection* connection::current() {
  return parsing_now;
}

void connection::handshake(std::function<void(const error_code&)> done) {
  if (!tls_ || shaken_)
    return done({});
  read_watchdog_.expires_after(limits_.handshake);
  tls_->async_handshake(asio::ssl::stream_base::server,
                        [self = shared_from_this(), then = std::move(done)](const error_code& ec) {
                          self->read_watchdog_.disarm();
                          self->shaken_ = true;
                          if (ec || self->knows_ == nullptr)
                            return then(ec);
                          if (!(*self->knows_)(certificate_name(self->tls_->native_handle())))
                            return then(asio::error::access_denied);
                          self->rise_to(caller::holder);
                          then(ec);
                        });
}

std::string connection::peer() const {
  error_code ec;
  const auto at = socket_.remote_endpoint(ec);
  if (ec)
    return "unknown";
  auto where = at.address();
  if (where.is_v6() && where.to_v6().is_v4_mapped())
    where = asio::ip::make_address_v4(asio::ip::v4_mapped, where.to_v6());
  return where.to_string();
}

// ---- Reading ----------------------------------------------------------------------------------

template <class Handler>
void connection::raw_read(asio::mutable_buffer into, Handler&& done) {
  reading_ = true;
  if (tls_)
    tls_->async_read_some(into, std::forward<Handler>(done));
  else
    socket_.async_read_some(into, std::forward<Handler>(done));
}

void connection::read_some(asio::mutable_buffer into, io_handler done) {
  check_lines_to(last_read_.data() + last_read_.size()); // All of it has been parsed.
  read_into_ = into;
  read_done_ = std::move(done);
  if (now_ == phase::answering) {
    enter_idle(); // One request at a time: asking for the next means that this one is done.
    stop_watching();
  }
  if (draining_ && now_ == phase::idle)
    client_left_ = true; // As good as.
  continue_read();
}

void connection::continue_read() {
  if (!read_done_ || posted_)
    return;
  if (!early_.empty()) {
    const auto bytes = asio::buffer_copy(read_into_, asio::buffer(early_));
    early_.erase(0, bytes);
    return post_read({}, bytes);
  }
  if (has_ahead_) {
    has_ahead_ = false;
    static_cast<char*>(read_into_.data())[0] = ahead_[0];
    return post_read({}, 1);
  }
  if (client_left_ || !socket_.is_open())
    return post_read(asio::error::eof, 0);
  if (held_)
    return read_watchdog_.disarm(); // Whoever holds it has a time limit of its own.
  read_watchdog_.expires_at(read_deadline());
  if (reading_)
    return; // Looking out for the client's leaving; what comes out of that is ours as well.
  if (!interim_.empty()) {
    auto raw = std::make_shared<std::string>(std::exchange(interim_, {}));
    auto sent = [self = shared_from_this(), raw](const error_code& ec, std::size_t) {
      self->client_left_ = static_cast<bool>(ec);
      self->continue_read();
    };
    if (tls_)
      return asio::async_write(*tls_, asio::buffer(*raw), std::move(sent));
    return asio::async_write(socket_, asio::buffer(*raw), std::move(sent));
  }
  raw_read(read_into_, [self = shared_from_this()](const error_code& ec, std::size_t bytes) {
    self->reading_ = false;
    self->deliver_read(ec, bytes);
  });
}

/// What ends meanwhile must not read into the same buffer.
void connection::post_read(error_code ec, std::size_t bytes) {
  posted_ = true;
  asio::post(socket_.get_executor(), [self = shared_from_this(), ec, bytes] {
    self->posted_ = false;
    self->deliver_read(ec, bytes);
  });
}

void connection::deliver_read(error_code ec, std::size_t bytes) {
  read_watchdog_.disarm();
  auto done = std::exchange(read_done_, nullptr);
  if (!done || closed_)
    return;
  // RESTinio takes an aborted operation for its own doing and would leave everything as it is.
  if (late_ && (ec || !farewell_.empty())) // Also what has come since it was refused.
    ec = asio::error::timed_out;
  else if (ec == asio::error::operation_aborted)
    ec = asio::error::connection_reset;
  counts_->bytes_in.add(bytes);
  before_ = tail_;
  last_read_ = {static_cast<const char*>(read_into_.data()), bytes};
  header_end_ = last_read_.data();
  if (unchecked_ != nullptr)
    unchecked_ = last_read_.data();
  for (const char c : last_read_.substr(bytes - std::min<std::size_t>(bytes, tail_.size())))
    tail_ = {tail_[1], tail_[2], c};
  handling scope{*this, true, !ec};
  done(ec, bytes);
}

void connection::resume_reading() {
  asio::dispatch(socket_.get_executor(), [self = shared_from_this()] {
    if (std::exchange(self->held_, false))
      self->continue_read();
  });
}

/// Whatever comes meanwhile that is no request, such as an empty line, moves no deadline.
connection::time_point connection::read_deadline() {
  const auto now = std::chrono::steady_clock::now();
  if (phase_deadline_ == time_point{})
    phase_deadline_ = now + limits_.first;
  switch (now_) {
    case phase::idle:
    case phase::header: return phase_deadline_;
    case phase::body: return std::min(now + limits_.progress, phase_deadline_);
    case phase::answering: break;
  }
  return time_point::max();
}

void connection::enter_idle() {
  now_ = phase::idle;
  at_work_ = false;
  phase_deadline_ = std::chrono::steady_clock::now() + limits_.idle;
  if (shown_ == caller::visitor && visitor_idle_)
    visitor_idle_();
}

void connection::enter_answering() {
  now_ = phase::answering;
  at_work_ = true;
}

bool connection::rise_to(caller shown) {
  if (shown <= shown_ || !rises_)
    return true;
  if (!rises_(this, shown))
    return false;
  shown_ = shown;
  return true;
}

void connection::enter_header() {
  now_ = phase::header;
  phase_deadline_ = std::chrono::steady_clock::now() + limits_.header;
}

void connection::enter_body() {
  now_ = phase::body;
  at_work_ = true;
  phase_deadline_ = std::chrono::steady_clock::now() + limits_.body;
}

void connection::watch_client(std::function<void()> gone) {
  gone_ = std::move(gone);
  if (client_left_ || closed_ || !socket_.is_open()) {
    asio::post(socket_.get_executor(), [self = shared_from_this()] {
      if (auto tell = std::exchange(self->gone_, nullptr))
        tell();
    });
    return;
  }
  if (reading_ || has_ahead_ || read_done_)
    return;
  raw_read(asio::buffer(ahead_), [self = shared_from_this()](const error_code& ec, std::size_t) {
    self->reading_ = false;
    if (self->taken_over_) {
      self->client_left_ = static_cast<bool>(ec);
      return self->hand_over_ahead(!ec);
    }
    self->has_ahead_ = !ec;
    self->client_left_ = static_cast<bool>(ec);
    if (ec && self->gone_)
      std::exchange(self->gone_, nullptr)();
    self->continue_read();
  });
}

// ---- After an upgrade -------------------------------------------------------------------------

void connection::take_over() {
  taken_over_ = true;
  at_work_ = true;
  stop_watching();
  early_ = last_read_.substr(header_size());
  if (std::exchange(has_ahead_, false))
    early_ += ahead_[0];
  last_read_ = {};
  unchecked_ = nullptr;
  note_heard();
}

void connection::on_drain(std::function<void()> drain) {
  drain_ = std::move(drain);
  if (draining_ && drain_)
    asio::post(socket_.get_executor(), drain_);
}

/// Of what was read last, how much belongs to the header: up to its first empty line behind the
/// last field, which may have begun in what was read before.
std::size_t connection::header_size() const {
  const auto at = [&](std::ptrdiff_t where) {
    return where < 0 ? before_[static_cast<std::size_t>(where + 3)]
                     : last_read_[static_cast<std::size_t>(where)];
  };
  for (auto i = header_end_ - last_read_.data(); i < std::ssize(last_read_); ++i)
    if (at(i) == '\n' && (at(i - 1) == '\n' || (at(i - 1) == '\r' && at(i - 2) == '\n')))
      return static_cast<std::size_t>(i) + 1;
  return last_read_.size();
}

// ---- Lines ------------------------------------------------------------------------------------

void connection::check_lines_from(const char* at) {
  lines_.begin();
  unchecked_ = header_end_ = at; // Perhaps no field follows.
}

void connection::check_lines_to(const char* end) {
  if (unchecked_ == nullptr || end < unchecked_)
    return;
  lines_.take({unchecked_, static_cast<std::size_t>(end - unchecked_)});
  unchecked_ = end;
}

bool connection::check_header(bool in_chunks) {
  check_lines_to(last_read_.data() + header_size());
  lines_.go_on();
  if (!in_chunks)
    unchecked_ = nullptr;
  return lines_.is_good();
}

bool connection::check_before(std::string_view content) {
  if (unchecked_ == nullptr)
    return true;
  check_lines_to(content.data());
  lines_.skip_content();
  unchecked_ = content.data() + content.size();
  return lines_.is_good();
}

bool connection::check_to_end() {
  check_lines_to(last_read_.data() + last_read_.size());
  unchecked_ = nullptr;
  return lines_.is_good();
}

/// What looked out for the client's leaving was still under way when it was taken over, or has
/// looked out since.
void connection::hand_over_ahead(bool any) {
  if (any)
    early_ += ahead_[0];
  else if (const auto tell = std::exchange(gone_, nullptr))
    tell();
  if (const auto read = std::exchange(read_later_, nullptr))
    read();
}

void connection::give_back() {
  taken_over_ = false;
  drain_ = nullptr;
  stop_watching();
  enter_idle();
  last_read_ = {};
  tail_ = {};
  if (client_left_ || !socket_.is_open())
    return close_socket();
  returned_(shared_from_this());
}

void connection::serve_here(std::string_view head, request_track track) {
  decided = std::move(track);
  put_back(head);
  give_back();
}

void connection::hang_up(bool still_sending) {
  if (std::exchange(hung_up_, true) || !socket_.is_open())
    return;
  // A goodbye of TLS meets what the client still sends, and breaks off before it has read.
  if (!tls_ || still_sending || reading_)
    return linger();
  write_watchdog_.expires_after(limits_.linger);
  tls_->async_shutdown([self = shared_from_this()](const error_code&) { self->close_socket(); });
}

void connection::end_upgraded() {
  drain_ = nullptr;
  if (!hung_up_)
    close_socket();
}

// ---- Ending -----------------------------------------------------------------------------------

/// What is refused is told by close(), to which the end of the read leads.
void connection::nothing_comes() {
  if (now_ == phase::body && late_body_ != nullptr && farewell_.empty() && !closed_)
    late_body_(*this);
  if (farewell_.empty() || closed_ || std::exchange(late_, true))
    return time_is_up();
  error_code ignored;
  socket_.cancel(ignored);
  read_watchdog_.expires_after(limits_.linger); // If the read goes on all the same.
}

void connection::time_is_up() {
  late_ = true;
  close_socket();
}

void connection::close_socket() {
  error_code ignored;
  socket_.close(ignored);
  parked = nullptr;
  tell_end();
}

void connection::tell_end() {
  if (auto tell = std::exchange(ended_, nullptr))
    tell(this);
}

void connection::abort() {
  close_socket();
  if (!reading_)
    continue_read();
  if (auto tell = std::exchange(gone_, nullptr))
    tell();
}

void connection::drain() {
  draining_ = true;
  if (drain_)
    drain_();
  else if (now_ == phase::idle)
    abort();
}

/// RESTinio closes while it parses for one reason only: it could not make sense of the bytes.
bool connection::is_malformed() const {
  if (!healthy_)
    return false;
  return now_ == phase::header || now_ == phase::body || (now_ == phase::idle && fresh_bytes_);
}

void connection::close() {
  if (closed_ || taken_over_)
    return;
  if (farewell_.empty() && is_malformed()) {
    farewell_ = malformed_answer();
    if (admitted.track.open())
      admitted.track.finish(400);
    else
      counts_->unmatched(verb::other).count(400, {});
  }
  closed_ = true;
  read_done_ = nullptr;
  admitted = {};
  body = {};
  body_memory.give_back();
  if (auto tell = std::exchange(gone_, nullptr))
    asio::post(socket_.get_executor(), std::move(tell));
  if (!farewell_.empty() && socket_.is_open())
    return say_farewell();
  if (tls_ && socket_.is_open() && !reading_) {
    write_watchdog_.expires_after(limits_.linger);
    tls_->async_shutdown([self = shared_from_this()](const error_code&) { self->close_socket(); });
    return;
  }
  error_code ignored;
  socket_.shutdown(socket_type::shutdown_both, ignored);
  close_socket();
}

void connection::say_farewell() {
  write_watchdog_.expires_after(limits_.write);
  auto said = [self = shared_from_this()](const error_code& ec, std::size_t) {
    self->write_watchdog_.disarm();
    if (ec)
      return self->close_socket();
    self->linger();
  };
  if (tls_)
    asio::async_write(*tls_, asio::buffer(farewell_), std::move(said));
  else
    asio::async_write(socket_, asio::buffer(farewell_), std::move(said));
}

void connection::linger() {
  error_code ignored;
  socket_.shutdown(socket_type::shutdown_send, ignored);
  read_watchdog_.expires_after(limits_.linger);
  discard_rest(std::make_shared<std::array<char, 16 * 1024>>(), linger_bytes);
}

void connection::discard_rest(std::shared_ptr<std::array<char, 16 * 1024>> into, std::size_t left) {
  socket_.async_read_some(asio::buffer(*into), [self = shared_from_this(), into,
                                                left](const error_code& ec, std::size_t bytes) {
    if (ec || bytes >= left)
      return self->close_socket();
    self->discard_rest(into, left - bytes);
  });
}

} // namespace insula::http
