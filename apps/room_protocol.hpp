#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/uio.h>
#include <utility>

/// What the server and its image room (image_room.hpp) say to each other: packets of a fixed struct
/// and a text.
namespace insula::room_protocol {

inline constexpr std::size_t longest_text = 64u << 10;

/// Where the room's program finds what it is started with, besides its output and its log.
inline constexpr int way_there = 3, settings_there = 4;

template <class Head>
bool send_packet(int way, const Head& head, std::string_view text, int flags = 0) {
  std::array<iovec, 2> parts{
    {{const_cast<Head*>(&head), sizeof head}, {const_cast<char*>(text.data()), text.size()}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return ::sendmsg(way, &message, MSG_NOSIGNAL | flags) >= 0;
}

/// Waits. None: the other end is closed, or has said what makes no sense.
template <class Head>
std::optional<std::pair<Head, std::string>> receive_packet(int way) {
  Head head{};
  std::string text(longest_text, '\0');
  std::array<iovec, 2> parts{{{&head, sizeof head}, {text.data(), text.size()}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  ssize_t n = 0;
  do {
    n = ::recvmsg(way, &message, 0);
  } while (n < 0 && errno == EINTR);
  if (n < static_cast<ssize_t>(sizeof head) || (message.msg_flags & MSG_TRUNC) != 0)
    return std::nullopt;
  text.resize(static_cast<std::size_t>(n) - sizeof head);
  return std::pair{head, std::move(text)};
}

} // namespace insula::room_protocol
