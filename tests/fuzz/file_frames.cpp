// What comes out of a sandbox when a file is read from it (base/stream_frames.hpp), as the HTTP
// side takes it.
#include "base/stream_frames.hpp"
#include "http/bridge/file_download.hpp"
#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/played_exchange.hpp"

#include <optional>
#include <string>

using namespace insula;
using namespace insula::fuzz;

namespace {

/// What a reader must take the bytes for.
struct expected {
  explicit expected(byte_source from) {
    const auto head = from.plain<file_head>();
    if (head.error != 0 || head.kind != file_kind::regular)
      return;
    while (!from.empty()) {
      const auto next = from.take(sizeof(frame_head));
      frame_head frame{};
      if (next.size() < sizeof frame)
        return;
      std::memcpy(&frame, next.data(), sizeof frame);
      if (frame.bytes == 0) {
        whole = true;
        return;
      }
      if (frame.bytes > max_frame_bytes)
        return;
      content += from.take(frame.bytes);
    }
  }

  std::string content;
  bool whole = false;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto download = [&](std::optional<http::byte_range> range) {
    int asked_whole = 0;
    std::optional<http::bridge::wanted_part> part;
    if (range)
      part = {*range, [&] { ++asked_whole; }};
    auto got = play([&](http::reply to) {
      http::bridge::start_download(channel_with(text_of(data, size)), "/workspace/x",
                                   std::move(part), std::move(to));
    });
    must((got.answered ? 1 : 0) + asked_whole == 1, "every request is answered, once");
    return got;
  };
  const expected want{byte_source{data, size}};
  const auto got = download(std::nullopt);
  must(want.content.starts_with(got.streamed), "what is passed on is the file's beginning");
  if (got.length) {
    must(!got.finished || want.content.size() >= *got.length, "a stream is as long as was told");
    must(got.finished || !want.whole || want.content.size() < *got.length, "all of it is sent");
  } else {
    must(got.finished == want.whole, "a stream ends well only if the file came whole");
    must(!want.whole || got.streamed == want.content, "what is passed on is the file");
  }
  for (const auto& range : {http::byte_range{"0", "9"}, {"1", ""}, {"", "5"}}) {
    const auto part = download(range);
    must(part.streamed.empty() || (part.status == 206 && part.length), "a part has its length");
  }
  return 0;
}
