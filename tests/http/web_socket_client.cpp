#include "tests/http/web_socket_client.hpp"

#include <array>
#include <chrono>
#include <sys/socket.h>
#include <sys/time.h>

namespace insula::test {

namespace {

std::uint64_t big_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (const char each : bytes)
    value = value << 8 | static_cast<unsigned char>(each);
  return value;
}

void append_number(std::string& to, std::uint64_t value, int bytes) {
  while (bytes-- > 0)
    to += static_cast<char>(value >> 8 * bytes);
}

} // namespace

std::string encode_frame(frame_kind kind, std::string_view bytes, bool final, bool masked) {
  std::string made(1, static_cast<char>(static_cast<int>(kind) | (final ? 0x80 : 0)));
  const int mask_bit = masked ? 0x80 : 0;
  if (bytes.size() < 126) {
    made += static_cast<char>(bytes.size() | static_cast<std::size_t>(mask_bit));
  } else if (bytes.size() < 65'536) {
    made += static_cast<char>(126 | mask_bit);
    append_number(made, bytes.size(), 2);
  } else {
    made += static_cast<char>(127 | mask_bit);
    append_number(made, bytes.size(), 8);
  }
  constexpr std::string_view mask = "\x12\x34\x56\x78";
  if (masked)
    made += mask;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    made += masked ? static_cast<char>(bytes[i] ^ mask[i % 4]) : bytes[i];
  return made;
}

std::string upgrade_request(std::string_view target, std::string_view fields) {
  return "GET " + std::string{target} +
         " HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
         "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" +
         std::string{fields} + "\r\n";
}

web_socket_client::web_socket_client(std::uint16_t port, std::string_view target,
                                     std::string_view fields, bool tls, std::string_view glued)
    : client_(port, tls) {
  const timeval patience{60, 0}; // A machine may be busy.
  ::setsockopt(client_.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(client_.fd(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  client_.send(upgrade_request(target, fields) + std::string{glued});
  head_ = client_.receive(true);
  if (head_.status != 101 && head_.fields.count("content-length") > 0)
    head_.body = client_.read(std::stoul(head_.fields.at("content-length")));
}

frame web_socket_client::next() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes{2};
  for (;;) {
    auto got = read_frame();
    if (got.kind != frame_kind::ping || mute)
      return got;
    send(frame_kind::pong, got.bytes);
    if (std::chrono::steady_clock::now() > deadline)
      return {frame_kind::close, "nothing but pings for two minutes", 1006, true};
  }
}

frame web_socket_client::read_frame() {
  const auto start = client_.read(2);
  if (start.size() < 2)
    return {frame_kind::close, {}, 1006, true};
  frame got;
  got.final = (start[0] & 0x80) != 0;
  got.kind = static_cast<frame_kind>(start[0] & 0x0f);
  auto size = static_cast<std::uint64_t>(start[1] & 0x7f);
  if (size > 125)
    size = big_endian(client_.read(size == 126 ? 2 : 8));
  got.bytes = client_.read(size);
  if (got.kind == frame_kind::close && got.bytes.size() >= 2) {
    got.code = static_cast<std::uint16_t>(big_endian(got.bytes.substr(0, 2)));
    got.bytes.erase(0, 2);
  }
  return got;
}

std::string web_socket_client::until(std::string_view text) {
  std::string printed;
  while (printed.find(text) == std::string::npos) {
    const auto got = next();
    if (got.kind != frame_kind::binary)
      return printed + "<" + got.bytes + ">";
    printed += got.bytes;
  }
  return printed;
}

web_socket_client::rest web_socket_client::to_end() {
  rest all;
  for (;;) {
    auto got = next();
    if (got.kind == frame_kind::binary)
      all.printed += got.bytes;
    else if (got.kind == frame_kind::text)
      all.told += got.bytes + "\n";
    else if (got.kind == frame_kind::close) {
      all.code = got.code;
      if (got.code != 1006)
        send(frame_kind::close, std::string{"\x03\xe8", 2});
      return all;
    }
  }
}

} // namespace insula::test
