#pragma once

#include "base/error.hpp"
#include "base/tree_frames.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::storage::snapshots {

/// Asked now and then by who is at work.
using unwanted_function = std::function<bool()>;

/// One end of a socket through which a tree travels (base/tree_frames.hpp), for a thread that may
/// wait.
///
/// Errors: io_failed (the sandbox has ended it, or says nothing for its patience),
///         sandbox_not_running (nobody wants it any more).
class tree_channel {
public:
  /// `socket` is non-blocking, and its owner's.
  tree_channel(int socket, unwanted_function unwanted);

  result<void> read(void* into, std::size_t count, std::chrono::milliseconds patience);
  result<std::string> read_text(std::size_t count, std::chrono::milliseconds patience);
  /// The next bytes, at most `most`. Good until the next call.
  result<std::string_view> read_some(std::uint64_t most, std::chrono::milliseconds patience);

  /// Kept until there are enough of them, or flush().
  result<void> write(const void* bytes, std::size_t count);
  result<void> flush();

  /// Nobody wants it any more. Every wait looks for that; so does whoever works between two.
  std::optional<error> unwanted() const;

  /// What it says at the end of a write, or at the beginning of a read: it failed, with its words.
  result<void> read_result(std::chrono::milliseconds patience);

private:
  result<void> wait_for(short what, std::chrono::steady_clock::time_point until) const;

  const int socket_;
  const unwanted_function unwanted_;
  std::vector<char> in_;
  std::size_t begin_ = 0, end_ = 0; ///< Of what has come and has not been read.
  std::string out_;
};

} // namespace insula::storage::snapshots
