#pragma once

#include "http/text/utf8.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace insula::http::opensandbox {

/// A rest without an end is told as a line when it gets longer than this, so that memory has a
/// ceiling whatever a command prints.
inline constexpr std::size_t longest_line = 8u << 20;

/// Takes the output of a command apart into lines. A line ends at "\n", "\r" or "\r\n"; one that
/// ends at "\r" is told at once, and an "\n" that then comes in the next piece belongs to it.
class line_splitter {
public:
  /// `tell(text, end)` for each line that is complete now; `end` is what it ends with.
  template <class Tell>
  void feed(std::string_view bytes, Tell tell) {
    if (!bytes.empty() && std::exchange(after_return_, false) && bytes.front() == '\n')
      bytes.remove_prefix(1);
    for (;;) {
      const auto at = bytes.find_first_of("\r\n");
      if (at == std::string_view::npos)
        break;
      const bool last = at + 1 == bytes.size();
      const bool both = bytes[at] == '\r' && !last && bytes[at + 1] == '\n';
      after_return_ = bytes[at] == '\r' && last;
      const auto end = bytes.substr(at, both ? 2 : 1);
      if (rest_.empty()) {
        tell(bytes.substr(0, at), end);
      } else {
        rest_ += bytes.substr(0, at);
        tell(std::string_view{rest_}, end);
        rest_.clear();
      }
      bytes.remove_prefix(at + end.size());
    }
    rest_ += bytes;
    if (rest_.size() > longest_line)
      finish(tell);
  }

  /// Something has come that no line's end has followed.
  bool has_rest() const { return !rest_.empty(); }

  /// What there is of the rest, but for the beginning of a character; what follows is told later,
  /// as a line of its own.
  template <class Tell>
  void flush(Tell tell) {
    const auto held = utf8_incomplete_tail(rest_);
    const auto whole = std::string_view{rest_}.substr(0, rest_.size() - held);
    if (whole.empty())
      return;
    tell(whole, std::string_view{});
    rest_.erase(0, whole.size());
  }

  /// The rest, if there is any: its command has ended.
  template <class Tell>
  void finish(Tell tell) {
    if (!rest_.empty())
      tell(std::string_view{rest_}, std::string_view{});
    rest_.clear();
  }

private:
  std::string rest_;
  bool after_return_ = false;
};

} // namespace insula::http::opensandbox
