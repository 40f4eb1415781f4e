#include "runtime/broker/http1.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace insula::runtime::broker {

namespace {

using event = http1_reader::event;
using side = http1_reader::side;

const error cut_short{errc::io_failed, "the connection has ended in the midst of a message"};
const error not_wanted{errc::io_failed, "no more of the request is wanted"};

/// A body that nobody has taken is thrown away up to here; beyond it the connection ends.
constexpr std::size_t most_thrown_away = 256u << 10;

/// A message of this side's own, as it is written. Its head goes at once: what comes behind it may
/// take long.
class http1_output {
public:
  explicit http1_output(stream& to)
      : to_(&to) {}

  task<result<void>> begin(const std::string& head, bool chunked) {
    chunked_ = chunked;
    co_return co_await to_->write(head);
  }
  task<result<void>> send(std::string_view some) {
    if (!chunked_ || some.empty())
      co_return co_await to_->write(some);
    auto chunk = http1_chunk_head(some.size());
    (chunk += some) += "\r\n";
    co_return co_await to_->write(chunk);
  }
  task<result<void>> end(const fields& trailers) {
    if (!std::exchange(chunked_, false))
      co_return result<void>{};
    co_return co_await to_->write(http1_last_chunk(trailers));
  }

private:
  stream* to_;
  bool chunked_ = false;
};

class http1_incoming final : public incoming {
public:
  http1_incoming(stream& client, http1_input& from)
      : client_(&client)
      , from_(&from)
      , to_(client) {
    head = from.reader.request();
    is_1_0_ = from.reader.is_1_0();
    closes_ = from.reader.closes();
  }

  task<result<piece>> body() override {
    if (ended_)
      co_return piece{};
    if (reading_is_cut_)
      co_return not_wanted;
    const auto next = co_await from_->next();
    if (!next)
      co_return reading_is_cut_ ? not_wanted : next.reason();
    if (next->what == event::body)
      co_return piece{next->body};
    ended_ = next->what == event::end;
    if (!ended_) {
      broken_ = true;
      co_return error{errc::invalid_request, from_->reader.refusal()};
    }
    co_return piece{};
  }
  const fields& trailers() const override { return from_->reader.trailers(); }

  task<result<void>> answer(const response_head& with) override {
    const bool is_last = with.status >= 200 || with.status == 101;
    if (!is_last && is_1_0_)
      co_return result<void>{}; // Such a client knows no other answers.
    const bool has_body =
      with.status >= 200 && with.status != 204 && with.status != 304 && head.method != "HEAD";
    const bool until_end = has_body && !with.body_bytes && is_1_0_;
    if (is_last)
      // What the client has yet to send, nobody may come to read.
      closes_ = closes_ || until_end || broken_ || (head.expects_continue && !ended_);
    auto said = with;
    if (!has_body && !said.body_bytes)
      said.body_bytes = 0;
    co_return co_await to_.begin(http1_text(said, closes_, is_1_0_),
                                 has_body && !with.body_bytes && !is_1_0_);
  }
  task<result<void>> send(std::string_view some) override { co_return co_await to_.send(some); }
  task<result<void>> end(const fields& trailers) override { co_return co_await to_.end(trailers); }

  stream* tunnel() override { return client_; }
  std::string_view early() const override { return from_->rest(); }
  void cut_reading() override {
    reading_is_cut_ = true;
    from_->interrupt();
  }
  void resume_reading() override { reading_is_cut_ = false; }
  task<bool> wait_until_gone() override {
    while (!reading_is_cut_) {
      const bool goes_on = co_await from_->read_ahead();
      if (!goes_on)
        break;
    }
    co_return !reading_is_cut_;
  }
  void cut() override { client_->cut(); }

  /// After the answer: can the client ask again? Throws away what it has still to send.
  task<bool> goes_on() {
    for (std::size_t thrown = 0; !ended_ && !closes_ && !broken_;) {
      reading_is_cut_ = false;
      const auto next = co_await body();
      if (!next)
        co_return false;
      if (*next && (thrown += (*next)->size()) > most_thrown_away)
        co_return false;
    }
    co_return !closes_ && !broken_;
  }

private:
  stream* client_;
  http1_input* from_;
  http1_output to_;
  bool is_1_0_ = false, closes_ = false;
  bool ended_ = false, broken_ = false, reading_is_cut_ = false;
};

class http1_outgoing final : public outgoing {
public:
  explicit http1_outgoing(stream& server)
      : server_(&server)
      , from_(server, side::responses)
      , to_(server) {}

  task<result<void>> begin(const request_head& head) override {
    sent_ = answered_ = false;
    is_good_ = false;
    read_before_ = server_->bytes_read();
    from_.reader.expect_response_to(head.method);
    co_return co_await to_.begin(http1_text(head), !head.body_bytes);
  }
  task<result<void>> send(std::string_view some) override { co_return co_await to_.send(some); }
  task<result<void>> end(const fields& trailers) override {
    auto ok = co_await to_.end(trailers);
    sent_ = static_cast<bool>(ok);
    co_return ok;
  }
  task<result<response_head>> answer() override {
    for (;;) {
      const auto next = co_await from_.next();
      if (!next)
        co_return next.reason();
      if (next->what == event::refused)
        co_return error{errc::io_failed,
                        "the server's answer is no HTTP: " + from_.reader.refusal()};
      if (next->what == event::head) {
        auto& said = from_.reader.response();
        co_return std::move(said);
      }
    }
  }
  task<result<piece>> body() override {
    if (answered_)
      co_return piece{};
    const auto next = co_await from_.next();
    if (!next)
      co_return next.reason();
    if (next->what == event::body)
      co_return piece{next->body};
    if (next->what != event::end)
      co_return error{errc::io_failed, "the server's answer is no HTTP: " + from_.reader.refusal()};
    answered_ = true;
    is_good_ = sent_ && !from_.reader.closes() && !from_.has_some();
    co_return piece{};
  }
  const fields& trailers() const override { return from_.reader.trailers(); }
  stream* tunnel() override { return server_; }
  std::string_view early() const override { return from_.rest(); }
  void cut() override {
    is_good_ = false;
    server_->cut();
  }
  bool can_be_used_again() const override { return is_good_; }
  bool was_answered() const override { return server_->bytes_read() > read_before_; }
  bool was_not_begun() const override { return false; } // HTTP/1 has no words for it.

private:
  stream* server_;
  http1_input from_;
  http1_output to_;
  std::uint64_t read_before_ = 0;
  bool sent_ = false, answered_ = false, is_good_ = false;
};

} // namespace

task<result<http1_reader::step>> http1_input::next() {
  begin_ += std::exchange(used_, 0);
  for (;;) {
    auto step = reader.read(unread());
    if (step.what != event::none) {
      used_ = step.used;
      co_return step;
    }
    begin_ += step.used;
    if (over_) {
      if (!reader.ended())
        co_return cut_short;
      if (reader.is_between_messages())
        co_return cut_short; // Nothing more comes.
      continue;
    }
    const auto ok = co_await fill();
    if (!ok)
      co_return ok.reason();
  }
}

/// Reads once. What was told is over.
task<result<void>> http1_input::fill() {
  if (begin_ == end_)
    begin_ = end_ = 0;
  if (end_ == room_.size() && begin_ > 0) {
    std::memmove(room_.data(), room_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  if (end_ == room_.size()) // A head that is longer; the reader has a ceiling for it.
    room_.resize(std::max(room_bytes, 2 * room_.size()));
  const auto size = co_await from_->read(room_.data() + end_, room_.size() - end_);
  if (!size)
    co_return size.reason();
  over_ = *size == 0;
  end_ += *size;
  co_return result<void>{};
}

task<bool> http1_input::read_ahead() {
  begin_ += std::exchange(used_, 0);
  if (over_)
    co_return false;
  if (end_ - begin_ >= room_bytes) {
    co_await interrupted_.wait();
    co_return true;
  }
  const auto ok = co_await fill();
  co_return ok && !over_;
}

void http1_input::interrupt() {
  from_->interrupt_reading();
  interrupted_.tell();
}

task<void> serve_http1(stream& client, const request_handler& handle,
                       std::chrono::milliseconds idle, std::chrono::milliseconds head) {
  http1_input from{client, side::requests};
  for (;;) {
    std::optional<patience> waits{std::in_place, client, idle};
    bool has_some = from.has_some();
    if (!has_some)
      has_some = co_await from.read_ahead();
    if (!has_some)
      break;
    waits.emplace(client, head);
    const auto next = co_await from.next();
    waits.reset();
    if (!next)
      break;
    if (next->what == event::refused) {
      response_head said;
      said.status = from.reader.refusal_status();
      said.rest = {{"content-type", "text/plain; charset=utf-8"}};
      const auto why = from.reader.refusal() + '\n';
      said.body_bytes = why.size();
      static_cast<void>(co_await client.write(http1_text(said, true) + why));
      break;
    }
    http1_incoming request{client, from};
    const auto done = co_await handle(request);
    if (!done.whole && done.status == 0)
      client.cut();
    bool goes_on = done.whole;
    waits.emplace(client, idle);
    if (goes_on)
      goes_on = co_await request.goes_on();
    if (!goes_on)
      break;
  }
  co_await client.end();
}

std::unique_ptr<outgoing> make_http1_outgoing(stream& server) {
  return std::make_unique<http1_outgoing>(server);
}

} // namespace insula::runtime::broker
