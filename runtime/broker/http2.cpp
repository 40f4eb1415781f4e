#include "runtime/broker/http2.hpp"

#include "runtime/broker/condition.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/this_coro.hpp>

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace insula::runtime::broker {

namespace {

constexpr std::size_t read_bytes = 64u << 10, kept_bytes = 64u << 10;
constexpr std::size_t max_head_bytes = http1_reader::max_head_bytes;
/// Of a head that is sent: one that was read, with what rules set.
constexpr std::size_t max_sent_head_bytes = 3 * max_head_bytes;
/// A head that goes on beyond this ends its connection.
constexpr std::size_t max_dropped_head_bytes = 4 * max_head_bytes;
constexpr std::size_t most_handlers = 2 * http2_streams, most_waiting_frames = 2048;
constexpr std::size_t most_acknowledgements = 256, most_continuations = 8, most_lingering = 16;
constexpr double most_resets = 500, resets_each_second = 50;
constexpr std::uint64_t most_frames = 1u << 30; ///< More than can come.
constexpr std::chrono::seconds end_patience{5};
constexpr std::uint64_t field_overhead = 32; ///< As RFC 9113 counts it.

const error has_ended{errc::io_failed, "the connection has ended"};
const error was_reset{errc::io_failed, "the request was reset"};
const error too_large{errc::limit_reached, "the head is too large to be sent"};

/// So many at once, and so many more with each second.
class allowance {
public:
  /// False: it is used up.
  bool take() {
    const auto now = std::chrono::steady_clock::now();
    left_ = std::min(most_resets,
                     left_ + resets_each_second * std::chrono::duration<double>(now - at_).count());
    at_ = now;
    left_ -= 1;
    return left_ >= 0;
  }

private:
  double left_ = most_resets;
  std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now();
};

/// What throws in a callback does not pass through nghttp2, which is C: the connection ends.
template <class Call>
int without_exceptions(Call what) {
  try {
    return what();
  } catch (...) {
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
}

std::optional<std::uint64_t> number(std::string_view digits) {
  std::uint64_t value = 0;
  const auto [end, why] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || why != std::errc{} || end != digits.data() + digits.size())
    return std::nullopt;
  return value;
}

/// One request with its answer, as far as both have come.
struct h2_stream {
  explicit h2_stream(const boost::asio::any_io_executor& on)
      : news(on)
      , room(on) {}

  // What the other side has sent.
  fields head, trailers;
  std::size_t head_bytes = 0;
  bool is_too_much = false;
  std::deque<response_head> answers; ///< Towards a server.
  unsigned interim = 0;
  bool had_head = false; ///< What comes behind it are trailers.
  bool was_answered = false, was_not_begun = false;
  bool ended_with_head = false;
  std::string body;           ///< What was not taken yet.
  std::string taken;          ///< What was told last. It stays until the next is asked for.
  std::size_t uncredited = 0; ///< Bytes that the window of the connection still lacks.
  bool ended = false, reading_is_cut = false;
  bool is_given_up = false; ///< No more of its body is kept.
  // What this side sends.
  std::string out;
  fields out_trailers;
  bool out_ended = false, out_waits = false;
  bool out_is_sent = false; ///< With its end.
  bool is_unwanted = false; ///< The rest of the request.
  bool lingers = false;     ///< The same, and the answer is sent.
  // Both.
  bool closed = false, is_reset = false;
  bool is_in_session = true; ///< nghttp2 knows it.
  condition news, room;
  std::int32_t id = 0;
};

/// Heads as nghttp2 takes them. The texts outlive it.
class header_block {
public:
  void add(std::string_view name, std::string_view value) {
    all_.push_back({reinterpret_cast<std::uint8_t*>(const_cast<char*>(name.data())),
                    reinterpret_cast<std::uint8_t*>(const_cast<char*>(value.data())), name.size(),
                    value.size(), NGHTTP2_NV_FLAG_NONE});
  }
  void add(const fields& rest) {
    for (const auto& [name, value] : rest)
      add(name, value);
  }
  bool is_too_large() const {
    std::size_t bytes = 0;
    for (const auto& each : all_)
      bytes += each.namelen + each.valuelen + field_overhead;
    return bytes > max_sent_head_bytes;
  }
  const nghttp2_nv* data() const { return all_.data(); }
  std::size_t size() const { return all_.size(); }

private:
  std::vector<nghttp2_nv> all_;
};

/// Both roles of a connection.
class session : public std::enable_shared_from_this<session> {
public:
  session(stream& over, const boost::asio::any_io_executor& on, bool serves)
      : stream_(&over)
      , on_(on)
      , serves_(serves)
      , work_(on)
      , ended_(on)
      , handlers_changed_(on) {}
  ~session() {
    if (session_ != nullptr)
      nghttp2_session_del(session_);
  }
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  std::function<void(const std::shared_ptr<h2_stream>&)> on_request;

  bool begin() {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_option* options = nullptr;
    if (nghttp2_session_callbacks_new(&callbacks) != 0 || nghttp2_option_new(&options) != 0) {
      nghttp2_session_callbacks_del(callbacks);
      return false;
    }
    nghttp2_option_set_no_auto_window_update(options, 1);
    nghttp2_option_set_peer_max_concurrent_streams(options, http2_streams);
    nghttp2_option_set_max_settings(options, 32);
    nghttp2_option_set_max_outbound_ack(options, most_acknowledgements);
    nghttp2_option_set_max_continuations(options, most_continuations);
    // nghttp2 counts those of streams that are over as well; count_reset() does not.
    nghttp2_option_set_stream_reset_rate_limit(options, most_frames, most_frames);
    nghttp2_option_set_max_send_header_block_length(options, 2 * max_sent_head_bytes);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, on_not_sent);
    const int made = serves_ ? nghttp2_session_server_new2(&session_, callbacks, this, options)
                             : nghttp2_session_client_new2(&session_, callbacks, this, options);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(options);
    if (made != 0)
      return false;
    const std::array<nghttp2_settings_entry, 4> settings{
      {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, http2_streams},
       {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, http2_window_bytes},
       {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, max_head_bytes},
       {NGHTTP2_SETTINGS_ENABLE_PUSH, 0}}};
    const std::size_t count = serves_ ? settings.size() - 1 : settings.size();
    if (nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), count) != 0 ||
        nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0,
                                              static_cast<int>(4 * http2_window_bytes)) != 0)
      return false;
    work_.tell();
    return true;
  }

  /// Reads until the connection ends.
  task<void> read() {
    const at_end leaves{[this] { one_less(); }};
    std::string room(read_bytes, '\0');
    while (!over_) {
      const auto size = co_await stream_->read(room.data(), room.size());
      if (!size)
        break;
      if (*size == 0)
        break;
      const auto used = nghttp2_session_mem_recv(
        session_, reinterpret_cast<const std::uint8_t*>(room.data()), *size);
      work_.tell();
      // One that sends and does not read has no more words.
      if (used == NGHTTP2_ERR_FLOODED ||
          nghttp2_session_get_outbound_queue_size(session_) > most_waiting_frames)
        end();
      if (used < 0 || nghttp2_session_want_read(session_) == 0)
        break;
    }
    is_ending_ = true; // What it says of that is written yet.
    work_.tell();
    const patience waits{*stream_, end_patience};
    while (writes_)
      co_await ended_.wait();
  }
  /// Writes what there is, until the connection ends.
  task<void> write() {
    const at_end leaves{[this] {
      writes_ = false;
      end();
      one_less();
    }};
    while (!over_) {
      if (nghttp2_session_want_write(session_) == 0) {
        if (is_ending_ || nghttp2_session_want_read(session_) == 0)
          break;
        co_await work_.wait();
        continue;
      }
      // As much as is there goes together.
      std::string some;
      while (some.size() < kept_bytes) {
        const std::uint8_t* data = nullptr;
        const auto size = nghttp2_session_mem_send(session_, &data);
        if (size < 0)
          co_return;
        if (size == 0)
          break;
        some.append(reinterpret_cast<const char*>(data), static_cast<std::size_t>(size));
      }
      if (some.empty())
        continue;
      const auto written = co_await stream_->write(some);
      if (!written)
        break;
    }
  }
  /// Until both have ended: then nobody uses the connection any more.
  task<void> wait_for_end() {
    while (tasks_ > 0)
      co_await ended_.wait();
  }

  void end() {
    if (std::exchange(over_, true))
      return;
    stream_->cut();
    for (auto& [id, each] : std::exchange(all_, {})) {
      each->closed = each->is_reset = true;
      each->news.tell();
      each->room.tell();
    }
    work_.tell();
  }

  bool is_over() const { return over_; }
  bool takes_more() const {
    return session_ != nullptr && !over_ && !is_ending_ && !is_going_ &&
           nghttp2_session_check_request_allowed(session_) != 0 &&
           all_.size() < std::min<std::size_t>(
                           http2_streams, nghttp2_session_get_remote_settings(
                                            session_, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS));
  }
  std::size_t open() const { return all_.size(); }

  /// Tasks that do requests. One whose stream was reset counts until it has ended.
  std::size_t handlers() const { return handlers_; }
  condition& handlers_changed() { return handlers_changed_; }
  class handler_place {
  public:
    explicit handler_place(std::shared_ptr<session> of)
        : of_(std::move(of)) {
      ++of_->handlers_;
      of_->handlers_changed_.tell();
    }
    ~handler_place() {
      --of_->handlers_;
      of_->handlers_changed_.tell();
    }
    handler_place(const handler_place&) = delete;
    handler_place& operator=(const handler_place&) = delete;

  private:
    std::shared_ptr<session> of_;
  };
  const boost::asio::any_io_executor& executor() const { return on_; }

  // ---- What a request does

  task<result<piece>> body(h2_stream& of) {
    consume(of);
    for (;;) {
      if (!of.body.empty()) {
        of.taken = std::exchange(of.body, {});
        co_return piece{of.taken};
      }
      if (of.ended && !of.is_reset)
        co_return piece{};
      if (of.reading_is_cut)
        co_return was_reset;
      if (of.closed || over_)
        co_return of.is_reset ? was_reset : has_ended;
      co_await of.news.wait();
    }
  }
  task<result<void>> send(h2_stream& of, std::string_view some) {
    while (!some.empty()) {
      if (of.closed || over_)
        co_return was_reset;
      if (of.out.size() >= kept_bytes) {
        co_await of.room.wait();
        continue;
      }
      const auto part = some.substr(0, kept_bytes - of.out.size());
      of.out += part;
      some.remove_prefix(part.size());
      resume(of);
    }
    co_return result<void>{};
  }
  task<result<void>> end(h2_stream& of, const fields& trailers) {
    of.out_trailers = trailers;
    of.out_ended = true;
    resume(of);
    co_return of.is_reset ? result<void>{was_reset} : result<void>{};
  }
  void reset_stream(h2_stream& of, std::uint32_t why) {
    if (of.is_in_session && !over_)
      nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, of.id, why);
    work_.tell();
  }
  /// Nothing more of its body is wanted. The window of the connection has it back.
  void give_up(h2_stream& of) {
    of.is_given_up = true;
    of.taken.clear();
    of.body.clear();
    credit(of);
  }
  /// The rest of a request is not wanted, and its answer goes out first. curl loses an answer if
  /// its request is reset while it sends, so what the window has room for may come, and is dropped.
  void end_request(h2_stream& of) {
    of.is_unwanted = true;
    linger(of);
  }
  void cut(h2_stream& of, std::uint32_t why) {
    reset_stream(of, why);
    of.closed = of.is_reset = true;
    of.news.tell();
    of.room.tell();
  }
  /// Until the client has gone, which is true, or nothing more of it is wanted.
  task<bool> wait_until_gone(h2_stream& of) {
    while (!of.reading_is_cut) {
      if (of.closed || over_)
        co_return true;
      co_await of.news.wait();
    }
    co_return false;
  }
  /// What was told of a body is over: its sender may send as much more.
  void consume(h2_stream& of) {
    const auto bytes = of.taken.size();
    of.taken.clear();
    if (bytes == 0 || !of.is_in_session || over_)
      return; // The connection has been credited when the stream ended.
    of.uncredited -= bytes;
    nghttp2_session_consume(session_, of.id, bytes);
    work_.tell();
  }

  result<void> submit_answer(h2_stream& of, const response_head& with, bool has_body) {
    if (of.closed || over_)
      return was_reset;
    const auto status = std::to_string(with.status);
    const auto length = with.body_bytes ? std::to_string(*with.body_bytes) : std::string{};
    header_block block;
    block.add(":status", status);
    block.add(with.rest);
    if (block.is_too_large())
      return too_large;
    const bool is_last = with.status >= 200;
    if (is_last && !length.empty() && with.status != 204 && with.status != 304)
      block.add("content-length", length);
    int done = 0;
    if (!is_last) {
      done = nghttp2_submit_headers(session_, NGHTTP2_FLAG_NONE, of.id, nullptr, block.data(),
                                    block.size(), nullptr);
    } else {
      nghttp2_data_provider body{};
      body.source.ptr = &of;
      body.read_callback = read_out;
      done = nghttp2_submit_response(session_, of.id, block.data(), block.size(),
                                     has_body ? &body : nullptr);
    }
    work_.tell();
    return done == 0 ? result<void>{} : result<void>{has_ended};
  }
  result<std::shared_ptr<h2_stream>> submit_request(const request_head& head) {
    if (!takes_more())
      return has_ended;
    const auto made = std::make_shared<h2_stream>(on_);
    const auto length = head.body_bytes ? std::to_string(*head.body_bytes) : std::string{};
    header_block block;
    block.add(":method", head.method);
    block.add(":scheme", "https");
    block.add(":authority", head.authority);
    block.add(":path", head.target);
    block.add(head.rest);
    const bool has_body = !head.body_bytes || *head.body_bytes > 0;
    if (has_body && head.body_bytes)
      block.add("content-length", length);
    if (head.takes_trailers)
      block.add("te", "trailers");
    if (head.expects_continue)
      block.add("expect", "100-continue");
    nghttp2_data_provider body{};
    body.source.ptr = made.get();
    body.read_callback = read_out;
    if (block.is_too_large())
      return too_large;
    made->id = nghttp2_submit_request(session_, nullptr, block.data(), block.size(),
                                      has_body ? &body : nullptr, nullptr);
    if (made->id < 0)
      return has_ended;
    all_[made->id] = made;
    work_.tell();
    return made;
  }

private:
  h2_stream* find(std::int32_t id) {
    const auto at = all_.find(id);
    return at == all_.end() ? nullptr : at->second.get();
  }
  void resume(h2_stream& of) {
    if (std::exchange(of.out_waits, false) && !of.closed && !over_)
      nghttp2_session_resume_data(session_, of.id);
    work_.tell();
  }
  /// Until its window is full, or too many do.
  void linger(h2_stream& of) {
    constexpr std::int32_t frame_bytes = 16 << 10;
    if (!of.is_unwanted || !of.out_is_sent || of.ended || of.closed || !of.is_in_session || over_)
      return;
    const auto come = nghttp2_session_get_stream_effective_recv_data_length(session_, of.id);
    const auto room = nghttp2_session_get_stream_effective_local_window_size(session_, of.id);
    if (come > room - frame_bytes)
      return reset_stream(of, NGHTTP2_NO_ERROR);
    if (std::exchange(of.lingers, true))
      return;
    lingering_.push_back(of.id);
    if (lingering_.size() <= most_lingering)
      return;
    auto* const first = find(lingering_.front());
    if (first != nullptr && !first->ended)
      reset_stream(*first, NGHTTP2_NO_ERROR);
    lingering_.pop_front();
  }
  void one_less() {
    --tasks_;
    ended_.tell();
    handlers_changed_.tell();
  }
  /// Of the connection's window alone: the stream's stays shut.
  void credit(h2_stream& of) {
    const auto bytes = std::exchange(of.uncredited, 0);
    if (bytes > 0 && !over_ && session_ != nullptr)
      nghttp2_session_consume_connection(session_, bytes);
    work_.tell();
  }
  /// Says that it is too much, and ends.
  void end_with_calm() { nghttp2_session_terminate_session(session_, NGHTTP2_ENHANCE_YOUR_CALM); }
  /// Of streams that are not over. Those of this side count as well: a client can have each request
  /// reset that it begins.
  void count_reset() {
    if (serves_ && !resets_.take())
      end_with_calm();
  }

  static ssize_t read_out(nghttp2_session* in, std::int32_t id, std::uint8_t* to, std::size_t room,
                          std::uint32_t* flags, nghttp2_data_source*, void* me) {
    auto* const of = static_cast<session*>(me)->find(id);
    if (of == nullptr)
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    const auto size = std::min(room, of->out.size());
    if (size == 0 && !of->out_ended) {
      of->out_waits = true;
      return NGHTTP2_ERR_DEFERRED;
    }
    of->out.copy(reinterpret_cast<char*>(to), size);
    of->out.erase(0, size);
    of->room.tell();
    if (!of->out.empty() || !of->out_ended)
      return static_cast<ssize_t>(size);
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (of->out_trailers.empty())
      return static_cast<ssize_t>(size);
    const int ok = without_exceptions([&] {
      header_block block;
      block.add(of->out_trailers);
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      return nghttp2_submit_trailer(in, id, block.data(), block.size());
    });
    if (ok != 0)
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    return static_cast<ssize_t>(size);
  }

  static int on_begin_headers(nghttp2_session*, const nghttp2_frame* frame, void* me) {
    auto& self = *static_cast<session*>(me);
    self.block_bytes_ = 0;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
      return 0;
    const auto id = frame->hd.stream_id;
    if (self.all_.size() >= http2_streams || self.handlers_ >= most_handlers) {
      nghttp2_submit_rst_stream(self.session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
      return 0;
    }
    return without_exceptions([&] {
      const auto made = std::make_shared<h2_stream>(self.on_);
      made->id = id;
      self.all_[id] = made;
      return 0;
    });
  }
  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                       std::size_t name_size, const std::uint8_t* value, std::size_t value_size,
                       std::uint8_t, void* me) {
    auto& self = *static_cast<session*>(me);
    const auto bytes = name_size + value_size + field_overhead;
    self.block_bytes_ += bytes;
    if (self.block_bytes_ > max_dropped_head_bytes) {
      self.end_with_calm();
      return NGHTTP2_ERR_CALLBACK_FAILURE; // It is not even looked at any more.
    }
    auto* const of = self.find(frame->hd.stream_id);
    if (of == nullptr)
      return 0;
    of->head_bytes += bytes;
    auto& into = of->had_head ? of->trailers : of->head;
    if (of->head_bytes > max_head_bytes || into.size() >= http1_reader::max_fields)
      of->is_too_much = true;
    if (of->is_too_much)
      return 0;
    return without_exceptions([&] {
      into.push_back({std::string{reinterpret_cast<const char*>(name), name_size},
                      std::string{reinterpret_cast<const char*>(value), value_size}});
      return 0;
    });
  }
  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* me) {
    auto& self = *static_cast<session*>(me);
    if (frame->hd.type == NGHTTP2_GOAWAY)
      self.is_going_ = true;
    const auto at = self.all_.find(frame->hd.stream_id);
    if (at == self.all_.end())
      return 0;
    if (frame->hd.type == NGHTTP2_RST_STREAM)
      self.count_reset();
    const auto of = at->second;
    const bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    return without_exceptions([&] {
      if (frame->hd.type == NGHTTP2_HEADERS && !of->had_head)
        self.head_came(of, ends);
      else if (frame->hd.type == NGHTTP2_HEADERS)
        self.trailers_came(*of);
      if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) && ends)
        of->ended = true;
      of->news.tell();
      return 0;
    });
  }
  void head_came(const std::shared_ptr<h2_stream>& at, bool ends) {
    auto& of = *at;
    of.head_bytes = 0;
    if (serves_) {
      of.had_head = true;
      of.ended = of.ended_with_head = ends;
      if (on_request)
        on_request(at);
      return;
    }
    of.was_answered = true;
    if (of.is_too_much || ++of.interim > most_interim_answers + 1)
      return cut(of, NGHTTP2_CANCEL);
    response_head said;
    for (auto& each : std::exchange(of.head, {}))
      if (each.name == ":status")
        said.status = static_cast<unsigned>(number(each.value).value_or(0));
      else
        said.rest.push_back(std::move(each));
    said.body_bytes = std::nullopt;
    if (const auto* length = runtime::broker::find(said.rest, "content-length"))
      said.body_bytes = number(*length);
    if (ends && !said.body_bytes)
      said.body_bytes = 0;
    drop_hop_by_hop(said.rest);
    of.had_head = said.status >= 200;
    of.answers.push_back(std::move(said));
  }
  void trailers_came(h2_stream& of) {
    if (of.is_too_much)
      return cut(of, serves_ ? NGHTTP2_INTERNAL_ERROR : NGHTTP2_CANCEL);
    drop_from_trailers(of.trailers);
  }
  static int on_data(nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* data,
                     std::size_t size, void* me) {
    auto& self = *static_cast<session*>(me);
    auto* const of = self.find(id);
    if (of == nullptr || of->is_given_up || of->closed) {
      nghttp2_session_consume_connection(self.session_, size);
      if (of != nullptr)
        self.linger(*of);
      return 0;
    }
    return without_exceptions([&] {
      of->body.append(reinterpret_cast<const char*>(data), size);
      of->uncredited += size;
      of->news.tell();
      return 0;
    });
  }
  static int on_close(nghttp2_session*, std::int32_t id, std::uint32_t why, void* me) {
    auto& self = *static_cast<session*>(me);
    const auto at = self.all_.find(id);
    if (at == self.all_.end())
      return 0;
    const auto gone = at->second;
    self.all_.erase(at);
    gone->is_in_session = false;
    gone->closed = true;
    gone->is_reset = gone->is_reset || why != NGHTTP2_NO_ERROR;
    gone->was_not_begun = why == NGHTTP2_REFUSED_STREAM && !gone->was_answered;
    self.credit(*gone);
    gone->news.tell();
    gone->room.tell();
    return 0;
  }
  static int on_sent(nghttp2_session*, const nghttp2_frame* frame, void* me) {
    auto& self = *static_cast<session*>(me);
    if (frame->hd.type == NGHTTP2_RST_STREAM && frame->rst_stream.error_code != NGHTTP2_NO_ERROR)
      self.count_reset();
    if ((frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) ||
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
      return 0;
    auto* const of = self.find(frame->hd.stream_id);
    if (of == nullptr)
      return 0;
    of->out_is_sent = true;
    self.linger(*of);
    return 0;
  }
  static int on_not_sent(nghttp2_session*, const nghttp2_frame* frame, int, void* me) {
    auto& self = *static_cast<session*>(me);
    if (frame->hd.type != NGHTTP2_HEADERS)
      return 0;
    if (auto* const of = self.find(frame->hd.stream_id))
      self.cut(*of, NGHTTP2_INTERNAL_ERROR);
    return 0;
  }

  stream* const stream_;
  const boost::asio::any_io_executor on_;
  const bool serves_;
  nghttp2_session* session_ = nullptr;
  std::map<std::int32_t, std::shared_ptr<h2_stream>> all_;
  condition work_, ended_, handlers_changed_;
  int tasks_ = 2; ///< One that reads, and one that writes.
  std::size_t handlers_ = 0;
  std::deque<std::int32_t> lingering_; ///< Streams, those that are over among them.
  std::size_t block_bytes_ = 0;        ///< Of the head that comes, with all that is dropped.
  allowance resets_;
  bool writes_ = true, over_ = false, is_ending_ = false, is_going_ = false;
};

/// A request of a client's.
struct asked {
  request_head head;
  bool is_good = false; ///< Otherwise it is reset,
  unsigned refusal = 0; ///< or is answered so, with a sentence.
  std::string why = {};
};

asked request_of(h2_stream& of) {
  asked made;
  auto& head = made.head;
  std::string cookies, host;
  for (auto& [name, value] : std::exchange(of.head, {})) {
    if (name == ":method")
      head.method = std::move(value);
    else if (name == ":authority")
      head.authority = std::move(value);
    else if (name == ":path")
      head.target = std::move(value);
    else if (name == ":scheme" || name.starts_with(':'))
      continue;
    else if (name == "cookie") // HTTP/2 may have them one by one.
      (cookies += cookies.empty() ? "" : "; ") += value;
    else if (name == "te")
      head.takes_trailers = value == "trailers";
    else if (name == "expect")
      head.expects_continue = lower_case(value) == "100-continue";
    else if (name == "host")
      host = std::move(value);
    else
      head.rest.push_back({std::move(name), std::move(value)});
  }
  if (!cookies.empty())
    head.rest.push_back({"cookie", std::move(cookies)});
  // What comes behind the head changes nothing about it.
  head.body_bytes = std::nullopt;
  if (const auto* length = find(head.rest, "content-length"))
    head.body_bytes = number(*length);
  if (of.ended_with_head)
    head.body_bytes = 0;
  drop_hop_by_hop(head.rest);
  if (head.authority.empty())
    head.authority = host;
  const auto refuse_with = [&](unsigned status, std::string why) {
    made.refusal = status;
    made.why = std::move(why);
    return std::move(made);
  };
  if (of.is_too_much)
    return refuse_with(431, "the head has more than " + std::to_string(max_head_bytes) +
                              " bytes, or too many headers");
  if (const char* why = why_no_method(head.method))
    return refuse_with(405, why);
  if (head.target.find('#') != std::string::npos)
    return refuse_with(400, "the target has a fragment");
  made.is_good = is_token(head.method) && !host_of(head.authority).empty() &&
                 (host.empty() || lower_case(host) == lower_case(head.authority)) &&
                 is_target(head.target) &&
                 (head.target.starts_with('/') || (head.target == "*" && head.method == "OPTIONS"));
  return made;
}

class http2_incoming final : public incoming {
public:
  http2_incoming(std::shared_ptr<session> in, std::shared_ptr<h2_stream> of, request_head is)
      : in_(std::move(in))
      , of_(std::move(of)) {
    head = std::move(is);
  }
  ~http2_incoming() override {
    in_->give_up(*of_);
    if (!done_)
      in_->reset_stream(*of_, NGHTTP2_INTERNAL_ERROR);
    else
      in_->end_request(*of_);
  }

  task<result<piece>> body() override { co_return co_await in_->body(*of_); }
  const fields& trailers() const override { return of_->trailers; }
  task<result<void>> answer(const response_head& with) override {
    const bool has_body = with.status >= 200 && with.status != 204 && with.status != 304 &&
                          head.method != "HEAD" &&
                          with.body_bytes != std::optional<std::uint64_t>{0};
    if (with.status == 101)
      co_return has_ended; // There is no such thing in HTTP/2.
    auto ok = in_->submit_answer(*of_, with, has_body);
    if (ok && with.status >= 200 && !has_body)
      done_ = true;
    co_return ok;
  }
  task<result<void>> send(std::string_view some) override {
    co_return co_await in_->send(*of_, some);
  }
  task<result<void>> end(const fields& trailers) override {
    done_ = true;
    co_return co_await in_->end(*of_, trailers);
  }
  stream* tunnel() override { return nullptr; }
  std::string_view early() const override { return {}; }
  void cut_reading() override {
    of_->reading_is_cut = true;
    of_->news.tell();
  }
  void resume_reading() override { of_->reading_is_cut = false; }
  task<bool> wait_until_gone() override { co_return co_await in_->wait_until_gone(*of_); }
  void cut() override { in_->cut(*of_, NGHTTP2_INTERNAL_ERROR); }

private:
  std::shared_ptr<session> in_;
  std::shared_ptr<h2_stream> of_;
  bool done_ = false;
};

class http2_outgoing final : public outgoing {
public:
  explicit http2_outgoing(std::shared_ptr<session> in)
      : in_(std::move(in)) {}
  ~http2_outgoing() override {
    if (!of_)
      return;
    in_->give_up(*of_);
    in_->reset_stream(*of_, NGHTTP2_CANCEL);
  }

  task<result<void>> begin(const request_head& head) override {
    if (!head.upgrade.empty())
      co_return error{errc::io_failed, "the server speaks HTTP/2 alone, which has no websockets"};
    was_closed_ = !in_->takes_more();
    auto made = in_->submit_request(head);
    if (!made)
      co_return made.reason();
    of_ = *made;
    has_body_ = !head.body_bytes || *head.body_bytes > 0;
    co_return result<void>{};
  }
  task<result<void>> send(std::string_view some) override {
    co_return co_await in_->send(*of_, some);
  }
  task<result<void>> end(const fields& trailers) override {
    if (!has_body_)
      co_return result<void>{};
    co_return co_await in_->end(*of_, trailers);
  }
  task<result<response_head>> answer() override {
    while (of_->answers.empty()) {
      if (of_->is_too_much)
        co_return error{errc::io_failed, "the head of the answer is too large"};
      if (of_->closed || in_->is_over())
        co_return of_->is_reset ? was_reset : has_ended;
      co_await of_->news.wait();
    }
    auto said = std::move(of_->answers.front());
    of_->answers.pop_front();
    co_return said;
  }
  task<result<piece>> body() override { co_return co_await in_->body(*of_); }
  const fields& trailers() const override { return of_->trailers; }
  stream* tunnel() override { return nullptr; }
  std::string_view early() const override { return {}; }
  void cut() override {
    if (of_)
      in_->cut(*of_, NGHTTP2_CANCEL);
  }
  bool can_be_used_again() const override { return false; } // The connection is, by others.
  bool was_answered() const override { return of_ && of_->was_answered; }
  bool was_not_begun() const override { return of_ ? of_->was_not_begun : was_closed_; }

private:
  std::shared_ptr<session> in_;
  std::shared_ptr<h2_stream> of_;
  bool has_body_ = false, was_closed_ = false;
};

using shared_handler = std::shared_ptr<const request_handler>;

task<void> serve_one(std::shared_ptr<session> in, std::shared_ptr<h2_stream> of,
                     shared_handler handle,
                     [[maybe_unused]] std::unique_ptr<session::handler_place> place) {
  auto what = request_of(*of);
  if (!what.is_good && what.refusal == 0) {
    in->give_up(*of);
    in->reset_stream(*of, NGHTTP2_PROTOCOL_ERROR);
    co_return;
  }
  http2_incoming request{in, of, std::move(what.head)};
  if (what.refusal != 0)
    co_await refuse(request, what.refusal, what.why);
  else
    co_await (*handle)(request);
}

} // namespace

task<void> serve_http2(stream& client, const request_handler& handle,
                       std::chrono::milliseconds idle) {
  const boost::asio::any_io_executor on = co_await boost::asio::this_coro::executor;
  const auto made = std::make_shared<session>(client, on, true);
  const auto kept = std::make_shared<const request_handler>(handle);
  if (!made->begin())
    co_return client.cut();
  made->on_request = [kept, of = std::weak_ptr<session>{made}](
                       const std::shared_ptr<h2_stream>& request) {
    if (const auto in = of.lock())
      boost::asio::co_spawn(
        in->executor(), serve_one(in, request, kept, std::make_unique<session::handler_place>(in)),
        boost::asio::detached);
  };
  boost::asio::co_spawn(
    on, [made]() -> task<void> { co_await made->write(); }, boost::asio::detached);
  boost::asio::co_spawn(
    on, [made]() -> task<void> { co_await made->read(); }, boost::asio::detached);
  // Until nothing is under way, and nothing can come.
  while (!made->is_over() || made->handlers() > 0) {
    std::optional<patience> waits;
    if (made->handlers() == 0)
      waits.emplace(client, idle);
    co_await made->handlers_changed().wait();
  }
  co_await made->wait_for_end();
}

class http2_connection::impl {
public:
  std::shared_ptr<session> in;
};

http2_connection::http2_connection(stream& server)
    : impl_(std::make_shared<impl>()) {
  impl_->in = std::make_shared<session>(server, server.executor(), false);
}

http2_connection::~http2_connection() {
  impl_->in->end();
}

task<void> http2_connection::run() {
  const auto in = impl_->in;
  if (!in->begin()) {
    in->end();
    co_return;
  }
  boost::asio::co_spawn(
    in->executor(), [in]() -> task<void> { co_await in->write(); }, boost::asio::detached);
  co_await in->read();
  co_await in->wait_for_end();
}

std::unique_ptr<outgoing> http2_connection::begin() {
  return impl_->in->takes_more() ? std::make_unique<http2_outgoing>(impl_->in) : nullptr;
}

bool http2_connection::takes_more() const {
  return impl_->in->takes_more();
}

std::size_t http2_connection::open_requests() const {
  return impl_->in->open();
}

void http2_connection::cut() {
  impl_->in->end();
}

} // namespace insula::runtime::broker
