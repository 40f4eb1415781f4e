// What a terminal's client says on its WebSocket, as both APIs read it, and the frames of a
// server's answer, of which a node knows where they end.
#include "http/bridge/pty_words.hpp"
#include "http/opensandbox/pty_words.hpp"
#include "http/proxy/frame_walk.hpp"
#include "tests/fuzz/bytes.hpp"

#include <algorithm>
#include <csignal>
#include <optional>
#include <string>

using namespace insula;
using namespace insula::fuzz;
using namespace insula::http;

namespace {

void check_wish(const terminal_wish& wish, std::string_view said, bool text) {
  must(wish.typed.size() <= said.size(), "no more is typed than was said");
  if (wish.size)
    must(wish.size->columns > 0 && wish.size->rows > 0, "a terminal has a size");
  if (wish.signal)
    must(wish.signal->number == SIGINT || wish.signal->number == SIGTERM ||
           wish.signal->number == SIGKILL || wish.signal->number == SIGQUIT ||
           wish.signal->number == SIGHUP,
         "a signal is one of those that clients may send");
  if (!text)
    must(!wish.size && !wish.signal && !wish.answer, "bytes are typed, and nothing else");
  const int wishes =
    !wish.typed.empty() + wish.size.has_value() + wish.signal.has_value() + wish.answer.has_value();
  must(wishes <= 1, "a message wants one thing");
  if (wish.answer) {
    must(wish.answer->text && wish.answer->bytes.size() < 1024, "an answer is short");
    must(wish.answer->bytes.starts_with("{") && wish.answer->bytes.ends_with("}"),
         "an answer is an object");
  }
}

void check_bridge(std::string_view said, bool text) {
  const auto wish = bridge::bridge_terminal_words()->read({text, std::string{said}});
  check_wish(wish, said, text);
  must(text || wish.typed == said, "what is typed is typed as it is");
  must(!text || wish.typed.empty(), "a text is no typing");
  must(!wish.signal, "there are no signals");
}

void check_execd(std::string_view said, bool text) {
  const auto wish = opensandbox::execd_terminal_words("abc")->read({text, std::string{said}});
  check_wish(wish, said, text);
  const bool typed = !said.empty() && said.front() == '\0';
  must(text || wish.typed == (typed ? said.substr(1) : std::string_view{}),
       "what is typed has its mark");
}

/// The slow way: all of it is looked at anew. None: it ends in the middle of a frame.
std::optional<bool> ends_between_frames(std::string_view bytes) {
  bool closed = false;
  while (!bytes.empty()) {
    if (bytes.size() < 2)
      return std::nullopt;
    const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
    std::size_t head = 2;
    std::uint64_t length = at(1) & 0x7f;
    const std::size_t more = length == 126 ? 2 : length == 127 ? 8 : 0;
    const std::size_t mask = (at(1) & 0x80) != 0 ? 4 : 0;
    if (bytes.size() < head + more + mask)
      return std::nullopt;
    if (more > 0)
      length = 0;
    for (std::size_t i = 0; i < more; ++i)
      length = length << 8 | at(head + i);
    head += more + mask;
    closed = closed || (at(0) & 0x0f) == 8;
    if (length > bytes.size() - head)
      return std::nullopt;
    bytes.remove_prefix(head + static_cast<std::size_t>(length));
  }
  return !closed;
}

void check_frames(std::string_view bytes, std::size_t piece) {
  frame_walk walk;
  for (auto left = bytes; !left.empty(); left.remove_prefix(std::min(left.size(), piece)))
    walk.pass(left.substr(0, piece));
  must(walk.may_close() == ends_between_frames(bytes).value_or(false),
       "a frame is added only where none is under way");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  byte_source from{data, size};
  const auto how = from.plain<std::uint8_t>();
  const auto said = from.rest();
  check_bridge(said, how % 2 != 0);
  check_execd(said, how % 2 != 0);
  check_frames(said, 1 + how / 2 % 7);
  return 0;
}
