#include "base/io_pool.hpp"
#include "runtime/packet_socket.hpp"
#include "tests/runtime/played_parts.hpp"
#include "tests/support/events.hpp"

#include <fcntl.h>
#include <filesystem>
#include <future>
#include <random>
#include <sys/resource.h>
#include <unistd.h>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;

namespace {

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all{"/proc/self/fd"};
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

struct heard {
  std::string bytes;
  std::size_t fds = 0;
  bool closed = false;
};

/// A packet socket and the other, plain end.
struct connection {
  connection()
      : connection(plain_end::pair()) {}
  explicit connection(std::array<unique_fd, 2> ends)
      : ours(std::make_shared<packet_socket>(io, std::move(ends[0])))
      , theirs(std::move(ends[1])) {
    ours->open(
      [to = told](std::string_view bytes, std::vector<unique_fd> fds) {
        to->tell({std::string{bytes}, fds.size(), false});
      },
      [to = told] {
        to->tell({{}, 0, true});
      });
  }
  ~connection() {
    ours->close();
    settle();
  }
  /// Until the I/O thread has done what it has been given.
  void settle() {
    std::promise<void> done;
    boost::asio::post(io, [&] { done.set_value(); });
    done.get_future().get();
  }

  std::shared_ptr<events<heard>> told = std::make_shared<events<heard>>();
  io_pool pool{1};
  boost::asio::io_context& io = pool.context(0);
  std::shared_ptr<packet_socket> ours;
  plain_end theirs;
};

} // namespace

TEST_CASE("packets and descriptors travel both ways", "[runtime][packet_socket]") {
  connection both;
  REQUIRE(both.theirs.send("hello", {0, 1}));
  const auto got = both.told->next();
  CHECK(got.bytes == "hello");
  CHECK(got.fds == 2);
  const std::array<int, 3> fds{0, 1, 2};
  REQUIRE(both.ours->send("he", "llo", fds));
  const auto back = both.theirs.next();
  CHECK(back.bytes == "hello");
  CHECK(back.fds.size() == 3);
}

TEST_CASE("a packet that is too large ends the connection, once", "[runtime][packet_socket]") {
  connection both;
  REQUIRE(both.theirs.send(std::string(packet_socket::max_received_bytes + 1, 'x'), {0}));
  CHECK(both.told->next().closed);
  both.settle();
  CHECK_FALSE(both.ours->send("x"));
  CHECK(both.theirs.next().bytes.empty());
  CHECK(both.told->empty());
}

TEST_CASE("an empty packet ends the connection", "[runtime][packet_socket]") {
  connection both;
  REQUIRE(both.theirs.send(""));
  CHECK(both.told->next().closed);
}

TEST_CASE("the other side's end is heard once, after all it has said", "[runtime][packet_socket]") {
  connection both;
  for (int i = 0; i < 100; ++i)
    REQUIRE(both.theirs.send(std::to_string(i)));
  both.theirs.close();
  for (int i = 0; i < 100; ++i)
    CHECK(both.told->next().bytes == std::to_string(i));
  CHECK(both.told->next().closed);
  both.settle();
  CHECK(both.told->empty());
}

TEST_CASE("descriptors beyond what is taken are closed", "[runtime][packet_socket]") {
  const auto before = open_descriptors();
  {
    connection both;
    for (int i = 0; i < 50; ++i) {
      REQUIRE(both.theirs.send("x", std::vector<int>(40, 0)));
      CHECK(both.told->next().fds <= packet_socket::max_fds);
    }
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("a flood does not keep the I/O thread from others", "[runtime][packet_socket]") {
  connection loud;
  std::atomic<bool> enough = false;
  std::thread flood{[&] {
    while (!enough)
      loud.theirs.send("flood", {}, MSG_DONTWAIT);
  }};
  auto [near, far] = plain_end::pair();
  const auto quiet = std::make_shared<packet_socket>(loud.io, std::move(near));
  const plain_end other{std::move(far)};
  const auto told = std::make_shared<events<std::string>>();
  quiet->open([told](std::string_view bytes, auto) { told->tell(std::string{bytes}); }, [] {});
  for (int i = 0; i < 50; ++i) {
    REQUIRE(other.send("ping"));
    CHECK(told->next() == "ping");
  }
  enough = true;
  flood.join();
  quiet->close();
  loud.settle();
}

TEST_CASE("what a slow receiver has not taken waits, in order, up to a ceiling",
          "[runtime][packet_socket]") {
  connection both;
  std::size_t accepted = 0;
  // The kernel's buffer and our own queue: beyond these it is refused.
  for (; accepted < 100'000; ++accepted)
    if (!both.ours->send("n", std::to_string(accepted)))
      break;
  CHECK(accepted >= packet_socket::max_waiting);
  REQUIRE(accepted < 100'000);
  for (std::size_t i = 0; i < accepted; ++i)
    REQUIRE(both.theirs.next().bytes == "n" + std::to_string(i));
  REQUIRE(both.ours->send("last"));
  CHECK(both.theirs.next().bytes == "last");
}

TEST_CASE("descriptors that wait stay open although the sender closes them",
          "[runtime][packet_socket]") {
  connection both;
  std::size_t accepted = 0;
  for (; accepted < 2'000; ++accepted) {
    const unique_fd file{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    const int number = file.get();
    if (!both.ours->send("f", {}, {&number, 1}))
      break;
  }
  CHECK(accepted > 300);
  for (std::size_t i = 0; i < accepted; ++i)
    REQUIRE(both.theirs.next().fds.size() == 1);
}

TEST_CASE("more descriptors than a packet may have are refused", "[runtime][packet_socket]") {
  connection both;
  const std::array<int, packet_socket::max_fds + 1> fds{};
  CHECK_FALSE(both.ours->send("x", {}, fds));
}

TEST_CASE("a packet whose descriptors cannot be kept is refused, not lost",
          "[runtime][packet_socket]") {
  connection both;
  // More than the kernel's buffer has room for: from here on packets wait in ours.
  for (int i = 0; i < 2'000; ++i)
    REQUIRE(both.ours->send("fill"));
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{3, before.rlim_max};
  const int number = 0;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const bool sent = both.ours->send("with", {}, {&number, 1});
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK_FALSE(sent);
}

TEST_CASE("closing from inside a callback is the last that is heard", "[runtime][packet_socket]") {
  io_pool pool{1};
  boost::asio::io_context& io = pool.context(0);
  auto ends = plain_end::pair();
  const auto ours = std::make_shared<packet_socket>(io, std::move(ends[0]));
  const plain_end theirs{std::move(ends[1])};
  const auto told = std::make_shared<events<int>>();
  ours->open(
    [told, weak = std::weak_ptr{ours}](std::string_view, auto) {
      told->tell(1);
      weak.lock()->close();
    },
    [told] { told->tell(2); });
  for (int i = 0; i < 10; ++i)
    theirs.send("x");
  CHECK(told->next() == 1);
  CHECK_NOTHROW([&] {
    while (!theirs.next().bytes.empty()) {
    }
  }());
  CHECK(told->empty());
}

TEST_CASE("sending, closing and receiving from many threads is safe", "[runtime][packet_socket]") {
  for (int round = 0; round < 20; ++round) {
    connection both;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 500; ++i)
          both.ours->send("abc");
      });
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i)
        both.theirs.send("def", {0}, MSG_DONTWAIT);
      both.ours->close();
    });
    for (auto& each : threads)
      each.join();
  }
}
