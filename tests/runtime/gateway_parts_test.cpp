// Parts of the gateway, alone: places and the thread's time, which tenants share, the resolver with
// name servers that the test plays on loopback, and connections that are socket pairs.
#include "base/limits.hpp"
#include "base/unique_fd.hpp"
#include "runtime/gateway/connection.hpp"
#include "runtime/gateway/fair_places.hpp"
#include "runtime/gateway/resolver.hpp"
#include "runtime/gateway/tenant.hpp"
#include "runtime/gateway/turns.hpp"
#include "runtime/gateway/world.hpp"
#include "tests/support/catch.hpp"

#include <boost/asio/io_context.hpp>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <ctime>
#include <netinet/in.h>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
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

/// Uses the processor for so long.
void work(std::chrono::microseconds time) {
  const auto now = [] {
    timespec is{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &is);
    return std::chrono::seconds{is.tv_sec} + std::chrono::nanoseconds{is.tv_nsec};
  };
  for (const auto until = now() + time; now() < until;)
    ;
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

TEST_CASE("a tenant with little to do does not wait for one with much", "[gateway][turns]") {
  boost::asio::io_context io{1};
  turns all{io};
  const auto busy = std::make_shared<turns::share>(all),
             other = std::make_shared<turns::share>(all),
             calm = std::make_shared<turns::share>(all);
  std::size_t done = 0, done_by_other = 0;
  const std::function<void()> again = [&] {
    work(20us);
    ++done;
    busy->add(again);
  };
  const std::function<void()> again_other = [&] {
    work(60us);
    ++done_by_other;
    other->add(again_other);
  };
  for (int i = 0; i < 2000; ++i)
    busy->add(again);
  other->add(again_other);
  std::vector<std::size_t> waited;
  for (int i = 0; i < 200; ++i) {
    bool had_its_turn = false;
    const auto before = done + done_by_other;
    calm->add([&] {
      waited.push_back(done + done_by_other - before);
      had_its_turn = true;
    });
    CHECK(run_until(io, [&] { return had_its_turn; }));
  }
  // In pieces, whatever the machine does beside: of 2,000 that wait, a handful comes first.
  for (const auto each : waited)
    CHECK(each <= 60); // run_for() goes on for its 2 ms after the turn, so most are of then.
  std::sort(waited.begin(), waited.end());
  // The two that are busy have the same time, whatever their pieces take.
  const auto mine = static_cast<double>(busy->used().count()),
             theirs = static_cast<double>(other->used().count());
  CHECK(mine / theirs > 0.7);
  CHECK(mine / theirs < 1.4);
  CHECK(all.used() >= busy->used() + other->used());
  CHECK(done > 2 * done_by_other);
}

TEST_CASE("what takes long is owed", "[gateway][turns]") {
  boost::asio::io_context io{1};
  turns all{io};
  const auto greedy = std::make_shared<turns::share>(all),
             other = std::make_shared<turns::share>(all);
  std::size_t done = 0;
  std::vector<std::size_t> at;
  greedy->add([&] { work(5ms); });
  greedy->add([&] { at.push_back(done); });
  const std::function<void()> again = [&] {
    work(50us);
    if (++done < 500)
      other->add(again);
  };
  other->add(again);
  CHECK(run_until(io, [&] { return !at.empty(); }));
  CHECK(at[0] >= 50); // Some 100, while 5 ms are paid back.
  SECTION("also by who has nothing more to do") {
    CHECK(run_until(io, [&] { return done == 500; }));
    CHECK(greedy->used() >= 5ms);
    CHECK(greedy->used() < 50ms);
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
