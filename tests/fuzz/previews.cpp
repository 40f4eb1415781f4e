// What a server in a sandbox answers, and what its client goes on to send, through the real server.
// The sandbox is played: a port of this machine, where each connection is told the same bytes.
#include "tests/fuzz/preview_world.hpp"

#include <array>
#include <string>

using namespace insula;
using namespace insula::fuzz;

namespace {

std::string always(std::string_view, const std::string& told) {
  return told;
}

constexpr std::array<std::string_view, 8> kinds{
  "GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n",
  "HEAD /{} HTTP/1.1\r\nHost: localhost\r\n\r\n",
  "GET /{} HTTP/1.0\r\n\r\n",
  "GET /{} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\nConnection: close\r\n\r\n",
  "GET /{} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
  "POST /{} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n",
  "POST /{} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
  "PUT /{} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto& inner = *new inner_server{&always, true};
  static const auto& server = *new preview_world;
  byte_source from{data, size};
  const auto kind = kinds[from.plain<std::uint8_t>() % kinds.size()];
  const auto more = from.until('\0');
  inner.says(from.rest());
  std::string asked{kind};
  asked.replace(asked.find("{}"), 2, "v1/sandbox/abc/port/" + std::to_string(inner.port()) + "/");
  const auto heard = converse(server.port(), asked + std::string{more});
  must(heard.empty() || heard.rfind("HTTP/1.1 ", 0) == 0, "what comes back is HTTP");
  const auto head = heard.substr(0, heard.find("\r\n\r\n"));
  must(head.find("\r\nSet-Cookie: ") == std::string::npos ||
         head.find("Path=/v1/") != std::string::npos,
       "a cookie holds for the prefix alone");
  return 0;
}
