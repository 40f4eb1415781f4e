#include "http/transport/front_door.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"
#include "http/json/json.hpp"
#include "http/text/header_text.hpp"
#include "http/transport/listener.hpp"
#include "http/transport/places.hpp"
#include "http/transport/request_semantics.hpp"
#include "http/transport/response_head.hpp"
#include "http/transport/retry_after.hpp"

#include <restinio/all.hpp>
#include <restinio/impl/tls_socket.hpp>
#include <restinio/null_timer_manager.hpp>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ssl.hpp>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

static_assert(std::is_same_v<restinio::asio_ns::io_context, boost::asio::io_context>,
              "RESTINIO_USE_BOOST_ASIO is missing");

namespace insula::http {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using error_code = boost::system::error_code;

namespace {

constexpr std::size_t read_buffer_bytes = 32 * 1024;

/// What another node may add to a client's header.
constexpr std::size_t fields_of_nodes = 8;

/// A refused body up to this size is read and thrown away, so that the connection can be kept.
constexpr std::uint64_t small_body_bytes = 64 * 1024;

/// What RESTinio takes for its socket.
class socket_handle {
public:
  using executor_type = tcp::socket::executor_type;
  using lowest_layer_type = tcp::socket;

  explicit socket_handle(std::shared_ptr<connection> to)
      : to_(std::move(to)) {}

  connection& operator*() const { return *to_; }
  executor_type get_executor() { return to_->socket().get_executor(); }
  lowest_layer_type& lowest_layer() { return to_->socket(); }
  bool is_open() const { return to_ != nullptr && to_->is_open(); }

  template <class Buffer, class Handler>
  void async_read_some(const Buffer& into, Handler&& done) {
    to_->read_some(asio::mutable_buffer{into}, std::forward<Handler>(done));
  }
  template <class Buffers, class Handler>
  void async_write_some(const Buffers& from, Handler&& done) {
    to_->write_some(from, std::forward<Handler>(done));
  }

  // There is one request at a time, so RESTinio has no read to cancel; and close() shuts down.
  template <class... Ignored>
  void cancel(Ignored&&...) {}
  template <class... Ignored>
  void shutdown(Ignored&&...) {}
  template <class... Ignored>
  void close(Ignored&&...) {
    if (to_ != nullptr)
      to_->close();
  }

private:
  std::shared_ptr<connection> to_;
};

/// Found by RESTinio through its argument: what happens before the first read.
template <class Connection, class Start, class Fail>
void prepare_connection_and_start_read(socket_handle& socket, Connection& user, Start start,
                                       Fail fail) {
  (*socket).handshake([start, fail, keep = user.shared_from_this()](const error_code& ec) {
    if (ec)
      fail(ec);
    else
      start();
  });
}

restinio::impl::tls_socket_t* make_tls_socket_pointer_for_state_listener(socket_handle&) noexcept {
  return nullptr;
}

struct message_handler {
  restinio::request_handling_status_t operator()(const restinio::request_handle_t& message) const;
};

/// Time limits are the connection's business, and what goes wrong with one client is not for the
/// log.
struct traits : restinio::traits_t<restinio::null_timer_manager_t, restinio::null_logger_t,
                                   message_handler, restinio::noop_strand_t, socket_handle> {};

// ---- Between RESTinio and its parser --------------------------------------------------------

constexpr int go_on = 0;
constexpr int stop = -1;

/// The answer to a request whose body is not waited for, or to what is none.
void refuse(connection& self, const response& answer) {
  auto& track = self.admitted.track;
  std::string fields;
  track.append_fields(fields);
  if (track.open())
    track.finish(answer.status, answer.content().size());
  else
    self.counts().unmatched(verb::other).count(answer.status, {});
  self.refuse(closing_response(answer, fields));
}

void refuse(connection& self, int status, std::string_view why) {
  refuse(self, response{status, json::write_error(why, "invalid_request")});
}

int on_message_begin(http_parser*) {
  if (auto* self = connection::current())
    self->enter_header();
  return go_on;
}

int on_url(http_parser* parser, const char* at, std::size_t length) {
  auto* self = connection::current();
  if (self == nullptr)
    return stop;
  self->check_lines_from(at + length);
  const int verdict = restinio::impl::restinio_url_cb(parser, at, length);
  if (verdict != go_on)
    refuse(*self, 414, "URL too long");
  return verdict;
}

template <int (*Callback)(http_parser*, const char*, std::size_t)>
int on_header_part(http_parser* parser, const char* at, std::size_t length) {
  auto* self = connection::current();
  if (self == nullptr)
    return stop;
  self->note_header_end(at + length);
  const int verdict = Callback(parser, at, length);
  if (verdict != go_on)
    refuse(*self, 431, "Request header too large");
  return verdict;
}

class parsed_head final : public request_head {
public:
  parsed_head(connection& of, const restinio::http_request_header_t& header,
              const http_parser& parser)
      : header_(header) {
    client = &of;
    method = verb_of(parser.method);
    method_name = http_method_str(static_cast<http_method>(parser.method));
    head_only = parser.method == HTTP_HEAD;
    const auto target = below_authority(header.request_target());
    const auto question = target.find('?');
    path = target.substr(0, question);
    if (question != std::string_view::npos)
      query = target.substr(question + 1);
    if (is_absolute_ && path.empty())
      path = method_name == "OPTIONS" ? "*" : "/";
    chunked = (parser.flags & F_CHUNKED) != 0;
    if (!chunked && parser.content_length != ULLONG_MAX)
      content_length = parser.content_length;
    old_protocol = parser.http_major == 1 && parser.http_minor == 0;
    keep_alive = http_should_keep_alive(&parser) != 0;
    asks_first = has_body() && wants_go_ahead();
  }

  std::string_view field(std::string_view name) const override {
    if (is_absolute_ && same_letters(name, "Host"))
      return authority_;
    const auto value = header_.opt_value_of(restinio::string_view_t{name.data(), name.size()});
    return value ? std::string_view{value->data(), value->size()} : std::string_view{};
  }

  void
  each_field(const std::function<void(std::string_view, std::string_view)>& tell) const override {
    if (is_absolute_)
      tell("Host", authority_);
    header_.for_each_field([&](const restinio::http_header_field_t& each) {
      if (!is_absolute_ || each.field_id() != restinio::http_field_t::host)
        tell(each.name(), each.value());
    });
  }

  bool has_body() const { return chunked || content_length.value_or(0) > 0; }

  /// What HTTP/1.1 demands and the parser lets pass.
  bool acceptable() const {
    std::size_t hosts = 0;
    bool named_well = true;
    std::size_t codings = 0;
    header_.for_each_field([&](const restinio::http_header_field_t& field) {
      hosts += field.field_id() == restinio::http_field_t::host;
      if (field.field_id() == restinio::http_field_t::transfer_encoding) {
        ++codings; // Another one than that would say what the body is, and where it ends.
        named_well = named_well && codings == 1 && same_letters(trimmed(field.value()), "chunked");
      }
      named_well = named_well && field.name().find(' ') == std::string::npos;
    });
    if (is_absolute_ && !is_host(authority_))
      return false;
    if (header_.request_target().find('#') != std::string::npos)
      return false; // What is behind it stays with whoever asks.
    if (old_protocol && codings > 0)
      return false; // It knows none, so another server would not find the body's end.
    return named_well && (hosts == 1 || (old_protocol && hosts == 0));
  }

private:
  bool wants_go_ahead() const {
    const auto expect = field("Expect");
    return !old_protocol &&
           restinio::impl::is_equal_caseless(expect.data(), expect.size(), "100-continue", 12);
  }

  /// Who speaks to a proxy sends all of the address, and then that names the host, whatever the
  /// field Host says (RFC 9112, 3.2.2). Answers what is left of it.
  std::string_view below_authority(std::string_view target) {
    for (const std::string_view scheme : {"http://", "https://"})
      if (same_letters(target.substr(0, scheme.size()), scheme)) {
        is_absolute_ = true;
        target.remove_prefix(scheme.size());
        authority_ = target.substr(0, target.find_first_of("/?#"));
        return target.substr(authority_.size());
      }
    return target;
  }

  /// Without anybody's name in front of it.
  static bool is_host(std::string_view authority) {
    return !authority.empty() && authority.front() != ':' &&
           authority.find('@') == std::string_view::npos;
  }

  static verb verb_of(unsigned method) {
    switch (method) {
      case HTTP_GET:
      case HTTP_HEAD: return verb::get;
      case HTTP_PUT: return verb::put;
      case HTTP_POST: return verb::post;
      case HTTP_PATCH: return verb::patch;
      case HTTP_DELETE: return verb::del;
      default: return verb::other;
    }
  }

  const restinio::http_request_header_t& header_;
  bool is_absolute_ = false;
  std::string_view authority_;
};

/// RESTinio closes what it cannot parse any further, and has nothing left to close.
void hand_over(connection& self) {
  auto client = self.shared_from_this();
  client->take_over();
  asio::post(client->socket().get_executor(), [client, take = std::move(self.admitted.take_over),
                                               track = std::move(self.admitted.track)]() mutable {
    take(std::move(client), std::move(track));
  });
  self.admitted = {};
}

int admit(connection& self, http_parser& parser, restinio::impl::http_parser_ctx_t& context) {
  parser.upgrade = 0; // For RESTinio it is a request like any other, also if it becomes more.
  const parsed_head head{self, context.m_header, parser};
  if (!self.check_header(head.chunked) || !head.acceptable()) {
    refuse(self, 400, "Malformed HTTP request");
    return stop;
  }
  if (parser.http_major != 1) {
    refuse(self, 505, "Only HTTP/1.1 and HTTP/1.0 are spoken here");
    return stop;
  }
  self.old_protocol = head.old_protocol;
  self.repeatable = is_repeatable(head);
  self.body = {};
  self.body_memory.give_back();
  self.body_bytes = 0;
  self.admitted = self.admit(head);
  auto& refusal = self.admitted.refusal;
  if (!self.rise_to(self.admitted.from) && !refusal) {
    constexpr std::string_view why = "too many are here who have no key";
    refuse(self, response{503,
                          json::write_error(why, "capacity_exceeded"),
                          "application/json",
                          {{"Retry-After", "1"}}});
    return stop;
  }
  if (refusal && head.has_body()) {
    const bool small = head.content_length && *head.content_length <= small_body_bytes;
    if (!small || head.asks_first) {
      refuse(self, *refusal);
      return stop;
    }
  }
  if (!refusal && self.admitted.take_over) {
    hand_over(self);
    return stop;
  }
  self.body_unwanted = refusal || (self.admitted.sink == nullptr && self.admitted.body_limit == 0);
  if (self.admitted.sink != nullptr)
    self.admitted.sink->begin(
      {self.owner(), self.socket().get_executor()},
      [weak = self.weak_from_this()] {
        if (auto alive = weak.lock())
          alive->resume_reading();
      },
      self.admitted.track.context());
  self.on_late_body([](connection& late) {
    const auto& plan = late.admitted;
    if (plan.refusal)
      refuse(late, *plan.refusal);
    else if (plan.sink != nullptr && plan.sink->settled())
      refuse(late, *plan.sink->settled());
    else
      refuse(late, response{408, json::write_error("the request's body does not come",
                                                   "deadline_exceeded")});
  });
  if (head.asks_first)
    self.send_before_reading("HTTP/1.1 100 Continue\r\n\r\n");
  self.enter_body();
  context.m_leading_headers_completed = true; // What follows the body are trailing fields.
  return go_on;
}

int on_headers_complete(http_parser* parser) {
  auto* self = connection::current();
  if (self == nullptr)
    return stop;
  try {
    return admit(*self, *parser, *static_cast<restinio::impl::http_parser_ctx_t*>(parser->data));
  } catch (const std::exception& failure) {
    log::error("http.admission_failed", {{"why", failure.what()}});
    refuse(*self, response{500, json::write_error("internal error", "internal_error")});
    return stop;
  }
}

int take_body(connection& self, std::string_view bytes) {
  self.body_bytes += bytes.size();
  if (self.body_unwanted)
    return go_on;
  auto& plan = self.admitted;
  if (plan.sink != nullptr) {
    switch (plan.sink->write(bytes)) {
      case body_sink::verdict::more: break;
      case body_sink::verdict::wait: self.hold_reading(); break;
      case body_sink::verdict::refuse: refuse(self, plan.sink->refusal()); return stop;
    }
    return go_on;
  }
  if (self.body_bytes > plan.body_limit) {
    refuse(self, plan.too_large(self.body_bytes, plan.body_limit));
    return stop;
  }
  if (!self.body_memory.take(bytes.size())) {
    refuse(self, response{
                   503, json::write_error("too many request bodies at once", "capacity_exceeded")});
    return stop;
  }
  self.body += bytes;
  return go_on;
}

int on_body(http_parser*, const char* at, std::size_t length) {
  auto* self = connection::current();
  if (self == nullptr)
    return stop;
  if (!self->check_before({at, length})) {
    refuse(*self, 400, "Malformed HTTP request");
    return stop;
  }
  try {
    return take_body(*self, {at, length});
  } catch (const std::exception& failure) {
    log::error("http.body_failed", {{"why", failure.what()}});
    return stop;
  }
}

int on_message_complete(http_parser* parser) {
  auto* self = connection::current();
  if (self == nullptr)
    return stop;
  if (!self->check_to_end()) {
    refuse(*self, 400, "Malformed HTTP request");
    return stop;
  }
  self->enter_answering();
  return restinio::impl::restinio_message_complete_cb<traits::http_methods_mapper_t>(parser);
}

http_parser_settings parser_settings() {
  auto settings = restinio::impl::create_parser_settings<traits::http_methods_mapper_t>();
  settings.on_message_begin = &on_message_begin;
  settings.on_url = &on_url;
  settings.on_header_field = &on_header_part<restinio::impl::restinio_header_field_cb>;
  settings.on_header_value = &on_header_part<restinio::impl::restinio_header_value_cb>;
  settings.on_headers_complete = &on_headers_complete;
  settings.on_body = &on_body;
  settings.on_chunk_header = nullptr; // It would remember every chunk of the body.
  settings.on_message_complete = &on_message_complete;
  return settings;
}

// ---- The answer -------------------------------------------------------------------------------

/// Where a request came from and how its answer gets back. Whatever holds RESTinio's connection or
/// ours gives them up on the strand, since their destructors touch its timers.
struct way_back {
  std::shared_ptr<void> front_door; // What the connection refers to; so it goes last.
  std::shared_ptr<connection> client;
  restinio::impl::connection_handle_t link;
  restinio::request_id_t id = 0;
  bool keep_alive = false;
  bool old_protocol = false; ///< HTTP/1.0: knows no chunks, and closes unless asked not to.
  bool head_only = false;
  bool repeatable = false; ///< Asking twice does no more than asking once.

  asio::any_io_executor executor() const { return client->socket().get_executor(); }
  bool keeps() const { return keep_alive && !client->draining(); }

  void send(restinio::write_group_t group, bool last, bool keep) const {
    using namespace restinio;
    link->write_response_parts(
      id,
      {last ? response_parts_attr_t::final_parts : response_parts_attr_t::not_final_parts,
       keep ? response_connection_attr_t::connection_keepalive
            : response_connection_attr_t::connection_close},
      std::move(group));
  }

  void append_connection_field(std::string& head, bool keep) const {
    if (!keep)
      head += "Connection: close\r\n";
    else if (old_protocol)
      head += "Connection: keep-alive\r\n";
  }

  void release() {
    const auto where = executor();
    asio::dispatch(where, [held = std::move(client), also = std::move(link)] {});
  }
};

restinio::write_group_t group_of(restinio::writable_items_container_t items) {
  return restinio::write_group_t{std::move(items)};
}

class chunked_stream final : public answer_stream,
                             public std::enable_shared_from_this<chunked_stream> {
public:
  /// `head`: without what the request itself adds, and the empty line.
  chunked_stream(way_back way, std::string head, request_track track, const stream_head& how,
                 bool keep)
      : way_(std::move(way))
      , keep_(keep)
      , in_chunks_(!how.length && !way_.old_protocol)
      , status_(how.status)
      , state_(std::make_shared<state>()) {
    state_->unsent_head = std::move(head);
    state_->track = std::move(track);
    state_->left = how.length;
  }

  ~chunked_stream() override {
    asio::dispatch(way_.executor(), [client = way_.client, link = way_.link, st = state_] {
      st->silence.reset();
      if (!st->finished)
        client->abort();
      client->stop_watching();
    });
    way_.release();
  }

  void write(std::string bytes, std::function<void(bool)> taken) override {
    on_strand([bytes = std::move(bytes), taken = std::move(taken)](chunked_stream& self) mutable {
      self.put(std::move(bytes), false, std::move(taken));
    });
  }

  void finish(std::string bytes) override {
    on_strand([bytes = std::move(bytes)](chunked_stream& self) mutable {
      self.state_->silence.reset();
      self.way_.client->stop_watching();
      self.put(std::move(bytes), true, nullptr);
      self.state_->finished = self.state_->left.value_or(0) == 0;
    });
  }

  void on_gone(std::function<void()> tell) override {
    on_strand([tell = std::move(tell)](chunked_stream& self) mutable {
      self.way_.client->watch_client(std::move(tell));
    });
  }

  void fill_silence(std::string bytes, std::chrono::milliseconds after) override {
    on_strand([bytes = std::move(bytes), after](chunked_stream& self) mutable {
      auto& st = *self.state_;
      st.silence_limit = after;
      st.silence = std::make_unique<watchdog>(
        self.way_.executor(), [weak = self.weak_from_this(), bytes = std::move(bytes)] {
          if (auto alive = weak.lock())
            alive->break_silence(bytes);
        });
      st.silence->expires_after(after);
    });
  }

  /// Next on the strand, unless something is written before that: then in one piece with it.
  void send_head() {
    asio::post(way_.executor(), [weak = weak_from_this()] {
      if (const auto self = weak.lock(); self && !self->state_->unsent_head.empty())
        self->put({}, false, nullptr);
    });
  }

private:
  /// Outlives the stream by one hop, to be given up on the strand.
  struct state {
    std::string unsent_head;
    request_track track;
    std::optional<std::uint64_t> left; ///< Of a body whose length has been told.
    bool finished = false;
    unsigned in_flight = 0; ///< Writes that the socket has not taken yet.
    std::unique_ptr<watchdog> silence;
    std::chrono::milliseconds silence_limit{};
  };

  template <class Then>
  void on_strand(Then then) {
    asio::dispatch(way_.executor(),
                   [self = shared_from_this(), then = std::move(then)]() mutable { then(*self); });
  }

  void put(std::string bytes, bool last, std::function<void(bool)> taken) {
    auto& st = *state_;
    if (st.finished)
      return;
    restinio::writable_items_container_t items;
    if (st.left) {
      bytes.resize(std::min<std::uint64_t>(bytes.size(), *st.left));
      *st.left -= bytes.size();
      last = last && *st.left == 0; // Else whoever drops us cuts the connection.
    }
    const bool any = !bytes.empty();
    auto lead = take_head(any);
    st.track.body_leaves(bytes.size());
    if (any && in_chunks_)
      lead += chunk_size_line(bytes.size());
    if (!lead.empty())
      items.emplace_back(std::move(lead));
    if (any)
      items.emplace_back(std::move(bytes));
    if (in_chunks_) {
      if (any && last)
        items.emplace_back(restinio::const_buffer("\r\n0\r\n\r\n", 7));
      else if (any)
        items.emplace_back(restinio::const_buffer("\r\n", 2));
      else if (last)
        items.emplace_back(restinio::const_buffer("0\r\n\r\n", 5));
    }
    auto group = group_of(std::move(items));
    ++st.in_flight;
    group.after_write_notificator([held = state_, taken = std::move(taken)](const error_code& ec) {
      --held->in_flight;
      if (held->silence)
        held->silence->expires_after(held->silence_limit);
      if (taken)
        taken(!ec);
    });
    if (last)
      st.track.finish(status_); // Before the client can know.
    way_.send(std::move(group), last, keep_);
  }

  /// The head, if it has not left. With the first bytes, it is known when those were there.
  std::string take_head(bool with_bytes) {
    auto& st = *state_;
    auto head = std::exchange(st.unsent_head, {});
    if (head.empty())
      return head;
    if (const auto& times = st.track.context().times; times && with_bytes)
      times->reached(request_times::stage::first);
    st.track.append_fields(head);
    head += "\r\n";
    st.track.head_leaves();
    return head;
  }

  void break_silence(const std::string& bytes) {
    if (state_->in_flight == 0)
      put(bytes, false, nullptr); // Its end sets the next deadline.
  }

  static std::string chunk_size_line(std::size_t size) {
    std::array<char, 20> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), size, 16);
    return std::string{digits.data(), end.ptr} + "\r\n";
  }

  way_back way_;
  const bool keep_;
  const bool in_chunks_;
  const int status_;
  std::shared_ptr<state> state_;
};

class pending_exchange final : public exchange,
                               public std::enable_shared_from_this<pending_exchange> {
public:
  pending_exchange(way_back way, request_track track)
      : way_(std::move(way))
      , context_(track.context())
      , track_(std::move(track)) {}

  ~pending_exchange() override {
    if (!answered_)
      respond(lost());
    asio::dispatch(way_.executor(), [timer = std::move(late_), client = way_.client] {});
    way_.release();
  }

  void respond(response answer) override {
    if (answered_.exchange(true))
      return;
    const bool keep = way_.keeps();
    const bool has_body = answer.status != 204;
    auto raw = status_and_type(answer.status, has_body ? answer.content_type : std::string_view{});
    append_fields(raw, answer.fields);
    const auto content = answer.content();
    if (has_body)
      raw += "Content-Length: " + std::to_string(content.size()) + "\r\n";
    track_.append_fields(raw);
    way_.append_connection_field(raw, keep);
    raw += "\r\n";
    track_.finish(answer.status, has_body && !way_.head_only ? content.size() : 0);
    restinio::writable_items_container_t items;
    const bool with_body = has_body && !way_.head_only;
    constexpr std::size_t worth_copying = 4096;
    const bool copied = content.size() <= worth_copying;
    if (with_body && copied)
      raw += content;
    items.emplace_back(std::move(raw));
    if (with_body && !copied && answer.shared_body)
      items.emplace_back(std::move(answer.shared_body));
    else if (with_body && !copied)
      items.emplace_back(std::move(answer.body));
    way_.send(group_of(std::move(items)), true, keep);
  }

  std::shared_ptr<answer_stream> stream(stream_head how) override {
    if (answered_.exchange(true))
      return nullptr;
    auto head = status_and_type(how.status, how.content_type);
    append_fields(head, how.fields);
    if (how.length)
      head += "Content-Length: " + std::to_string(*how.length) + "\r\n";
    else if (!way_.old_protocol)
      head += "Transfer-Encoding: chunked\r\n";
    const bool keep = way_.keeps() && (how.length || !way_.old_protocol);
    way_.append_connection_field(head, keep);
    if (way_.head_only) {
      track_.append_fields(head);
      head += "\r\n";
      track_.finish(how.status);
      restinio::writable_items_container_t items;
      items.emplace_back(std::move(head));
      way_.send(group_of(std::move(items)), true, keep);
      return nullptr;
    }
    auto opened =
      std::make_shared<chunked_stream>(way_, std::move(head), std::move(track_), how, keep);
    if (how.at_once)
      opened->send_head();
    return opened;
  }

  void upgrade(web_socket_offer offer,
               std::function<void(std::shared_ptr<web_socket>)> opened) override {
    asio::dispatch(way_.executor(), [self = shared_from_this(), offer = std::move(offer),
                                     opened = std::move(opened)] {
      if (self->answered_.exchange(true))
        return;
      std::string fields;
      self->track_.append_fields(fields);
      self->track_.finish(101);
      opened(open_web_socket(self->way_.client, offer, fields));
    });
  }

  void answer_within(std::chrono::milliseconds patience, response late) override {
    asio::dispatch(way_.executor(), [self = shared_from_this(), patience, late = std::move(late)] {
      if (self->answered_)
        return;
      self->late_ =
        std::make_unique<watchdog>(self->way_.executor(), [weak = self->weak_from_this(), late] {
          if (auto alive = weak.lock())
            alive->respond(late);
        });
      self->late_->expires_after(patience);
    });
  }

  strand_handle strand() const override { return {way_.front_door, way_.executor()}; }
  const request_context& context() const override { return context_; }

private:
  /// Whoever had the request has gone without an answer, as when the server ends.
  response lost() const {
    log::warning("http.lost_request", {{"request", context_.id}});
    constexpr std::string_view why = "the request was lost on its way";
    if (way_.repeatable)
      return with_retry_after({503, json::write_error(why, "node_unreachable")},
                              errc::node_unreachable);
    return {502,
            json::write_error(std::string{why} + ", and nobody knows whether it was carried out",
                              "node_unreachable")};
  }

  way_back way_;
  const request_context context_;
  request_track track_; ///< Of whoever answers.
  std::atomic<bool> answered_ = false;
  std::unique_ptr<watchdog> late_;
};

void serve(admission plan, std::string body, const reply& to) {
  try {
    if (plan.refusal)
      to->respond(std::move(*plan.refusal));
    else if (plan.sink != nullptr)
      plan.sink->end(to);
    else
      plan.answer(std::move(body), to);
  } catch (const std::exception& failure) {
    log::error("http.handler_failed", {{"why", failure.what()}});
    to->respond({500, json::write_error("internal error", "internal_error")});
  }
}

restinio::request_handling_status_t
message_handler::operator()(const restinio::request_handle_t& message) const {
  auto client = connection::current()->shared_from_this();
  way_back way;
  way.front_door = client->owner();
  way.link = restinio::impl::access_req_connection(*message);
  way.id = message->request_id();
  way.keep_alive = message->header().should_keep_alive();
  way.old_protocol = client->old_protocol;
  way.head_only = message->header().method() == restinio::http_method_head();
  way.repeatable = client->repeatable;
  way.client = client;
  const auto executor = way.executor();
  auto to = std::make_shared<pending_exchange>(std::move(way), std::move(client->admitted.track));
  // RESTinio loses count of pipelined requests when it is answered before this function returns.
  asio::post(executor, [plan = std::move(client->admitted), memory = std::move(client->body_memory),
                        body = std::move(client->body), to = std::move(to)]() mutable {
    serve(std::move(plan), std::move(body), to);
  });
  client->admitted = {};
  return restinio::request_accepted();
}

} // namespace

// ---- The door ----------------------------------------------------------------------------------

class front_door::core : public std::enable_shared_from_this<core> {
public:
  core(io_pool& io, front_door_options options, admit_fn admit)
      : io_(io)
      , options_(std::move(options))
      , admit_(std::move(admit))
      , bodies_(std::make_shared<byte_budget>(options_.buffered_body_bytes))
      , places_(ceilings_of(options_)) {}

  result<void> start() {
    if (options_.tls) {
      auto made = load_tls(*options_.tls, nullptr);
      if (!made)
        return made.reason();
      tls_ = std::move(*made);
    }
    prepare_restinio();
    listener_ = std::make_shared<listener>(
      io_,
      [weak = weak_from_this()](tcp::socket accepted) {
        if (const auto self = weak.lock())
          self->adopt(std::move(accepted));
      },
      [weak = weak_from_this()] {
        const auto self = weak.lock();
        return self && self->places_.has_room();
      });
    if (auto opened = listener_->open(options_.address, options_.port, options_.inherited); !opened)
      return opened;
    listener_->start();
    return {};
  }

  std::uint16_t port() const { return listener_ ? listener_->port() : 0; }

  result<std::function<void()>> next_certificate(const tls_text& text) {
    if (!options_.tls)
      return std::function<void()>{[] {}};
    auto made = load_tls(*options_.tls, &text);
    if (!made)
      return made.reason();
    return std::function<void()>{[this, next = std::move(*made)] {
      const std::lock_guard hold{mutex_};
      tls_ = next;
    }};
  }

  void stop_accepting() {
    if (listener_)
      listener_->close();
  }

  void stop(std::chrono::milliseconds patience) {
    if (!listener_ || stopping_.exchange(true))
      return;
    listener_->close();
    for_each_connection([](connection& client) { client.drain(); });
    std::unique_lock lock{mutex_};
    const auto all_gone = [this] { return places_.is_empty(); };
    if (!ended_.wait_for(lock, patience, all_gone)) {
      lock.unlock();
      for_each_connection([](connection& client) { client.abort(); });
      lock.lock();
      ended_.wait_for(lock, std::chrono::seconds{1}, all_gone);
    }
  }

private:
  /// `text`: in place of what stands in the files.
  static result<std::shared_ptr<asio::ssl::context>> load_tls(const tls_files& files,
                                                              const tls_text* text) {
    using context = asio::ssl::context;
    const auto made = std::make_shared<context>(context::tls_server);
    error_code ec;
    const auto unusable = [&](const std::string& file) {
      return error{errc::invalid_request, "cannot use " + file + " for TLS: " + ec.message()};
    };
    made->set_options(context::default_workarounds | context::no_sslv2 | context::no_sslv3 |
                        context::no_tlsv1 | context::no_tlsv1_1,
                      ec);
    // For a key with a password, OpenSSL would ask the terminal.
    SSL_CTX_set_default_passwd_cb(made->native_handle(), [](char*, int, int, void*) { return 0; });
    if (text != nullptr)
      made->use_certificate_chain(asio::buffer(text->certificate), ec);
    else
      made->use_certificate_chain_file(files.certificate, ec);
    if (ec)
      return unusable(files.certificate);
    if (text != nullptr)
      made->use_private_key(asio::buffer(text->key), context::pem, ec);
    else
      made->use_private_key_file(files.key, context::pem, ec);
    if (ec)
      return unusable(files.key);
    if (files.authority.empty())
      return made;
    made->set_options(context::no_tlsv1_2, ec);
    made->set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert, ec);
    if (made->load_verify_file(files.authority, ec); ec)
      return unusable(files.authority);
    // Without it, OpenSSL resumes no session of whoever has shown a certificate.
    constexpr std::string_view sessions = "insula";
    SSL_CTX_set_session_id_context(made->native_handle(),
                                   reinterpret_cast<const unsigned char*>(sessions.data()),
                                   static_cast<unsigned>(sessions.size()));
    return made;
  }

  void prepare_restinio() {
    restinio::server_settings_t<traits> settings;
    settings.request_handler(message_handler{})
      .max_pipelined_requests(1)
      .buffer_size(read_buffer_bytes)
      .incoming_http_msg_limits(
        restinio::incoming_http_msg_limits_t{}
          .max_url_size(limits::url_bytes)
          .max_field_count(limits::header_fields + (options_.knows ? fields_of_nodes : 0))
          .max_field_name_size(256)
          .max_field_value_size(limits::header_value_bytes));
    settings.ensure_valid_connection_state_listener();
    settings.ensure_valid_ip_blocker();
    restinio_settings_ = std::make_shared<restinio::impl::connection_settings_t<traits>>(
      std::move(settings), parser_settings(), std::make_shared<restinio::null_timer_manager_t>());
  }

  static places::ceilings ceilings_of(const front_door_options& options) {
    const std::size_t all = options.max_connections;
    const auto kept = std::max<std::size_t>(all / limits::places_kept_of, 1);
    return {all, options.knows ? limits::node_strangers : all, all - std::min(all, kept),
            std::max(kept, limits::least_strangers_of_network)};
  }

  std::shared_ptr<asio::ssl::context> certificate() {
    const std::lock_guard hold{mutex_};
    return tls_;
  }

  void adopt(tcp::socket accepted) {
    try {
      error_code ec;
      const auto peer = accepted.remote_endpoint(ec);
      if (ec)
        return; // Gone already.
      accepted.set_option(tcp::no_delay{true}, ec);
      const auto tls = certificate(); // A connection goes on with what it began with.
      auto client =
        std::make_shared<connection>(std::move(accepted), tls.get(), options_.time, admit_,
                                     options_.counts, bodies_, shared_from_this());
      if (options_.knows)
        client->ask_certificate(options_.knows);
      options_.counts->connections.add();
      client->on_end([this](connection* ended) { forget(ended); });
      client->on_return([this, peer](std::shared_ptr<connection> back) { link(back, peer); });
      client->on_rise([this](connection* who, caller shown) {
        auto answer = places_.rise_to(who, shown);
        send_away(std::move(answer.goes));
        return answer.granted;
      });
      client->on_visitor_idle([this] {
        if (places_.is_full())
          wake_listener();
      });
      const auto network = network_of(client->peer());
      {
        std::lock_guard lock{mutex_};
        if (stopping_)
          return; // Accepted while the door was being shut.
        send_away(places_.enter(client, network));
      }
      link(client, peer);
    } catch (const std::exception& failure) {
      log::warning("http.connection_refused", {{"why", failure.what()}});
    }
  }

  /// None: nobody has to go.
  void send_away(places::one who) {
    if (!who)
      return;
    const auto executor = who->socket().get_executor();
    asio::post(executor, [this, who = std::move(who)] {
      if (!places_.goes(who.get()))
        return;
      options_.counts->sent_away.add();
      who->abort();
    });
  }

  void link(const std::shared_ptr<connection>& client, const tcp::endpoint& peer) {
    auto made = std::make_shared<restinio::impl::connection_t<traits>>(
      next_id_++, socket_handle{client}, restinio_settings_, peer, lifetime_monitor{&limiter_});
    asio::dispatch(client->socket().get_executor(), [made] { made->init(); });
  }

  /// When its socket has been closed, on any thread.
  void forget(connection* ended) {
    options_.counts->connections.subtract();
    const bool was_full = places_.leave(ended);
    {
      std::lock_guard lock{mutex_};
      if (places_.is_empty())
        ended_.notify_all();
    }
    if (was_full)
      wake_listener();
  }

  void wake_listener() {
    if (!stopping_)
      listener_->room_changed();
  }

  template <class Action>
  void for_each_connection(Action action) {
    for (auto& client : places_.all()) {
      const auto executor = client->socket().get_executor();
      asio::post(executor, [client = std::move(client), action] { action(*client); });
    }
  }

  struct no_acceptor final : restinio::connection_count_limits::impl::acceptor_callback_iface_t {
    void call_accept_now(std::size_t) noexcept override {}
    void schedule_next_accept_attempt(std::size_t) noexcept override {}
  };
  using limiter_types = restinio::connection_count_limit_types<traits>;
  using lifetime_monitor = limiter_types::lifetime_monitor_t;

  io_pool& io_;
  const front_door_options options_;
  const admit_fn admit_;
  const std::shared_ptr<byte_budget> bodies_;
  places places_;
  std::mutex mutex_; ///< What comes after stopping_ is set gets no place. Also for tls_.
  std::atomic<bool> stopping_ = false;
  std::condition_variable ended_; ///< There are none any more.
  no_acceptor no_acceptor_;
  limiter_types::limiter_t limiter_{
    &no_acceptor_, restinio::connection_count_limits::max_parallel_connections_t{0},
    restinio::connection_count_limits::max_active_accepts_t{1}};
  std::shared_ptr<restinio::impl::connection_settings_t<traits>> restinio_settings_;
  std::atomic<restinio::connection_id_t> next_id_ = 1;
  std::shared_ptr<asio::ssl::context> tls_; ///< Null: plain HTTP.
  std::shared_ptr<listener> listener_;
};

front_door::front_door(io_pool& io, front_door_options options, admit_fn admit)
    : core_(std::make_shared<core>(io, std::move(options), std::move(admit))) {}

front_door::~front_door() {
  stop(std::chrono::milliseconds{0});
}

result<void> front_door::start() {
  return core_->start();
}

std::uint16_t front_door::port() const {
  return core_->port();
}

result<std::function<void()>> front_door::next_certificate(const tls_text& text) {
  return core_->next_certificate(text);
}

void front_door::stop_accepting() {
  core_->stop_accepting();
}

void front_door::stop(std::chrono::milliseconds patience) {
  core_->stop(patience);
}

} // namespace insula::http
