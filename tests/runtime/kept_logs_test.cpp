#include "runtime/kept_logs.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <future>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t MiB = 1u << 20;

/// The log of a command that has said something, while the command is there.
class live_log {
public:
  explicit live_log(const std::string& directory)
      : log_(directory, MiB) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    end_.reset(ends[0]);
    command_.reset(ends[1]);
  }
  void say(std::string_view text, output_stream stream = output_stream::out) {
    while (!text.empty()) {
      const auto n =
        ::write(command_.get(), text.data(), std::min<std::size_t>(text.size(), 32768));
      REQUIRE(n > 0);
      REQUIRE(log_.append_from(end_.get(), stream) == n);
      text.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  std::shared_ptr<unique_fd> file() {
    return std::make_shared<unique_fd>(::fcntl(log_.file(), F_DUPFD_CLOEXEC, 0));
  }
  const output_log& log() const { return log_; }

private:
  output_log log_;
  unique_fd end_, command_;
};

template <class T, class Ask>
T answer_of(Ask ask) {
  std::promise<T> told;
  auto answer = told.get_future();
  ask([&told](T value) { told.set_value(std::move(value)); });
  REQUIRE(answer.wait_for(std::chrono::minutes{1}) == std::future_status::ready);
  return answer.get();
}

using reader = std::shared_ptr<kept_logs::reader>;

/// Ceilings of their own, on a disk of the machine's that may be full.
kept_logs::ceilings on_any_disk(std::uint64_t of_owner, std::uint64_t of_all,
                                std::size_t files = 100'000) {
  return {of_owner, of_all, files, 0};
}

/// A directory of logs, with everything that is asked of it answered at once.
struct place {
  explicit place(kept_logs::ceilings ceilings = on_any_disk(64 * MiB, 64 * MiB),
                 std::string at = {})
      : path(at.empty() ? directory.path().string() : std::move(at))
      , most(ceilings) {
    open();
  }
  void open(const kept_logs::known_keys& known = [](const std::string&) { return std::nullopt; }) {
    logs.reset();
    logs = std::make_unique<kept_logs>(path, most);
    logs->take_over(known);
  }
  bool keep(const std::string& owner, const std::string& key, std::shared_ptr<unique_fd> file) {
    return answer_of<bool>(
      [&](auto told) { logs->keep(owner, key, std::move(file), std::move(told)); });
  }
  bool keep(const std::string& owner, const std::string& key, const std::string& text) {
    live_log made{path};
    made.say(text);
    return keep(owner, key, made.file());
  }
  reader find(const std::string& owner, const std::string& key, std::uint64_t least_end = 0) {
    return answer_of<reader>(
      [&](auto told) { logs->open(owner, key, least_end, std::move(told)); });
  }
  bool has(const std::string& owner, const std::string& key) { return find(owner, key) != nullptr; }
  std::vector<output_frame> all_of(const reader& from) {
    std::vector<output_frame> all;
    for (auto at = from->log.begin(); at < from->log.end();) {
      auto piece = answer_of<output_log::piece>(
        [&](auto told) { logs->read(from, at, 64 * 1024, std::move(told)); });
      REQUIRE(piece.next_offset > at);
      at = piece.next_offset;
      for (auto& each : piece.frames)
        if (!all.empty() && all.back().stream == each.stream)
          all.back().bytes += each.bytes;
        else
          all.push_back(std::move(each));
    }
    return all;
  }
  std::string text_of(const reader& from) {
    const auto frames = all_of(from);
    return frames.empty() ? "" : frames.front().bytes;
  }
  void done() {
    answer_of<bool>([&](auto told) { logs->when_done([told] { told(true); }); });
  }
  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& each : fs::recursive_directory_iterator{path})
      count += each.is_regular_file() ? 1 : 0;
    return count;
  }
  bool is_empty() const { return fs::is_empty(path); }

  temp_dir directory;
  std::string path;
  kept_logs::ceilings most;
  std::unique_ptr<kept_logs> logs;
};

} // namespace

TEST_CASE("a log that is kept is read when its command has gone, also by the next process",
          "[kept_logs]") {
  place at;
  std::uint64_t end = 0;
  {
    live_log made{at.path};
    made.say("one\n");
    made.say("two\n", output_stream::err);
    REQUIRE(at.keep("box", "key", made.file()));
    INFO("what is said afterwards is in it as well, and who keeps it twice keeps it once");
    made.say("three\n");
    CHECK(at.keep("box", "key", made.file()));
    end = made.log().end();
  }
  for (const bool next : {false, true}) {
    if (next)
      at.open();
    const auto log = at.find("box", "key", end);
    REQUIRE(log);
    CHECK(log->log.end() == end);
    const auto all = at.all_of(log);
    REQUIRE(all.size() == 3);
    CHECK(all[0].bytes == "one\n");
    CHECK(all[1].bytes == "two\n");
    CHECK(all[1].stream == output_stream::err);
    CHECK(all[2].bytes == "three\n");
  }
  CHECK_FALSE(at.has("box", "other"));
  CHECK_FALSE(at.has("other", "key"));
  INFO("a part is not taken for all");
  CHECK_FALSE(at.find("box", "key", end + 1));
}

TEST_CASE("of a large log the heads are found, and all of it is read", "[kept_logs]") {
  place at;
  live_log made{at.path};
  std::string said;
  for (int i = 0; said.size() < 700'000; ++i) {
    const auto text = std::to_string(i) + std::string(i % 5 == 0 ? 30'000u : 10u, 'x') + '\n';
    made.say(text);
    said += text;
  }
  REQUIRE(at.keep("box", "key", made.file()));
  const auto log = at.find("box", "key", made.log().end());
  REQUIRE(log);
  CHECK(at.text_of(log) == said);
}

TEST_CASE("a log of a command that has said nothing is kept, and is empty", "[kept_logs]") {
  place at;
  live_log made{at.path};
  REQUIRE(at.keep("box", "key", made.file()));
  const auto log = at.find("box", "key");
  REQUIRE(log);
  CHECK(log->log.end() == 0);
}

TEST_CASE("each reader of a kept log has its own place, also when the log is removed",
          "[kept_logs]") {
  place at;
  REQUIRE(at.keep("box", "key", std::string(200'000, 'a')));
  const auto one = at.find("box", "key"), other = at.find("box", "key");
  at.logs->remove("box", "key");
  at.done();
  CHECK(at.files() == 0);
  CHECK_FALSE(at.has("box", "key"));
  CHECK(at.text_of(one).size() == 200'000);
  CHECK(at.text_of(other).size() == 200'000);
}

TEST_CASE("kept logs go with their owner", "[kept_logs]") {
  place at;
  for (const auto* key : {"a", "b", "c"})
    REQUIRE(at.keep("box", key, "x"));
  REQUIRE(at.keep("other", "a", "x"));
  at.logs->remove("box", "b");
  at.logs->remove("box", "unknown");
  at.done();
  CHECK(at.files() == 3);
  at.logs->remove("box");
  at.logs->remove("nobody");
  at.done();
  CHECK(at.files() == 1);
  CHECK_FALSE(fs::exists(at.path + "/box"));
  at.logs->remove("other");
  at.done();
  CHECK(at.is_empty());
}

TEST_CASE("above a ceiling the oldest of the kept logs go", "[kept_logs]") {
  SECTION("of an owner") {
    place at{on_any_disk(100'000, 64 * MiB)};
    REQUIRE(at.keep("other", "a", std::string(60'000, 'x')));
    REQUIRE(at.keep("box", "a", std::string(60'000, 'x')));
    REQUIRE(at.keep("box", "b", std::string(30'000, 'x')));
    CHECK(at.has("box", "a"));
    REQUIRE(at.keep("box", "c", std::string(30'000, 'x')));
    CHECK_FALSE(at.has("box", "a"));
    CHECK(at.has("box", "b"));
    CHECK(at.has("other", "a"));
    INFO("one that is too large by itself goes with all that is older");
    CHECK_FALSE(at.keep("box", "d", std::string(200'000, 'x')));
    CHECK_FALSE(at.has("box", "d"));
    CHECK(at.has("other", "a"));
  }
  SECTION("of all") {
    place at{on_any_disk(64 * MiB, 100'000)};
    REQUIRE(at.keep("one", "a", std::string(60'000, 'x')));
    REQUIRE(at.keep("two", "a", std::string(60'000, 'x')));
    CHECK_FALSE(at.has("one", "a"));
    CHECK(at.has("two", "a"));
    INFO("the next process counts them as well");
    at.open();
    REQUIRE(at.keep("three", "a", std::string(60'000, 'x')));
    CHECK_FALSE(at.has("two", "a"));
  }
  SECTION("in files") {
    place at{on_any_disk(64 * MiB, 64 * MiB, 2)};
    for (const auto* key : {"a", "b", "c"})
      REQUIRE(at.keep("box", key, "x"));
    CHECK_FALSE(at.has("box", "a"));
    CHECK(at.has("box", "c"));
    CHECK(at.files() == 2);
  }
  SECTION("a ceiling that was lowered counts from the start on") {
    place at;
    REQUIRE(at.keep("box", "a", std::string(60'000, 'x')));
    REQUIRE(at.keep("box", "b", std::string(60'000, 'x')));
    at.most.of_owner = 100'000;
    at.open();
    CHECK(at.files() == 1);
  }
}

TEST_CASE("what is written behind the end of a run is counted when that is over", "[kept_logs]") {
  place at{on_any_disk(100'000, 64 * MiB)};
  live_log made{at.path};
  REQUIRE(at.keep("box", "a", made.file()));
  made.say(std::string(200'000, 'x'));
  CHECK(at.has("box", "a"));
  at.logs->settle("box");
  at.logs->settle("nobody");
  CHECK_FALSE(at.has("box", "a"));
}

TEST_CASE("kept logs leave a part of the disk free", "[kept_logs]") {
  const small_disk disk{4 * MiB};
  place at{{64 * MiB, 64 * MiB, 1000, 50}, disk.path()};
  REQUIRE(at.keep("box", "a", std::string(900'000, 'x')));
  REQUIRE(at.keep("box", "b", std::string(900'000, 'x')));
  CHECK(at.has("box", "a"));
  INFO("a third one would leave less than half of it");
  REQUIRE(at.keep("other", "c", std::string(900'000, 'x')));
  CHECK_FALSE(at.has("box", "a"));
  CHECK(at.has("box", "b"));
}

TEST_CASE("what has to stay free is a share of what can be reached, with a ceiling",
          "[kept_logs]") {
  kept_logs::ceilings most;
  struct statvfs disk {};
  disk.f_frsize = 4096;
  const auto blocks = [](std::uint64_t mebibytes) { return mebibytes * MiB / 4096; };
  disk.f_blocks = blocks(10'000);
  disk.f_bfree = disk.f_bavail = blocks(500);
  CHECK(kept_logs::lacking_on(disk, most) == 0);
  disk.f_bfree = disk.f_bavail = blocks(400);
  CHECK(kept_logs::lacking_on(disk, most) == 100 * MiB);

  INFO("of 10,000 MiB the file system keeps 8,000 for others: 5 % of the 2,000 is 100");
  disk.f_bfree = blocks(8'150);
  disk.f_bavail = blocks(150);
  CHECK(kept_logs::lacking_on(disk, most) == 0);
  disk.f_bfree = blocks(8'060);
  disk.f_bavail = blocks(60);
  CHECK(kept_logs::lacking_on(disk, most) == 40 * MiB);

  INFO("of a disk of 1 TiB 1 GiB is enough");
  disk.f_blocks = blocks(1u << 20);
  disk.f_bfree = disk.f_bavail = blocks(1'100);
  CHECK(kept_logs::lacking_on(disk, most) == 0);
  disk.f_bfree = disk.f_bavail = blocks(1'000);
  CHECK(kept_logs::lacking_on(disk, most) == 24 * MiB);
}

TEST_CASE("nothing is kept where a ceiling is 0", "[kept_logs]") {
  place none_of_each{{0, MiB}}, none_at_all{{MiB, 0}};
  CHECK_FALSE(none_of_each.keep("box", "key", "x"));
  CHECK_FALSE(none_at_all.keep("box", "key", "x"));
  CHECK(none_of_each.is_empty());
  CHECK(none_at_all.is_empty());
}

TEST_CASE("names of kept logs lead nowhere else", "[kept_logs]") {
  place at;
  for (const std::string name : {"", ".", "..", "../x", "a/b", ".hidden"}) {
    CHECK_FALSE(at.keep(name, "key", "x"));
    CHECK_FALSE(at.keep("box", name, "x"));
  }
  CHECK_FALSE(at.keep("box", "key", std::make_shared<unique_fd>()));
  CHECK_FALSE(at.keep("box", "key", std::shared_ptr<unique_fd>{}));
  CHECK(at.files() == 0);
}

TEST_CASE("the next process removes the logs of commands that nobody knows", "[kept_logs]") {
  place at;
  for (const auto* key : {"a", "b"})
    for (const auto* owner : {"box", "gone", "unread"})
      REQUIRE(at.keep(owner, key, "x"));
  ::mkdir((at.path + "/empty").c_str(), 0700);
  at.open([](const std::string& owner) -> std::optional<std::set<std::string>> {
    if (owner == "unread") // Its store does not answer.
      return std::nullopt;
    return owner == "box" ? std::set<std::string>{"a"} : std::set<std::string>{};
  });
  CHECK(at.has("box", "a"));
  CHECK_FALSE(at.has("box", "b"));
  CHECK_FALSE(fs::exists(at.path + "/gone"));
  CHECK_FALSE(fs::exists(at.path + "/empty"));
  CHECK(at.has("unread", "b"));
  CHECK(at.files() == 3);
}

TEST_CASE("a process that is killed while it writes leaves a log that is read to its last byte",
          "[kept_logs]") {
  place at;
  int told[2];
  REQUIRE(::pipe2(told, O_CLOEXEC) == 0);
  live_log made{at.path};
  made.say("head\n");
  REQUIRE(at.keep("box", "key", made.file()));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
      ::_exit(1);
    output_log log{unique_fd{::fcntl(made.file()->get(), F_DUPFD_CLOEXEC, 0)}, MiB};
    log.recover();
    for (std::uint64_t i = 0;; ++i) {
      const auto line = std::to_string(i) + "\n";
      if (::write(ends[1], line.data(), line.size()) < 0 ||
          log.append_from(ends[0], output_stream::out) < 0)
        ::_exit(1);
      if (i >= 500 && ::write(told[1], "x", 1) != 1)
        ::_exit(1);
    }
  }
  char byte = 0;
  REQUIRE(::read(told[0], &byte, 1) == 1);
  ::kill(child, SIGKILL);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  ::close(told[0]);
  ::close(told[1]);
  at.open();
  const auto log = at.find("box", "key");
  REQUIRE(log);
  const auto text = at.text_of(log);
  std::string wanted = "head\n";
  for (std::uint64_t i = 0; wanted.size() < text.size(); ++i)
    wanted += std::to_string(i) + "\n";
  CHECK(text == wanted.substr(0, text.size()));
  CHECK(text.size() > 500);
}
