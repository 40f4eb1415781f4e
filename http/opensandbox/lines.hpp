#pragma once

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
