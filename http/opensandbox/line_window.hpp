#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace insula::http::opensandbox {

/// Some of a text's lines, taken out of it as it comes: with \n between them, without \r at their
/// ends. An end of the text without \n ends a line as well.
class line_window {
public:
  /// `first`: from 1. `count`: how many at most.
  line_window(std::uint64_t first, std::uint64_t count)
      : first_(first)
      , past_(count > UINT64_MAX - first ? UINT64_MAX : first + count) {}

  /// What of `bytes` is in it.
  std::string feed(std::string_view bytes) {
    std::string told;
    while (!bytes.empty() && !full()) {
      const auto end = std::min(bytes.find('\n'), bytes.size());
      add(bytes.substr(0, end), told);
      if (end == bytes.size())
        break;
      if (!begun_)
        begin(told);
      begun_ = held_ = false; // A \r before the end is no text.
      ++line_;
      bytes.remove_prefix(end + 1);
    }
    return told;
  }

  /// Nothing more will be.
  bool full() const { return line_ >= past_; }

private:
  void begin(std::string& told) {
    begun_ = true;
    if (line_ >= first_ && std::exchange(any_, true))
      told += '\n';
  }

  void add(std::string_view text, std::string& told) {
    if (text.empty())
      return;
    if (!begun_)
      begin(told);
    if (line_ < first_)
      return;
    if (std::exchange(held_, false))
      told += '\r';
    if (text.ends_with('\r')) {
      held_ = true;
      text.remove_suffix(1);
    }
    told += text;
  }

  const std::uint64_t first_, past_;
  std::uint64_t line_ = 1;
  bool begun_ = false; ///< This line has.
  bool any_ = false;   ///< Of the wanted ones has begun.
  bool held_ = false;  ///< A \r, which may be at its line's end.
};

} // namespace insula::http::opensandbox
