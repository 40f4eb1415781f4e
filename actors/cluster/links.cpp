#include "actors/cluster/links.hpp"

#include "actors/cluster/basp.hpp"
#include "actors/cluster/frame_guard.hpp"
#include "actors/cluster/greeting.hpp"
#include "actors/cluster/link_tls.hpp"
#include "actors/cluster/peer.hpp"
#include "base/inherited_sockets.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

namespace insula::actors::cluster {

namespace {

namespace asio = boost::asio;
using asio::awaitable;
using tcp = asio::ip::tcp;
using local = asio::local::stream_protocol;
using steady = std::chrono::steady_clock;

// A failure is a value, not an exception. Never awaited in a condition: g++ 12 gets that wrong.
constexpr auto tuple = asio::as_tuple(asio::use_awaitable);

/// What waits on it ends with an error, soon.
template <class Socket>
void close(Socket& socket) {
  boost::system::error_code ignored;
  socket.close(ignored);
}
void close(link_stream& stream) {
  close(stream.lowest_layer());
}

/// Why a connection has failed. Those that take too long are closed at this end.
std::string words(const boost::system::error_code& failed) {
  if (failed == asio::error::eof || failed == asio::ssl::error::stream_truncated ||
      failed == asio::error::connection_reset)
    return "the connection has ended";
  if (failed == asio::error::operation_aborted || failed == asio::error::bad_descriptor)
    return "it took too long";
  return failed.message();
}

/// For as long as it is there, it closes the connection when the time is up.
class time_limit {
public:
  time_limit(asio::io_context& io, const std::shared_ptr<link_stream>& stream,
             steady::duration longest)
      : timer_(io, longest) {
    timer_.async_wait([stream](const boost::system::error_code& cancelled) {
      if (!cancelled)
        close(*stream);
    });
  }

private:
  asio::steady_timer timer_;
};

/// A connection that carries frames between a peer and CAF, and what its coroutines share.
struct carrier {
  carrier(asio::io_context& io, std::shared_ptr<link_stream> to, std::shared_ptr<passage> which)
      : stream(std::move(to))
      , ours(io)
      , timer(io)
      , way(std::move(which)) {}

  /// The first reason is the one that counts.
  void end(std::string reason) {
    if (ended)
      return;
    ended = steady::now();
    why = std::move(reason);
    close(*stream);
    boost::system::error_code ignored; // CAF then closes its end, which is read to the last byte.
    ours.shutdown(local::socket::shutdown_send, ignored);
    timer.cancel();
  }

  const std::shared_ptr<link_stream> stream;
  local::socket ours; ///< CAF has the other end.
  asio::steady_timer timer;
  const std::shared_ptr<passage> way;
  const steady::time_point begun = steady::now();
  steady::time_point heard = begun;
  std::optional<steady::time_point> writing; ///< Since when the peer takes what is written now.
  std::optional<steady::time_point> ended;
  std::string why;
  bool let_go = false; ///< By CAF.
};

/// A peer, as the connections see it.
struct place {
  place(asio::io_context& io, std::string whose)
      : name(std::move(whose))
      , changed(io, steady::time_point::max())
      , pause(io) {}

  const std::string name;
  caf::actor actor;
  std::uint64_t newest = 0;
  carrier* current = nullptr;
  asio::steady_timer changed; ///< Never strikes; cancelled when `current` has gone, or all ends.
  asio::steady_timer pause;   ///< Until the next attempt to dial.
  std::string said;           ///< Why there was no link, as last written to the log.
};

} // namespace

/// Connections live on one thread of the pool; `places_` is looked at by all.
class links::core : public std::enable_shared_from_this<core> {
public:
  core(caf::actor_system& system, io_pool& pool, link_options options, answer_fn answers,
       std::function<void(const std::string&, bool)> changed);

  result<void> start();
  void end();
  void ask(const std::string& name, call_pointer what);
  std::vector<std::string> up() const { return linked_->all(); }
  std::uint16_t port() const { return port_; }

private:
  const member* find_member(const std::string& name) const;
  bool may_enter(const std::string& name) const;
  std::shared_ptr<place> place_of(const std::string& name);

  void run(awaitable<void> work);
  void look_whether_over();
  awaitable<void> accept();
  awaitable<void> receive(tcp::socket socket);
  awaitable<void> keep_dialling(tcp::endpoint where, std::shared_ptr<place> peer);
  awaitable<bool> dial(tcp::endpoint where, std::shared_ptr<place> peer);
  awaitable<result<std::string>> introduce(link_stream& stream, bool dialled);
  awaitable<result<void>> exchange_greetings(link_stream& stream);
  awaitable<bool> carry(std::shared_ptr<place> peer, std::shared_ptr<link_stream> stream,
                        bool dialled);
  awaitable<void> inward(carrier& on, frame_guard& guard);
  awaitable<void> outward(carrier& on);
  awaitable<void> watch(carrier& on);

  void make_room();
  void refused(const std::string& from, const error& why);
  void not_made(place& peer, const std::string& why);

  caf::actor_system& system_;
  asio::io_context& io_;
  const link_options options_;
  const answer_fn answers_;
  const std::function<void(const std::string&, bool)> changed_;
  const caf::actor broker_;
  const std::string shape_;
  const std::string identity_;
  const std::shared_ptr<linked_names> linked_ = std::make_shared<linked_names>();

  mutable std::mutex guard_;
  std::map<std::string, std::shared_ptr<place>, std::less<>> places_;

  std::shared_ptr<asio::ssl::context> tls_;
  tcp::acceptor acceptor_;
  std::atomic<std::uint16_t> port_ = 0;

  // Of the connections' thread.
  bool ending_ = false;
  const std::shared_ptr<std::promise<void>> over_ = std::make_shared<std::promise<void>>();
  std::size_t running_ = 0;
  std::list<std::shared_ptr<link_stream>> strangers_; ///< Who has come; the oldest first.
  std::list<std::shared_ptr<link_stream>> dialling_;
  std::map<std::string, std::string> identities_; ///< Of nodes with a link: whose they are.
  std::string last_refusal_;
  std::minstd_rand random_{std::random_device{}()};
};

links::core::core(caf::actor_system& system, io_pool& pool, link_options options, answer_fn answers,
                  std::function<void(const std::string&, bool)> changed)
    : system_(system)
    , io_(pool.next())
    , options_(std::move(options))
    , answers_(std::move(answers))
    , changed_(std::move(changed))
    , broker_(basp_broker(system))
    , shape_(wire_shape(system))
    , identity_(wire_identity(system))
    , acceptor_(io_) {
  for (const auto& each : options_.members)
    if (each.name != options_.self)
      place_of(each.name);
}

const member* links::core::find_member(const std::string& name) const {
  const auto at = std::find_if(options_.members.begin(), options_.members.end(),
                               [&](const member& each) { return each.name == name; });
  return at == options_.members.end() ? nullptr : &*at;
}

bool links::core::may_enter(const std::string& name) const {
  if (name.empty() || name == options_.self)
    return false;
  return options_.may_enter ? options_.may_enter(name) : find_member(name) != nullptr;
}

/// Made if it is not there; it stays until the end.
std::shared_ptr<place> links::core::place_of(const std::string& name) {
  const std::lock_guard hold{guard_};
  auto& one = places_[name];
  if (!one) {
    one = std::make_shared<place>(io_, name);
    one->actor = spawn_peer(system_, {name, static_cast<std::uint16_t>(places_.size()), broker_,
                                      linked_, answers_, changed_});
  }
  return one;
}

void links::core::ask(const std::string& name, call_pointer what) {
  caf::actor peer;
  {
    const std::lock_guard hold{guard_};
    if (const auto at = places_.find(name); at != places_.end())
      peer = at->second->actor;
  }
  if (peer)
    caf::anon_send(peer, std::move(what));
  else
    what->answer(error{errc::node_unreachable, "there is no node " + name});
}

// ---- Begin and end

result<void> links::core::start() {
  const auto* const own = find_member(options_.self);
  if (own == nullptr)
    return error{errc::invalid_request, "node " + options_.self + " is no member of its cluster"};
  std::map<std::string, tcp::endpoint> addresses;
  for (const auto& each : options_.members) {
    boost::system::error_code why;
    const auto address = asio::ip::make_address(each.address, why);
    if (why || each.name.empty())
      return error{errc::invalid_request, "the link of node '" + each.name +
                                            "' needs a numeric address, not '" + each.address +
                                            "'"};
    addresses[each.name] = {address, each.port};
  }
  auto tls = link_context(options_);
  if (!tls)
    return tls.reason();
  tls_ = std::move(*tls);

  const auto& here = addresses[options_.self];
  boost::system::error_code why;
  if (auto socket = find_inherited(options_.inherited, here)) {
    acceptor_.assign(here.protocol(), socket.get(), why);
    if (!why)
      static_cast<void>(socket.release());
  } else {
    acceptor_.open(here.protocol(), why);
    if (!why)
      acceptor_.set_option(tcp::acceptor::reuse_address{true}, why);
    if (!why)
      acceptor_.bind(here, why);
    if (!why)
      acceptor_.listen(tcp::acceptor::max_listen_connections, why);
  }
  if (!why)
    port_ = acceptor_.local_endpoint(why).port();
  if (why)
    return error{errc::io_failed, "cannot listen for links at " + own->address + ":" +
                                    std::to_string(own->port) + ": " + why.message()};

  asio::post(io_, [self = shared_from_this(), addresses = std::move(addresses)] {
    self->run(self->accept());
    for (const auto& [name, where] : addresses)
      if (name > self->options_.self)
        self->run(self->keep_dialling(where, self->place_of(name)));
  });
  return {};
}

void links::core::end() {
  asio::post(io_, [self = shared_from_this()] {
    self->ending_ = true;
    close(self->acceptor_);
    for (const auto* all : {&self->strangers_, &self->dialling_})
      for (const auto& each : *all)
        close(*each);
    for (const auto& [name, each] : self->places_) {
      if (each->current != nullptr)
        each->current->end("this node ends");
      each->changed.cancel();
      each->pause.cancel();
    }
    self->look_whether_over();
  });
  over_->get_future().wait();
  caf::scoped_actor here{system_};
  for (const auto& [name, each] : places_) {
    caf::anon_send(each->actor, end_peer_atom::value);
    here->wait_for(each->actor);
  }
}

/// Told by a task of its own: by then, none of those before holds a part of this any more.
void links::core::look_whether_over() {
  if (ending_ && running_ == 0)
    asio::post(io_, [over = over_] { over->set_value(); });
}

void links::core::run(awaitable<void> work) {
  ++running_;
  asio::co_spawn(io_, std::move(work),
                 [self = shared_from_this()](const std::exception_ptr& failure) {
                   try {
                     if (failure)
                       std::rethrow_exception(failure);
                   } catch (const std::exception& what) {
                     log::error("link.failed", {{"why", what.what()}});
                   }
                   --self->running_;
                   self->look_whether_over();
                 });
}

// ---- Who is it?

/// Of those who have not shown who they are, the oldest goes for a new one.
void links::core::make_room() {
  std::size_t open = 0;
  for (const auto& each : strangers_)
    open += each->lowest_layer().is_open() ? 1 : 0;
  for (auto at = strangers_.begin(); open >= limits::link_strangers; ++at)
    if ((*at)->lowest_layer().is_open()) {
      close(**at);
      --open;
    }
}

/// Somebody with a certificate of the cluster; once for as long as it is the same.
void links::core::refused(const std::string& from, const error& why) {
  auto said = from + " " + why.message;
  if (said == last_refusal_)
    return;
  last_refusal_ = std::move(said);
  log::warning("link.refused", {{"peer", from}, {"why", why.message}});
}

/// Attempts to dial, the same.
void links::core::not_made(place& peer, const std::string& why) {
  if (std::exchange(peer.said, why) != why)
    log::warning("link.not_made", {{"peer", peer.name}, {"why", why}});
}

awaitable<result<void>> links::core::exchange_greetings(link_stream& stream) {
  const auto mine = greeting{link_version, options_.build}.line();
  auto [unwritten, out] = co_await asio::async_write(stream, asio::buffer(mine), tuple);
  if (unwritten)
    co_return error{errc::io_failed, words(unwritten)};
  std::string line(greeting::bytes, '\0');
  auto [unread, in] = co_await asio::async_read(stream, asio::buffer(line), tuple);
  if (unread)
    co_return error{errc::io_failed, words(unread)};
  const auto theirs = greeting::parse(line);
  if (!theirs)
    co_return error{errc::invalid_request, "it does not speak as a node does"};
  if (theirs->version != link_version)
    co_return error{errc::invalid_request,
                    "it speaks version " + std::to_string(theirs->version) + " of links (build " +
                      theirs->build + "), this node version " + std::to_string(link_version) +
                      " (build " + options_.build + ")"};
  co_return result<void>{};
}

/// The name of who is at the other end, which may have a link.
awaitable<result<std::string>> links::core::introduce(link_stream& stream, bool dialled) {
  boost::system::error_code ignored;
  stream.lowest_layer().set_option(tcp::no_delay{true}, ignored);
  const auto side = dialled ? asio::ssl::stream_base::client : asio::ssl::stream_base::server;
  auto [failed] = co_await stream.async_handshake(side, tuple);
  if (failed)
    co_return error{errc::unauthorized, words(failed)};
  auto name = peer_name(stream);
  if (!may_enter(name)) {
    refused(name, {errc::unauthorized, "it may not have a link"});
    co_return error{errc::unauthorized, "'" + name + "' may not have a link"};
  }
  const auto greeted = co_await exchange_greetings(stream);
  if (!greeted) {
    if (!dialled)
      refused(name, greeted.reason());
    co_return greeted.reason();
  }
  co_return name;
}

awaitable<void> links::core::accept() {
  asio::steady_timer pause{io_};
  while (!ending_) {
    auto [failed, socket] = co_await acceptor_.async_accept(tuple);
    if (ending_)
      break;
    if (!failed) {
      run(receive(std::move(socket)));
    } else {
      log::warning("link.accept_failed", {{"why", words(failed)}});
      pause.expires_after(limits::link_accept_pause);
      co_await pause.async_wait(tuple);
    }
  }
}

awaitable<void> links::core::receive(tcp::socket socket) {
  const auto stream = std::make_shared<link_stream>(std::move(socket), *tls_);
  make_room();
  const auto at = strangers_.insert(strangers_.end(), stream);
  result<std::string> name = std::string{};
  {
    const time_limit limit{io_, stream, limits::link_handshake};
    name = co_await introduce(*stream, false);
  }
  strangers_.erase(at);
  if (!name) {
    log::debug("link.stranger", {{"why", name.reason().message}});
    co_return;
  }
  if (*name > options_.self) {
    refused(*name, {errc::invalid_request, "it is this node that dials"});
    co_return;
  }
  co_await carry(place_of(*name), stream, false);
}

// ---- Dialling

awaitable<void> links::core::keep_dialling(tcp::endpoint where, std::shared_ptr<place> peer) {
  auto longest = limits::link_retry;
  while (!ending_) {
    if (may_enter(peer->name)) {
      const bool linked = co_await dial(where, peer);
      if (linked)
        longest = limits::link_retry;
    }
    if (ending_)
      co_return;
    std::uniform_int_distribution<std::int64_t> jitter{longest.count() / 2, longest.count()};
    peer->pause.expires_after(std::chrono::milliseconds{jitter(random_)});
    co_await peer->pause.async_wait(tuple);
    longest = std::min(longest * 2, limits::longest_link_retry);
  }
}

/// Whether there was a link, which has gone.
awaitable<bool> links::core::dial(tcp::endpoint where, std::shared_ptr<place> peer) {
  const auto stream = std::make_shared<link_stream>(io_, *tls_);
  const auto at = dialling_.insert(dialling_.end(), stream);
  result<std::string> name = std::string{};
  {
    const time_limit limit{io_, stream, limits::link_handshake};
    auto [failed] = co_await stream->lowest_layer().async_connect(where, tuple);
    if (failed)
      name = error{errc::io_failed, words(failed)};
    else
      name = co_await introduce(*stream, true);
  }
  dialling_.erase(at);
  if (ending_)
    co_return false;
  if (!name) {
    not_made(*peer, name.reason().message);
    co_return false;
  }
  if (*name != peer->name) {
    not_made(*peer, "it is node " + *name + " that listens there");
    co_return false;
  }
  const bool linked = co_await carry(peer, stream, true);
  co_return linked;
}

// ---- A link

/// The newest connection of a peer takes the place of the one before, and begins when CAF has let
/// go of that: it would take two for one.
awaitable<bool> links::core::carry(std::shared_ptr<place> peer, std::shared_ptr<link_stream> stream,
                                   bool dialled) {
  const auto way = std::make_shared<passage>();
  way->number = ++peer->newest;
  way->dialled = dialled;
  peer->changed.cancel(); // Who has waited is not the newest any more.
  while (peer->current != nullptr && way->number == peer->newest) {
    peer->current->end("there is a newer connection");
    co_await peer->changed.async_wait(tuple);
  }
  if (ending_ || way->number != peer->newest)
    co_return false;

  carrier on{io_, stream, way};
  local::socket theirs{io_};
  boost::system::error_code failed;
  asio::local::connect_pair(on.ours, theirs, failed);
  if (failed) {
    not_made(*peer, words(failed));
    co_return false;
  }
  std::string identity;
  frame_guard guard{{.dialled = dialled,
                     .actor = peer->actor->id(),
                     .shape = shape_,
                     .identity_bytes = identity_.size(),
                     .claims = [&](const std::string& claimed) {
                       if (claimed == identity_ || identities_.contains(claimed))
                         return false;
                       identities_[claimed] = peer->name;
                       identity = claimed;
                       return true;
                     }}};
  peer->current = &on;
  const auto socket = std::make_shared<unique_fd>(theirs.release());
  caf::anon_send(peer->actor, passage_open{way, socket});
  using namespace asio::experimental::awaitable_operators;
  co_await (inward(on, guard) && outward(on) && watch(on));
  peer->current = nullptr;
  identities_.erase(identity);
  caf::anon_send(peer->actor, passage_gone{way->number, on.why});
  if (way->up)
    peer->said.clear();
  else if (!ending_)
    not_made(*peer, on.why);
  peer->changed.cancel();
  co_return way->up.load();
}

awaitable<void> links::core::inward(carrier& on, frame_guard& guard) {
  std::array<char, 16 * 1024> bytes;
  std::string passed;
  while (!on.ended) {
    auto [failed, count] = co_await on.stream->async_read_some(asio::buffer(bytes), tuple);
    if (failed) {
      on.end(words(failed));
      break;
    }
    on.heard = steady::now();
    passed.clear();
    if (const auto why = guard.feed({bytes.data(), count}, passed)) {
      on.end("it sent " + std::string{*why});
      break;
    }
    auto [unwritten, written] = co_await asio::async_write(on.ours, asio::buffer(passed), tuple);
    if (unwritten)
      on.end(words(unwritten));
  }
}

/// When the connection has ended, it reads what is left, until CAF has let go.
awaitable<void> links::core::outward(carrier& on) {
  std::array<char, 16 * 1024> bytes;
  for (;;) {
    auto [failed, count] = co_await on.ours.async_read_some(asio::buffer(bytes), tuple);
    if (failed)
      break;
    if (on.ended)
      continue;
    on.writing = steady::now();
    auto [unwritten, written] =
      co_await asio::async_write(*on.stream, asio::buffer(bytes.data(), count), tuple);
    on.writing.reset();
    if (unwritten)
      on.end(words(unwritten));
  }
  on.let_go = true;
  on.end("what it said was refused");
  on.timer.cancel();
}

awaitable<void> links::core::watch(carrier& on) {
  while (!on.let_go) {
    const auto now = steady::now();
    const bool deaf = on.writing && now >= *on.writing + limits::link_silence;
    const auto due = on.ended     ? *on.ended + limits::link_handshake
                     : on.way->up ? on.heard + limits::link_silence
                                  : on.begun + limits::link_handshake;
    if (now >= due || (deaf && !on.ended)) {
      if (on.ended)
        close(on.ours);
      else
        on.end(!on.way->up ? "it did not say hello in time"
               : deaf      ? "it takes nothing"
                           : "nothing is heard of it");
      if (on.ours.is_open())
        continue;
      co_return;
    }
    // A peer that goes on talking and takes nothing is found on the way.
    on.timer.expires_at(on.ended ? due : std::min(due, now + limits::link_silence / 2));
    co_await on.timer.async_wait(tuple);
  }
}

// ---- The public face

links::links(caf::actor_system& system, io_pool& pool, link_options options, answer_fn answers,
             std::function<void(const std::string& name, bool up)> changed)
    : core_(std::make_shared<core>(system, pool, std::move(options), std::move(answers),
                                   std::move(changed))) {}

links::~links() {
  core_->end();
}

result<void> links::start() {
  return core_->start();
}

void links::ask(const std::string& name, std::string what, std::string text,
                std::chrono::milliseconds patience, std::function<void(result<std::string>)> then) {
  if (what.empty() || what.size() > limits::link_word_bytes)
    return then(error{errc::invalid_request, "what is asked of a node is one short word"});
  if (text.size() > limits::link_text_bytes)
    return then(error{errc::payload_too_large, "the text is too large for a link"});
  const auto question = std::make_shared<call>();
  question->what = std::move(what);
  question->text = std::move(text);
  question->patience = patience;
  question->then = std::move(then);
  core_->ask(name, question);
}

std::vector<std::string> links::up() const {
  return core_->up();
}

std::uint16_t links::port() const {
  return core_->port();
}

} // namespace insula::actors::cluster
