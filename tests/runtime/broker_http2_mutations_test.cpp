// Conversations in HTTP/2 that are good but for a few bytes, lengths, frames or their order,
// towards both roles. INSULA_MUTATIONS says how many there are of each; a number names the same one
// each time.
#include "runtime/broker/http2.hpp"
#include "tests/support/broker_talk.hpp"
#include "tests/support/catch.hpp"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace insula;
using namespace insula::runtime::broker;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

namespace asio = boost::asio;
using random_numbers = std::mt19937_64;
using frames =
  std::vector<std::string>; ///< Each with its head; the first of a client's is its preface.

constexpr std::size_t frame_head = 9;
/// Of the thread's turns. A good conversation takes some hundred.
constexpr std::size_t most_turns = 100'000;
/// Without any turn: nothing waits for a time that is as long.
constexpr auto stands_still = 3s;
constexpr std::size_t default_mutations = 300;

std::size_t below(random_numbers& from, std::size_t end) {
  return static_cast<std::size_t>(from() % end);
}

std::size_t mutations() {
  const char* given = std::getenv("INSULA_MUTATIONS");
  return given == nullptr ? default_mutations : std::strtoul(given, nullptr, 10);
}

/// A server with interim answers, trailers, bodies that are looked at and others that are not.
task<exchanged> serve(incoming& in) {
  if (in.head.target == "/refused")
    co_return co_await refuse(in, 403, "not here");
  std::string body;
  for (bool more = true; more;) {
    const auto next = co_await in.body();
    if (!next)
      co_return exchanged{};
    more = next->has_value();
    if (more)
      body += **next;
  }
  response_head said;
  if (in.head.target == "/early") {
    said.status = 103;
    said.rest = fields{{"link", "</a>"}};
    const auto told = co_await in.answer(said);
    if (!told)
      co_return exchanged{};
  }
  said.status = 200;
  said.rest = fields{{"x-target", in.head.target}};
  said.body_bytes = std::nullopt;
  const auto trailers = in.trailers();
  auto ok = co_await in.answer(said);
  if (ok && in.head.target == "/large")
    ok = co_await in.send(std::string(90'000, 'z'));
  if (ok && !body.empty())
    ok = co_await in.send(body);
  if (ok)
    ok = co_await in.end(trailers);
  co_return exchanged{200, static_cast<bool>(ok)};
}

struct request {
  request_head head;
  std::string body;
  fields trailers;
};

std::vector<request> conversation() {
  auto with_trailers = head_of("POST", "/trailers", std::nullopt);
  with_trailers.takes_trailers = true;
  return {{head_of("GET", "/a?b=c", 0, fields{{"cookie", "a=1"}, {"cookie", "b=2"}}), "", {}},
          {head_of("POST", "/body", 70'000), std::string(70'000, 'x'), {}},
          {with_trailers, "some", fields{{"x-sum", "4"}}},
          {head_of("HEAD", "/"), "", {}},
          {head_of("GET", "/early"), "", {}},
          {head_of("PUT", "/refused", 5), "hello", {}},
          {head_of("GET", "/large"), "", {}},
          {head_of("OPTIONS", "*"), "", {}}};
}

/// An io_context that stops when all that counts has ended, or with a failure.
class turns {
public:
  asio::io_context io{1};
  std::size_t under_way = 0;

  /// It counts.
  void begin(task<void> what) {
    ++under_way;
    asio::co_spawn(io, std::move(what), [this](std::exception_ptr) { --under_way; });
  }
  void aside(task<void> what) { asio::co_spawn(io, std::move(what), asio::detached); }
  /// False: it does not end.
  bool run() {
    for (std::size_t i = 0; under_way > 0; ++i)
      if (i == most_turns || io.run_one_for(stands_still) == 0)
        return false;
    return true;
  }
};

/// Keeps what it passes on.
task<void> pass_on(stream& from, stream& to, std::string& kept) {
  std::string room(16u << 10, '\0');
  for (bool more = true; more;) {
    const auto size = co_await from.read(room.data(), room.size());
    more = size && *size > 0;
    if (!more)
      break;
    kept.append(room, 0, *size);
    const auto written = co_await to.write({room.data(), *size});
    more = static_cast<bool>(written);
  }
  from.cut();
  to.cut();
}

task<void> ask_one(http2_connection& over, request what, unsigned& answered) {
  const auto to = over.begin();
  if (!to)
    co_return;
  const auto said = co_await ask(*to, what.head, what.body, what.trailers);
  answered += said.why.empty() ? 1 : 0;
}

struct recording {
  frames client, server;
};

frames cut_into_frames(std::string_view bytes, std::size_t preface) {
  frames made;
  if (preface > 0)
    made.emplace_back(bytes.substr(0, preface));
  bytes.remove_prefix(preface);
  while (bytes.size() >= frame_head) {
    const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
    const std::size_t size = frame_head + (std::size_t{at(0)} << 16 | at(1) << 8 | at(2));
    made.emplace_back(bytes.substr(0, size));
    bytes.remove_prefix(std::min(size, bytes.size()));
  }
  return made;
}

const recording& recorded() {
  static const recording made = [] {
    turns all;
    auto near = pair_of_sockets(), far = pair_of_sockets();
    stream client{all.io, std::move(near[0])}, near_end{all.io, std::move(near[1])};
    stream far_end{all.io, std::move(far[0])}, server{all.io, std::move(far[1])};
    std::string from_client, from_server;
    const request_handler handle = serve;
    http2_connection over{client};
    all.begin(serve_http2(server, handle, 5s));
    all.begin(over.run());
    all.aside(pass_on(near_end, far_end, from_client));
    all.aside(pass_on(far_end, near_end, from_server));
    all.io.poll();
    unsigned answered = 0;
    const auto requests = conversation();
    for (const auto& each : requests)
      all.begin(ask_one(over, each, answered));
    while (all.under_way > 2)
      REQUIRE(all.io.run_one_for(stands_still) == 1);
    REQUIRE(answered == requests.size());
    client.cut();
    REQUIRE(all.run());
    all.io.poll();
    return recording{cut_into_frames(from_client, NGHTTP2_CLIENT_MAGIC_LEN),
                     cut_into_frames(from_server, 0)};
  }();
  return made;
}

std::string some_bytes(random_numbers& from, std::size_t size) {
  std::string made(size, '\0');
  for (auto& each : made)
    each = static_cast<char>(from());
  return made;
}

std::string some_frame(random_numbers& from) {
  const auto size = below(from, 40);
  std::string made(frame_head, '\0');
  made[2] = static_cast<char>(size);
  made[3] = static_cast<char>(below(from, 12));
  made[4] = static_cast<char>(from());
  made[8] = static_cast<char>(below(from, 20));
  return made + some_bytes(from, size);
}

void mutate_one(frames& all, random_numbers& from) {
  const auto at = below(from, all.size()), other = below(from, all.size());
  auto& one = all[at];
  const auto position = [&](std::size_t end) { return below(from, std::min(end, one.size())); };
  if (one.empty())
    return;
  switch (below(from, 12)) {
    case 0: one[position(one.size())] ^= static_cast<char>(1 << below(from, 8)); return;
    case 1: one[position(one.size())] = static_cast<char>(from()); return;
    case 2: one[position(frame_head)] = static_cast<char>(from()); return; // Length, type, stream.
    case 3: one.resize(position(one.size())); return;                      // The length stays.
    case 4: one += some_bytes(from, below(from, 30)); return;
    case 5: std::swap(one, all[other]); return;
    case 6: all.insert(all.begin() + static_cast<std::ptrdiff_t>(other), std::string{one}); return;
    case 7: one.clear(); return;
    case 8: all.insert(all.begin() + static_cast<std::ptrdiff_t>(at), some_frame(from)); return;
    case 9: all.resize(at + 1); return;
    case 10: // Its own length is right again.
      if (one.size() <= frame_head)
        return;
      one.resize(frame_head + below(from, one.size() - frame_head));
      for (int i = 0; i < 3; ++i)
        one[static_cast<std::size_t>(i)] =
          static_cast<char>((one.size() - frame_head) >> (8 * (2 - i)));
      return;
    default: // The same often: an id that is used again, a window that grows.
      for (auto left = below(from, 300); left > 0; --left)
        all.insert(all.begin() + static_cast<std::ptrdiff_t>(at), std::string{all[at]});
  }
}

std::string mutated(frames all, random_numbers& from) {
  for (auto left = 1 + below(from, 4); left > 0; --left)
    mutate_one(all, from);
  std::string text;
  for (const auto& each : all)
    text += each;
  return text;
}

/// Says it in pieces, and that no more comes.
task<void> say_in_pieces(stream& to, std::string text, random_numbers from) {
  const std::size_t longest = from() % 2 == 0 ? text.size() + 1 : 1 + below(from, 5000);
  std::string_view left{text};
  while (!left.empty()) {
    const auto some = left.substr(0, 1 + below(from, longest));
    const auto ok = co_await to.write(some);
    if (!ok)
      co_return;
    left.remove_prefix(some.size());
  }
  co_await to.end();
}

task<void> read_all(stream& from) {
  std::string room(16u << 10, '\0');
  for (bool more = true; more;) {
    const auto size = co_await from.read(room.data(), room.size());
    more = size && *size > 0;
  }
}

} // namespace

TEST_CASE("conversations of clients that are bad in few places end", "[broker]") {
  std::signal(SIGPIPE, SIG_IGN);
  for (std::size_t number = 0; number < mutations(); ++number) {
    INFO("the mutation " << number);
    random_numbers from{number};
    turns all;
    auto both = pair_of_sockets();
    stream client{all.io, std::move(both[0])}, server{all.io, std::move(both[1])};
    std::size_t begun = 0, ended = 0;
    const request_handler handle = [&](incoming& in) -> task<exchanged> {
      ++begun;
      const at_end leaves{[&] { ++ended; }};
      co_return co_await serve(in);
    };
    all.begin(serve_http2(server, handle, 60s));
    all.aside(read_all(client));
    all.aside(say_in_pieces(client, mutated(recorded().client, from), from));
    REQUIRE(all.run());
    REQUIRE(begun == ended);
    client.cut();
    all.io.restart();
    all.io.run_for(stands_still);
    REQUIRE(all.io.stopped()); // Nothing is left that waits.
  }
}

TEST_CASE("conversations of servers that are bad in few places end", "[broker]") {
  std::signal(SIGPIPE, SIG_IGN);
  const auto requests = conversation();
  for (std::size_t number = 0; number < mutations(); ++number) {
    INFO("the mutation " << number);
    random_numbers from{number};
    turns all;
    auto both = pair_of_sockets();
    stream client{all.io, std::move(both[0])}, server{all.io, std::move(both[1])};
    {
      http2_connection over{client};
      all.begin(over.run());
      all.io.poll();
      unsigned answered = 0;
      for (const auto& each : requests)
        all.begin(ask_one(over, each, answered));
      all.io.poll();
      all.aside(read_all(server));
      all.aside(say_in_pieces(server, mutated(recorded().server, from), from));
      REQUIRE(all.run());
      REQUIRE(over.open_requests() == 0);
      REQUIRE_FALSE(over.takes_more());
    }
    server.cut();
    all.io.restart();
    all.io.run_for(stands_still);
    REQUIRE(all.io.stopped());
  }
}
