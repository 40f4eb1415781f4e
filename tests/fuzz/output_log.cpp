// A command's output log against the plain list of all that was ever written. Three bytes say what
// is done next: the first which of write to stdout, write to stderr or read, the others how much,
// or from where.
#include "runtime/output_log.hpp"
#include "tests/fuzz/bytes.hpp"

#include <deque>
#include <fcntl.h>
#include <string>
#include <unistd.h>

using insula::output_stream;
using namespace insula::fuzz;
using namespace insula::runtime;

namespace {

constexpr int max_steps = 200;

/// What stands where: the slow and obvious way.
struct model {
  struct frame {
    std::uint64_t offset;
    output_stream stream;
    std::string bytes;
  };
  std::deque<frame> frames;
};

struct pipe_pair {
  pipe_pair() {
    must(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, "there is a pipe");
    ::fcntl(ends[1], F_SETPIPE_SZ, 1 << 18);
  }
  ~pipe_pair() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  int ends[2];
};

void write(output_log& log, model& all, const pipe_pair& pipe, output_stream stream,
           std::size_t count, char letter) {
  const std::string bytes(count, letter);
  must(::write(pipe.ends[1], bytes.data(), count) == static_cast<ssize_t>(count),
       "the pipe has room");
  for (std::size_t left = count; left > 0;) {
    const auto at = log.end();
    const auto moved = log.append_from(pipe.ends[0], stream);
    must(moved > 0 && static_cast<std::size_t>(moved) <= left, "the log takes what there is");
    all.frames.push_back({at, stream, bytes.substr(0, static_cast<std::size_t>(moved))});
    left -= static_cast<std::size_t>(moved);
  }
  must(log.end() - log.begin() <= output_log::min_ceiling, "no log grows past its ceiling");
}

void read(const output_log& log, const model& all, std::size_t frame, std::size_t max_bytes) {
  const auto from = frame < all.frames.size() ? all.frames[frame].offset : log.end();
  const auto got = log.read(from, max_bytes);
  auto at = frame;
  if (from < log.begin()) {
    while (at < all.frames.size() && all.frames[at].offset < log.begin())
      ++at;
    must(got.lost_bytes > 0, "a gap is told");
  } else {
    must(got.lost_bytes == 0, "no gap is told where there is none");
  }
  for (const auto& piece : got.frames)
    for (std::string_view left = piece.bytes; !left.empty(); ++at) {
      must(at < all.frames.size(), "nothing is read that was not written");
      const auto& want = all.frames[at];
      must(piece.stream == want.stream && left.substr(0, want.bytes.size()) == want.bytes,
           "what is read is what was written");
      left.remove_prefix(want.bytes.size());
    }
  must(got.next_offset == (at < all.frames.size() ? all.frames[at].offset : log.end()),
       "the next question goes on where this answer ends");
  must(!got.frames.empty() || got.next_offset == log.end(), "an answer is empty at the end only");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  byte_source from{data, size};
  output_log log{"/tmp", output_log::min_ceiling};
  model all;
  const pipe_pair pipe;
  for (int step = 0; step < max_steps && !from.empty(); ++step) {
    const auto what = from.plain<std::uint8_t>();
    const std::size_t number = from.plain<std::uint16_t>();
    const auto letter = static_cast<char>('a' + step % 26);
    switch (what % 4) {
      case 0: write(log, all, pipe, output_stream::out, 1 + number, letter); break;
      case 1: write(log, all, pipe, output_stream::err, 1 + number, letter); break;
      case 2: read(log, all, number % (all.frames.size() + 1), 1 + what * 1'000u); break;
      case 3:
        log.read(log.end() + number, 1'000); // Beyond the end is the end.
        must(log.has_room_before(log.end()), "a reader at the end holds nothing up");
        break;
    }
  }
  return 0;
}
