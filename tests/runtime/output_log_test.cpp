#include "runtime/output_log.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/support/temp_dir.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <map>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;

namespace {

constexpr std::uint64_t head_bytes = 4;

/// A pipe that a command would write into.
struct source {
  source() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    end.reset(ends[0]);
    command.reset(ends[1]);
  }
  /// Returns what went in: a full pipe takes only a part.
  std::string put(const std::string& bytes) {
    const ssize_t n = ::write(command.get(), bytes.data(), bytes.size());
    return bytes.substr(0, n < 0 ? 0 : static_cast<std::size_t>(n));
  }
  unique_fd end, command;
};

std::string random_bytes(std::mt19937& rng, std::size_t count) {
  std::string bytes(count, '\0');
  for (auto& each : bytes)
    each = static_cast<char>(rng());
  return bytes;
}

/// The same thing, written the slow and obvious way: every frame there ever was, by its offset.
struct model {
  struct frame {
    output_stream stream;
    std::string bytes;
  };
  std::map<std::uint64_t, frame> frames;
  std::uint64_t end = 0;

  void add(output_stream stream, std::string bytes) {
    const auto size = head_bytes + bytes.size();
    frames[end] = {stream, std::move(bytes)};
    end += size;
  }
  bool starts_frame(std::uint64_t offset) const { return offset == end || frames.contains(offset); }

  /// What lies in [from, to), neighbours of one stream put together.
  std::vector<output_frame> between(std::uint64_t from, std::uint64_t to) const {
    std::vector<output_frame> all;
    for (auto at = frames.lower_bound(from); at != frames.end() && at->first < to; ++at) {
      if (all.empty() || all.back().stream != at->second.stream)
        all.push_back({at->second.stream, {}});
      all.back().bytes += at->second.bytes;
    }
    return all;
  }
};

bool same(const std::vector<output_frame>& a, const std::vector<output_frame>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](auto& x, auto& y) { return x.stream == y.stream && x.bytes == y.bytes; });
}

/// A log, its two pipes, and the model beside it.
struct written_log {
  explicit written_log(const std::string& directory, std::uint64_t ceiling)
      : log(directory, ceiling) {}

  /// Writes `bytes` as the command would, and moves them; at most `most` frames. Returns how many.
  void write(output_stream stream, const std::string& bytes) {
    auto& from = stream == output_stream::out ? out : err;
    unmoved[stream] += from.put(bytes);
  }
  bool move(output_stream stream) {
    auto& from = stream == output_stream::out ? out : err;
    const ssize_t n = log.append_from(from.end.get(), stream);
    if (n <= 0) {
      REQUIRE(n == -1);
      REQUIRE(errno == EAGAIN);
      REQUIRE(unmoved[stream].empty());
      return false;
    }
    const auto count = static_cast<std::size_t>(n);
    REQUIRE(count <= output_log::max_frame_bytes);
    seen.add(stream, unmoved[stream].substr(0, count));
    unmoved[stream].erase(0, count);
    return true;
  }

  output_log log;
  model seen;
  source out, err;
  std::map<output_stream, std::string> unmoved;
};

} // namespace

TEST_CASE("an output log gives what was written, whatever it was",
          "[runtime][output_log][property]") {
  const auto seed = GENERATE(take(6, random(0u, 1'000'000u)));
  CAPTURE(seed);
  std::mt19937 rng{seed};
  const temp_dir dir;
  const auto ceiling = output_log::min_ceiling + rng() % 100'000;
  written_log both{dir.path().string(), ceiling};
  const auto typical = std::array{10u, 2'000u, 65'536u, 70'000u}[rng() % 4];
  for (int step = 0; step < 300; ++step) {
    const auto stream = rng() % 3 == 0 ? output_stream::err : output_stream::out;
    both.write(stream, random_bytes(rng, rng() % typical + 1));
    const auto reader = rng() % 2 == 0 ? both.log.end() : both.log.begin();
    const bool promised = both.log.has_room_before(reader);
    both.move(stream);
    // What was promised to a reader is not given up for the frame that follows.
    if (promised)
      REQUIRE(both.log.begin() <= reader);

    REQUIRE(both.log.end() == both.seen.end);
    REQUIRE(both.log.end() - both.log.begin() <= ceiling);
    REQUIRE(both.seen.starts_frame(both.log.begin()));
    REQUIRE(both.log.has_room_before(both.log.end()));
    // Not much more is given up than has to be: the room of one frame, and the distance of marks.
    if (both.log.begin() > 0)
      REQUIRE(both.log.end() - both.log.begin() >
              ceiling - 3 * (output_log::max_frame_bytes + head_bytes));

    if (step % 5 != 0 || both.seen.frames.empty())
      continue;
    auto at = both.seen.frames.begin();
    std::advance(at, rng() % both.seen.frames.size());
    const auto asked = std::max(at->first, rng() % 2 == 0 ? at->first : both.log.begin());
    const auto most = rng() % 300'000;
    const auto piece = both.log.read(asked, most);
    const auto from = std::max(asked, both.log.begin());
    REQUIRE(piece.lost_bytes == from - asked);
    REQUIRE(both.seen.starts_frame(piece.next_offset));
    REQUIRE((piece.next_offset > from || from == both.log.end()));
    REQUIRE(piece.next_offset - from <= std::max(most, output_log::max_frame_bytes + head_bytes));
    REQUIRE(same(piece.frames, both.seen.between(from, piece.next_offset)));
  }
}

TEST_CASE("a reader that keeps up loses nothing, wherever in the log it stands",
          "[runtime][output_log][property]") {
  const auto seed = GENERATE(take(8, random(0u, 1'000'000u)));
  CAPTURE(seed);
  std::mt19937 rng{seed};
  const temp_dir dir;
  written_log both{dir.path().string(), output_log::min_ceiling};
  const auto typical = std::array{50u, 5'000u, 65'536u}[rng() % 3];
  std::uint64_t offset = 0;
  std::uint64_t wanted = 5 * output_log::min_ceiling;
  std::vector<output_frame> got;
  while (offset < wanted) {
    // As the process does it: whatever fits before the reader is taken, then the reader takes some.
    for (int i = 0; i < 40; ++i) {
      const auto stream = rng() % 4 == 0 ? output_stream::err : output_stream::out;
      both.write(stream, random_bytes(rng, rng() % typical + 1));
      if (both.log.has_room_before(offset))
        both.move(stream);
    }
    const auto piece = both.log.read(offset, rng() % 150'000);
    REQUIRE(piece.lost_bytes == 0);
    REQUIRE(same(piece.frames, both.seen.between(offset, piece.next_offset)));
    offset = piece.next_offset;
  }
}

TEST_CASE("an offset beyond the end of an output log is its end", "[runtime][output_log]") {
  const temp_dir dir;
  written_log both{dir.path().string(), 0};
  const auto nothing = both.log.read(12'345, 100);
  CHECK(nothing.frames.empty());
  CHECK(nothing.next_offset == 0);
  CHECK(nothing.lost_bytes == 0);
  both.write(output_stream::out, "abc");
  REQUIRE(both.move(output_stream::out));
  const auto end = both.log.read(~0ull, 100);
  CHECK(end.frames.empty());
  CHECK(end.next_offset == both.log.end());
}

TEST_CASE("an output log leaves no file", "[runtime][output_log]") {
  const temp_dir dir;
  written_log both{dir.path().string(), 0};
  both.write(output_stream::out, "abc");
  REQUIRE(both.move(output_stream::out));
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("an output log's file stays below its ceiling", "[runtime][output_log]") {
  const small_disk disk{output_log::min_ceiling + 64 * 1024};
  written_log both{disk.path(), output_log::min_ceiling};
  for (int i = 0; i < 2'000; ++i) {
    both.write(output_stream::out, std::string(5'000, 'x'));
    while (both.move(output_stream::out)) {
    }
  }
  CHECK(both.log.end() > 9 * output_log::min_ceiling);
}

TEST_CASE("the end of a pipe is told apart from an empty pipe", "[runtime][output_log]") {
  const temp_dir dir;
  output_log log{dir.path().string(), 0};
  source from;
  CHECK(log.append_from(from.end.get(), output_stream::out) == -1);
  CHECK(errno == EAGAIN);
  from.command.reset();
  CHECK(log.append_from(from.end.get(), output_stream::out) == 0);
}

TEST_CASE("a full disk is reported, and what was on it stays readable", "[runtime][output_log]") {
  const small_disk disk{256 * 1024};
  written_log both{disk.path(), 0};
  std::mt19937 rng{7};
  ssize_t moved = 0;
  for (int i = 0; i < 100 && moved >= 0; ++i) {
    const auto bytes = both.out.put(random_bytes(rng, 40'000));
    both.unmoved[output_stream::out] += bytes;
    moved = both.log.append_from(both.out.end.get(), output_stream::out);
    if (moved > 0) {
      auto& left = both.unmoved[output_stream::out];
      both.seen.add(output_stream::out, left.substr(0, static_cast<std::size_t>(moved)));
      left.erase(0, static_cast<std::size_t>(moved));
    }
  }
  REQUIRE(moved == -1);
  CHECK(errno == ENOSPC);
  CHECK(both.seen.frames.size() >= 4);
  CHECK(both.log.end() == both.seen.end);
  const auto piece = both.log.read(0, 1u << 20);
  CHECK(piece.lost_bytes == 0);
  CHECK(piece.next_offset == both.seen.end);
  CHECK(same(piece.frames, both.seen.between(0, both.seen.end)));
}

TEST_CASE("a log directory that does not exist is reported, and the bytes stay in the pipe",
          "[runtime][output_log]") {
  output_log log{"/nonexistent/directory", 0};
  source from;
  REQUIRE(from.put("abc") == "abc");
  CHECK(log.append_from(from.end.get(), output_stream::out) == -1);
  CHECK(errno == ENOENT);
  char bytes[8];
  CHECK(::read(from.end.get(), bytes, sizeof bytes) == 3);
  CHECK(log.read(0, 100).frames.empty());
}

TEST_CASE("an output log is found again as its writer left it", "[runtime][output_log][property]") {
  const auto seed = GENERATE(take(4, random(0u, 1'000'000u)));
  CAPTURE(seed);
  std::mt19937 rng{seed};
  const temp_dir dir;
  written_log both{dir.path().string(), output_log::min_ceiling};
  const auto typical = std::array{10u, 3'000u, 70'000u}[rng() % 3];
  for (int step = 0; step < 200; ++step) {
    const auto stream = rng() % 3 == 0 ? output_stream::err : output_stream::out;
    both.write(stream, random_bytes(rng, rng() % typical + 1));
    both.move(stream);
    if (step % 20 != 0)
      continue;
    output_log again{unique_fd{::fcntl(both.log.file(), F_DUPFD_CLOEXEC, 3)},
                     output_log::min_ceiling};
    again.recover();
    REQUIRE(again.begin() == both.log.begin());
    REQUIRE(again.end() == both.log.end());
    const auto all = again.read(again.begin(), 2 * output_log::min_ceiling);
    REQUIRE(all.next_offset == again.end());
    REQUIRE(same(all.frames, both.seen.between(again.begin(), again.end())));
  }
}

TEST_CASE("a log whose file says what cannot be ends there", "[runtime][output_log]") {
  const temp_dir dir;
  written_log both{dir.path().string(), 0};
  both.write(output_stream::out, "whole");
  REQUIRE(both.move(output_stream::out));
  const auto end = both.log.end();
  const auto broken =
    GENERATE(std::string{"\x07\0\0\x05hello", 9}, std::string{"\x01\0\0\x50hello", 9},
             std::string{"\x01\xff\xff\xffhello", 9}, std::string{"\x01\0", 2});
  REQUIRE(::pwrite(both.log.file(), broken.data(), broken.size(), static_cast<off_t>(4096 + end)) ==
          static_cast<ssize_t>(broken.size()));
  output_log again{unique_fd{::fcntl(both.log.file(), F_DUPFD_CLOEXEC, 3)}, 0};
  again.recover();
  CHECK(again.end() == end);
  const auto all = again.read(0, 1000);
  REQUIRE(all.frames.size() == 1);
  CHECK(all.frames[0].bytes == "whole");
}

TEST_CASE("writers that are killed in the middle lose nothing and repeat nothing",
          "[runtime][output_log][crash]") {
  const temp_dir dir;
  source from;
  std::mt19937 rng{42};
  unique_fd file;
  {
    output_log first{dir.path().string(), output_log::min_ceiling};
    file.reset(::fcntl(first.file(), F_DUPFD_CLOEXEC, 3));
  }
  std::uint64_t written = 0, read = 0, offset = 0;
  const auto byte_at = [](std::uint64_t i) { return static_cast<char>(i * 2654435761u >> 13); };
  for (int round = 0; round < 60; ++round) {
    const pid_t writer = ::fork();
    if (writer == 0) {
      output_log log{unique_fd{::fcntl(file.get(), F_DUPFD_CLOEXEC, 3)}, output_log::min_ceiling};
      log.recover();
      for (;;)
        log.append_from(from.end.get(), output_stream::out,
                        1 + static_cast<std::size_t>(round) * 50);
    }
    // As fast as it takes them, until it is killed.
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds{rng() % 4'000};
    std::uint64_t put = 0;
    constexpr std::uint64_t least = 2'000;
    while ((std::chrono::steady_clock::now() < until || put < least) &&
           put < output_log::min_ceiling / 4) {
      std::string bytes;
      for (int i = 0; i < 1'000; ++i)
        bytes += byte_at(written + static_cast<std::uint64_t>(i));
      const auto taken = from.put(bytes).size();
      written += taken;
      put += taken;
    }
    ::kill(writer, SIGKILL);
    ::waitpid(writer, nullptr, 0);
    output_log log{unique_fd{::fcntl(file.get(), F_DUPFD_CLOEXEC, 3)}, output_log::min_ceiling};
    log.recover();
    for (output_log::piece piece; offset < log.end(); offset = piece.next_offset) {
      piece = log.read(offset, 1 << 20);
      REQUIRE(piece.lost_bytes == 0);
      for (const auto& each : piece.frames)
        for (const char c : each.bytes)
          if (c != byte_at(read++))
            FAIL("byte " << read - 1 << " is another one, in round " << round);
    }
  }
  // The rest is in the pipe.
  std::string rest(1 << 20, '\0');
  const ssize_t n = ::read(from.end.get(), rest.data(), rest.size());
  rest.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
  for (const char c : rest)
    REQUIRE(c == byte_at(read++));
  CHECK(read == written);
  CHECK(written > 100'000);
}
