#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace insula::http::opensandbox {

/// Finds in a log, as it is read from its beginning, what follows the line of a given number: lines
/// end at "\n" and are counted from 0; a rest without an end is one once its command has ended.
/// What is to be told is the bytes from start() to stop(), counted from the log's beginning.
class log_cursor {
public:
  /// `after`: that line; below 0: everything.
  explicit log_cursor(std::int64_t after = -1)
      : after_(after) {
    if (after_ < 0)
      start_ = 0;
  }

  void count(std::string_view bytes);
  /// There is no more now; `over`: and there never will be.
  void end(bool over);

  bool started() const { return start_.has_value(); }
  /// After end().
  std::uint64_t start() const { return *start_; }
  std::uint64_t stop() const { return stop_; }
  std::int64_t last_line() const { return line_; } ///< -1: there is none.

private:
  std::int64_t after_;
  std::int64_t line_ = -1;
  std::uint64_t total_ = 0;
  std::uint64_t stop_ = 0;
  std::optional<std::uint64_t> start_;
};

} // namespace insula::http::opensandbox
