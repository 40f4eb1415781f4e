#include "runtime/log_account.hpp"
#include "runtime/output_log.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <fcntl.h>
#include <optional>
#include <unistd.h>
#include <vector>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;

namespace {

constexpr auto step = static_cast<std::int64_t>(log_account::step);

/// A disk that answers when it is told to.
struct played_disk {
  std::vector<std::uint64_t> asked;
  std::shared_ptr<log_account> account =
    std::make_shared<log_account>([this](std::uint64_t bytes) { asked.push_back(bytes); });
};

/// Puts so many bytes through a pipe into the log.
void append(output_log& log, std::size_t bytes) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  const unique_fd from{ends[0]}, to{ends[1]};
  while (bytes > 0) {
    const std::string some(std::min<std::size_t>(bytes, 32'768), 'x');
    REQUIRE(::write(to.get(), some.data(), some.size()) == static_cast<ssize_t>(some.size()));
    REQUIRE(log.append_from(from.get(), output_stream::out) == static_cast<ssize_t>(some.size()));
    bytes -= some.size();
  }
}

std::uint64_t held(const output_log& log) {
  return log.end() - log.begin();
}

} // namespace

TEST_CASE("a disk is charged for logs in steps, one question at a time", "[runtime][log_account]") {
  played_disk disk;
  auto& account = *disk.account;
  account.change(step - 1);
  CHECK(disk.asked.empty());
  account.change(1);
  REQUIRE(disk.asked == std::vector<std::uint64_t>{log_account::step});
  account.change(5 * step); // It waits for the answer.
  CHECK(disk.asked.size() == 1);
  account.answered(true);
  REQUIRE(disk.asked.size() == 2);
  CHECK(disk.asked.back() == 6 * log_account::step);
  account.answered(true);
  CHECK(disk.asked.size() == 2);
  account.change(-6 * step);
  REQUIRE(disk.asked.size() == 3);
  CHECK(disk.asked.back() == 0);
  CHECK_FALSE(account.full());
}

TEST_CASE("an account is full when the disk says so, or when it says nothing",
          "[runtime][log_account]") {
  played_disk disk;
  auto& account = *disk.account;
  account.change(step);
  account.answered(false);
  CHECK(account.full());
  account.change(0); // Too soon after the last question.
  CHECK(disk.asked.size() == 1);
  account.change(-step);
  REQUIRE(disk.asked.size() == 2);
  account.answered(true);
  CHECK_FALSE(account.full());
  account.change(step);
  REQUIRE(disk.asked.size() == 3);
  account.change(static_cast<std::int64_t>(log_account::most_unanswered));
  CHECK_FALSE(account.full());
  account.change(1);
  CHECK(account.full());
  account.answered(true);
  CHECK_FALSE(account.full());
}

TEST_CASE("slow answers do not add up to more than one may leave open", "[runtime][log_account]") {
  played_disk disk;
  auto& account = *disk.account;
  account.change(step);
  account.change(static_cast<std::int64_t>(log_account::most_unanswered));
  account.answered(true); // To the first step: the second question is for all of it.
  REQUIRE(disk.asked.back() == log_account::step + log_account::most_unanswered);
  CHECK_FALSE(account.full());
  account.change(step);
  CHECK_FALSE(account.full());
  account.change(1);
  CHECK(account.full());
  account.answered(true);
  CHECK_FALSE(account.full());
}

TEST_CASE("what an earlier account had a disk charged for is put right at once",
          "[runtime][log_account]") {
  std::optional<std::uint64_t> asked;
  log_account account{[&](std::uint64_t bytes) { asked = bytes; }, true};
  constexpr auto large = static_cast<std::int64_t>(4 * log_account::most_unanswered);
  account.change(large);
  CHECK(asked == static_cast<std::uint64_t>(large));
  CHECK_FALSE(account.full()); // The disk had room for it before.
}

TEST_CASE("logs are charged for what they hold, until they end", "[runtime][log_account]") {
  const temp_dir dir;
  played_disk disk;
  {
    constexpr auto ceiling = 2 * output_log::min_ceiling;
    output_log one{dir.path().string(), ceiling, disk.account};
    append(one, 3 * ceiling); // It holds no more than its ceiling.
    REQUIRE(disk.asked.size() == 1);
    disk.account->answered(true); // About the first step.
    CHECK(disk.asked.back() <= ceiling + 4096);
    output_log two{dir.path().string(), ceiling, disk.account};
    append(two, ceiling);
    disk.account->answered(true);
    disk.account->answered(true);
    CHECK(disk.asked.back() > ceiling);
    CHECK(disk.asked.back() <= 2 * (ceiling + 4096));
    const auto of_two = disk.asked.back();
    output_log moved{std::move(two)};
    CHECK(disk.asked.back() == of_two);
    output_log again{unique_fd{::fcntl(moved.file(), F_DUPFD_CLOEXEC, 3)}, ceiling, disk.account};
    again.recover();
    CHECK(held(again) == held(moved));
    CHECK(disk.asked.back() > of_two);
    disk.account->answered(true);
  }
  disk.account->answered(true); // About the first that has ended.
  CHECK(disk.asked.back() == 0);
}

TEST_CASE("on a full disk a log keeps its size, and a new one has a few frames",
          "[runtime][log_account]") {
  const temp_dir dir;
  played_disk disk;
  constexpr auto large = 8 * output_log::min_ceiling;
  output_log old{dir.path().string(), large, disk.account};
  append(old, 2 * output_log::min_ceiling);
  disk.account->answered(false);
  REQUIRE(disk.account->full());
  append(old, 32'768); // The one behind which it hears of it.
  const auto size = held(old);
  append(old, 4 * output_log::min_ceiling);
  CHECK(held(old) <= size);
  CHECK(held(old) > size / 2);
  output_log young{dir.path().string(), large, disk.account};
  append(young, output_log::min_ceiling);
  CHECK(held(young) <= output_log::ceiling_when_full);
  CHECK(held(young) > 0);
  // A reader is still promised what it has not read.
  CHECK(young.has_room_before(young.end()));
  CHECK_FALSE(young.has_room_before(young.begin()));
  disk.account->answered(true);
  append(old, 4 * output_log::min_ceiling);
  CHECK(held(old) > 4 * output_log::min_ceiling);
}
