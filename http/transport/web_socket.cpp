#include "http/transport/web_socket.hpp"

#include "base/limits.hpp"
#include "http/text/header_text.hpp"
#include "http/transport/connection.hpp"
#include "http/transport/exchange.hpp"
#include "http/transport/figures.hpp"
#include "http/transport/watchdog.hpp"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <boost/beast/websocket/stream.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>

namespace insula::http {

namespace asio = boost::asio;
namespace websocket = boost::beast::websocket;
using error_code = boost::system::error_code;

namespace {

/// Read at once. Larger messages come in pieces, so that memory follows what has arrived, and not
/// what a frame's header claims.
constexpr std::size_t piece_bytes = 4096;

/// The connection as Beast wants to have it.
class layer {
public:
  using executor_type = connection::socket_type::executor_type;

  explicit layer(std::shared_ptr<connection> to)
      : to_(std::move(to)) {}

  executor_type get_executor() { return to_->socket().get_executor(); }
  connection& operator*() const { return *to_; }

  template <class Buffers, class Handler>
  void async_read_some(const Buffers& into, Handler&& done) {
    to_->read_upgraded(into, std::forward<Handler>(done));
  }
  template <class Buffers, class Handler>
  void async_write_some(const Buffers& from, Handler&& done) {
    to_->write_some(from, std::forward<Handler>(done));
  }
  // Beast wants to see them, and never calls them.
  template <class Buffers>
  std::size_t read_some(const Buffers&, error_code&);
  template <class Buffers>
  std::size_t write_some(const Buffers&, error_code&);

private:
  std::shared_ptr<connection> to_;
};

// Found by Beast through their argument.
void beast_close_socket(layer& socket) {
  (*socket).abort();
}

template <class Handler>
void async_teardown(boost::beast::role_type, layer& socket, Handler&& done) {
  (*socket).hang_up();
  asio::post(socket.get_executor(),
             [done = std::forward<Handler>(done)]() mutable { done(error_code{}); });
}

/// Everything happens on the strand. It lives as long as one of its operations is under way.
class channel : public std::enable_shared_from_this<channel> {
public:
  explicit channel(std::shared_ptr<connection> client)
      : client_(std::move(client))
      , stream_(layer{client_})
      , silence_(client_->socket().get_executor(), [this] { look_after(); })
      , farewell_(client_->socket().get_executor(), [this] { client_->abort(); }) {
    client_->counts().web_sockets.add();
  }

  ~channel() { end(); }

  void accept(const web_socket_offer& offer, std::string_view fields) {
    client_->take_over();
    client_->on_drain([weak = weak_from_this()] {
      if (const auto self = weak.lock())
        self->close_unasked(close_reason::going_away, "the server is stopping");
    });
    stream_.read_message_max(limits::terminal_input_bytes);
    stream_.auto_fragment(false);
    stream_.set_option(
      websocket::stream_base::decorator([lines = std::string{fields}](auto& answer) {
        answer.set(boost::beast::http::field::server, "insula");
        for (std::string_view left = lines; !left.empty();) {
          const auto line = left.substr(0, left.find("\r\n"));
          left.remove_prefix(std::min(left.size(), line.size() + 2));
          if (const auto colon = line.find(": "); colon != std::string_view::npos)
            answer.set(view(line.substr(0, colon)), view(line.substr(colon + 2)));
        }
      }));
    websocket::request_type request;
    request.method(boost::beast::http::verb::get);
    request.version(11);
    request.target("/");
    using boost::beast::http::field;
    request.set(field::host, "insula");
    request.set(field::connection, "upgrade");
    request.set(field::upgrade, "websocket");
    request.set(field::sec_websocket_version, "13");
    request.set(field::sec_websocket_key, view(offer.key));
    silence_.expires_after(client_->time().ping);
    stream_.async_accept(request, [self = shared_from_this()](const error_code& ec) {
      if (ec)
        return self->end();
      self->open_ = true;
      self->read();
      self->write();
    });
  }

  void receive(std::function<void(web_socket_message)> on_message) {
    on_message_ = std::move(on_message);
    client_->body_memory.give_back(); // Whoever asks for the next has dealt with the last.
    read();
  }

  void send(web_socket_message message, std::function<void(bool)> taken) {
    if (over_ || closing_) {
      if (taken)
        taken(false);
      return;
    }
    out_.push_back({std::move(message), std::move(taken)});
    write();
  }

  void close(close_reason why, std::string_view words) {
    if (over_ || closing_)
      return;
    closing_ = websocket::close_reason{static_cast<websocket::close_code>(why), view(words)};
    farewell_.expires_after(patience_.value_or(client_->time().write));
    write();
  }

  void wait_for_client(std::chrono::milliseconds at_most) {
    patience_ = at_most;
    client_->set_write_patience(at_most);
  }

  void set_last_words(web_socket_message words) { last_words_ = std::move(words); }

  void on_gone(std::function<void()> tell) {
    if (over_)
      return tell();
    gone_ = std::move(tell);
  }

  /// Nobody holds it any more.
  void let_go() {
    on_message_ = nullptr;
    gone_ = nullptr;
    if (!closing_)
      client_->abort();
  }

private:
  struct outgoing {
    web_socket_message message;
    std::function<void(bool)> taken;
  };

  static boost::beast::string_view view(std::string_view text) {
    return {text.data(), text.size()};
  }

  void read() {
    if (!open_ || over_ || reading_ || !on_message_)
      return;
    reading_ = true;
    client_->note_heard(); // Nothing could be heard before.
    read_piece();
  }

  void read_piece() {
    stream_.async_read_some(asio::buffer(piece_),
                            [self = shared_from_this()](const error_code& ec, std::size_t bytes) {
                              self->took(ec, bytes);
                            });
  }

  void took(const error_code& ec, std::size_t bytes) {
    if (ec || over_) {
      reading_ = false;
      return end();
    }
    if (!client_->body_memory.take(bytes)) {
      reading_ = false;
      return close_unasked(close_reason::try_again_later, "too many messages at once");
    }
    message_.append(piece_.data(), bytes);
    if (!stream_.is_message_done())
      return read_piece();
    reading_ = false;
    if (const auto tell = std::exchange(on_message_, nullptr))
      tell({stream_.got_text(), std::exchange(message_, {})});
  }

  void write() {
    if (!open_ || over_ || writing_)
      return;
    if (out_.empty()) {
      if (closing_)
        say_farewell();
      return;
    }
    writing_ = true;
    stream_.text(out_.front().message.text);
    stream_.async_write(asio::buffer(out_.front().message.bytes),
                        [self = shared_from_this()](const error_code& ec, std::size_t) {
                          self->writing_ = false;
                          const auto done = std::move(self->out_.front());
                          self->out_.pop_front();
                          if (self->patience_)
                            self->client_->note_heard(); // It has been let off until now.
                          if (done.taken)
                            done.taken(!ec);
                          if (ec)
                            return self->end();
                          self->write();
                        });
  }

  void close_unasked(close_reason why, std::string_view words) {
    if (last_words_ && !closing_)
      send(std::move(*last_words_), {});
    last_words_.reset();
    close(why, words);
  }

  void say_farewell() {
    if (std::exchange(said_farewell_, true))
      return;
    farewell_.expires_after(client_->time().linger);
    stream_.async_close(*closing_, [self = shared_from_this()](const error_code&) { self->end(); });
  }

  /// Keeps whatever is in between from taking silence for an end, and finds the client that has
  /// gone without a word.
  void look_after() {
    const auto interval = client_->time().ping;
    silence_.expires_after(interval);
    const bool let_off = patience_ && writing_;
    if (reading_ && !let_off && client_->heard_before(2 * interval))
      return client_->abort();
    if (!open_ || closing_ || std::exchange(pinging_, true))
      return;
    stream_.async_ping({}, [self = shared_from_this()](const error_code& ec) {
      self->pinging_ = false;
      if (ec) // Nobody may be reading, who would hear of it.
        self->end();
    });
  }

  void end() {
    if (std::exchange(over_, true))
      return;
    client_->counts().web_sockets.subtract();
    silence_.disarm();
    farewell_.disarm();
    client_->body_memory.give_back();
    client_->end_upgraded();
    on_message_ = nullptr;
    // What is being written keeps its place until its own end.
    while (out_.size() > (writing_ ? 1u : 0u)) {
      const auto unsent = std::move(out_.back());
      out_.pop_back();
      if (unsent.taken)
        unsent.taken(false);
    }
    if (const auto tell = std::exchange(gone_, nullptr))
      tell();
  }

  const std::shared_ptr<connection> client_;
  websocket::stream<layer, false> stream_;
  watchdog silence_;
  watchdog farewell_;
  bool open_ = false;
  bool over_ = false;
  bool reading_ = false;
  bool writing_ = false;
  bool pinging_ = false;
  bool said_farewell_ = false;
  std::function<void(web_socket_message)> on_message_;
  std::string message_; ///< What has come of it.
  std::deque<outgoing> out_;
  std::optional<std::chrono::milliseconds> patience_; ///< None: the usual one.
  std::optional<web_socket_message> last_words_;
  std::optional<websocket::close_reason> closing_;
  std::function<void()> gone_;
  std::array<char, piece_bytes> piece_;
};

/// What the routes hold: its end is not the channel's.
class held_channel final : public web_socket {
public:
  held_channel(strand_handle strand, std::shared_ptr<channel> to)
      : strand_(std::move(strand))
      , to_(std::move(to)) {}

  ~held_channel() override {
    asio::dispatch(strand_.executor(), [to = std::move(to_)] { to->let_go(); });
  }

  void receive(std::function<void(web_socket_message)> on_message) override {
    on_strand([on_message = std::move(on_message)](channel& to) mutable {
      to.receive(std::move(on_message));
    });
  }
  void send(web_socket_message message, std::function<void(bool)> taken) override {
    on_strand([message = std::move(message), taken = std::move(taken)](channel& to) mutable {
      to.send(std::move(message), std::move(taken));
    });
  }
  void close(close_reason why, std::string_view words) override {
    on_strand([why, words = std::string{words}](channel& to) { to.close(why, words); });
  }
  void wait_for_client(std::chrono::milliseconds at_most) override {
    on_strand([at_most](channel& to) { to.wait_for_client(at_most); });
  }
  void set_last_words(web_socket_message words) override {
    on_strand(
      [words = std::move(words)](channel& to) mutable { to.set_last_words(std::move(words)); });
  }
  void on_gone(std::function<void()> tell) override {
    on_strand([tell = std::move(tell)](channel& to) mutable { to.on_gone(std::move(tell)); });
  }

private:
  template <class Then>
  void on_strand(Then then) {
    asio::dispatch(strand_.executor(), [to = to_, then = std::move(then)]() mutable { then(*to); });
  }

  strand_handle strand_;
  std::shared_ptr<channel> to_;
};

} // namespace

web_socket_offer read_offer(const request_head& head) {
  web_socket_offer offer;
  offer.wanted = !head.head_only && same_letters(head.field("Upgrade"), "websocket");
  if (!offer.wanted)
    return offer;
  offer.key = head.field("Sec-WebSocket-Key");
  // Sixteen bytes in base64.
  offer.usable = offer.key.size() == 24 && head.field("Sec-WebSocket-Version") == "13" &&
                 names(head.field("Connection"), "upgrade");
  return offer;
}

std::shared_ptr<web_socket> open_web_socket(std::shared_ptr<connection> client,
                                            const web_socket_offer& offer,
                                            std::string_view fields) {
  strand_handle strand{client->owner(), client->socket().get_executor()};
  auto opened = std::make_shared<channel>(std::move(client));
  opened->accept(offer, fields);
  return std::make_shared<held_channel>(std::move(strand), std::move(opened));
}

} // namespace insula::http
