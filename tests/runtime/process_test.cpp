// The engine's process, without an agent: the test holds the other ends of its pipes.
#include "base/io_pool.hpp"
#include "runtime/process.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/events.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/support/temp_dir.hpp"

#include <csignal>
#include <fcntl.h>
#include <future>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

/// What a listener has heard, as words in their order.
struct played_process {
  explicit played_process(std::chrono::milliseconds patience = 30s, const std::string& logs = {},
                          std::uint64_t log_bytes = 0, bool awaits_reader = false) {
    process_listener listener{[to = heard] { to->tell("started"); },
                              [to = heard](const error& why) { to->tell("failed " + why.message); },
                              [to = heard](process_exit how) {
                                to->tell(how.lost ? "lost" : "ended " + std::to_string(how.status));
                              },
                              [to = heard] { to->tell("complete"); }};
    made = std::make_shared<native_process>(
      io, output_log{logs.empty() ? dir.path().string() : logs, log_bytes}, std::move(listener),
      native_process::links{{}, {}}, patience);
    if (awaits_reader)
      made->await_reader();
    int ends[2][2];
    for (auto& each : ends)
      REQUIRE(::pipe2(each, O_CLOEXEC | O_NONBLOCK) == 0);
    made->attach(unique_fd{ends[0][0]}, unique_fd{ends[1][0]});
    out.reset(ends[0][1]);
    err.reset(ends[1][1]);
  }
  ~played_process() {
    out.reset();
    err.reset();
    made.reset();
  }

  void on_io(std::function<void(native_process&)> step) {
    std::promise<void> done;
    boost::asio::post(io, [&] {
      step(*made);
      done.set_value();
    });
    done.get_future().get();
  }
  void start() {
    on_io([](native_process& p) { p.started(); });
    REQUIRE(heard->next() == "started");
  }
  void end(int status = 0) {
    on_io([&](native_process& p) { p.ended({.status = status}); });
  }
  log_chunk read(std::uint64_t offset, bool attached, std::size_t most = 65'536) {
    const auto told = std::make_shared<events<log_chunk>>();
    made->read(offset, most, attached, [told](log_chunk chunk) { told->tell(std::move(chunk)); });
    return told->next();
  }
  /// Writes until the pipe takes no more for a while, and so much as the log takes in any case: the
  /// command is held up. Returns what went in.
  std::size_t fill() {
    const std::string bytes(4096, 'x');
    std::size_t all = 0;
    for (;;) {
      const auto patience = all > output_log::min_ceiling / 2 ? 300ms : 60'000ms;
      pollfd room{out.get(), POLLOUT, 0};
      if (::poll(&room, 1, static_cast<int>(patience.count())) != 1)
        return all;
      if (const ssize_t n = ::write(out.get(), bytes.data(), bytes.size()); n > 0)
        all += static_cast<std::size_t>(n);
    }
  }

  const temp_dir dir;
  std::shared_ptr<events<std::string>> heard = std::make_shared<events<std::string>>();
  io_pool pool{1};
  boost::asio::io_context& io = pool.context(0);
  unique_fd out, err;
  std::shared_ptr<native_process> made;
};

std::size_t put(const unique_fd& to, std::string_view bytes) {
  const ssize_t n = ::write(to.get(), bytes.data(), bytes.size());
  return n < 0 ? 0 : static_cast<std::size_t>(n);
}

std::string bytes_of(const log_chunk& chunk) {
  std::string all;
  for (const auto& each : chunk.frames)
    all += each.bytes;
  return all;
}

} // namespace

TEST_CASE("a process ends before its output does", "[runtime][process]") {
  played_process p;
  p.start();
  p.end(256);
  CHECK(p.heard->next() == "ended 256");
  REQUIRE(put(p.out, "late") == 4);
  const auto chunk = p.read(0, false);
  CHECK(bytes_of(chunk) == "late");
  CHECK_FALSE(chunk.ended);
  p.out.reset();
  p.err.reset();
  CHECK(p.heard->next() == "complete");
  const auto last = p.read(chunk.next_offset, false);
  REQUIRE(last.ended);
  CHECK(last.ended->status == 256);
}

TEST_CASE("why the node has ended a sandbox is the last that its commands say",
          "[runtime][process]") {
  played_process p;
  p.start();
  p.on_io([](native_process& of) { of.ended(end_with_sandbox("it took too much")); });
  CHECK(p.heard->next() == "ended 9");
  REQUIRE(put(p.err, "before\n") == 7);
  p.err.reset();
  const auto first = p.read(0, true);
  CHECK(bytes_of(first) == "before\n");
  CHECK_FALSE(first.ended);
  p.out.reset();
  CHECK(p.heard->next() == "complete");
  const auto last = p.read(first.next_offset, true);
  REQUIRE(last.frames.size() == 1);
  CHECK(last.frames[0].stream == output_stream::err);
  CHECK(last.frames[0].bytes == "it took too much\n");
  REQUIRE(last.ended);
  CHECK(last.ended->status == SIGKILL);
  CHECK_FALSE(last.ended->lost);
}

TEST_CASE("a question waits until there is something to answer", "[runtime][process]") {
  played_process p;
  p.start();
  const auto told = std::make_shared<events<log_chunk>>();
  for (int i = 0; i < 3; ++i)
    p.made->read(0, 100, i == 0, [told](log_chunk chunk) { told->tell(std::move(chunk)); });
  p.on_io([](native_process&) {});
  CHECK(told->empty());
  REQUIRE(put(p.err, "x") == 1);
  for (int i = 0; i < 3; ++i) {
    const auto chunk = told->next();
    REQUIRE(chunk.frames.size() == 1);
    CHECK(chunk.frames[0].stream == output_stream::err);
  }
}

TEST_CASE("without a reader the oldest output goes, with one the command is held up",
          "[runtime][process]") {
  played_process p;
  p.start();
  SECTION("no reader") {
    const std::string bytes(4096, 'x');
    for (std::size_t all = 0; all < 5 * output_log::min_ceiling;) {
      pollfd room{p.out.get(), POLLOUT, 0};
      REQUIRE(::poll(&room, 1, 60'000) == 1);
      all += put(p.out, bytes);
    }
    const auto chunk = p.read(0, false);
    CHECK(chunk.lost_bytes > 3 * output_log::min_ceiling);
  }
  SECTION("a reader") {
    auto chunk = [&] {
      REQUIRE(put(p.out, "first") == 5);
      return p.read(0, true);
    }();
    const auto held_at = p.fill();
    CHECK(held_at > output_log::min_ceiling / 2);
    CHECK(held_at < 2 * output_log::min_ceiling);
    // Once it has gone, the command goes on.
    p.made->detach();
    pollfd room{p.out.get(), POLLOUT, 0};
    CHECK(::poll(&room, 1, 60'000) == 1);
  }
  SECTION("a reader that reads on") {
    // It is there before there is more than the log takes.
    REQUIRE(put(p.out, "first") == 5);
    const std::string bytes(4096, 'x');
    std::uint64_t offset = p.read(0, true).next_offset, got = 0, written = 0;
    while (got < 4 * output_log::min_ceiling) {
      while (const auto n = put(p.out, bytes))
        written += n;
      const auto chunk = p.read(offset, true, 200'000);
      CHECK(chunk.lost_bytes == 0);
      got += bytes_of(chunk).size();
      offset = chunk.next_offset;
    }
    CHECK(written >= got);
  }
}

TEST_CASE("nothing is lost before the reader that a command awaits is there",
          "[runtime][process]") {
  SECTION("it comes late") {
    played_process p{30s, {}, 0, true};
    p.start();
    const auto written = p.fill();
    CHECK(written < 2 * output_log::min_ceiling);
    std::size_t got = 0;
    for (std::uint64_t offset = 0; got < written;) {
      const auto chunk = p.read(offset, true);
      REQUIRE(chunk.lost_bytes == 0);
      got += bytes_of(chunk).size();
      offset = chunk.next_offset;
    }
  }
  SECTION("it never comes, or goes before it has asked") {
    const bool goes = GENERATE(true, false);
    played_process p{goes ? 30s : 100ms, {}, 0, true};
    p.start();
    if (goes)
      p.made->detach();
    const std::string bytes(4096, 'x');
    for (std::size_t all = 0; all < 4 * output_log::min_ceiling;) {
      pollfd room{p.out.get(), POLLOUT, 0};
      REQUIRE(::poll(&room, 1, 60'000) == 1);
      all += put(p.out, bytes);
    }
    // Another one may be attached all the same.
    const auto late = p.read(0, true);
    CHECK_FALSE(late.reader_dropped);
    CHECK(late.lost_bytes > 0);
  }
}

TEST_CASE("a reader that asks for nothing is dropped, and the command goes on",
          "[runtime][process]") {
  played_process p{100ms};
  p.start();
  REQUIRE(put(p.out, "first") == 5);
  const auto first = p.read(0, true);
  CHECK(bytes_of(first) == "first");
  // More than the log holds: all of it is taken only when the reader no longer counts.
  const std::string bytes(4096, 'x');
  for (std::size_t all = 0; all < 4 * output_log::min_ceiling;) {
    pollfd room{p.out.get(), POLLOUT, 0};
    REQUIRE(::poll(&room, 1, 60'000) == 1);
    all += put(p.out, bytes);
  }
  CHECK(p.read(first.next_offset, true).reader_dropped);
  CHECK_FALSE(p.read(first.next_offset, false).reader_dropped);
}

TEST_CASE("a reader that waits for output is not dropped", "[runtime][process]") {
  played_process p{1ms};
  p.start();
  REQUIRE(put(p.out, "first") == 5);
  std::uint64_t offset = 0;
  for (int i = 0; i < 20; ++i) {
    const auto told = std::make_shared<events<log_chunk>>();
    p.made->read(offset, 100, true, [told](log_chunk chunk) { told->tell(std::move(chunk)); });
    if (i > 0) {
      // Longer than its patience; nothing can be waited for, since nothing may happen.
      ::poll(nullptr, 0, 5);
      REQUIRE(put(p.out, "more") == 4);
    }
    const auto chunk = told->next();
    if (chunk.reader_dropped)
      break; // The test itself was too slow between an answer and the next question.
    CHECK_FALSE(bytes_of(chunk).empty());
    offset = chunk.next_offset;
  }
}

TEST_CASE("cutting the output completes a process whose pipes others hold", "[runtime][process]") {
  played_process p;
  p.start();
  REQUIRE(put(p.out, "before") == 6);
  p.end();
  CHECK(p.heard->next() == "ended 0");
  p.made->cut_output();
  CHECK(p.heard->next() == "complete");
  const auto chunk = p.read(0, false);
  CHECK(bytes_of(chunk) == "before");
  CHECK(chunk.ended);
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  CHECK(put(p.out, "after") == 0);
  std::signal(SIGPIPE, before);
}

namespace {

void print_a_million_bytes(const played_process& p) {
  const std::string bytes(4096, 'x');
  for (std::size_t all = 0; all < 1'000'000;) {
    pollfd room{p.out.get(), POLLOUT, 0};
    REQUIRE(::poll(&room, 1, 60'000) == 1);
    all += put(p.out, bytes);
  }
}

} // namespace

TEST_CASE("output that the disk refuses is counted as lost, and the command goes on",
          "[runtime][process]") {
  const small_disk disk{128 * 1024};
  played_process p{30s, disk.path()};
  p.start();
  print_a_million_bytes(p);
  p.end();
  p.out.reset();
  p.err.reset();
  CHECK(p.heard->next() == "ended 0");
  CHECK(p.heard->next() == "complete");
  for (int reader = 0; reader < 2; ++reader) { // Each is told, where it comes to it.
    std::uint64_t offset = 0, got = 0, lost = 0;
    for (;;) {
      const auto chunk = p.read(offset, false);
      CHECK(lost == 0);
      got += bytes_of(chunk).size();
      lost += chunk.lost_bytes;
      offset = chunk.next_offset;
      if (chunk.ended)
        break;
    }
    CHECK(got > 50'000);
    CHECK(got + lost >= 1'000'000);
  }
}

TEST_CASE("who has been told of lost output is not woken for it again", "[runtime][process]") {
  const small_disk disk{128 * 1024};
  played_process p{30s, disk.path()};
  p.start();
  print_a_million_bytes(p);
  REQUIRE(eventually([&] {
    int left = 0;
    ::ioctl(p.out.get(), FIONREAD, &left);
    return left == 0;
  }));
  p.on_io([](native_process&) {});
  std::uint64_t offset = 0;
  for (std::uint64_t lost = 0; lost == 0;) {
    const auto chunk = p.read(offset, false);
    offset = chunk.next_offset;
    lost = chunk.lost_bytes;
  }
  events<log_chunk> told;
  p.made->read(offset, 65'536, false, [&](log_chunk chunk) { told.tell(std::move(chunk)); });
  p.on_io([](native_process&) {});
  CHECK(told.empty());
  p.end();
  p.out.reset();
  p.err.reset();
  const auto last = told.next();
  CHECK(last.lost_bytes > 0);
  CHECK(last.ended);
}

TEST_CASE("questions that nobody waits for any more are given up when there are too many",
          "[runtime][process]") {
  played_process p;
  p.start();
  constexpr std::size_t most = 1024;
  std::size_t dropped = 0, answered = 0; // On the process' own thread.
  for (std::size_t i = 0; i < most + 5; ++i)
    p.made->read(0, 65'536, false,
                 [&](const log_chunk& chunk) { ++(chunk.reader_dropped ? dropped : answered); });
  p.on_io([&](native_process&) {
    CHECK(dropped == 5);
    CHECK(answered == 0);
  });
  REQUIRE(put(p.out, "x") == 1);
  CHECK(eventually([&] {
    std::size_t by_now = 0;
    p.on_io([&](native_process&) { by_now = answered; });
    return by_now == most;
  }));
}

TEST_CASE("what a captured agent says out of turn is not passed on", "[runtime][process]") {
  played_process p;
  SECTION("started twice") {
    p.start();
    p.on_io([](native_process& it) { it.started(); });
    CHECK(p.heard->empty());
  }
  SECTION("failed after it has started") {
    p.start();
    p.on_io([](native_process& it) { it.failed({errc::launch_failed, "no"}); });
    CHECK(p.heard->empty());
    p.end();
    CHECK(p.heard->next() == "ended 0");
  }
  SECTION("ended without a start") {
    p.end();
    CHECK(p.heard->next().starts_with("failed "));
    p.on_io([](native_process& it) {
      it.started();
      it.ended({});
      it.failed({errc::launch_failed, "no"});
    });
    CHECK(p.heard->empty());
    CHECK(p.read(0, false).ended);
  }
  SECTION("ended without a start, but with output") {
    REQUIRE(put(p.out, "x") == 1);
    CHECK(bytes_of(p.read(0, false)) == "x");
    p.end();
    CHECK(p.heard->next() == "started");
    CHECK(p.heard->next() == "ended 0");
  }
  SECTION("failed twice, then started") {
    p.on_io([](native_process& it) {
      it.failed({errc::launch_failed, "one"});
      it.failed({errc::launch_failed, "two"});
      it.started();
    });
    CHECK(p.heard->next() == "failed one");
    CHECK(p.heard->empty());
  }
  SECTION("ended twice") {
    p.start();
    p.end(1);
    p.end(2);
    CHECK(p.heard->next() == "ended 1");
    CHECK(p.heard->empty());
  }
}
