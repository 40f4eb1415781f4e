// The body of an exec, up to the line that bash is given.
#include "http/json/json.hpp"
#include "base/limits.hpp"
#include "http/bridge/bridge_json.hpp"
#include "http/sandboxes/command_line.hpp"
#include "http/text/utf8.hpp"
#include "tests/fuzz/bytes.hpp"

using namespace insula;
using namespace insula::fuzz;
using namespace insula::http;

namespace {

/// What bash makes of one element: a plain word, or `$'…'`.
std::string unquoted(std::string_view word) {
  if (word.substr(0, 2) != "$'")
    return std::string{word};
  must(word.size() >= 3 && word.back() == '\'', "a quoted element ends with its quote");
  std::string text;
  for (auto inner = word.substr(2, word.size() - 3); !inner.empty(); inner.remove_prefix(1)) {
    must(inner.front() != '\'', "no quote ends an element early");
    if (inner.front() != '\\') {
      text += inner.front();
      continue;
    }
    inner.remove_prefix(1);
    must(!inner.empty(), "no backslash takes the quote away");
    switch (inner.front()) {
      case 'n': text += '\n'; break;
      case 'r': text += '\r'; break;
      case 't': text += '\t'; break;
      case '\\':
      case '\'': text += inner.front(); break;
      default: must(false, "only escapes that bash knows");
    }
  }
  return text;
}

bool is_utf8(std::string_view text) {
  return to_utf8(text) == text;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = text_of(data, size);
  const auto body = bridge::read_exec_body(text);
  if (!body) {
    must(body.reason().code == errc::invalid_request, "a bad body is the client's fault");
    must(is_utf8(json::write_error(body.reason().message, "invalid_request")), "errors are UTF-8");
    return 0;
  }
  must(!body->argv.empty(), "an accepted argv has an element");
  for (const auto& element : body->argv)
    must(unquoted(quote(element)) == element, "bash reads back what was quoted");
  must(!command_line(body->argv).empty(), "there is a line");
  if (body->timeout_ms)
    must(!json::number_text(*body->timeout_ms).empty(), "a number has a text");
  // Whatever a message is made of, the error is JSON whose own reader takes it: as an argument.
  const auto error = json::write_error(text, "invalid_request");
  must(is_utf8(error), "errors are UTF-8");
  must(!bridge::read_exec_body(error), "an error is no exec");
  return 0;
}
