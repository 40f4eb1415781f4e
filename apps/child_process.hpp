#pragma once

#include "base/unique_fd.hpp"

#include <chrono>
#include <sys/types.h>

namespace insula {

/// A child of this process that is not left behind as a zombie. It is not ended by this.
///
/// Threads: one at a time.
class child_process {
public:
  child_process() = default; ///< There is none.
  explicit child_process(pid_t id);
  child_process(child_process&& other) noexcept;
  child_process& operator=(child_process&& other) noexcept;
  ~child_process(); ///< Does not wait.

  /// Waits for so long. False: the child still runs.
  bool take_end(std::chrono::milliseconds patience);

private:
  pid_t id_ = -1; ///< -1: there is none, or its end has been taken.
  unique_fd process_;
};

} // namespace insula
