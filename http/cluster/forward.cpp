#include "http/cluster/forward.hpp"

#include "http/json/json.hpp"
#include "http/proxy/byte_tunnel.hpp"
#include "http/proxy/error_page.hpp"
#include "http/proxy/message_reader.hpp"
#include "http/proxy/request_fields.hpp"
#include "http/text/header_text.hpp"
#include "http/transport/connection.hpp"
#include "http/transport/node_fields.hpp"
#include "http/transport/request_semantics.hpp"
#include "http/transport/response_head.hpp"
#include "http/transport/retry_after.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace insula::http::cluster {

namespace {

namespace asio = boost::asio;
namespace wire = boost::beast::http;
using namespace std::chrono_literals;
using boost::system::error_code;

/// Until a client that has gone is looked out for: most answers are there before.
constexpr auto soon = 100ms;
/// For the owner to say what has become of a body that does not come.
constexpr auto owners_word = 2s;
/// For the owner to be found. Who finds it has a shorter one.
constexpr auto find_patience = 15s;
/// Read at once.
constexpr std::size_t most_read = 64 * 1024;
/// So often another owner is looked for when a node says that it is not it.
constexpr unsigned most_doubts = 3;
/// Of what is said before an answer.
constexpr unsigned most_interim_answers = 32;
/// Of an answer: the owner may have taken one of its limit, and added to it.
constexpr std::uint32_t most_header_bytes = 2 * message_header_bytes;
/// What is shorter leaves in one piece.
constexpr std::size_t worth_copying = 4096;

constexpr std::string_view go_ahead = "HTTP/1.1 100 Continue\r\n\r\n";

} // namespace

response unreachable(const std::string& why, bool as_page) {
  return with_retry_after(proxy::error_answer(503, "node_unreachable", why, as_page, true),
                          errc::node_unreachable);
}

/// One request. On its connection's strand.
class forwarder::session : public std::enable_shared_from_this<session> {
public:
  session(std::shared_ptr<forwarder> by, std::shared_ptr<const forwarded> wanted,
          std::shared_ptr<connection> client, request_track track)
      : by_(std::move(by))
      , wanted_(std::move(wanted))
      , client_(std::move(client))
      , track_(std::move(track))
      , strand_(client_->owner(), client_->socket().get_executor())
      , answer_watch_(strand_.executor(), [this] { no_answer_yet(); })
      , find_watch_(strand_.executor(), [this] { not_found_in_time(); })
      , body_watch_(strand_.executor(), [this] { body_stalls(); })
      , id_(wanted_->about.id)
      , image_(wanted_->about.image)
      , body_left_(wanted_->length) {}

  void start() {
    answer_watch_.expires_after(soon);
    if (wanted_->to)
      return go_to(*wanted_->to);
    wanted_->peek ? peek() : find_owner();
  }

  const asio::any_io_executor& executor() const { return strand_.executor(); }

private:
  // ---- Whose it is

  void find_owner() {
    const auto round = ++round_;
    find_watch_.expires_after(find_patience);
    waits_ = true;
    by_->keep(shared_from_this());
    by_->way().find(id_, !wanted_->at_owner && !wanted_->about.unknown, image_,
                    [weak = weak_from_this(), round](result<std::optional<peer>> found) {
                      auto self = weak.lock();
                      if (!self)
                        return;
                      const auto on = self->executor();
                      asio::post(on, [self = std::move(self), round, found = std::move(found)] {
                        if (!self->over_ && round == self->round_)
                          self->owner_found(found);
                      });
                    });
  }

  /// The body, for the image that it names; then it is put back, and comes as any other.
  void peek() {
    if (!wanted_->asks_first)
      return peek_further();
    ask_for_body([this] { peek_further(); });
  }

  void peek_further() {
    if (body_.size() == body_left_) {
      client_->put_back(body_);
      auto told = wanted_->about.in_body(std::exchange(body_, {}));
      id_ = std::move(told.id);
      image_ = std::move(told.image);
      if (!id_.empty())
        return find_owner();
      const auto to = by_->way().place(image_);
      return to ? go_to(*to) : serve_here();
    }
    body_watch_.expires_after(client_->time().progress);
    client_->read_upgraded(body_in_.room(),
                           [self = shared_from_this()](const error_code& ec, std::size_t bytes) {
                             self->body_watch_.disarm();
                             if (self->over_)
                               return;
                             if (ec)
                               return self->client_gone();
                             self->peeked(bytes);
                           });
  }

  void peeked(std::size_t bytes) {
    body_in_.came(bytes);
    const auto all = body_in_.bytes();
    const auto used =
      static_cast<std::size_t>(std::min<std::uint64_t>(all.size(), body_left_ - body_.size()));
    body_.append(all.substr(0, used));
    if (used < all.size())
      client_->put_back(all.substr(used)); // It belongs to the next request.
    body_in_.used(all.size());
    peek_further();
  }

  void owner_found(const result<std::optional<peer>>& found) {
    stop_waiting();
    if (found && !*found)
      return serve_here();
    if (!found && found.reason().code != errc::not_found)
      return answer(unreachable(found.reason().message, wanted_->wants_page));
    if (wanted_->at_owner)
      return name_owner(found ? (*found)->name : std::string{});
    if (found)
      return go_to(**found);
    answer(wanted_->about.unknown ? wanted_->about.unknown()
                                  : unreachable("no node takes the sandbox", wanted_->wants_page));
  }

  void not_found_in_time() {
    const auto self = shared_from_this(); // Else nobody might hold it any more.
    stop_waiting();
    answer(unreachable("the sandbox's node was not found in time", wanted_->wants_page));
  }

  void stop_waiting() {
    find_watch_.disarm();
    if (std::exchange(waits_, false))
      by_->let_go(this);
  }

  void name_owner(std::string name) {
    response other{421, json::write_error("another node has the sandbox", "node_unreachable")};
    other.fields.push_back({node_fields::owner_field, std::move(name)});
    answer(other);
  }

  /// As if it had never been taken over.
  void serve_here() {
    if (client_->draining())
      return answer(unreachable("the node is going down", wanted_->wants_page));
    end();
    client_->stop_watching();
    client_->serve_here(wanted_->came, std::move(track_));
  }

  // ---- The way there

  void go_to(const peer& owner) {
    owner_ = owner;
    if (auto idle = by_->links_->take(executor(), owner_)) {
      again_ = true;
      return connected(std::move(idle));
    }
    connect();
  }

  void connect() {
    by_->links_->connect(executor(), owner_,
                         [self = shared_from_this()](std::shared_ptr<peer_link> made) {
                           if (self->over_) {
                             if (made)
                               made->close();
                             return;
                           }
                           made ? self->connected(std::move(made)) : self->not_connected();
                         });
  }

  void not_connected() {
    if (id_.empty() && wanted_->about.node.empty())
      return serve_here(); // Any node will do.
    answer(unreachable("the node " + owner_.name + " does not answer", wanted_->wants_page));
  }

  void connected(std::shared_ptr<peer_link> link) {
    link_ = std::move(link);
    link_->note_answer(false);
    asio::async_write(link_->stream(), asio::buffer(wanted_->head),
                      [self = shared_from_this(), to = link_](const error_code& ec, std::size_t) {
                        if (!self->over_ && to == self->link_ && ec)
                          self->owner_deaf_ = true; // It may have answered already.
                      });
    read_answer();
  }

  // ---- The request's body, once the owner has asked for it

  void invite_body() {
    body_begun_ = true;
    const auto begin = [this] {
      begin_body();
      go_on_reading();
    };
    !wanted_->asks_first || wanted_->peek ? begin() : ask_for_body(begin);
  }

  /// `then` is called in this session.
  template <class Then>
  void ask_for_body(Then then) {
    client_->write_upgraded(asio::buffer(go_ahead),
                            [self = shared_from_this(), then](const error_code& ec, std::size_t) {
                              if (self->over_)
                                return;
                              ec ? self->client_gone() : then();
                            });
  }

  void begin_body() {
    if (wanted_->chunked) {
      chunks_.emplace();
      chunks_->on_head = [this] { chunks_->forget_head(); };
      constexpr std::string_view head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
      error_code ec;
      chunks_->take(head, body_, ec);
    }
    read_body();
  }

  /// A little longer than the owner waits, whose answer tells more.
  void read_body() {
    if (over_)
      return;
    body_watch_.expires_after(client_->time().progress + owners_word);
    client_->read_upgraded(body_in_.room(),
                           [self = shared_from_this()](const error_code& ec, std::size_t bytes) {
                             self->body_watch_.disarm();
                             if (self->over_)
                               return;
                             ec ? self->client_gone() : self->pass_body(bytes);
                           });
  }

  void pass_body(std::size_t bytes) {
    body_in_.came(bytes);
    const auto all = body_in_.bytes();
    std::size_t used = 0;
    if (wanted_->chunked) {
      error_code ec;
      used = chunks_->take(all, body_, ec);
      body_done_ = chunks_->parser().is_done();
      if (ec || (!body_done_ && all.size() - used > message_header_bytes))
        return fail({400, json::write_error("the body's chunks are malformed", "invalid_request")});
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

  /// In one piece: TLS would make a record of each.
  void write_body() {
    if (wanted_->chunked) {
      if (!body_.empty())
        body_.insert(0, size_line(body_.size())) += "\r\n";
      if (body_done_)
        body_ += chunk_end(false, true, request_trailer());
    }
    if (body_.empty())
      return read_body();
    // How long the owner takes over it is the owner's business.
    asio::async_write(link_->stream(), asio::buffer(body_),
                      [self = shared_from_this()](const error_code& ec, std::size_t) {
                        if (self->over_)
                          return;
                        self->owner_deaf_ = self->owner_deaf_ || ec;
                        if (ec)
                          return; // What it has answered tells more.
                        self->body_done_ ? self->body_passed() : self->read_body();
                      });
  }

  /// What follows the body. The key that it must not show is this node's: the owner has its own.
  std::string request_trailer() {
    const auto* const key = wanted_->key ? &*wanted_->key : nullptr;
    std::string lines;
    chunks_->each_trailer([&](std::string_view name, std::string_view value) {
      lines += proxy::trailer_line(name, value, key, wanted_->connection_options);
    });
    return lines;
  }

  void body_passed() {
    body_passed_ = true;
    body_in_.clear();
    body_ = {};
    if (head_sent_)
      look_out();
    else
      answer_watch_.expires_after(soon);
  }

  void body_stalls() {
    fail({408, json::write_error("the request's body does not come", "deadline_exceeded")});
  }

  // ---- The answer

  void go_on_reading() { in_.bytes().empty() ? read_answer() : parse(); }

  void read_answer() {
    if (over_)
      return;
    link_->stream().async_read_some(in_.room(), [self = shared_from_this(), from = link_](
                                                  const error_code& ec, std::size_t bytes) {
      if (!self->over_ && from == self->link_)
        ec ? self->owner_ended() : self->take_answer(bytes);
    });
  }

  void take_answer(std::size_t bytes) {
    heard_ = true;
    link_->note_answer(true);
    in_.came(bytes);
    parse();
  }

  /// What has come is told to the client, then more is read.
  void parse() {
    for (;;) {
      if (!answer_) {
        answer_.emplace();
        answer_->parser().header_limit(most_header_bytes);
        answer_->parser().skip(wanted_->head_only);
        answer_->on_head = [this] { keep_head(); };
      }
      error_code ec;
      in_.used(answer_->take(in_.bytes(), out_, ec));
      auto& parser = answer_->parser();
      const auto kept = in_.bytes().size();
      if (ec || (!parser.is_done() && kept > most_header_bytes))
        return give_up(owner_.name + " does not answer with HTTP");
      if (!parser.is_header_done())
        return read_answer();
      const auto status = parser.get().result_int();
      if (status == 101 && wanted_->upgrade)
        return switch_protocols();
      if (status == 421 && disowned_)
        return look_elsewhere();
      if (status / 100 != 1)
        return tell_client();
      if (++interim_answers_ > most_interim_answers)
        return give_up(owner_.name + " never answers");
      if (status != 100 && status != 101 && !wanted_->old_protocol)
        return pass_interim();
      answer_.reset();
      if (status == 100 && wanted_->has_body() && !body_begun_)
        return invite_body();
      if (kept == 0)
        return read_answer();
    }
  }

  /// It is not the owner. Of the body nothing has been sent.
  void look_elsewhere() {
    std::exchange(link_, nullptr)->close();
    if (doubts_ == most_doubts || body_begun_)
      return answer(unreachable("no node says that it has the sandbox", wanted_->wants_page));
    ++doubts_;
    answer_.reset();
    in_.clear();
    lines_.clear();
    disowned_ = again_ = heard_ = owner_deaf_ = false;
    by_->way().doubt(id_, owner_.name);
    find_owner();
  }

  /// What comes before the answer, and is not the owner's own.
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
                              self->go_on_reading();
                            });
  }

  void tell_client() {
    auto& parser = answer_->parser();
    lead_.clear();
    if (!head_sent_ && !begin_answer())
      return give_up(owner_.name + " does not say where its answer ends");
    const bool last = parser.is_done();
    end_.clear();
    if (chunked_) {
      if (!out_.empty())
        lead_ += size_line(out_.size());
      end_ = chunk_end(!out_.empty(), last, last ? answer_trailer() : std::string{});
    }
    track_.body_leaves(out_.size());
    if (last)
      track_.finish(static_cast<int>(parser.get().result_int())); // Before the client can know.
    if (lead_.empty() && out_.empty() && end_.empty())
      return last ? finish() : read_answer();
    if (out_.size() <= worth_copying) {
      (lead_ += out_) += end_;
      out_.clear();
      end_.clear();
    }
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

  /// What follows the body, of which the owner has said what goes to the client.
  std::string answer_trailer() {
    std::string lines;
    answer_->each_trailer([&](std::string_view name, std::string_view value) {
      if (!is_of_one_connection(name) && !is_of_nodes(name))
        (((lines += name) += ": ") += value) += "\r\n";
    });
    return lines;
  }

  /// What of the header goes to the client.
  void keep_head() {
    const auto& head = answer_->parser().get();
    std::string of_connection;
    for (const auto& each : head)
      if (each.name() == wire::field::connection)
        (of_connection += text_of(each.value())) += ',';
    lines_.clear();
    disowned_ = false;
    for (const auto& each : head) {
      const auto name = text_of(each.name_string());
      if (is_of_nodes(name))
        disowned_ = disowned_ || same_letters(name, node_fields::owner_field);
      else if (!is_of_one_connection(name) && !names(of_connection, name))
        (((lines_ += name) += ": ") += text_of(each.value())) += "\r\n";
    }
    upgrade_ = text_of(head[wire::field::upgrade]);
    answer_->forget_head();
  }

  /// False: its body would end with the connection, which can be cut as well.
  bool begin_answer() {
    auto& parser = answer_->parser();
    const auto& head = parser.get();
    const auto status = head.result_int();
    const auto length = parser.content_length();
    const bool without_body =
      wanted_->head_only || status == 204 || status == 304 || (length && *length == 0);
    if (!without_body && !length && !parser.chunked())
      return false;
    head_sent_ = true;
    answer_watch_.disarm();
    chunked_ = !without_body && !length && !wanted_->old_protocol;
    keeps_ = wanted_->keep_alive && !client_->draining() && body_read() &&
             (without_body || length || chunked_);
    lead_.reserve(512);
    ((((lead_ += "HTTP/1.1 ") += std::to_string(status)) += ' ') += text_of(head.reason())) +=
      "\r\n";
    lead_ += std::exchange(lines_, {});
    if (length && status != 204)
      lead_ += "Content-Length: " + std::to_string(*length) + "\r\n";
    if (chunked_)
      lead_ += "Transfer-Encoding: chunked\r\n";
    append_connection_field(lead_);
    lead_ += "\r\n";
    track_.head_leaves();
    return true;
  }

  void append_connection_field(std::string& head) const {
    if (!keeps_)
      head += "Connection: close\r\n";
    else if (wanted_->old_protocol)
      head += "Connection: keep-alive\r\n";
  }

  void switch_protocols() {
    const auto& head = answer_->parser().get();
    std::string first = "HTTP/1.1 101 " + std::string{text_of(head.reason())} + "\r\n" + lines_;
    ((first += "Connection: Upgrade\r\nUpgrade: ") += upgrade_) += "\r\n\r\n";
    first += in_.bytes();
    std::optional<frame_walk> frames;
    if (same_letters(upgrade_, "websocket"))
      frames.emplace().pass(in_.bytes());
    track_.finish(101);
    end();
    client_->stop_watching();
    std::make_shared<byte_tunnel<peer_link>>(client_, std::exchange(link_, nullptr))
      ->start(std::move(first), frames);
  }

  void owner_ended() {
    const bool broken_off = link_->is_broken_off();
    link_->close();
    if (!heard_ && again_ && is_repeatable() &&
        !broken_off) { // It had closed what was idle just then.
      again_ = owner_deaf_ = false;
      return connect();
    }
    give_up("the connection to the node " + owner_.name + " has ended");
  }

  /// Asking twice does no more than asking once.
  bool is_repeatable() const {
    return wanted_->repeatable || (wanted_->has_body() && !body_begun_);
  }

  /// The owner has had the request. Where it may have done it, nobody is told to ask again.
  void give_up(const std::string& why) {
    if (is_repeatable())
      return fail(unreachable(why, wanted_->wants_page));
    fail(proxy::error_answer(502, "node_unreachable",
                             why + ", and nobody knows whether the request was carried out",
                             wanted_->wants_page, false));
  }

  void no_answer_yet() { look_out(); }

  // ---- Its end

  /// Of the body, nothing is left to be read.
  bool body_read() const { return !wanted_->has_body() || body_passed_; }

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
    const bool reusable = in_.bytes().empty() && answer_->parser().keep_alive() && body_read() &&
                          !owner_deaf_ && link_->is_open();
    end();
    client_->stop_watching();
    reusable ? by_->links_->rest(link_) : link_->close();
    if (keeps_ && !client_->draining())
      client_->give_back();
    else
      client_->hang_up(!body_read());
  }

  void fail(const response& why) {
    if (over_)
      return;
    if (!is_telling())
      return answer(why);
    end(); // What is incomplete must not look complete.
    link_->close();
    client_->abort();
  }

  /// What this node says itself, for want of an owner.
  void answer(const response& what) {
    if (over_)
      return;
    const auto content = what.content();
    const bool has_body = what.status != 204;
    keeps_ = wanted_->keep_alive && !client_->draining() && body_read();
    lead_ = status_and_type(what.status, has_body ? what.content_type : std::string_view{});
    append_fields(lead_, what.fields);
    if (has_body)
      lead_ += "Content-Length: " + std::to_string(content.size()) + "\r\n";
    track_.append_fields(lead_);
    append_connection_field(lead_);
    lead_ += "\r\n";
    if (has_body && !wanted_->head_only)
      lead_ += content;
    track_.finish(what.status, content.size());
    end();
    if (link_)
      link_->close();
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
    if (link_)
      link_->close();
    client_->abort();
  }

  void end() {
    over_ = true;
    answer_watch_.disarm();
    stop_waiting();
    body_watch_.disarm();
  }

  const std::shared_ptr<forwarder> by_;
  const std::shared_ptr<const forwarded> wanted_;
  const std::shared_ptr<connection> client_;
  request_track track_;
  const strand_handle strand_;
  watchdog answer_watch_;
  watchdog find_watch_;
  watchdog body_watch_;
  bool over_ = false;
  bool looks_out_ = false;

  std::string id_;           ///< Of the sandbox, and
  actors::image_wish image_; ///< what a new one starts from.
  bool waits_ = false;       ///< For whoever knows the owner.
  unsigned round_ = 0;       ///< Of looking for the owner.
  unsigned doubts_ = 0;
  peer owner_;
  std::shared_ptr<peer_link> link_;
  bool again_ = false;      ///< It has served another request before.
  bool owner_deaf_ = false; ///< It takes nothing any more.

  bool body_begun_ = false;  ///< The owner wants it.
  bool body_done_ = false;   ///< All of it has come,
  bool body_passed_ = false; ///< and has been passed on.
  std::uint64_t body_left_;
  std::optional<body_reader> chunks_;
  inflow body_in_{most_read};
  std::string body_; ///< For the owner.

  std::optional<answer_reader> answer_;
  inflow in_{most_read};
  bool heard_ = false;
  bool disowned_ = false; ///< It names an owner.
  bool head_sent_ = false;
  bool chunked_ = false;
  bool keeps_ = false;
  unsigned interim_answers_ = 0;
  std::string interim_;         ///< On its way to the client. Empty: none is.
  std::string lines_, upgrade_; ///< Of its header.
  std::string lead_;            ///< For the client: what goes before
  std::string out_;             ///< this part of the body,
  std::string end_;             ///< and behind it.
};

forwarder::forwarder(io_pool& io, std::shared_ptr<routing> way, tls_files tls)
    : way_(std::move(way))
    , links_(std::make_shared<peer_links>(io, std::move(tls))) {}

result<void> forwarder::prepare() {
  return links_->prepare();
}

void forwarder::serve(std::shared_ptr<const forwarded> wanted, std::shared_ptr<connection> client,
                      request_track track) {
  std::make_shared<session>(shared_from_this(), std::move(wanted), std::move(client),
                            std::move(track))
    ->start();
}

void forwarder::keep(const std::shared_ptr<session>& waiting) {
  std::lock_guard lock{mutex_};
  if (!stopped_)
    waiting_.emplace(waiting.get(), waiting);
}

void forwarder::let_go(const session* waited) {
  std::shared_ptr<session> last; // It must not go while the lock is held.
  std::lock_guard lock{mutex_};
  if (const auto at = waiting_.find(waited); at != waiting_.end()) {
    last = std::move(at->second);
    waiting_.erase(at);
  }
}

void forwarder::stop() {
  std::unordered_map<const session*, std::shared_ptr<session>> left;
  {
    std::lock_guard lock{mutex_};
    stopped_ = true;
    left.swap(waiting_);
  }
  for (auto& [unused, each] : left) {
    const auto on = each->executor();
    asio::post(on, [last = std::move(each)] {});
  }
  links_->close();
}

} // namespace insula::http::cluster
