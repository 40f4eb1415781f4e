// What arrives at the broker in HTTP/1: however it is cut into pieces it is read the same, and what
// is written of it again is read the same.
#include "runtime/broker/http1_reader.hpp"
#include "tests/fuzz/bytes.hpp"

#include <algorithm>
#include <string>

using namespace insula::fuzz;
using namespace insula::runtime::broker;

namespace {

std::string text_of(const fields& all) {
  std::string text;
  for (const auto& [name, value] : all)
    text += name + '=' + value + '\n';
  return text;
}

/// What no rule takes for another path than a server does has nothing to resolve.
void must_be_one_path(const std::string& path) {
  must(path.find("//") == std::string::npos && path.find("/./") == std::string::npos &&
         path.find("/../") == std::string::npos && !path.ends_with("/.") &&
         !path.ends_with("/..") && path.find('\\') == std::string::npos,
       "a clear path has no segments that say something about others");
}

/// All that is read, as a text.
std::string told(std::string_view input, std::size_t piece, http1_reader::side of) {
  http1_reader reader{of};
  reader.expect_response_to("GET");
  std::string left, text;
  const bool is_request = of == http1_reader::side::requests;
  for (std::size_t at = 0; at < input.size(); at += piece) {
    left += input.substr(at, piece);
    for (bool more = true; more;) {
      const auto step = reader.read(left);
      must(step.used <= left.size(), "no more is used than has come");
      switch (step.what) {
        case http1_reader::event::none: more = false; break;
        case http1_reader::event::refused: return text + "refused";
        case http1_reader::event::body: text += step.body; break;
        case http1_reader::event::end: text += "end " + text_of(reader.trailers()); break;
        case http1_reader::event::head:
          if (is_request) {
            const auto& head = reader.request();
            must(!host_of(head.authority).empty(), "a request names a host");
            if (why_unclear(head.path()).empty())
              must_be_one_path(decoded_path(head.path()));
            must(find(head.rest, "host") == nullptr && find(head.rest, "connection") == nullptr &&
                   find(head.rest, "transfer-encoding") == nullptr,
                 "what says how it is carried is gone");
            text +=
              head.method + ' ' + head.authority + ' ' + head.target + '\n' + text_of(head.rest);
            http1_reader again{of};
            must(again.read(http1_text(head)).what == http1_reader::event::head &&
                   again.request().method == head.method && again.request().target == head.target &&
                   again.request().rest == head.rest,
                 "a head is read as it was written");
          } else {
            const auto& head = reader.response();
            text += std::to_string(head.status) + '\n' + text_of(head.rest);
          }
      }
      left.erase(0, step.used);
    }
  }
  return text;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2)
    return 0;
  const std::string_view text{reinterpret_cast<const char*>(data) + 2, size - 2};
  const auto side = data[0] % 2 == 0 ? http1_reader::side::requests : http1_reader::side::responses;
  const std::size_t piece = 1 + data[1] % 64;
  must(told(text, piece, side) == told(text, std::max<std::size_t>(text.size(), 1), side),
       "it is read the same, however it comes");
  return 0;
}
