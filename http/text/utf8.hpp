#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace insula::http {

/// Bytes of the character at the beginning of `text` if it is complete and valid UTF-8, else 0.
std::size_t utf8_character(std::string_view text);

/// Length of the incomplete but so far valid character at the end of `text`: 0 to 3.
std::size_t utf8_incomplete_tail(std::string_view text);

/// With U+FFFD in place of every byte that is not UTF-8.
std::string to_utf8(std::string_view bytes);

/// Passes bytes on so that no piece ends inside a character that may still become valid. Bytes are
/// never changed, and at most three wait.
class utf8_holdback {
public:
  /// What may be sent now: what was held back and `bytes`, except the beginning of a character.
  std::string feed(std::string bytes);

  /// What is still held back; for the end of the stream.
  std::string flush();

  const std::string& held() const { return held_; }
  /// What an earlier one had held back.
  void hold(std::string bytes) { held_ = std::move(bytes); }

private:
  std::string held_;
};

} // namespace insula::http
