// Parts of the gateway, alone: places and the thread's time, which tenants share, the resolver with
// name servers that the test plays on loopback, and connections that are socket pairs.
#include "base/limits.hpp"
#include "base/unique_fd.hpp"
#include "runtime/gateway/connection.hpp"
#include "runtime/gateway/fair_places.hpp"
#include "runtime/gateway/pipes.hpp"
#include "runtime/gateway/receive_buffers.hpp"
#include "runtime/gateway/resolver.hpp"
#include "runtime/gateway/sockets.hpp"
#include "runtime/gateway/tenant.hpp"
#include "runtime/gateway/turns.hpp"
#include "runtime/gateway/world.hpp"
#include "tests/support/catch.hpp"

#include <boost/asio/io_context.hpp>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace insula;
using namespace insula::runtime::gateway;
using namespace std::chrono_literals;

namespace dns = insula::runtime::egress::dns;

namespace {

constexpr fair_places::ceilings small{
  .all = 8, .kept = 3, .few = 1, .each = 4, .waiting = 5, .patience = 10s};

/// Who has had a place, in that order, and who was told that there is none.
struct record {
  std::vector<tenant_number> begun, refused;

  fair_places::function of(tenant_number whose) {
    return [this, whose](bool has_place) { (has_place ? begun : refused).push_back(whose); };
  }
};

template <class Done>
bool run_until(boost::asio::io_context& io, Done done, std::chrono::milliseconds patience = 20s) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!done() && std::chrono::steady_clock::now() < until)
    io.run_for(2ms), io.restart();
  return done();
}

/// A name server on loopback that says nothing, unless the test has it answer.
class played_server {
public:
  played_server()
      : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const int much = 4 << 20;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &much, sizeof much);
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) == 0);
    socklen_t size = sizeof where;
    ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&where), &size);
    port_ = ntohs(where.sin_port);
  }

  resolver::server at() const { return {*runtime::egress::ip_address::parse("127.0.0.1"), port_}; }

  /// Names of all questions that have come; `answer` gives what is said to each, if anything.
  template <class Answer>
  void hear(Answer answer) {
    for (;;) {
      std::array<char, 4096> bytes;
      sockaddr_in from{};
      socklen_t size = sizeof from;
      const auto n = ::recvfrom(socket_.get(), bytes.data(), bytes.size(), 0,
                                reinterpret_cast<sockaddr*>(&from), &size);
      if (n <= 0)
        return;
      const auto asked = dns::read_question({bytes.data(), static_cast<std::size_t>(n)});
      REQUIRE(asked);
      heard.push_back(asked->name);
      const std::string said = answer(*asked);
      if (!said.empty())
        ::sendto(socket_.get(), said.data(), said.size(), 0, reinterpret_cast<sockaddr*>(&from),
                 size);
    }
  }
  void hear() {
    hear([](const dns::question&) { return std::string{}; });
  }

  std::vector<std::string> heard;

private:
  unique_fd socket_;
  std::uint16_t port_ = 0;
};

std::string where_it_is(const dns::question& asked) {
  return dns::write_addresses(asked, {*runtime::egress::ip_address::parse("203.0.113.9")}, 60);
}

/// That there is no such name, for `ttl` seconds.
std::string no_such_name(const dns::question& asked, std::uint32_t ttl) {
  auto said = dns::write_status(asked, dns::status::no_name);
  said[9] = 1; // One record of authority.
  const auto put = [&](std::uint32_t number, int bytes) {
    while (bytes-- > 0)
      said += static_cast<char>(number >> 8 * bytes & 0xff);
  };
  put(0, 1); // The root's.
  put(dns::type_soa, 2);
  put(1, 2);
  put(3600, 4);
  put(22, 2);
  put(0, 2); // Two names that are the root.
  for (const std::uint32_t number : {1u, 2u, 3u, 4u, ttl})
    put(number, 4);
  return said;
}

struct asking {
  boost::asio::io_context io{1};
  turns time{io};
  resolver names{io};
  played_server server;

  asking() {
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max; // Each question has a socket.
    ::setrlimit(RLIMIT_NOFILE, &files);
    names.use({server.at()});
  }
  payer tenant() { return {++last, std::make_shared<turns::share>(time)}; }

private:
  tenant_number last = 0;
};

} // namespace

TEST_CASE("a tenant has its share of the places, and waits for its own", "[gateway][places]") {
  boost::asio::io_context io;
  fair_places places{io, small};
  record is;
  for (int i = 0; i < 4; ++i)
    CHECK(places.take(1, is.of(1)));
  CHECK(is.begun == std::vector<tenant_number>{1, 1, 1, 1});
  for (int i = 0; i < 5; ++i)
    CHECK(places.take(1, is.of(1)));
  CHECK(places.waiting() == 5);
  CHECK_FALSE(places.take(1, is.of(1))); // Its queue is full.
  CHECK(is.begun.size() == 4);
  // Another one does not see any of that.
  CHECK(places.take(2, is.of(2)));
  CHECK(is.begun.back() == 2);
  places.give_back(2);
  CHECK(is.begun.size() == 5); // What was given back is not for who has his share.
  places.give_back(1);
  CHECK(is.begun.back() == 1);
  CHECK(places.taken_by(1) == 4);
  CHECK(places.waiting() == 4);
}

TEST_CASE("the last places are for tenants that have none", "[gateway][places]") {
  boost::asio::io_context io;
  fair_places places{io, small};
  record is;
  for (int i = 0; i < 4; ++i)
    places.take(1, is.of(1));
  for (int i = 0; i < 4; ++i)
    places.take(2, is.of(2)); // One; all else is kept.
  CHECK(places.taken() == 5);
  CHECK(places.waiting() == 3);
  for (tenant_number each : {3, 4, 5}) {
    CHECK(places.take(each, is.of(each)));
    CHECK(is.begun.back() == each);
  }
  CHECK(places.taken() == small.all);
  CHECK(places.take(6, is.of(6)));
  CHECK(is.begun.back() == 5);
  places.give_back(3); // It is for the one that has none.
  CHECK(is.begun.back() == 6);
  CHECK(places.taken() == small.all);
}

TEST_CASE("those that wait have places in turn", "[gateway][places]") {
  boost::asio::io_context io;
  fair_places places{io, {.all = 3, .kept = 0, .few = 0, .each = 3, .waiting = 9, .patience = 10s}};
  record is;
  for (tenant_number each : {1, 1, 1, 1, 1, 1, 2, 3, 3})
    places.take(each, is.of(each));
  for (int i = 0; i < 6; ++i)
    places.give_back(is.begun[static_cast<std::size_t>(i)]);
  CHECK(is.begun == std::vector<tenant_number>{1, 1, 1, 1, 2, 3, 1, 3, 1});
  CHECK(places.waiting() == 0);
}

TEST_CASE("what has waited too long, or whose tenant has gone, is told so", "[gateway][places]") {
  boost::asio::io_context io;
  record is;
  SECTION("too long") {
    auto hasty = small;
    hasty.patience = 30ms;
    fair_places places{io, hasty};
    for (int i = 0; i < 6; ++i)
      places.take(1, is.of(1));
    CHECK(run_until(io, [&] { return is.refused.size() == 2; }));
    CHECK(places.waiting() == 0);
    CHECK(places.taken_by(1) == 4);
    places.take(1, is.of(1)); // And those that come later have their own time.
    CHECK(is.refused.size() == 2);
    CHECK(run_until(io, [&] { return is.refused.size() == 3; }));
  }
  SECTION("the tenant has gone") {
    fair_places places{io, small};
    for (int i = 0; i < 6; ++i)
      places.take(1, is.of(1));
    places.forget(1);
    CHECK(is.refused.size() == 2);
    CHECK(places.taken() == 4);
    for (int i = 0; i < 4; ++i)
      places.give_back(1);
    CHECK(places.taken() == 0);
  }
  SECTION("what is told takes and gives back") {
    fair_places places{io, small};
    std::size_t told = 0;
    std::function<void(bool)> again = [&](bool has_place) {
      if (has_place && ++told < 1000) {
        places.give_back(1);
        places.take(1, again);
      }
    };
    places.take(1, again);
    CHECK(told == 1000);
    CHECK(places.taken() == 1);
  }
}

namespace {

/// The thread's time, which passes only where the test says so.
struct played_time {
  boost::asio::io_context io{1};
  std::chrono::nanoseconds now{};
  turns all{io, [this] { return now; }};

  std::shared_ptr<turns::share> share() { return std::make_shared<turns::share>(all); }
  /// One look at what is new after the other.
  template <class Done>
  void until(Done done) {
    while (!done()) {
      io.restart();
      REQUIRE(io.run_one() == 1);
    }
  }
};

} // namespace

TEST_CASE("a tenant with little to do does not wait for one with much", "[gateway][turns]") {
  played_time at;
  const auto busy = at.share(), other = at.share(), calm = at.share();
  constexpr auto piece = 20us, long_piece = 60us;
  std::size_t done = 0, done_by_other = 0;
  const std::function<void()> again = [&] {
    at.now += piece;
    ++done;
    busy->add(again);
  };
  const std::function<void()> again_other = [&] {
    at.now += long_piece;
    ++done_by_other;
    other->add(again_other);
  };
  for (int i = 0; i < 2000; ++i)
    busy->add(again);
  other->add(again_other);
  for (int i = 0; i < 200; ++i) {
    bool had_its_turn = false;
    const auto before = at.now;
    auto waited = 0ns;
    calm->add([&] {
      waited = at.now - before;
      had_its_turn = true;
    });
    at.until([&] { return had_its_turn; });
    // A turn of each of the two, and the piece with which each of them passes its turn.
    CHECK(waited <= 2 * limits::gateway_turn + piece + long_piece);
    at.io.restart();
    at.io.run_one(); // Some time goes by.
  }
  // The two that are busy have the same time, whatever their pieces take: each has had its turns,
  // and at most one more with the end of a piece.
  const auto apart =
    busy->used() > other->used() ? busy->used() - other->used() : other->used() - busy->used();
  CHECK(apart <= 2 * (limits::gateway_turn + long_piece));
  CHECK(busy->used() > 20 * long_piece);
  CHECK(busy->used() == done * piece);
  CHECK(other->used() == done_by_other * long_piece);
  CHECK(at.all.used() == busy->used() + other->used() + calm->used());
}

TEST_CASE("what takes long is owed", "[gateway][turns]") {
  played_time at;
  const auto greedy = at.share(), other = at.share();
  constexpr std::chrono::microseconds long_piece = 5ms, piece = 50us;
  std::size_t done = 0;
  std::vector<std::size_t> done_before;
  greedy->add([&] { at.now += long_piece; });
  greedy->add([&] { done_before.push_back(done); });
  const std::function<void()> again = [&] {
    at.now += piece;
    if (++done < 500)
      other->add(again);
  };
  other->add(again);
  at.until([&] { return !done_before.empty(); });
  // The other one has the same first, but for a turn and a piece.
  const auto owed = long_piece - limits::gateway_turn;
  CHECK(done_before[0] * piece >= owed - limits::gateway_turn - piece);
  CHECK(done_before[0] * piece <= owed + limits::gateway_turn + piece);
  SECTION("also by one that has nothing more to do") {
    at.until([&] { return done == 500; });
    CHECK(greedy->used() == long_piece);
    CHECK(other->used() == 500 * piece);
  }
}

TEST_CASE("a name server that is silent costs one tenant its own questions", "[gateway][dns]") {
  asking at;
  const auto noisy = at.tenant(), calm = at.tenant();
  std::size_t answered = 0, refused = 0;
  for (int i = 0; i < 2000; ++i)
    at.names.resolve(noisy, "n" + std::to_string(i) + ".silent.example",
                     [&](const resolver::addresses& found) {
                       ++answered;
                       refused += found.too_many ? 1 : 0;
                     });
  // Those beyond the queue are told so at once, and no more are under way than its share.
  CHECK(run_until(
    at.io, [&] { return answered >= 1000; }, 3s));
  CHECK(refused == answered);
  CHECK(at.names.places().taken_by(noisy.number) == limits::gateway_lookups);
  CHECK(at.names.places().waiting() == limits::gateway_waiting_lookups);
  CHECK(run_until(at.io, [&] {
    at.server.hear();
    return at.server.heard.size() >= limits::gateway_lookups;
  }));
  // Both ways of asking share it.
  bool too_many = false, told = false;
  const auto question = *dns::read_question(dns::write_question(7, "x.example", dns::type_a));
  at.names.ask(noisy, question, [&](const resolver::outcome& got) {
    too_many = got.too_many;
    told = true;
  });
  CHECK(run_until(
    at.io, [&] { return told; }, 3s));
  CHECK(too_many);
  // A neighbour has its answers at once, each time.
  for (int i = 0; i < 20; ++i) {
    std::vector<runtime::egress::ip_address> found;
    at.names.resolve(calm, "good" + std::to_string(i) + ".example",
                     [&](const resolver::addresses& where) { found = where.all; });
    CHECK(run_until(
      at.io,
      [&] {
        at.server.hear([](const dns::question& asked) {
          return asked.name.ends_with(".silent.example") ? std::string{} : where_it_is(asked);
        });
        return !found.empty();
      },
      5s));
  }
  // When it has gone, all that waits is told, and later its places are there again.
  at.names.forget(noisy.number);
  CHECK(answered == 2000);
  CHECK(at.names.places().waiting() == 0);
  CHECK(run_until(at.io, [&] { return at.names.places().taken() == 0; }));
}

TEST_CASE("thousands of silent names leave places for those who have none", "[gateway][dns]") {
  asking at;
  for (int tenant = 0; tenant < 40; ++tenant) {
    const auto noisy = at.tenant();
    for (int i = 0; i < 100; ++i)
      at.names.resolve(noisy, "n" + std::to_string(i) + ".silent.example",
                       [](const resolver::addresses&) {});
  }
  CHECK(run_until(at.io, [&] {
    return at.names.places().taken() >= limits::gateway_all_lookups - limits::gateway_kept_lookups;
  }));
  const auto calm = at.tenant();
  std::vector<runtime::egress::ip_address> found;
  at.names.resolve(calm, "good.example",
                   [&](const resolver::addresses& where) { found = where.all; });
  CHECK(run_until(
    at.io,
    [&] {
      at.server.hear([](const dns::question& asked) {
        return asked.name == "good.example" ? where_it_is(asked) : std::string{};
      });
      return !found.empty();
    },
    5s));
}

namespace {

/// A tenant's connection that waits to dial an address, since all its places for that are taken.
struct waiting_to_dial {
  boost::asio::io_context io{1};
  world all{io};
  std::shared_ptr<tenant> of = std::make_shared<tenant>(all, std::vector<unique_fd>{});
  std::vector<unique_fd> clients;

  waiting_to_dial() {
    of->set_policy(egress_policy::allow_all(), 1);
    for (std::size_t i = 0; i < limits::gateway_dials; ++i)
      REQUIRE(all.dials.take(of->paid_by().number, [](bool) {}));
  }
  ~waiting_to_dial() { of->close(); }
  void connect(const std::shared_ptr<tenant>& whose) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    clients.emplace_back(ends[0]);
    std::make_shared<connection>(
      whose, unique_fd{ends[1]},
      socket_address{*runtime::egress::ip_address::parse("203.0.113.9"), 22})
      ->start();
  }
  void settle() {
    io.restart();
    while (io.poll() > 0)
      io.restart();
  }
};

} // namespace

TEST_CASE("connections that have waited in vain are refused in turn, at their tenant's cost",
          "[gateway][places]") {
  waiting_to_dial at;
  constexpr std::size_t many = 100;
  for (std::size_t i = 0; i < many; ++i)
    at.connect(at.of);
  REQUIRE(at.all.dials.waiting() == many);
  const auto before = at.of->time().used();
  at.all.dials.forget(at.of->paid_by().number); // As when their time is over.
  CHECK(at.of->figures().refusals == 0);        // Nothing is done where they are told.
  at.settle();
  CHECK(at.of->figures().refusals == many);
  CHECK(at.of->time().used() > before);
}

TEST_CASE("what pays together has one share, until the last of it has gone", "[gateway][places]") {
  waiting_to_dial at;
  const auto mount = std::make_shared<tenant>(at.all, std::vector<unique_fd>{}, at.of.get());
  const auto stranger = std::make_shared<tenant>(at.all, std::vector<unique_fd>{});
  CHECK(mount->paid_by().number == at.of->paid_by().number);
  CHECK(mount->paid_by().time == at.of->paid_by().time);
  CHECK(stranger->paid_by().number != at.of->paid_by().number);
  at.connect(at.of);
  CHECK(at.all.dials.waiting() == 1);
  SECTION("the mount goes first") {
    mount->close();
    at.settle();
    CHECK(at.all.dials.waiting() == 1); // It is the sandbox's.
    CHECK(at.of->figures().refusals == 0);
    at.of->close();
    CHECK(at.all.dials.waiting() == 0);
  }
  SECTION("the sandbox goes first") {
    at.of->close();
    at.settle();
    CHECK(at.all.dials.waiting() == 1);
    mount->close();
    CHECK(at.all.dials.waiting() == 0);
  }
  stranger->close();
}

TEST_CASE("the names that a mount's program has been told of are not asked of the DNS",
          "[gateway][dns]") {
  boost::asio::io_context io{1};
  played_server server;
  world all{io};
  all.names.use({server.at()});
  const auto of = std::make_shared<tenant>(all, std::vector<unique_fd>{});
  const auto here = *runtime::egress::ip_address::parse("192.0.2.7");
  of->confine({.allow_rest = false, .rules = {{true, "store.example"}, {true, "*.example"}}}, 80,
              {{"store.example", {here}}});
  std::vector<runtime::egress::ip_address> found;
  of->resolve("store.example", [&](const auto& where) { found = where.all; });
  CHECK(run_until(io, [&] { return !found.empty(); }));
  CHECK(found == std::vector{here});
  found.clear();
  of->resolve("other.example", [&](const auto& where) { found = where.all; });
  CHECK(run_until(io, [&] {
    server.hear(where_it_is);
    return !found.empty();
  }));
  CHECK(std::count(server.heard.begin(), server.heard.end(), "store.example") == 0);
  CHECK(std::count(server.heard.begin(), server.heard.end(), "other.example") == 2);
  of->close();
}

TEST_CASE("a large pipe that could not be made is made when one is wanted", "[gateway][pipes]") {
  boost::asio::io_context io{1};
  pipe_pool pool{io};
  std::vector<std::pair<tenant_number, pipe_pool::pipe>> taken;
  const auto take = [&](tenant_number by, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      taken.emplace_back(by, pool.take(by));
  };
  /// All that there are: greedy tenants, and the rest for those with next to none.
  const auto take_all = [&] {
    constexpr auto for_all = limits::gateway_all_pipes - limits::gateway_kept_pipes;
    tenant_number by = 0;
    while (taken.size() < for_all)
      take(++by, limits::gateway_pipes);
    while (taken.size() < limits::gateway_all_pipes)
      take(++by, limits::gateway_few_pipes);
    return std::all_of(taken.begin(), taken.end(),
                       [](const auto& each) { return each.second.is_large; });
  };
  REQUIRE(take_all());
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{3, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  for (auto& [by, each] : taken) {
    each.holds = 1; // So it is not used again.
    pool.give_back(by, std::move(each));
  }
  taken.clear();
  const bool has_none = !pool.take(1);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(has_none);
  CHECK(take_all());
}

// ---- Receive buffers

namespace {

/// One end of a connection of TCP, with what it may hold.
class tcp_socket {
public:
  tcp_socket() {
    const unique_fd listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where;
    REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&where), size) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&where), &size);
    peer_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(peer_.get(), reinterpret_cast<sockaddr*>(&where), size) == 0);
    socket_.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(socket_);
  }
  int get() const { return socket_.get(); }
  std::size_t holds() const { return receive_buffer(get()); }
  bool grows() const {
    int locked = -1;
    socklen_t size = sizeof locked;
    REQUIRE(::getsockopt(get(), SOL_SOCKET, SO_BUF_LOCK, &locked, &size) == 0);
    return (locked & 2) == 0;
  }
  /// As the kernel does it for a connection that needs it. Needs root.
  void grow_to(std::size_t bytes) {
    const int half = static_cast<int>(bytes / 2);
    REQUIRE(::setsockopt(get(), SOL_SOCKET, SO_RCVBUFFORCE, &half, sizeof half) == 0);
    free_receive_buffer(get());
    REQUIRE(holds() == bytes);
  }
  void fill(std::size_t bytes) {
    const std::string text(bytes, 'x');
    REQUIRE(::send(peer_.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes));
    while (waiting_bytes(get()) < bytes)
      ::usleep(100);
  }

private:
  unique_fd peer_, socket_;
};

constexpr std::size_t kib = 1024;
constexpr receive_buffers::ceilings few_buffers{.growing = 3,
                                                .large = 1,
                                                .small_bytes = 16 * kib,
                                                .middle_bytes = 128 * kib,
                                                .large_bytes = 256 * kib,
                                                .quiet = 0ms};

struct buffered {
  buffered(const std::shared_ptr<receive_buffers>& in, tenant_number whose)
      : buffer(in, whose, socket.get()) {}
  tcp_socket socket;
  receive_buffers::one buffer;
};

} // namespace

TEST_CASE("a buffer grows once its connection moves bytes, and idle ones keep no places",
          "[gateway][buffers]") {
  const auto all = std::make_shared<receive_buffers>(few_buffers);
  std::deque<buffered> mine;
  for (int i = 0; i < 5; ++i) {
    mine.emplace_back(all, 1);
    CHECK_FALSE(mine.back().socket.grows());
    CHECK(mine.back().socket.holds() == few_buffers.small_bytes * 2);
  }
  CHECK(all->growing(1) == 0);
  mine[0].buffer.moved(few_buffers.small_bytes - 1); // It says little.
  CHECK_FALSE(mine[0].socket.grows());
  // As many as there are places, and each further one in place of the one that has moved least
  // lately.
  for (auto& each : mine) {
    each.buffer.moved(few_buffers.small_bytes);
    CHECK(each.socket.grows());
    CHECK(all->growing(1) <= few_buffers.growing);
  }
  CHECK_FALSE(mine[0].socket.grows());
  CHECK_FALSE(mine[1].socket.grows());
  CHECK(mine[1].socket.holds() <= few_buffers.small_bytes * 2);
  mine[2].buffer.moved(1);
  mine[0].buffer.moved(few_buffers.small_bytes);
  CHECK(mine[0].socket.grows());
  CHECK(mine[2].socket.grows());
  CHECK_FALSE(mine[3].socket.grows());
  // Another tenant has places of its own.
  buffered theirs{all, 2};
  theirs.buffer.moved(few_buffers.small_bytes);
  CHECK(theirs.socket.grows());
  CHECK(all->growing(1) == few_buffers.growing);
  mine.clear();
  CHECK(all->growing(1) == 0);
  CHECK(all->growing(2) == 1);
}

TEST_CASE("a buffer in which something waits keeps its place, and one that moves as well",
          "[gateway][buffers]") {
  auto most = few_buffers;
  SECTION("it is not read") {
    const auto all = std::make_shared<receive_buffers>(most);
    std::deque<buffered> mine;
    for (std::size_t i = 0; i < most.growing; ++i) {
      mine.emplace_back(all, 1).buffer.moved(most.small_bytes);
      mine.back().socket.grow_to(most.middle_bytes);
      mine.back().socket.fill(most.small_bytes + 1);
    }
    buffered next{all, 1};
    next.buffer.moved(most.small_bytes);
    CHECK_FALSE(next.socket.grows()); // Else more would wait than is counted.
    CHECK(all->growing(1) == most.growing);
    for (const auto& each : mine)
      CHECK(each.socket.holds() == most.middle_bytes);
    mine.pop_front();
    next.buffer.moved(1);
    CHECK(next.socket.grows());
  }
  SECTION("it has moved a moment ago") {
    most.quiet = 1h;
    const auto all = std::make_shared<receive_buffers>(most);
    std::deque<buffered> mine;
    for (std::size_t i = 0; i <= most.growing; ++i) {
      mine.emplace_back(all, 1).buffer.moved(most.small_bytes);
      CHECK(mine.back().socket.grows() == (i < most.growing));
    }
  }
}

TEST_CASE("a buffer of which nobody takes anything does not grow", "[gateway][buffers]") {
  const auto all = std::make_shared<receive_buffers>(few_buffers);
  buffered mine{all, 1};
  mine.buffer.stands_still();
  mine.buffer.moved(few_buffers.small_bytes);
  CHECK(mine.socket.grows());
  for (int i = 0; i < 2; ++i) {
    mine.buffer.stands_still();
    CHECK_FALSE(mine.socket.grows());
    mine.buffer.moved(1);
    CHECK(mine.socket.grows());
  }
  mine.socket.grow_to(few_buffers.middle_bytes);
  mine.buffer.moved(1);
  mine.socket.grow_to(few_buffers.large_bytes);
  mine.buffer.moved(1);
  CHECK_FALSE(mine.socket.grows());
  mine.buffer.stands_still();
  mine.buffer.moved(1);
  CHECK_FALSE(mine.socket.grows());
  CHECK(mine.socket.holds() == few_buffers.large_bytes);
  // One that gives way while it stands still begins anew.
  mine.buffer.stands_still();
  std::deque<buffered> others;
  for (std::size_t i = 0; i < few_buffers.growing; ++i)
    others.emplace_back(all, 1).buffer.moved(few_buffers.small_bytes);
  CHECK(mine.socket.holds() == few_buffers.small_bytes * 2);
  mine.buffer.moved(1);
  CHECK_FALSE(mine.socket.grows());
}

TEST_CASE("a buffer that grows stays below its ceiling", "[gateway][buffers]") {
  const auto all = std::make_shared<receive_buffers>(few_buffers);
  buffered first{all, 1}, second{all, 1};
  for (auto* each : {&first, &second})
    each->buffer.moved(few_buffers.small_bytes);
  first.socket.grow_to(few_buffers.middle_bytes / 2);
  first.buffer.moved(1);
  CHECK(all->large(1) == 1);
  CHECK(first.socket.grows());
  // The next one has no place among the large ones.
  second.socket.grow_to(few_buffers.middle_bytes * 3);
  second.buffer.moved(1);
  CHECK(all->large(1) == 1);
  CHECK_FALSE(second.socket.grows());
  CHECK(second.socket.holds() == few_buffers.middle_bytes);
  first.socket.grow_to(few_buffers.large_bytes * 2);
  first.buffer.moved(1);
  CHECK_FALSE(first.socket.grows());
  CHECK(first.socket.holds() == few_buffers.large_bytes);
  SECTION("and has the place of one that has ended") {
    {
      const auto done = std::make_unique<buffered>(all, 2);
      done->buffer.moved(few_buffers.small_bytes);
    }
    CHECK(all->growing(2) == 0);
    std::deque<buffered> others; // So that the large one is the quietest.
    for (auto* each : {&second})
      each->buffer.moved(1);
    others.emplace_back(all, 1).buffer.moved(few_buffers.small_bytes);
    others.emplace_back(all, 1).buffer.moved(few_buffers.small_bytes);
    CHECK(all->large(1) == 0);
    CHECK(first.socket.holds() <= few_buffers.small_bytes * 2);
    second.buffer.moved(1);
    CHECK(all->large(1) == 1);
    CHECK(second.socket.grows());
  }
}

/// A socket of another kind, which is readable whenever it holds something, as one of TCP is where
/// the kernel is short of memory.
TEST_CASE("what is readable with nothing new in it has not said that there is no name",
          "[gateway][name]") {
  boost::asio::io_context io{1};
  world all{io};
  const auto of = std::make_shared<tenant>(all, std::vector<unique_fd>{});
  of->set_policy({.allow_rest = true, .rules = {{false, "b.example"}}}, 1);
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  const unique_fd client{ends[0]};
  // Reserved, so nothing is dialled, whatever becomes of it.
  std::make_shared<connection>(of, unique_fd{ends[1]},
                               socket_address{*runtime::egress::ip_address::parse("10.1.2.3"), 80})
    ->start();
  const auto say = [&](std::string_view text) {
    REQUIRE(::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(text.size()));
  };
  say("GET / HTTP/1.1\r\nHo");
  io.run_for(200ms);
  io.restart();
  CHECK(of->figures().refusals == 0);
  SECTION("the rest says it") {
    say("st: b.example\r\n\r\n");
    CHECK(run_until(io, [&] { return of->figures().refusals > 0; }));
    CHECK(of->figures().last_refusals.at(0).rule == "deny b.example");
  }
  SECTION("its end says that there is none") {
    ::shutdown(client.get(), SHUT_WR);
    CHECK(run_until(io, [&] { return of->figures().refusals > 0; }));
    CHECK(of->figures().last_refusals.at(0).rule == "private address");
  }
  of->close();
}

TEST_CASE("failures are remembered for a moment, for the tenant that has met them",
          "[gateway][dns]") {
  asking at;
  const auto mine = at.tenant(), theirs = at.tenant();
  const auto ask = [&](const payer& by, const std::string& name, const auto& answer) {
    dns::status how = dns::status::good;
    bool told = false;
    at.names.resolve(by, name, [&](const resolver::addresses& where) {
      how = where.how;
      told = true;
    });
    CHECK(run_until(at.io, [&] {
      at.server.hear(answer);
      return told;
    }));
    return how;
  };
  const auto asked = [&] { return std::exchange(at.server.heard, {}).size(); };
  const auto fails = [](const dns::question& q) {
    return dns::write_status(q, dns::status::failed);
  };
  SECTION("a server that fails") {
    CHECK(ask(mine, "a.example", fails) == dns::status::failed);
    CHECK(asked() > 0);
    CHECK(ask(mine, "a.example", where_it_is) == dns::status::failed);
    CHECK(asked() == 0);
    CHECK(ask(theirs, "a.example", where_it_is) == dns::status::good);
    CHECK(asked() == 2);
    CHECK(run_until(
      at.io, [&] { return ask(mine, "a.example", where_it_is) == dns::status::good; },
      limits::gateway_failure_memory + 10s));
  }
  SECTION("one that is silent") {
    const auto silent = [](const dns::question&) { return std::string{}; };
    CHECK(ask(mine, "a.example", silent) == dns::status::failed);
    CHECK(asked() == 4); // Twice for each kind of address.
    CHECK(ask(mine, "a.example", silent) == dns::status::failed);
    CHECK(asked() == 0);
  }
  SECTION("a name that is not there, as long as its zone says") {
    const auto none = [](const dns::question& q) { return no_such_name(q, 3); };
    const auto began = std::chrono::steady_clock::now();
    CHECK(ask(mine, "a.example", none) == dns::status::no_name);
    CHECK(asked() == 2);
    CHECK(run_until(
      at.io, [&] { return ask(mine, "a.example", where_it_is) == dns::status::good; }, 20s));
    CHECK(std::chrono::steady_clock::now() - began >= 2900ms);
    CHECK(asked() == 2);
  }
  SECTION("also of questions that are passed on, but not what is good") {
    const auto question = *dns::read_question(dns::write_question(7, "a.example", dns::type_a));
    const auto pass = [&](const payer& by, const auto& answer) {
      std::optional<std::string> message;
      bool told = false;
      at.names.ask(by, question, [&](const resolver::outcome& got) {
        message = got.message;
        told = true;
      });
      CHECK(run_until(at.io, [&] {
        at.server.hear(answer);
        return told;
      }));
      return message ? dns::read_reply(*message, dns::forward(question, 0))->how
                     : dns::status::failed;
    };
    CHECK(pass(mine, where_it_is) == dns::status::good);
    CHECK(pass(mine, where_it_is) == dns::status::good);
    CHECK(asked() == 2);
    CHECK(pass(mine, [](const dns::question& q) { return no_such_name(q, 30); }) ==
          dns::status::no_name);
    CHECK(pass(mine, where_it_is) == dns::status::no_name);
    CHECK(asked() == 1);
    CHECK(pass(theirs, where_it_is) == dns::status::good);
  }
  SECTION("of so many names") {
    const auto none = [](const dns::question& q) { return no_such_name(q, 60); };
    for (std::size_t i = 0; i <= limits::gateway_names; ++i)
      ask(mine, "n" + std::to_string(i) + ".example", none);
    asked();
    ask(mine, "n" + std::to_string(limits::gateway_names) + ".example", none);
    CHECK(asked() == 0);
    ask(mine, "n0.example", none); // The oldest.
    CHECK(asked() == 2);
  }
}
