// What comes out of a sandbox when a file is read from it (base/stream_frames.hpp), as the HTTP
// side takes it.
#include "base/stream_frames.hpp"
#include "http/bridge/file_download.hpp"
#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/played_exchange.hpp"

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
  const auto got = play([&](http::reply to) {
    http::bridge::start_download(channel_with(text_of(data, size)), "/workspace/x", std::move(to));
  });
  const expected want{byte_source{data, size}};
  must(got.answered, "every request is answered");
  must(got.finished == want.whole, "a stream ends well only if the file came whole");
  if (want.whole)
    must(got.streamed == want.content, "what is passed on is the file");
  else
    must(want.content.rfind(got.streamed, 0) == 0, "what is passed on is the file's beginning");
  return 0;
}
