#include "runtime/broker/program.hpp"

#include "base/packed_text.hpp"
#include "runtime/broker/condition.hpp"
#include "runtime/descriptors.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <utility>

namespace insula::runtime::broker {

namespace {

using namespace std::chrono_literals;
using boost::system::error_code;
namespace asio = boost::asio;

constexpr auto dial_patience = 30s, token_patience = 10s, orders_patience = 10s,
               gateway_patience = 15s;
constexpr std::int64_t token_kept_s = 60;
constexpr std::size_t most_tokens_kept = 256;

const error no_gateway{errc::node_unreachable, "there is no way out now"};
const error too_many{errc::limit_reached, "too many connections are under way at once"};
const error no_server{errc::node_unreachable, "the server is away"};
const error too_late{errc::deadline_exceeded, "there was no answer in time"};

std::int64_t unix_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
           std::chrono::system_clock::now().time_since_epoch())
    .count();
}

/// By which texts with secrets are compared.
std::string digest_of(std::string_view text) {
  std::string made(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(made.data()), &size,
                 EVP_sha256(), nullptr) != 1)
    return {};
  made.resize(size);
  return made;
}

} // namespace

/// An answer that tasks wait for.
struct program::answer_place {
  answer_place(asio::io_context& io, std::chrono::seconds longest)
      : timer(io, longest) {}

  asio::steady_timer timer;
  std::optional<error> failed;
  unique_fd socket;
  std::string text;
  bool is_there = false;

  task<void> wait() {
    error_code ignored;
    if (!is_there)
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  void give(std::optional<error> why = {}) {
    failed = std::move(why);
    is_there = true;
    timer.cancel();
  }
};

/// The way to a gateway, and what it has handed over or waits for.
struct program::gateway_way {
  gateway_way(asio::io_context& io, unique_fd way)
      : packets(io, way.release()) {}

  program::socket packets;
  std::deque<std::pair<gateway_packet, std::string>> waiting; ///< That it has had no room for.
  std::map<std::uint64_t, std::shared_ptr<answer_place>> dials;
  std::map<std::uint64_t, std::function<void()>> cuts; ///< Of its clients.
};

struct program::server_way {
  server_way(asio::io_context& io, unique_fd socket)
      : stream(io, socket.release())
      , news(io.get_executor()) {}

  program::socket stream;
  std::deque<std::string> waiting;
  condition news;
  bool over = false;
};

program::program(asio::io_context& io, unique_fd spawner)
    : io_(io)
    , spawner_(io, spawner.release())
    , alone_(io) {}

program::~program() = default;

void program::begin() {
  hear_spawner();
}

void program::hear_spawner() {
  spawner_.async_wait(socket::wait_read, [this](const error_code& failed) {
    if (failed)
      return io_.stop();
    for (;;) {
      spawner_packet said{};
      int fds[1], count = 0;
      const auto n =
        receive_packet(spawner_.native_handle(), {&said, sizeof said}, fds, count, MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN)
        return hear_spawner();
      unique_fd way{count > 0 ? fds[0] : -1};
      if (n != sizeof said || !way)
        return io_.stop(); // It has gone, or is none of ours.
      ::fcntl(way.get(), F_SETFL, O_NONBLOCK);
      if (said.what == order::gateway) {
        lose_gateway();
        alone_.cancel();
        gateway_ = std::make_shared<gateway_way>(io_, std::move(way));
        hear_gateway(gateway_);
      } else {
        if (server_) {
          server_->over = true;
          error_code ignored;
          server_->stream.close(ignored);
          server_->news.tell();
          forget_questions();
        }
        server_ = std::make_shared<server_way>(io_, std::move(way));
        asio::co_spawn(io_, hear_server(server_), asio::detached);
        asio::co_spawn(io_, write_server(server_), asio::detached);
      }
    }
  });
}

// ---- The gateway

void program::hear_gateway(const std::shared_ptr<gateway_way>& way) {
  way->packets.async_wait(socket::wait_read, [this, way](const error_code& failed) {
    if (failed || way != gateway_)
      return;
    for (;;) {
      struct {
        gateway_packet said;
        char text[max_text];
      } packet;
      int fds[1], count = 0;
      const auto n = receive_packet(way->packets.native_handle(), {&packet, sizeof packet}, fds,
                                    count, MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN)
        return hear_gateway(way);
      unique_fd fd{count > 0 ? fds[0] : -1};
      const bool is_whole = n >= static_cast<ssize_t>(sizeof packet.said);
      if (!is_whole || !take_packet(way, packet.said,
                                    {packet.text, static_cast<std::size_t>(n) - sizeof packet.said},
                                    std::move(fd)))
        return lose_gateway();
    }
  });
}

/// It has gone, and with it the policy of what it has handed over: that ends. The spawner gives
/// another way.
void program::lose_gateway() {
  const auto way = std::exchange(gateway_, nullptr);
  if (!way)
    return;
  // If none is given, a broken way was all that was wrong: the next broker has another.
  alone_.expires_after(gateway_patience);
  alone_.async_wait([this](const error_code& stopped) {
    if (!stopped && !gateway_)
      io_.stop();
  });
  error_code ignored;
  way->packets.close(ignored);
  for (auto& [id, each] : std::exchange(way->dials, {}))
    each->give(no_gateway);
  const auto cuts = way->cuts; // Each leaves it.
  for (const auto& [id, cut] : cuts)
    cut();
}

bool program::take_packet(const std::shared_ptr<gateway_way>& way, const gateway_packet& said,
                          std::string text, unique_fd fd) {
  if (fd)
    ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
  switch (said.what) {
    case word::dialled: {
      const auto asked = way->dials.extract(said.id);
      if (!asked)
        return true; // Nobody waits any more: it is closed.
      const auto& place = asked.mapped();
      place->socket = std::move(fd);
      place->give(place->socket
                    ? std::nullopt
                    : std::optional{error{errc::io_failed, text.empty() ? "it cannot be reached"
                                                                        : std::move(text)}});
      return true;
    }
    case word::cut:
      if (const auto at = way->cuts.find(said.id); at != way->cuts.end())
        at->second();
      return true;
    case word::changed:
      if (broker_)
        broker_->end_servers();
      return true;
    case word::client:
      if (!fd)
        return false;
      asio::co_spawn(io_, serve(way, said, std::move(text), std::move(fd)), asio::detached);
      return true;
    case word::dial:
    case word::over:
    case word::refused: break;
  }
  return false;
}

task<void> program::serve(std::shared_ptr<gateway_way> way, gateway_packet said, std::string name,
                          unique_fd client) {
  served told;
  bool is_cut = false;
  std::shared_ptr<answer_place> orders;
  way->cuts[said.id] = [&] {
    is_cut = true;
    if (orders)
      orders->give();
    if (told.cut)
      told.cut();
  };
  if (!broker_) { // It follows one that has ended, and is told its orders next.
    orders = std::make_shared<answer_place>(io_, orders_patience);
    want_orders_.insert(orders);
    co_await orders->wait();
    want_orders_.erase(orders);
  }
  const auto with = broker_;
  if (with && !is_cut)
    co_await with->serve(std::move(client), std::move(name), static_cast<std::uint16_t>(said.port),
                         told);
  way->cuts.erase(said.id);
  client.reset();
  gateway_packet end{word::over};
  end.id = said.id;
  end.from_client = told.from_client;
  end.to_client = told.to_client;
  tell_gateway(way, end, {});
}

/// What a gateway has no room for waits. One that reads nothing for that long has hung.
bool program::tell_gateway(const std::shared_ptr<gateway_way>& way, const gateway_packet& said,
                           const std::string& text) {
  if (!way || way != gateway_)
    return false;
  if (way->waiting.empty() && send(*way, said, text))
    return true;
  if (way->waiting.size() >= 2 * most_open || (way->waiting.empty() && errno != EAGAIN)) {
    lose_gateway();
    return false;
  }
  way->waiting.emplace_back(said, text);
  if (way->waiting.size() == 1)
    send_later(way);
  return true;
}

bool program::send(gateway_way& way, const gateway_packet& said, const std::string& text) {
  gateway_packet head = said;
  iovec parts[2] = {{&head, sizeof head},
                    {const_cast<char*>(text.data()), std::min(text.size(), max_text)}};
  constexpr int none = -1;
  return send_packet<1>(way.packets.native_handle(), parts, 2, &none, 0) >= 0;
}

void program::send_later(const std::shared_ptr<gateway_way>& way) {
  way->packets.async_wait(socket::wait_write, [this, way](const error_code& failed) {
    if (failed || way != gateway_)
      return;
    while (!way->waiting.empty()) {
      const auto& [said, text] = way->waiting.front();
      if (!send(*way, said, text))
        return errno == EAGAIN ? send_later(way) : lose_gateway();
      way->waiting.pop_front();
    }
  });
}

task<result<unique_fd>> program::dial(const std::string& host, std::uint16_t port) {
  const auto way = gateway_;
  if (!way)
    co_return no_gateway;
  if (way->dials.size() >= most_open)
    co_return too_many;
  const auto id = ++last_;
  const auto place = std::make_shared<answer_place>(io_, dial_patience);
  way->dials[id] = place;
  gateway_packet wanted{word::dial};
  wanted.id = id;
  wanted.port = port;
  if (!tell_gateway(way, wanted, host)) {
    way->dials.erase(id);
    co_return no_gateway;
  }
  co_await place->wait();
  way->dials.erase(id);
  if (place->failed)
    co_return *place->failed;
  if (!place->socket)
    co_return too_late;
  co_return std::move(place->socket);
}

void program::refused(const std::string& name, std::uint16_t port, const std::string&) {
  gateway_packet said{word::refused};
  said.port = port;
  tell_gateway(gateway_, said, name);
}

// ---- A server

task<void> program::hear_server(std::shared_ptr<server_way> way) {
  for (;;) {
    frame head{};
    error_code failed;
    co_await asio::async_read(way->stream, asio::buffer(&head, sizeof head),
                              asio::redirect_error(asio::use_awaitable, failed));
    if (failed || head.bytes > max_frame)
      break;
    std::string text(head.bytes, '\0');
    co_await asio::async_read(way->stream, asio::buffer(text),
                              asio::redirect_error(asio::use_awaitable, failed));
    if (failed)
      break;
    handle(way, head, std::move(text));
  }
  way->over = true;
  way->news.tell();
  if (way != server_)
    co_return;
  server_ = nullptr;
  forget_questions();
}

/// The server that was asked has gone.
void program::forget_questions() {
  asked_tokens_.clear();
  for (auto& [id, each] : std::exchange(tokens_, {}))
    each.place->give(no_server);
}

task<void> program::write_server(std::shared_ptr<server_way> way) {
  while (!way->over) {
    if (way->waiting.empty()) {
      co_await way->news.wait();
      continue;
    }
    error_code failed;
    co_await asio::async_write(way->stream, asio::buffer(way->waiting.front()),
                               asio::redirect_error(asio::use_awaitable, failed));
    if (failed)
      break;
    way->waiting.pop_front();
  }
}

void program::say(const std::shared_ptr<server_way>& way, frame head, const std::string& text) {
  if (way->waiting.size() >= most_open)
    return; // It does not read.
  head.bytes = static_cast<std::uint32_t>(text.size());
  std::string bytes(sizeof head, '\0');
  std::memcpy(bytes.data(), &head, sizeof head);
  way->waiting.push_back(bytes + text);
  way->news.tell();
}

void program::handle(const std::shared_ptr<server_way>& way, const frame& head, std::string text) {
  if (head.is_answer != 0) {
    const auto asked = tokens_.extract(head.id);
    if (!asked)
      return;
    const auto& [place, audience] = asked.mapped();
    asked_tokens_.erase(audience);
    if (head.error != 0)
      return place->give(error{static_cast<errc>(head.error), std::move(text)});
    if (known_tokens_.size() >= most_tokens_kept)
      known_tokens_.clear();
    known_tokens_[audience] = {text, unix_s() + token_kept_s};
    place->text = std::move(text);
    return place->give();
  }
  auto answer = head;
  answer.is_answer = 1;
  answer.error = 0;
  std::string told;
  if (head.what == question::use) {
    const auto done = use(text);
    OPENSSL_cleanse(text.data(), text.size());
    if (!done) {
      answer.error = static_cast<std::int32_t>(done.reason().code);
      told = done.reason().message;
    }
  } else if (head.what == question::figures) {
    told = figures();
  } else {
    answer.error = static_cast<std::int32_t>(errc::invalid_request);
  }
  say(way, answer, told);
}

result<void> program::use(const std::string& text) {
  known_tokens_.clear(); // They may name another session.
  const auto digest = digest_of(text);
  if (broker_ && !digest.empty() && digest == digest_)
    return {}; // As after a restart of the server: what is open goes on.
  packed_reader from{text};
  authority_text own;
  own.certificate = from.text();
  own.key = from.text();
  const auto trusted = from.text();
  const auto rules = rules_from_text(from.text());
  const auto sandbox = from.text();
  if (!from.is_over() || !rules)
    return error{errc::invalid_request, "these are no rules for a broker"};
  auto set = rule_set::make(*rules);
  if (!set)
    return set.reason();
  auto of_sandbox = authority::make(own);
  if (!of_sandbox)
    return of_sandbox.reason();
  if (!broker_ || trusted != trusted_) {
    auto context = make_client_context(trusted);
    if (!context)
      return context.reason();
    if (broker_)
      broker_->use(nullptr, nullptr); // What is open ends within a second.
    broker_ = std::make_shared<broker>(io_, *this, *context, sandbox);
    trusted_ = trusted;
  }
  broker_->use(*set, std::shared_ptr<authority>{std::move(*of_sandbox)});
  digest_ = digest;
  for (const auto& each : want_orders_)
    each->give();
  return {};
}

std::string program::figures() const {
  packed_writer to;
  const auto all = broker_ ? broker_->figures() : std::vector<rule_figures>{};
  to.number(all.size());
  for (const auto& each : all)
    to.number(each.requests).number(each.bytes_in).number(each.bytes_out).number(each.last_status);
  const auto open = broker_ ? broker_->open_bytes() : std::pair<std::uint64_t, std::uint64_t>{};
  to.number(open.first).number(open.second);
  return to.take();
}

task<result<std::string>> program::token(const std::string& audience) {
  if (const auto at = known_tokens_.find(audience);
      at != known_tokens_.end() && at->second.until_s > unix_s())
    co_return at->second.text;
  if (!server_)
    co_return no_server;
  auto& asked = asked_tokens_[audience]; // All that want one at once have the same.
  if (!asked) {
    if (tokens_.size() >= most_open) {
      asked_tokens_.erase(audience);
      co_return too_many;
    }
    const auto id = ++last_;
    asked = std::make_shared<answer_place>(io_, token_patience);
    tokens_[id] = {asked, audience};
    say(server_, {0, question::token, id, 0, 0}, audience);
  }
  const auto place = asked;
  co_await place->wait();
  if (place->failed)
    co_return *place->failed;
  if (place->is_there)
    co_return place->text;
  // The first one that gives up does so for all.
  std::erase_if(tokens_, [&](const auto& each) { return each.second.place == place; });
  if (const auto at = asked_tokens_.find(audience);
      at != asked_tokens_.end() && at->second == place)
    asked_tokens_.erase(at);
  co_return too_late;
}

} // namespace insula::runtime::broker
