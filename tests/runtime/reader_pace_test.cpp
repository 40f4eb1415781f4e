#include "runtime/reader_pace.hpp"
#include "tests/support/catch.hpp"

using namespace insula;
using namespace std::chrono_literals;
using runtime::reader_pace;

namespace {

constexpr std::uint64_t ahead = limits::terminal_ahead_bytes;
const reader_pace::time_point start{1h};

} // namespace

TEST_CASE("output that nobody reads waits for nobody", "[runtime]") {
  const reader_pace pace;
  CHECK_FALSE(pace.waits(1, start));
  CHECK_FALSE(pace.waits(100 * ahead, start));
}

TEST_CASE("whoever reads at a good rate is waited for", "[runtime]") {
  reader_pace pace;
  auto now = start;
  // 64 KiB every 50 ms are 1.25 MiB/s.
  for (std::uint64_t offset = 64 << 10; offset < 20u << 20; offset += 64 << 10) {
    pace.has_read_to(offset, now);
    CHECK_FALSE(pace.waits(offset + ahead, now));
    now += 50ms;
    CHECK(pace.waits(offset + ahead + 1, now));
  }
}

TEST_CASE("who reads slowly, or stops, soon holds nothing up", "[runtime]") {
  reader_pace pace;
  pace.has_read_to(100 * ahead, start);
  CHECK(pace.waits(102 * ahead, start + limits::terminal_patience - 1ms));
  CHECK_FALSE(pace.waits(102 * ahead, start + limits::terminal_patience));
  // Nothing is saved up beyond that,
  for (int i = 1; i <= 100; ++i)
    pace.has_read_to((100 + i) * ahead, start);
  CHECK(pace.until() == start + limits::terminal_patience);
  // and a byte is worth little.
  pace.has_read_to(200 * ahead + 1, start + 5s);
  CHECK_FALSE(pace.waits(300 * ahead, start + 5s + 1ms));
}

TEST_CASE("a reader without a limit is waited for until it has gone", "[runtime]") {
  reader_pace pace{true};
  CHECK_FALSE(pace.waits(ahead, start));
  CHECK(pace.waits(ahead + 1, start)); // Before it has read anything,
  pace.has_read_to(ahead, start);
  CHECK_FALSE(pace.waits(2 * ahead, start));
  CHECK(pace.waits(2 * ahead + 1, start + 1'000h)); // and for ever.
  CHECK(pace.has_room(ahead + limits::terminal_log_bytes - 7, 7));
  CHECK_FALSE(pace.has_room(ahead + limits::terminal_log_bytes - 7, 8));
  pace.reader_has_gone();
  CHECK_FALSE(pace.waits(2 * ahead + 1, start)); // However much it has read just now.
  CHECK(pace.has_room(100 * ahead, 1));
}

TEST_CASE("one of several readers that goes takes nothing from the others", "[runtime]") {
  reader_pace pace;
  pace.has_read_to(100 * ahead, start);
  const auto until = pace.until();
  pace.reader_has_gone();
  CHECK(pace.until() == until);
  CHECK(pace.waits(102 * ahead, start + limits::terminal_patience - 1ms));
}

TEST_CASE("only the fastest of the readers counts", "[runtime]") {
  reader_pace pace;
  pace.has_read_to(10 * ahead, start);
  const auto until = pace.until();
  pace.has_read_to(2 * ahead, start + 1ms);
  CHECK(pace.until() == until);
  CHECK_FALSE(pace.waits(11 * ahead, start));
}
