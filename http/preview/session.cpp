#include "http/preview/session.hpp"

#include "http/json/json.hpp"
#include "http/preview/message.hpp"
#include "http/preview/tunnel.hpp"
#include "http/preview/upstream.hpp"
#include "http/proxy/error_page.hpp"
#include "http/proxy/message_reader.hpp"
#include "http/proxy/request_fields.hpp"
#include "http/text/header_text.hpp"
#include "http/transport/connection.hpp"
#include "http/transport/response_head.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <array>
#include <optional>

namespace insula::http::preview {

namespace {

namespace asio = boost::asio;
namespace wire = boost::beast::http;
using namespace std::chrono_literals;
using boost::system::error_code;

/// Until a client that has gone is looked out for: most answers are there before.
constexpr auto soon = 100ms;
/// For a server to begin its answer.
constexpr auto answer_patience = 600s;
/// For a server to take the next bytes of a body.
constexpr auto take_patience = 60s;

/// Read at once.
constexpr std::size_t most_read = 256 * 1024;
constexpr auto header_bytes = message_header_bytes;
/// Of what a server may say before its answer.
constexpr unsigned most_interim_answers = 32;

class session : public std::enable_shared_from_this<session> {
public:
  session(std::shared_ptr<const services> with, request wanted, std::shared_ptr<connection> client,
          request_track track)
      : with_(std::move(with))
      , wanted_(std::move(wanted))
      , client_(std::move(client))
      , track_(std::move(track))
      , strand_(client_->owner(), client_->socket().get_executor())
      , answer_watch_(strand_.executor(), [this] { no_answer_yet(); })
      , body_watch_(strand_.executor(), [this] { body_stalls(); })
      , body_done_(!wanted_.has_body())
      , body_left_(wanted_.length) {}

  void start() {
    answer_watch_.expires_after(soon);
    const auto& to = wanted_.to;
    if (!to.named_by)
      return enter();
    to.named_by->check({to.id, to.port}, track_.context(),
                       [self = shared_from_this()](std::optional<response> no) {
                         asio::post(self->strand_.executor(), [self, no = std::move(no)] {
                           if (!self->over_)
                             no ? self->refuse(*no) : self->enter();
                         });
                       });
  }

private:
  void enter() {
    if (auto known = std::dynamic_pointer_cast<upstream>(std::exchange(client_->parked, nullptr));
        known && known->leads_to(wanted_.to.id, wanted_.to.port) && known->is_alive()) {
      known->wake();
      again_ = true;
      return connected(std::move(known));
    }
    find_server();
  }

  void find_server() {
    connect(with_, strand_, wanted_.to.id, wanted_.to.port, track_.context(),
            [self = shared_from_this()](std::shared_ptr<upstream> made, failure why) {
              if (self->over_)
                return;
              made ? self->connected(std::move(made)) : self->fail(std::move(why));
            });
  }

  void connected(std::shared_ptr<upstream> server) {
    server_ = std::move(server);
    if (wanted_.asks_first) // Later than that nothing is written to the client but the answer.
      return ask();
    ask();
    read_answer();
  }

  void ask() {
    asio::async_write(server_->socket(), asio::buffer(wanted_.head),
                      [self = shared_from_this(), to = server_](const error_code& ec, std::size_t) {
                        if (self->over_ || to != self->server_)
                          return;
                        self->server_deaf_ = static_cast<bool>(ec); // It may have answered already.
                        if (!self->body_done_)
                          self->invite_body();
                      });
  }

  // ---- The request's body

  void invite_body() {
    if (!wanted_.asks_first)
      return begin_body();
    client_->write_upgraded(asio::buffer(go_ahead),
                            [self = shared_from_this()](const error_code& ec, std::size_t) {
                              if (self->over_)
                                return;
                              if (ec)
                                return self->client_gone();
                              self->read_answer();
                              self->begin_body();
                            });
  }

  void begin_body() {
    if (wanted_.chunked) {
      chunks_.emplace();
      chunks_->on_head = [this] { chunks_->forget_head(); };
      constexpr std::string_view head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
      error_code ec;
      chunks_->take(head, body_, ec);
    }
    read_body();
  }

  void read_body() {
    if (over_)
      return;
    waits_for_client_ = true;
    body_watch_.expires_after(client_->time().progress);
    client_->read_upgraded(body_in_.room(),
                           [self = shared_from_this()](const error_code& ec, std::size_t bytes) {
                             if (self->over_)
                               return;
                             ec ? self->client_gone() : self->pass_body(bytes);
                           });
  }

  void pass_body(std::size_t bytes) {
    body_in_.came(bytes);
    const auto all = body_in_.bytes();
    std::size_t used = 0;
    if (wanted_.chunked) {
      error_code ec;
      used = chunks_->take(all, body_, ec);
      body_done_ = chunks_->parser().is_done();
      if (ec || (!body_done_ && all.size() - used > header_bytes))
        return fail({400, "invalid_request", "the body's chunks are malformed"});
    } else {
      used = static_cast<std::size_t>(std::min<std::uint64_t>(all.size(), body_left_));
      body_.assign(all.substr(0, used));
      body_left_ -= used;
      body_done_ = body_left_ == 0;
    }
    if (body_done_)
      client_->put_back(all.substr(used)); // It belongs to the next request.
    body_in_.used(used);
    write_body();
  }

  void write_body() {
    body_frame_.clear();
    body_end_.clear();
    if (wanted_.chunked) {
      if (!body_.empty())
        body_frame_ = size_line(body_.size());
      std::string trailer;
      const auto* const key = wanted_.key ? &*wanted_.key : nullptr;
      if (body_done_)
        chunks_->each_trailer([&](std::string_view name, std::string_view value) {
          trailer += proxy::trailer_line(name, value, key, wanted_.connection_options);
        });
      body_end_ = chunk_end(!body_.empty(), body_done_, trailer);
    }
    waits_for_client_ = false;
    body_watch_.expires_after(take_patience);
    const std::array<asio::const_buffer, 3> parts{asio::buffer(body_frame_), asio::buffer(body_),
                                                  asio::buffer(body_end_)};
    asio::async_write(server_->socket(), parts,
                      [self = shared_from_this()](const error_code& ec, std::size_t) {
                        self->body_watch_.disarm();
                        if (self->over_)
                          return;
                        self->server_deaf_ = self->server_deaf_ || ec;
                        if (ec)
                          return; // What it has answered tells more.
                        self->body_done_ ? self->body_passed() : self->read_body();
                      });
  }

  void body_passed() {
    body_passed_ = true;
    body_in_.clear();
    body_.clear();
    if (head_sent_)
      look_out();
    else
      answer_watch_.expires_after(soon);
  }

  void body_stalls() {
    waits_for_client_
      ? fail({408, "deadline_exceeded", "the request's body does not come"})
      : fail({504, "deadline_exceeded",
              "the server at port " + port() + " does not take the request's body"});
  }

  // ---- The answer

  void read_answer() {
    if (over_)
      return;
    server_->socket().async_read_some(in_.room(), [self = shared_from_this(), from = server_](
                                                    const error_code& ec, std::size_t bytes) {
      if (!self->over_ && from == self->server_)
        ec ? self->server_ended(ec) : self->take_answer(bytes);
    });
  }

  void take_answer(std::size_t bytes) {
    heard_ = true;
    in_.came(bytes);
    parse();
  }

  /// What has come is told to the client, then more is read.
  void parse() {
    for (;;) {
      if (!answer_) {
        answer_.emplace();
        answer_->parser().skip(wanted_.head_only);
        answer_->on_head = [this] { keep_head(); };
      }
      error_code ec;
      in_.used(answer_->take(in_.bytes(), out_, ec));
      const auto kept = in_.bytes().size();
      if (ec)
        return fail(
          {502, "bad_answer",
           "the server at port " + port() + " does not answer with HTTP: " + ec.message()});
      auto& parser = answer_->parser();
      if (!parser.is_done() && kept > header_bytes)
        return fail({502, "bad_answer", "the answer of port " + port() + " makes no sense"});
      if (!parser.is_header_done())
        return read_answer();
      const auto status = parser.get().result_int();
      if (status == 101)
        return switch_protocols();
      if (status / 100 != 1)
        return tell_client();
      if (++interim_answers_ > most_interim_answers)
        return fail({502, "bad_answer", "the server at port " + port() + " never answers"});
      if (status != 100 && !wanted_.old_protocol) // That one is between the server and this node.
        return pass_interim();
      answer_.reset();
      if (kept == 0)
        return read_answer();
    }
  }

  /// An early hint, say.
  void pass_interim() {
    const auto& head = answer_->parser().get();
    interim_ = "HTTP/1.1 " + std::to_string(head.result_int()) + " ";
    ((interim_ += text_of(head.reason())) += "\r\n") += std::exchange(lines_, {});
    interim_ += "\r\n";
    answer_.reset();
    client_->write_upgraded(asio::buffer(interim_),
                            [self = shared_from_this()](const error_code& ec, std::size_t) {
                              self->interim_.clear();
                              if (self->over_)
                                return;
                              if (ec)
                                return self->client_gone();
                              self->in_.bytes().empty() ? self->read_answer() : self->parse();
                            });
  }

  void tell_client() {
    auto& parser = answer_->parser();
    lead_.clear();
    if (!head_sent_)
      begin_answer();
    const bool last = parser.is_done();
    end_.clear();
    if (chunked_) {
      if (!out_.empty())
        lead_ += size_line(out_.size());
      end_ = chunk_end(!out_.empty(), last, last ? trailer() : std::string{});
    }
    track_.body_leaves(out_.size());
    if (last)
      track_.finish(static_cast<int>(parser.get().result_int())); // Before the client can know.
    if (lead_.empty() && out_.empty() && end_.empty())
      return last ? finish() : read_answer();
    const std::array<asio::const_buffer, 3> parts{asio::buffer(lead_), asio::buffer(out_),
                                                  asio::buffer(end_)};
    client_->write_upgraded(parts,
                            [self = shared_from_this(), last](const error_code& ec, std::size_t) {
                              if (self->over_)
                                return;
                              if (ec)
                                return self->client_gone();
                              if (last)
                                return self->finish();
                              if (!self->looks_out_ && self->body_read())
                                self->look_out(); // It goes on for longer.
                              self->read_answer();
                            });
  }

  /// What of the header goes to the client.
  void keep_head() {
    const auto& head = answer_->parser().get();
    of_connection_.clear();
    for (const auto& each : head)
      if (each.name() == wire::field::connection)
        (of_connection_ += text_of(each.value())) += ',';
    lines_.clear();
    for (const auto& each : head)
      lines_ += line_of(text_of(each.name_string()), text_of(each.value()));
    upgrade_ = text_of(head[wire::field::upgrade]);
    answer_->forget_head();
  }

  std::string line_of(std::string_view name, std::string_view value) const {
    return answer_line(name, value, wanted_.to, of_connection_);
  }

  /// What follows the body.
  std::string trailer() {
    std::string lines;
    answer_->each_trailer(
      [&](std::string_view name, std::string_view value) { lines += line_of(name, value); });
    return lines;
  }

  void begin_answer() {
    head_sent_ = true;
    answer_watch_.disarm();
    auto& parser = answer_->parser();
    const auto& head = parser.get();
    const auto status = head.result_int();
    const auto length = parser.content_length();
    const bool without_body =
      wanted_.head_only || status == 204 || status == 304 || (length && *length == 0);
    chunked_ = !without_body && !length && !wanted_.old_protocol;
    keeps_ = wanted_.keep_alive && !client_->draining() && body_read() &&
             (without_body || length || chunked_);
    lead_.reserve(512);
    ((((lead_ += "HTTP/1.1 ") += std::to_string(status)) += ' ') += text_of(head.reason())) +=
      "\r\n";
    (lead_ += std::exchange(lines_, {})) += own_lines(wanted_.to);
    if (length && status != 204)
      lead_ += "Content-Length: " + std::to_string(*length) + "\r\n";
    if (chunked_)
      lead_ += "Transfer-Encoding: chunked\r\n";
    track_.append_fields(lead_);
    append_connection_field(lead_);
    lead_ += "\r\n";
    track_.head_leaves();
  }

  void append_connection_field(std::string& head) const {
    if (!keeps_)
      head += "Connection: close\r\n";
    else if (wanted_.old_protocol)
      head += "Connection: keep-alive\r\n";
  }

  void switch_protocols() {
    if (!wanted_.upgrade)
      return fail({502, "bad_answer", "the server at port " + port() + " answers with 101"});
    const auto& head = answer_->parser().get();
    std::string first = "HTTP/1.1 101 " + std::string{text_of(head.reason())} + "\r\n";
    first += lines_;
    ((first += "Connection: Upgrade\r\nUpgrade: ") += upgrade_) += "\r\n";
    track_.append_fields(first);
    first += "\r\n";
    first += in_.bytes();
    track_.finish(101);
    end();
    client_->stop_watching();
    tunnel(client_, std::exchange(server_, nullptr), std::move(first));
  }

  void server_ended(const error_code& why) {
    if (!heard_ && again_ && wanted_.repeatable) { // It had closed what was idle just then.
      again_ = false;
      server_->close();
      return find_server();
    }
    if (answer_ && answer_->parser().is_header_done() && why == asio::error::eof) {
      error_code ec;
      answer_->parser().put_eof(ec);
      out_.clear();
      if (!ec && answer_->parser().is_done())
        return tell_client();
    }
    fail({502, "bad_answer",
          "the server at port " + port() + " has closed the connection before its answer was " +
            (heard_ ? "complete" : "there")});
  }

  void no_answer_yet() {
    if (looks_out_)
      return fail({504, "deadline_exceeded", "the server at port " + port() + " does not answer"});
    look_out();
    answer_watch_.expires_after(answer_patience);
  }

  // ---- Its end

  /// Of the body, nothing is left to be read.
  bool body_read() const { return !wanted_.has_body() || body_passed_; }

  /// For a client that leaves while it waits. One that sends is heard in any case.
  void look_out() {
    if (looks_out_ || !body_read())
      return;
    looks_out_ = true;
    client_->watch_client([weak = weak_from_this()] {
      if (const auto self = weak.lock(); self && !self->over_)
        self->client_gone();
    });
  }

  /// The client has, or just gets, a part of an answer: nothing can be written before that.
  bool is_telling() const { return head_sent_ || !interim_.empty(); }

  void finish() {
    const bool reusable =
      in_.bytes().empty() && answer_->parser().keep_alive() && body_read() && !server_deaf_;
    end();
    client_->stop_watching();
    if (reusable && keeps_) {
      server_->rest();
      client_->parked = server_;
    } else {
      server_->close();
    }
    if (keeps_ && body_read() && !client_->draining())
      client_->give_back();
    else
      client_->hang_up(!body_read());
  }

  void fail(failure why) {
    if (over_)
      return;
    if (is_telling()) { // What is incomplete must not look complete.
      end();
      if (server_)
        server_->close();
      return client_->abort();
    }
    refuse(wanted_.to.named_by
             ? wanted_.to.named_by->failure(why.status, why.code, why.why)
             : proxy::error_answer(why.status, why.code, why.why, wanted_.wants_page,
                                   why.code == "port_not_listening"));
  }

  /// Nothing has been told to the client.
  void refuse(const response& answer) {
    keeps_ = wanted_.keep_alive && !client_->draining() && body_read();
    lead_ = status_and_type(answer.status, answer.content_type);
    append_fields(lead_, answer.fields);
    if (wanted_.to.is_forwarded)
      lead_ += own_lines(wanted_.to);
    lead_ += "Content-Length: " + std::to_string(answer.body.size()) + "\r\n";
    track_.append_fields(lead_);
    append_connection_field(lead_);
    lead_ += "\r\n";
    if (!wanted_.head_only)
      lead_ += answer.body;
    track_.finish(answer.status, answer.body.size());
    end();
    if (server_)
      server_->close();
    client_->stop_watching();
    client_->write_upgraded(
      asio::buffer(lead_), [self = shared_from_this()](const error_code& ec, std::size_t) {
        if (ec)
          return self->client_->abort();
        self->keeps_ && !self->client_->draining() ? self->client_->give_back()
                                                   : self->client_->hang_up(!self->body_read());
      });
  }

  void client_gone() {
    if (over_)
      return;
    end();
    if (server_)
      server_->close();
    client_->abort();
  }

  void end() {
    over_ = true;
    answer_watch_.disarm();
    body_watch_.disarm();
  }

  std::string port() const { return std::to_string(wanted_.to.port); }

  static constexpr std::string_view go_ahead = "HTTP/1.1 100 Continue\r\n\r\n";

  const std::shared_ptr<const services> with_;
  const request wanted_;
  const std::shared_ptr<connection> client_;
  request_track track_;
  const strand_handle strand_;
  std::shared_ptr<upstream> server_;
  watchdog answer_watch_;
  watchdog body_watch_;
  bool again_ = false; ///< The connection to the server has served another request before.
  bool over_ = false;
  bool looks_out_ = false;

  bool body_begun_ = false;
  bool body_done_;           ///< All of it has come,
  bool body_passed_ = false; ///< and has been passed on.
  std::uint64_t body_left_;
  std::optional<body_reader> chunks_;
  inflow body_in_{most_read};
  std::string body_;       ///< For the server,
  std::string body_frame_; ///< and what goes before that,
  std::string body_end_;   ///< and behind it.
  bool waits_for_client_ = false;

  std::optional<answer_reader> answer_;
  inflow in_{most_read};
  bool heard_ = false;
  bool server_deaf_ = false;
  bool head_sent_ = false;
  bool chunked_ = false;
  bool keeps_ = false;
  unsigned interim_answers_ = 0;
  std::string interim_;                         ///< On its way to the client. Empty: none is.
  std::string lines_, of_connection_, upgrade_; ///< Of its header.
  std::string lead_;                            ///< For the client: what goes before
  std::string out_;                             ///< this part of the body,
  std::string end_;                             ///< and behind it.
};

} // namespace

void serve(std::shared_ptr<const services> with, request wanted, std::shared_ptr<connection> client,
           request_track track) {
  std::make_shared<session>(std::move(with), std::move(wanted), std::move(client), std::move(track))
    ->start();
}

response not_running(std::uint16_t port, bool as_page) {
  const auto why = is_not_running(port);
  return proxy::error_answer(why.status, why.code, why.why, as_page, false);
}

} // namespace insula::http::preview
