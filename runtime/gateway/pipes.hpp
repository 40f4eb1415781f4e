#pragma once

#include "base/unique_fd.hpp"

#include <cstddef>
#include <vector>

namespace insula::runtime::gateway {

/// Pipes through which bytes are moved from one socket to another. A connection has one only while
/// there is something in it: what stands still for want of bytes needs none.
class pipe_pool {
public:
  struct pipe {
    unique_fd in, out; ///< For what comes, and what goes.
    std::size_t holds = 0;
    explicit operator bool() const { return static_cast<bool>(in); }
  };

  static constexpr std::size_t wanted_bytes = 256 * 1024; ///< The kernel may give less.
  static constexpr std::size_t most_kept = 16;

  /// An empty one. None: errno says why.
  pipe take();
  /// An empty one is kept for the next.
  void give_back(pipe used);

private:
  std::vector<pipe> free_;
};

} // namespace insula::runtime::gateway
