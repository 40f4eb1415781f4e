// The input of a command, without an agent: the test is the command, and the spawner.
#include "base/io_pool.hpp"
#include "runtime/input_pipe.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/events.hpp"
#include "tests/support/eventually.hpp"

#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <future>
#include <mutex>
#include <poll.h>
#include <random>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

const auto pipes_do_not_kill = std::signal(SIGPIPE, SIG_IGN);

constexpr auto long_enough = 60'000ms; ///< A test that waits for that has failed.

unique_fd copy_of(int fd) {
  return unique_fd{::fcntl(fd, F_DUPFD_CLOEXEC, 3)};
}

/// What the spawner has of one input.
struct kept_input {
  std::string label;
  std::vector<unique_fd> fds;
};

/// An input with a command that reads when the test does, and a spawner that keeps it.
struct played_input {
  explicit played_input() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    reader.reset(ends[0]);
    unique_fd end{ends[1]};
    ::fcntl(end.get(), F_SETFL, O_NONBLOCK);
    auto segment = input_pipe::make_segment();
    REQUIRE(segment);
    held_head head;
    head.kind = held_kind::input;
    kept.label = held_label(head);
    kept.fds.push_back(copy_of(end.get()));
    kept.fds.push_back(copy_of(segment.get()));
    made = make(head, std::move(end), std::move(segment));
  }
  ~played_input() { end_server(); }

  std::shared_ptr<input_pipe> make(const held_head& head, unique_fd end, unique_fd segment) {
    input_pipe::keeper with;
    with.put_down = [this](const std::string& label, std::span<const int> fds) {
      const std::lock_guard hold{guard};
      kept.label = label;
      if (fds.empty())
        return;
      kept.fds.clear();
      for (const int each : fds)
        kept.fds.push_back(copy_of(each));
    };
    with.release = [this] {
      const std::lock_guard hold{guard};
      kept = {};
    };
    return std::make_shared<input_pipe>(pool.context(0), head, std::move(end), std::move(segment),
                                        std::move(with));
  }
  void on_io(std::function<void()> step) {
    std::promise<void> done;
    boost::asio::post(pool.context(0), [&] {
      step();
      done.set_value();
    });
    done.get_future().get();
  }
  void end_server() {
    if (!made)
      return;
    on_io([&] { made->fall_silent(); });
    made.reset();
  }
  /// The next one, with what the spawner has.
  void next_server() {
    end_server();
    const auto head = head_of(kept.label).value();
    const bool closed = head.complete != 0;
    REQUIRE(kept.fds.size() == (closed ? 1 : 2));
    made =
      make(head, closed ? unique_fd{} : copy_of(kept.fds[0].get()), copy_of(kept.fds.back().get()));
    on_io([&] { made->resume(); });
  }

  std::shared_ptr<events<input_progress>> write(input_piece what) {
    const auto told = std::make_shared<events<input_progress>>();
    if (what.patience == 0ms)
      what.patience = long_enough;
    on_io([&] { made->write(std::move(what), [told](input_progress now) { told->tell(now); }); });
    return told;
  }
  input_progress put(std::string bytes, std::optional<std::uint64_t> offset = {},
                     bool closes = false) {
    return write({offset, std::move(bytes), closes, {}})->next();
  }
  input_progress ask() { return put({}); }

  /// Exactly so much, as soon as it is there; less at the end.
  std::string read(std::size_t count) {
    std::string all(count, '\0');
    std::size_t got = 0;
    while (got < count) {
      pollfd ready{reader.get(), POLLIN, 0};
      REQUIRE(::poll(&ready, 1, 60'000) == 1);
      const ssize_t n = ::read(reader.get(), all.data() + got, count - got);
      REQUIRE(n >= 0);
      if (n == 0)
        break;
      got += static_cast<std::size_t>(n);
    }
    all.resize(got);
    return all;
  }
  bool ends() { return read(1).empty(); }

  std::mutex guard;
  kept_input kept;
  io_pool pool{1};
  unique_fd reader;
  std::shared_ptr<input_pipe> made;
};

char byte_at(std::uint64_t i) {
  return static_cast<char>(i * 2654435761u >> 13);
}

std::string bytes_from(std::uint64_t offset, std::size_t count) {
  std::string all(count, '\0');
  for (std::size_t i = 0; i < count; ++i)
    all[i] = byte_at(offset + i);
  return all;
}

constexpr auto segment = static_cast<std::size_t>(input_pipe::segment_bytes);

} // namespace

TEST_CASE("what is taken is read, and a piece that comes again is taken once", "[runtime][input]") {
  played_input in;
  CHECK(in.ask().taken == 0);
  CHECK(in.put("one\n", 0).taken == 4);
  CHECK(in.put("one\n", 0).taken == 4);
  CHECK(in.put("one\ntwo\n", 0).taken == 8);
  const auto last = in.put("three\n", 8, true);
  CHECK(last.taken == 14);
  CHECK(last.state == input_state::taken);
  CHECK(in.read(14) == "one\ntwo\nthree\n");
  CHECK(in.ends());
}

TEST_CASE("a piece that begins behind what is taken is refused", "[runtime][input]") {
  played_input in;
  const auto told = in.put("two", 3);
  CHECK(told.state == input_state::ahead);
  CHECK(told.taken == 0);
  CHECK(in.write({.offset = 1})->next().state == input_state::ahead);
  CHECK(in.put({}, 1, true).state == input_state::ahead);
  CHECK(in.put("one", 0).taken == 3);
  CHECK(in.put("two").taken == 6);
  CHECK(in.read(6) == "onetwo");
}

TEST_CASE("an input is closed once, and says afterwards how much there was", "[runtime][input]") {
  played_input in;
  CHECK(in.put("all", 0, true).taken == 3);
  CHECK(in.put({}, 3, true).state == input_state::taken);
  CHECK(in.put("all", 0, true).state == input_state::taken);
  CHECK(in.ask().taken == 3);
  const auto more = in.put("more", 3);
  CHECK(more.state == input_state::over);
  CHECK(more.taken == 3);
  CHECK(in.read(3) == "all");
  CHECK(in.ends());
  in.next_server();
  CHECK(in.ask().taken == 3);
  CHECK(in.put("more", 3).state == input_state::over);
  CHECK(in.put("all", 0, true).state == input_state::taken);
}

TEST_CASE("a piece is answered once all of it is taken, however slowly it is read",
          "[runtime][input]") {
  played_input in;
  const auto all = bytes_from(0, 8 * segment);
  const auto told = in.write({0, all, true, {}});
  CHECK(told->empty()); // The pipe and the segment have room for two of eight.
  CHECK(in.read(all.size()) == all);
  CHECK(told->next().taken == all.size());
  CHECK(in.ends());
}

TEST_CASE("a command that does not read is told of with what was taken", "[runtime][input]") {
  played_input in;
  const auto all = bytes_from(0, 4 * segment);
  const auto slow = in.write({0, all, false, 20ms})->next();
  CHECK(slow.state == input_state::slow);
  CHECK(slow.taken == 2 * segment); // One in the pipe, one that waits for it.
  const auto still = in.write({0, all, false, 20ms})->next();
  CHECK(still.state == input_state::slow);
  CHECK(still.taken == 2 * segment);
  const auto again = in.write({0, all, false, {}});
  CHECK(in.read(all.size()) == all);
  CHECK(again->next().taken == all.size());
}

TEST_CASE("pieces have their turns, and no more than a few wait", "[runtime][input]") {
  played_input in;
  const auto all = bytes_from(0, 3 * segment);
  std::vector<std::shared_ptr<events<input_progress>>> told;
  for (std::size_t i = 0; i < input_pipe::max_waiting; ++i)
    told.push_back(in.write({0, all, false, {}})); // One, and its repetitions.
  CHECK(in.put(all, 0).state == input_state::crowded);
  CHECK(in.ask().taken == 2 * segment); // A question waits for nobody.
  CHECK(in.read(all.size()) == all);
  for (const auto& each : told) {
    const auto answer = each->next();
    CHECK(answer.taken == all.size());
    CHECK(answer.state == input_state::taken);
  }
  CHECK(in.put({}, all.size(), true).taken == all.size());
  CHECK(in.ends());
}

TEST_CASE("many small pieces fit where a few large ones do", "[runtime][input]") {
  played_input in;
  std::string all;
  for (int i = 0; i < 2'000; ++i) { // A pipe has room for sixteen that are not put together.
    const auto line = std::to_string(i) + "\n";
    all += line;
    REQUIRE(in.put(line).taken == all.size());
  }
  CHECK(in.read(all.size()) == all);
}

TEST_CASE("a command that has closed its stdin is noticed", "[runtime][input]") {
  played_input in;
  CHECK(in.put("one", 0).taken == 3);
  SECTION("before a piece") {
    in.reader.reset();
    const auto told = in.put("two", 3);
    CHECK(told.state == input_state::over);
    CHECK(told.taken == 3);
    CHECK(in.put("one", 0).state == input_state::taken);
  }
  SECTION("while one waits") {
    const auto told = in.write({3, bytes_from(0, 8 * segment), false, {}});
    in.reader.reset();
    CHECK(told->next().state == input_state::over);
    CHECK(in.kept.fds.size() == 1); // Nobody keeps its end.
  }
  SECTION("and the next server knows") {
    in.reader.reset();
    in.next_server();
    CHECK(in.put("two", 3).state == input_state::over);
    CHECK(in.ask().taken == 3);
  }
}

TEST_CASE("what a command that ends has not read goes on to others", "[runtime][input]") {
  played_input in;
  const auto all = bytes_from(0, 2 * segment);
  REQUIRE(in.put(all, 0).taken == all.size());
  const auto waits = in.write({all.size(), "more", false, {}});
  in.on_io([&] { in.made->finish(); });
  const auto told = waits->next();
  CHECK(told.state == input_state::over);
  CHECK(told.taken == all.size());
  in.next_server();
  CHECK(in.put("more", all.size()).state == input_state::over);
  CHECK(in.read(all.size()) == all);
  CHECK(in.ends());
}

TEST_CASE("a closed input comes to its end when the next server has moved the rest",
          "[runtime][input]") {
  played_input in;
  const auto all = bytes_from(0, 2 * segment);
  REQUIRE(in.put(all, 0, true).taken == all.size());
  in.next_server();
  CHECK(in.ask().taken == all.size());
  CHECK(in.put({}, all.size(), true).state == input_state::taken);
  CHECK(in.read(all.size()) == all);
  CHECK(in.ends());
}

TEST_CASE("an input that is forgotten is let go of", "[runtime][input]") {
  played_input in;
  REQUIRE(in.put("one").taken == 3);
  in.on_io([&] { in.made->forget(); });
  CHECK(in.kept.fds.empty());
  CHECK(in.read(3) == "one");
  CHECK(in.ends());
}

TEST_CASE("a server that is killed at any moment loses no byte of an input and repeats none",
          "[runtime][input][crash]") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const unique_fd reader{ends[0]}, end{ends[1]};
  ::fcntl(end.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(reader.get(), F_SETFL, O_NONBLOCK);
  auto kept_segment = input_pipe::make_segment();
  held_head kept_head;
  kept_head.kind = held_kind::input;
  std::mt19937 rng{42};
  std::uint64_t read = 0;
  constexpr int rounds = 60;
  for (int round = 0; round < rounds; ++round) {
    int ways[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ways) == 0);
    const unique_fd ours{ways[0]};
    unique_fd theirs{ways[1]};
    const pid_t server = ::fork();
    if (server == 0) {
      boost::asio::io_context io{1};
      input_pipe::keeper with;
      with.put_down = [&](const std::string& label, std::span<const int> fds) {
        // As the spawner is told: in one packet, or not at all.
        char space[CMSG_SPACE(2 * sizeof(int))] = {};
        iovec words{const_cast<char*>(label.data()), label.size()};
        msghdr packet{};
        packet.msg_iov = &words;
        packet.msg_iovlen = 1;
        packet.msg_control = space;
        packet.msg_controllen = CMSG_SPACE(fds.size_bytes());
        auto* const attached = CMSG_FIRSTHDR(&packet);
        attached->cmsg_level = SOL_SOCKET;
        attached->cmsg_type = SCM_RIGHTS;
        attached->cmsg_len = CMSG_LEN(fds.size_bytes());
        std::memcpy(CMSG_DATA(attached), fds.data(), fds.size_bytes());
        if (::sendmsg(theirs.get(), &packet, 0) < 0)
          std::_Exit(1);
      };
      const auto input = std::make_shared<input_pipe>(io, kept_head, copy_of(end.get()),
                                                      copy_of(kept_segment.get()), std::move(with));
      input->resume();
      const std::size_t size = 1 + static_cast<std::size_t>(round) * 977;
      std::function<void(input_progress)> next = [&](input_progress now) {
        const auto from = now.taken > size / 3 ? now.taken - size / 3 : 0; // A part comes again.
        boost::asio::post(io, [&, from] {
          input->write({from, bytes_from(from, size), false, long_enough}, next);
        });
      };
      next({input->taken(), input_state::taken});
      io.run();
      std::_Exit(1);
    }
    theirs.reset();
    // The command reads, until the server is killed.
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds{rng() % 4'000};
    const auto least = read + 2'000;
    std::string bytes(rng() % 100'000 + 1, '\0');
    const auto take = [&] {
      const ssize_t n = ::read(reader.get(), bytes.data(), bytes.size());
      for (ssize_t i = 0; i < n; ++i)
        if (bytes[static_cast<std::size_t>(i)] != byte_at(read++))
          FAIL("byte " << read - 1 << " is another one, in round " << round);
      return n > 0;
    };
    // What was put down last is what the next server finds.
    const auto hear = [&] {
      held_head head;
      char space[CMSG_SPACE(2 * sizeof(int))];
      iovec words{&head, sizeof head};
      msghdr packet{};
      packet.msg_iov = &words;
      packet.msg_iovlen = 1;
      packet.msg_control = space;
      packet.msg_controllen = sizeof space;
      if (::recvmsg(ours.get(), &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != sizeof head)
        return false;
      int fds[2];
      std::memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&packet)), sizeof fds);
      ::close(fds[0]);
      kept_segment.reset(fds[1]);
      kept_head = head;
      return true;
    };
    while (std::chrono::steady_clock::now() < until || read < least) {
      take();
      hear();
    }
    ::kill(server, SIGKILL);
    ::waitpid(server, nullptr, 0);
    while (hear()) {
    }
  }
  // What has been taken is in the pipe and in the segment, and a last server moves it.
  io_pool pool{1};
  const auto last = std::make_shared<input_pipe>(pool.context(0), kept_head, copy_of(end.get()),
                                                 copy_of(kept_segment.get()), input_pipe::keeper{});
  std::promise<std::uint64_t> taken;
  boost::asio::post(pool.context(0), [&] {
    last->resume();
    taken.set_value(last->taken());
  });
  const auto all = taken.get_future().get();
  std::string bytes(segment, '\0');
  REQUIRE(eventually([&] {
    const ssize_t n = ::read(reader.get(), bytes.data(), bytes.size());
    for (ssize_t i = 0; i < n; ++i)
      if (bytes[static_cast<std::size_t>(i)] != byte_at(read++))
        FAIL("byte " << read - 1 << " is another one, at last");
    return read == all;
  }));
  CHECK(::read(reader.get(), bytes.data(), bytes.size()) < 0);
  CHECK(all > 60 * 2'000);
  std::promise<void> over;
  boost::asio::post(pool.context(0), [&] {
    last->forget();
    over.set_value();
  });
  over.get_future().get();
}
