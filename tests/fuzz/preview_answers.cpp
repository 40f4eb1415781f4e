// What a server in a sandbox answers to one request, and what the node makes of the next one on the
// same connections, through the real server: whatever the first answer is, the second is its own.
// The sandbox is played: a port of this machine.
#include "http/text/header_text.hpp"
#include "tests/fuzz/preview_world.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

using namespace insula;
using namespace insula::fuzz;
using insula::http::same_letters;

namespace {

constexpr std::string_view second_answer = "HTTP/1.1 299 Second\r\nContent-Length: 6\r\n\r\nsecond";

/// Of several connections at once: to `/first` it says what it has been told, to `/second` always
/// the same.
std::string answer_to(std::string_view request, const std::string& first) {
  return request.find("/second HTTP/1.1") != std::string_view::npos ? std::string{second_answer}
                                                                    : first;
}

/// One message as a client reads it that takes nothing on trust; what follows it stays in `left`.
struct message {
  int status = 0;
  bool closes = false;   ///< Its connection has no next message.
  bool complete = false; ///< It has all that its header says.
  std::string body;
};

std::string_view value_of(std::string_view head, std::string_view name) {
  const auto at = head.find(name);
  if (at == std::string_view::npos)
    return {};
  const auto from = at + name.size();
  return head.substr(from, head.find("\r\n", from) - from);
}

/// Lines up to an empty one.
bool take_trailer(std::string_view& left) {
  for (;;) {
    const auto end = left.find("\r\n");
    if (end == std::string_view::npos)
      return false;
    const auto line = left.substr(0, end);
    left.remove_prefix(end + 2);
    if (line.empty())
      return true;
    must(line.find(':') != std::string_view::npos && line.front() != ' ' && line.front() != '\t' &&
           line.find('\n') == std::string_view::npos,
         "what follows a body is fields");
    for (const std::string_view name : {"content-length:", "transfer-encoding:", "connection:"})
      must(!same_letters(line.substr(0, name.size()), name), "no field there says where it ends");
  }
}

bool take_chunks(std::string_view& left, std::string& body) {
  for (;;) {
    const auto end = left.find("\r\n");
    if (end == std::string_view::npos)
      return false;
    std::size_t size = 0;
    const auto read = std::from_chars(left.data(), left.data() + end, size, 16);
    must(read.ec == std::errc{} && read.ptr == left.data() + end, "the node says a chunk's size");
    left.remove_prefix(end + 2);
    if (left.size() < size + 2)
      return false;
    if (size == 0)
      return take_trailer(left);
    body += left.substr(0, size);
    must(left.substr(size, 2) == "\r\n", "a chunk ends with its line");
    left.remove_prefix(size + 2);
  }
}

bool is_interim(std::string_view left) {
  return left.starts_with("HTTP/1.1 1") && !left.starts_with("HTTP/1.1 101");
}

std::optional<message> take_message(std::string_view& left, bool without_body) {
  while (is_interim(left)) { // Early hints, say: a header and no more.
    const auto end = left.find("\r\n\r\n");
    must(end != std::string_view::npos, "a header is sent whole");
    left.remove_prefix(end + 4);
  }
  if (left.empty())
    return std::nullopt;
  must(left.starts_with("HTTP/1.1 "), "an answer begins with its line");
  const auto end = left.find("\r\n\r\n");
  must(end != std::string_view::npos, "a header is sent whole");
  const auto head = left.substr(0, end + 2);
  left.remove_prefix(end + 4);
  for (std::size_t i = 0; i < head.size(); ++i)
    if (head[i] == '\n')
      must(i > 0 && head[i - 1] == '\r' &&
             (i + 1 == head.size() || (head[i + 1] != ' ' && head[i + 1] != '\t')),
           "each line of a header ends as lines do, and is one");
  message got;
  std::from_chars(head.data() + 9, head.data() + 12, got.status);
  got.closes = head.find("\r\nConnection: close\r\n") != std::string_view::npos;
  if (without_body || got.status == 204 || got.status == 304) {
    got.complete = true;
    return got;
  }
  const auto length = value_of(head, "\r\nContent-Length: ");
  const auto coding = value_of(head, "\r\nTransfer-Encoding: ");
  must(length.empty() || coding.empty(), "a body has one length");
  if (!coding.empty()) {
    must(coding == "chunked", "there is one coding");
    got.complete = take_chunks(left, got.body);
  } else if (!length.empty()) {
    std::uint64_t size = 0;
    std::from_chars(length.data(), length.data() + length.size(), size);
    got.body = left.substr(0, size);
    got.complete = got.body.size() == size;
    left.remove_prefix(got.body.size());
  } else {
    must(got.closes, "a body without length ends with its connection");
    got.complete = true;
    got.body = left;
    left = {};
  }
  return got;
}

constexpr std::array<std::string_view, 4> kinds{
  "GET {}/first HTTP/1.1\r\nHost: localhost\r\n\r\n",
  "HEAD {}/first HTTP/1.1\r\nHost: localhost\r\n\r\n",
  "POST {}/first HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nGET /",
  "POST {}/first HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
  "5\r\nGET /\r\n0\r\n\r\n"};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto& inner = *new inner_server{&answer_to};
  static const auto& server = *new preview_world;
  byte_source from{data, size};
  const auto kind = from.plain<std::uint8_t>() % kinds.size();
  inner.says(from.rest());
  const auto prefix = "/v1/sandbox/abc/port/" + std::to_string(inner.port());
  std::string asked{kinds[kind]};
  asked.replace(asked.find("{}"), 2, prefix);
  asked += "GET " + prefix + "/second HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  const auto heard = converse(server.port(), asked, true);
  std::string_view left = heard;
  const auto first = take_message(left, kind == 1);
  must(first.has_value(), "the first request is answered");
  must(!first->complete || first->closes || !left.empty(),
       "a connection that is kept has the next answer");
  const auto second = first->complete ? take_message(left, false) : std::nullopt;
  if (!second)
    return 0;
  must(!first->closes, "nothing follows the last answer");
  must(second->status == 299 && second->body == "second" && second->complete,
       "the second answer is the second request's");
  must(left.empty(), "there are two answers");
  return 0;
}
