#include "http/bridge/stream_position.hpp"

#include "base/hex.hpp"

#include <charconv>

namespace insula::http::bridge {

namespace {

constexpr std::size_t most_held = 3;

std::string hexadecimal(std::string_view bytes) {
  return to_hex({reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()});
}

bool read_bytes(std::string_view text, std::string& into) {
  if (text.size() % 2 != 0 || text.size() > 2 * most_held)
    return false;
  for (; !text.empty(); text.remove_prefix(2)) {
    unsigned char byte = 0;
    const auto [at, failed] = std::from_chars(text.data(), text.data() + 2, byte, 16);
    if (failed != std::errc{} || at != text.data() + 2)
      return false;
    into += static_cast<char>(byte);
  }
  return true;
}

} // namespace

std::string stream_position::text() const {
  auto words = std::to_string(offset);
  if (end_told)
    words += "-end";
  else if (!out.empty() || !err.empty())
    words += '-' + hexadecimal(out) + '-' + hexadecimal(err);
  return words;
}

std::optional<stream_position> stream_position::read(std::string_view text) {
  stream_position found;
  const auto* const end = text.data() + text.size();
  const auto [at, failed] = std::from_chars(text.data(), end, found.offset);
  if (failed != std::errc{})
    return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(at - text.data()));
  if (text == "-end")
    found.end_told = true;
  else if (!text.empty()) {
    const auto second = text.find('-', 1);
    if (text.front() != '-' || second == std::string_view::npos ||
        !read_bytes(text.substr(1, second - 1), found.out) ||
        !read_bytes(text.substr(second + 1), found.err))
      return std::nullopt;
  }
  return found;
}

} // namespace insula::http::bridge
