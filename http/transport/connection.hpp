#pragma once

#include "base/byte_budget.hpp"
#include "http/transport/exchange.hpp"
#include "http/transport/line_check.hpp"
#include "http/transport/watchdog.hpp"

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace insula::http {

/// A connection to a server, parked on its client's connection until the next request. The proxy
/// that has parked it knows its type.
class parked_upstream {
public:
  virtual ~parked_upstream() = default;
};

/// What an address is counted as, where clients are counted: of IPv6 the first 64 bits, which one
/// client has all of.
std::string network_of(const std::string& address);

/// How long a client may take for what.
struct time_limits {
  std::chrono::milliseconds handshake{5'000};
  std::chrono::milliseconds first{10'000};    ///< Until the first byte of the first request.
  std::chrono::milliseconds idle{75'000};     ///< Between two requests.
  std::chrono::milliseconds header{20'000};   ///< From a request's first byte to its header's end.
  std::chrono::milliseconds progress{30'000}; ///< Until the next bytes of a body.
  std::chrono::milliseconds body{600'000};    ///< For a whole body.
  /// Until the next bytes are taken. Longer than limits::reader_patience, so that the command's
  /// side gives up first.
  std::chrono::milliseconds write{40'000};
  /// For a client still sending to see a refusal.
  std::chrono::milliseconds linger{5'000};
  /// Between two pings on a WebSocket. Proxies cut what is silent for a minute.
  std::chrono::milliseconds ping{30'000};
};

/// The socket of one client, plain or TLS, below RESTinio's connection. It adds what that lacks:
/// time limits, reading held back, answers before the body, noticing that the client has left.
///
/// Threads: everything on the strand that is the socket's executor, except where said.
/// Owner:   shared by RESTinio's connection, the operations under way and the exchange.
class connection : public std::enable_shared_from_this<connection> {
public:
  using socket_type = boost::asio::ip::tcp::socket;
  using error_code = boost::system::error_code;
  using io_handler = std::function<void(const error_code&, std::size_t)>;

  using admit_fn = std::function<admission(const request_head&)>;
  using knows_fn = std::function<bool(std::string_view certificate_name)>;

  enum class phase : std::uint8_t { idle, header, body, answering };

  /// `tls`: null for plain HTTP. `limits` and `admit` belong to `owner`, which the
  /// connection keeps.
  connection(socket_type socket, boost::asio::ssl::context* tls, const time_limits& limits,
             const admit_fn& admit, std::shared_ptr<figures> counts,
             std::shared_ptr<byte_budget> bodies, std::shared_ptr<void> owner);
  ~connection();

  /// `tell` is called when the socket has been closed, on any thread.
  void on_end(std::function<void(connection*)> tell) { ended_ = std::move(tell); }
  /// `take` is called when it has been given back, on the strand: RESTinio gets it anew.
  void on_return(std::function<void(std::shared_ptr<connection>)> take) {
    returned_ = std::move(take);
  }

  /// `rises` is asked when the client has shown more than before; false: there is no place for
  /// that.
  void on_rise(std::function<bool(connection*, caller)> rises) { rises_ = std::move(rises); }
  /// `tell` is called whenever a visitor has been answered, and so may be sent away. On the strand.
  void on_visitor_idle(std::function<void()> tell) { visitor_idle_ = std::move(tell); }

  /// After the handshake `knows` is asked about the client's certificate; whom it does not know is
  /// cut. It belongs to `owner`.
  void ask_certificate(const knows_fn& knows) { knows_ = &knows; }
  /// A request is being served, or its body read. Any thread.
  bool is_at_work() const { return at_work_; }

  /// The connection whose bytes are being parsed on this thread right now, or null.
  static connection* current();

  // ---- RESTinio's side: one read and one write at a time ----

  socket_type& socket() { return socket_; }
  const std::shared_ptr<void>& owner() const { return owner_; }
  bool is_open() const { return !closed_ && socket_.is_open(); }
  std::string peer() const; ///< Its address, without a port.
  bool encrypted() const { return tls_.has_value(); }
  void handshake(std::function<void(const error_code&)> done);
  void read_some(boost::asio::mutable_buffer into, io_handler done);
  template <class Buffers, class Handler>
  void write_some(const Buffers& from, Handler&& done);
  void close();

  // ---- The parser's side ----

  /// Decides what becomes of a request.
  admission admit(const request_head& head) const { return admit_(head); }
  figures& counts() const { return *counts_; }
  /// Its client has shown so much. False: there is no place for it.
  bool rise_to(caller shown);
  /// Up to `at` the bytes that were read last are of the header.
  void note_header_end(const char* at) { header_end_ = at; }
  /// From `at` on the lines of a message are looked at: behind its target, or a piece of that.
  void check_lines_from(const char* at);
  /// The header is there. `in_chunks`: lines go on in the body. False: a line is no good.
  bool check_header(bool in_chunks);
  /// `content` has come, of a body in chunks. False: a line before it is no good.
  bool check_before(std::string_view content);
  /// The body is there. False: a line of it is no good.
  bool check_to_end();

  admission admitted;        ///< What becomes of the request being read.
  bool old_protocol = false; ///< It is HTTP/1.0: no chunks, and no second request unless asked for.
  bool repeatable = false;   ///< Twice is as good as once, and there is no body.
  bool body_unwanted = false;   ///< Its body is thrown away.
  std::string body;             ///< What is kept of it,
  byte_share body_memory;       ///< and counted here.
  std::uint64_t body_bytes = 0; ///< So many of it have come.

  void enter_header();
  void enter_body();
  void enter_answering();

  /// When RESTinio closes, `raw` is sent first, a whole response, and the client given a moment to
  /// stop sending and read it.
  void refuse(std::string raw) { farewell_ = std::move(raw); }
  /// `late`: called when the body that is read has not come in time, and refuses it.
  void on_late_body(void (*late)(connection&)) { late_body_ = late; }
  /// `raw` is sent before anything more is read.
  void send_before_reading(std::string raw) { interim_ = std::move(raw); }
  void hold_reading() { held_ = true; }

  // ---- The side of who has taken it over: a WebSocket, a preview ----

  /// From here on RESTinio neither reads nor writes. Its buffers are still there: what has been
  /// read behind the request's header is read once more.
  void take_over();
  /// `drain` is called when the server ends; none: what is under way may end by itself.
  void on_drain(std::function<void()> drain);
  /// Another request may come: RESTinio goes on where it was taken over.
  void give_back();
  /// The same, once its request is to be served here after all, of which no more than the header
  /// has been read. `head`: that, whole. Whoever admits it finds `decided`.
  void serve_here(std::string_view head, request_track track);
  std::optional<request_track> decided;
  /// What has been read too far, to be read again.
  void put_back(std::string_view bytes) { early_.insert(0, bytes); }
  bool has_early() const { return !early_.empty(); }
  template <class Buffers, class Handler>
  void read_upgraded(const Buffers& into, Handler&& done);
  template <class Buffers, class Handler>
  void write_upgraded(const Buffers& from, Handler&& done); ///< All of it.
  /// The client may take nothing of what write_some() writes for so long.
  void set_write_patience(std::chrono::milliseconds at_most) { write_patience_ = at_most; }
  void note_heard() { heard_ = std::chrono::steady_clock::now(); }
  bool heard_before(std::chrono::milliseconds ago) const {
    return heard_ + ago < std::chrono::steady_clock::now();
  }
  /// Lets the client read what was written, for a moment, and closes.
  /// `still_sending`: there may be more of a request, which is thrown away.
  void hang_up(bool still_sending = false);
  /// Closes, unless it has been hung up: that ends by itself.
  void end_upgraded();
  const time_limits& time() const { return limits_; }
  /// The upstream connection of the last request, which the next one may use again.
  std::shared_ptr<parked_upstream> parked;

  // ---- Everybody's side ----

  void resume_reading(); ///< Any thread.

  /// `gone` is called, once, if the client leaves while its request is being answered.
  void watch_client(std::function<void()> gone);
  void stop_watching() { gone_ = nullptr; }

  /// Closes at once; whatever is under way ends with an error.
  void abort();
  /// Takes no further request: ends now if idle, else after the answer.
  void drain();
  bool draining() const { return draining_; } ///< Any thread.

private:
  using tls_type = boost::asio::ssl::stream<socket_type&>;
  using time_point = std::chrono::steady_clock::time_point;

  /// While RESTinio handles the end of a read or a write.
  class handling {
  public:
    handling(connection& self, bool fresh_bytes, bool healthy);
    ~handling();
    handling(const handling&) = delete;
    handling& operator=(const handling&) = delete;

  private:
    connection& self_;
    connection* outer_;
  };

  template <class Handler>
  void raw_read(boost::asio::mutable_buffer into, Handler&& done);
  void continue_read();
  void nothing_comes();
  void post_read(error_code ec, std::size_t bytes);
  void deliver_read(error_code ec, std::size_t bytes);
  void time_is_up();
  bool is_malformed() const;
  void say_farewell();
  void linger();
  void discard_rest(std::shared_ptr<std::array<char, 16 * 1024>> into, std::size_t left);
  void hand_over_ahead(bool any);
  std::size_t header_size() const;
  void check_lines_to(const char* end);
  void close_socket();
  void tell_end();
  time_point read_deadline();
  void enter_idle();

  socket_type socket_;
  std::optional<tls_type> tls_;
  const time_limits& limits_;
  const admit_fn& admit_;
  const std::shared_ptr<figures> counts_;
  const std::shared_ptr<void> owner_;
  std::function<void(connection*)> ended_;
  watchdog read_watchdog_;
  watchdog write_watchdog_;
  std::chrono::milliseconds write_patience_ = limits_.write;

  phase now_ = phase::idle;
  time_point phase_deadline_{}; ///< None, at the start: the handshake may still be to come.
  std::atomic<bool> at_work_ = false;
  caller shown_ = caller::stranger;
  std::function<bool(connection*, caller)> rises_;
  std::function<void()> visitor_idle_;

  boost::asio::mutable_buffer read_into_;
  io_handler read_done_; ///< Set: RESTinio waits for bytes.
  bool reading_ = false; ///< The socket is being read.
  bool posted_ = false;  ///< RESTinio gets its bytes next on the strand.
  bool held_ = false;    ///< Whoever takes the body has no room.
  bool late_ = false;    ///< A time limit struck.
  bool closed_ = false;  ///< RESTinio has closed.
  std::atomic<bool> draining_ = false;
  bool fresh_bytes_ = false; ///< RESTinio is looking at bytes that have just been read,
  bool healthy_ = false;     ///< and the read or write before was no failure.
  std::string interim_;
  void (*late_body_)(connection&) = nullptr;
  std::string farewell_;

  std::array<char, 1> ahead_{}; ///< Read while looking out for the client's leaving.
  bool has_ahead_ = false;
  bool client_left_ = false;
  std::function<void()> gone_;

  std::function<void(std::shared_ptr<connection>)> returned_;
  const knows_fn* knows_ = nullptr;
  bool shaken_ = false;          ///< The TLS handshake is over.
  std::string_view last_read_;   ///< In RESTinio's buffer.
  std::array<char, 3> tail_{};   ///< Its last bytes,
  std::array<char, 3> before_{}; ///< and those of what was read before it.
  const char* header_end_ = nullptr;
  line_check lines_;
  const char* unchecked_ = nullptr; ///< The first byte of what was read last that lines_ has not
                                    ///< seen. None: nothing is looked at.
  std::string early_;               ///< What had come behind the request.
  bool taken_over_ = false;
  std::function<void()> read_later_; ///< Once ahead_ is not being read any more.
  std::function<void()> drain_;
  time_point heard_{};
  bool hung_up_ = false;
};

template <class Buffers, class Handler>
void connection::read_upgraded(const Buffers& into, Handler&& done) {
  namespace asio = boost::asio;
  if (!early_.empty()) {
    const auto bytes = asio::buffer_copy(into, asio::buffer(early_));
    early_.erase(0, bytes);
    return asio::post(
      socket_.get_executor(),
      [bytes, then = std::forward<Handler>(done)]() mutable { then(error_code{}, bytes); });
  }
  if (reading_) {
    auto kept = std::make_shared<std::decay_t<Handler>>(std::forward<Handler>(done));
    read_later_ = [this, into, kept] { read_upgraded(into, std::move(*kept)); };
    return;
  }
  auto executor = asio::get_associated_executor(done, socket_.get_executor());
  auto finished =
    asio::bind_executor(executor, [self = shared_from_this(), then = std::forward<Handler>(done)](
                                    const error_code& ec, std::size_t bytes) mutable {
      self->note_heard();
      self->counts_->bytes_in.add(bytes);
      then(ec && self->late_ ? error_code{asio::error::timed_out} : ec, bytes);
    });
  if (tls_)
    tls_->async_read_some(into, std::move(finished));
  else
    socket_.async_read_some(into, std::move(finished));
}

template <class Buffers, class Handler>
void connection::write_some(const Buffers& from, Handler&& done) {
  namespace asio = boost::asio;
  write_watchdog_.expires_after(write_patience_);
  auto executor = asio::get_associated_executor(done, socket_.get_executor());
  auto finished =
    asio::bind_executor(executor, [self = shared_from_this(), then = std::forward<Handler>(done)](
                                    const error_code& ec, std::size_t bytes) mutable {
      self->write_watchdog_.disarm();
      self->counts_->bytes_out.add(bytes);
      handling scope{*self, false, !ec};
      then(ec && self->late_ ? error_code{asio::error::timed_out} : ec, bytes);
    });
  if (tls_)
    tls_->async_write_some(from, std::move(finished));
  else
    socket_.async_write_some(from, std::move(finished));
}

template <class Buffers, class Handler>
void connection::write_upgraded(const Buffers& from, Handler&& done) {
  namespace asio = boost::asio;
  write_watchdog_.expires_after(limits_.write);
  auto finished = [self = shared_from_this(), then = std::forward<Handler>(done)](
                    const error_code& ec, std::size_t bytes) mutable {
    self->write_watchdog_.disarm();
    self->counts_->bytes_out.add(bytes);
    then(ec && self->late_ ? error_code{asio::error::timed_out} : ec, bytes);
  };
  const auto progress = [this](const error_code& ec, std::size_t sent) -> std::size_t {
    write_watchdog_.expires_after(limits_.write);
    return asio::transfer_all()(ec, sent);
  };
  if (tls_)
    asio::async_write(*tls_, from, progress, std::move(finished));
  else
    asio::async_write(socket_, from, progress, std::move(finished));
}

} // namespace insula::http
