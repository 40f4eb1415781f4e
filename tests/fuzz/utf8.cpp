// Text that comes in odd pieces. The first byte says how long they are; a piece ends nowhere inside
// a character.
#include "http/text/utf8.hpp"
#include "tests/fuzz/bytes.hpp"

#include <string>

using namespace insula::fuzz;
using namespace insula::http;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  byte_source from{data, size};
  const std::size_t step = 1 + from.plain<std::uint8_t>() % 7;
  const auto text = from.rest();

  utf8_holdback holdback;
  std::string passed, decoded;
  for (std::size_t at = 0; at < text.size(); at += step) {
    const auto piece = holdback.feed(std::string{text.substr(at, step)});
    passed += piece;
    decoded += to_utf8(piece);
    must(at + text.substr(at, step).size() - passed.size() <= 3, "at most three bytes wait");
  }
  const auto last = holdback.flush();
  passed += last;
  decoded += to_utf8(last);
  must(passed == text, "bytes are never changed");

  const auto clean = to_utf8(text);
  must(decoded == clean, "whoever decodes each piece alone reads the same as of the whole");
  for (std::string_view left = clean; !left.empty();) {
    const auto bytes = utf8_character(left);
    must(bytes > 0 && bytes <= 4, "what was cleaned is UTF-8");
    left.remove_prefix(bytes);
  }
  must(to_utf8(clean) == clean, "cleaning again changes nothing");
  return 0;
}
