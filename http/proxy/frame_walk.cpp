#include "http/proxy/frame_walk.hpp"

#include <algorithm>

namespace insula::http {

void frame_walk::pass(std::string_view bytes) {
  while (!bytes.empty()) {
    if (left_ > 0) {
      const auto passed = std::min<std::uint64_t>(left_, bytes.size());
      left_ -= passed;
      bytes.remove_prefix(static_cast<std::size_t>(passed));
      continue;
    }
    bytes_[head_++] = static_cast<std::uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    if (head_ >= 2)
      begin_frame();
  }
}

/// RFC 6455, 5.2. Once its head is whole.
void frame_walk::begin_frame() {
  constexpr std::uint8_t close = 8;
  const std::size_t masked = (bytes_[1] & 0x80) != 0 ? 4 : 0;
  std::uint64_t length = bytes_[1] & 0x7f;
  const std::size_t more = length == 126 ? 2 : length == 127 ? 8 : 0;
  if (head_ < 2 + more + masked)
    return;
  if (more > 0)
    length = 0;
  for (std::size_t i = 0; i < more; ++i)
    length = length << 8 | bytes_[2 + i];
  closed_ = closed_ || (bytes_[0] & 0x0f) == close;
  left_ = length;
  head_ = 0;
}

std::string_view going_away_frame() {
  return "\x88\x18\x03\xe9the node has gone away";
}

} // namespace insula::http
