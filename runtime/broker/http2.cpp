#include "runtime/broker/http2.hpp"

#include "runtime/broker/condition.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/this_coro.hpp>

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace insula::runtime::broker {

namespace {

constexpr std::size_t read_bytes = 64u << 10, kept_bytes = 64u << 10;
constexpr std::size_t max_head_bytes = http1_reader::max_head_bytes;

const error has_ended{errc::io_failed, "the connection has ended"};
const error was_reset{errc::io_failed, "the request was reset"};

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
  bool had_head = false;             ///< What comes behind it are trailers.
  std::string body;                  ///< What was not taken yet.
  std::string taken;                 ///< What was told last.
  bool ended = false, reading_is_cut = false;
  // What this side sends.
  std::string out;
  fields out_trailers;
  bool out_ended = false, out_waits = false;
  // Both.
  bool closed = false, is_reset = false;
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
      , ended_(on) {}
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
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
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
      if (used < 0)
        break;
    }
    is_ending_ = true; // What it says of that is written yet.
    work_.tell();
    one_less();
  }
  /// Writes what there is, until the connection ends.
  task<void> write() {
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
        if (size <= 0)
          break;
        some.append(reinterpret_cast<const char*>(data), static_cast<std::size_t>(size));
      }
      if (some.empty())
        continue;
      const auto written = co_await stream_->write(some);
      if (!written)
        break;
    }
    end();
    one_less();
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

  /// It says that no more requests are taken, and what is under way goes on.
  void drain() {
    if (!over_ && session_ != nullptr)
      nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                            nghttp2_session_get_last_proc_stream_id(session_), NGHTTP2_NO_ERROR,
                            nullptr, 0);
    work_.tell();
  }

  bool is_over() const { return over_; }
  bool takes_more() const {
    return session_ != nullptr && !over_ && !is_ending_ && !is_going_ &&
           nghttp2_session_check_request_allowed(session_) != 0 && all_.size() < http2_streams;
  }
  std::size_t open() const { return all_.size(); }
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
    if (!of.closed && !over_)
      nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, of.id, why);
    work_.tell();
  }
  /// What was told of a body is over: its sender may send as much more.
  void consume(h2_stream& of) {
    if (!of.taken.empty() && !of.closed && !over_)
      nghttp2_session_consume(session_, of.id, of.taken.size());
    of.taken.clear();
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
  void one_less() {
    --tasks_;
    ended_.tell();
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
    std::memcpy(to, of->out.data(), size);
    of->out.erase(0, size);
    of->room.tell();
    if (of->out.empty() && of->out_ended) {
      *flags |= NGHTTP2_DATA_FLAG_EOF;
      if (!of->out_trailers.empty()) {
        header_block block;
        block.add(of->out_trailers);
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        nghttp2_submit_trailer(in, id, block.data(), block.size());
      }
    }
    return static_cast<ssize_t>(size);
  }

  static int on_begin_headers(nghttp2_session*, const nghttp2_frame* frame, void* me) {
    auto& self = *static_cast<session*>(me);
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      if (self.all_.size() >= http2_streams)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
      const auto made = std::make_shared<h2_stream>(self.on_);
      made->id = frame->hd.stream_id;
      self.all_[made->id] = made;
    }
    return 0;
  }
  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                       std::size_t name_size, const std::uint8_t* value, std::size_t value_size,
                       std::uint8_t, void* me) {
    auto* const of = static_cast<session*>(me)->find(frame->hd.stream_id);
    if (of == nullptr)
      return 0;
    of->head_bytes += name_size + value_size + 32;
    auto& into = of->had_head ? of->trailers : of->head;
    if (of->head_bytes > max_head_bytes || into.size() >= http1_reader::max_fields) {
      of->is_too_much = true;
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; // Of this stream alone.
    }
    into.push_back({std::string{reinterpret_cast<const char*>(name), name_size},
                    std::string{reinterpret_cast<const char*>(value), value_size}});
    return 0;
  }
  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* me) {
    auto& self = *static_cast<session*>(me);
    if (frame->hd.type == NGHTTP2_GOAWAY)
      self.is_going_ = true;
    auto* const of = self.find(frame->hd.stream_id);
    if (of == nullptr)
      return 0;
    const bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (frame->hd.type == NGHTTP2_HEADERS && !of->had_head)
      self.head_came(*of, ends);
    if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) && ends)
      of->ended = true;
    of->news.tell();
    return 0;
  }
  void head_came(h2_stream& of, bool ends) {
    if (serves_) {
      of.had_head = true;
      of.head_bytes = 0;
      of.ended = ends;
      if (on_request)
        on_request(all_.at(of.id));
      return;
    }
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
    of.head_bytes = 0;
    of.answers.push_back(std::move(said));
  }
  static int on_data(nghttp2_session* in, std::uint8_t, std::int32_t id, const std::uint8_t* data,
                     std::size_t size, void* me) {
    auto* const of = static_cast<session*>(me)->find(id);
    if (of == nullptr)
      return nghttp2_session_consume(in, id, size) == 0 ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
    of->body.append(reinterpret_cast<const char*>(data), size);
    of->news.tell();
    return 0;
  }
  static int on_close(nghttp2_session* in, std::int32_t id, std::uint32_t why, void* me) {
    auto& self = *static_cast<session*>(me);
    const auto at = self.all_.find(id);
    if (at == self.all_.end())
      return 0;
    const auto gone = at->second;
    self.all_.erase(at);
    gone->closed = true;
    gone->is_reset = why != NGHTTP2_NO_ERROR;
    // What was not taken is no part of the connection's window any more.
    nghttp2_session_consume_connection(in, gone->body.size() + gone->taken.size());
    gone->taken.clear();
    gone->news.tell();
    gone->room.tell();
    self.work_.tell();
    return 0;
  }

  stream* const stream_;
  const boost::asio::any_io_executor on_;
  const bool serves_;
  nghttp2_session* session_ = nullptr;
  std::map<std::int32_t, std::shared_ptr<h2_stream>> all_;
  condition work_, ended_;
  int tasks_ = 2; ///< One that reads, and one that writes.
  bool over_ = false, is_ending_ = false, is_going_ = false;
};

/// A request of a client's. None of its head: it is none that can be passed on.
std::optional<request_head> request_of(h2_stream& of) {
  request_head head;
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
  head.body_bytes = std::nullopt;
  if (const auto* length = find(head.rest, "content-length"))
    head.body_bytes = number(*length);
  if (of.ended)
    head.body_bytes = 0;
  drop_hop_by_hop(head.rest);
  if (head.authority.empty())
    head.authority = host;
  const bool is_good =
    !head.method.empty() && !host_of(head.authority).empty() &&
    (host.empty() || lower_case(host) == lower_case(head.authority)) &&
    (head.target.starts_with('/') || (head.target == "*" && head.method == "OPTIONS"));
  return is_good ? std::optional{std::move(head)} : std::nullopt;
}

class http2_incoming final : public incoming {
public:
  http2_incoming(std::shared_ptr<session> in, std::shared_ptr<h2_stream> of, request_head is)
      : in_(std::move(in))
      , of_(std::move(of)) {
    head = std::move(is);
  }
  ~http2_incoming() override {
    in_->consume(*of_);
    if (!done_)
      in_->reset_stream(*of_, NGHTTP2_INTERNAL_ERROR);
    else if (!of_->ended)
      in_->reset_stream(*of_, NGHTTP2_NO_ERROR); // The rest of the request is not wanted.
  }

  task<result<piece>> body() override { co_return co_await in_->body(*of_); }
  const fields& trailers() const override { return of_->trailers; }
  task<result<void>> answer(const response_head& with) override {
    const bool has_body = with.status >= 200 && with.status != 204 && with.status != 304 &&
                          head.method != "HEAD" &&
                          with.body_bytes != std::optional<std::uint64_t>{0};
    if (with.status == 101)
      co_return has_ended; // There is no such thing in HTTP/2.
    if (with.status >= 200 && !has_body)
      done_ = true;
    co_return in_->submit_answer(*of_, with, has_body);
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
  void cut() override {
    in_->reset_stream(*of_, NGHTTP2_INTERNAL_ERROR);
    of_->closed = of_->is_reset = true;
    of_->news.tell();
    of_->room.tell();
  }

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
    in_->consume(*of_);
    if (!of_->closed)
      in_->reset_stream(*of_, NGHTTP2_CANCEL);
  }

  task<result<void>> begin(const request_head& head) override {
    if (!head.upgrade.empty())
      co_return error{errc::io_failed, "the server speaks HTTP/2 alone, which has no websockets"};
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
    in_->reset_stream(*of_, NGHTTP2_CANCEL);
    of_->closed = of_->is_reset = true;
    of_->news.tell();
    of_->room.tell();
  }
  bool can_be_used_again() const override { return false; } // The connection is, by others.

private:
  std::shared_ptr<session> in_;
  std::shared_ptr<h2_stream> of_;
  bool has_body_ = false;
};

/// What a task waits with until others are over.
struct open_requests {
  explicit open_requests(const boost::asio::any_io_executor& on)
      : changed(on) {}
  std::size_t count = 0;
  condition changed;
};

task<void> serve_one(std::shared_ptr<session> in, std::shared_ptr<h2_stream> of,
                     const request_handler& handle, std::shared_ptr<open_requests> all) {
  if (auto head = request_of(*of)) {
    http2_incoming request{in, of, std::move(*head)};
    co_await handle(request);
  } else {
    in->reset_stream(*of, NGHTTP2_PROTOCOL_ERROR);
  }
  --all->count;
  all->changed.tell();
}

} // namespace

task<void> serve_http2(stream& client, const request_handler& handle,
                       std::chrono::milliseconds idle) {
  const boost::asio::any_io_executor on = co_await boost::asio::this_coro::executor;
  const auto made = std::make_shared<session>(client, on, true);
  const auto all = std::make_shared<open_requests>(on);
  if (!made->begin())
    co_return client.cut();
  made->on_request =
    [&handle, all, of = std::weak_ptr<session>{made}](const std::shared_ptr<h2_stream>& request) {
      const auto in = of.lock();
      if (!in)
        return;
      ++all->count;
      all->changed.tell();
      boost::asio::co_spawn(in->executor(), serve_one(in, request, handle, all),
                            boost::asio::detached);
    };
  boost::asio::co_spawn(
    on,
    [made, all]() -> task<void> {
      co_await made->write();
      all->changed.tell();
    },
    boost::asio::detached);
  boost::asio::co_spawn(
    on,
    [made, all]() -> task<void> {
      co_await made->read();
      all->changed.tell();
    },
    boost::asio::detached);
  // Until nothing is under way, and nothing can come.
  while (!made->is_over() || all->count > 0) {
    std::optional<patience> waits;
    if (all->count == 0)
      waits.emplace(client, idle);
    co_await all->changed.wait();
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

std::size_t http2_connection::open_requests() const {
  return impl_->in->open();
}

void http2_connection::cut() {
  impl_->in->end();
}

} // namespace insula::runtime::broker
