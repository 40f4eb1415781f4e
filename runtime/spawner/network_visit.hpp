#pragma once

#include "base/unique_fd.hpp"

#include <cstdlib>
#include <fcntl.h>
#include <sched.h>

namespace insula::runtime::spawner {

/// As long as it is there, this thread is in the network namespace of the process whose pidfd this
/// is, and what it makes belongs there.
class network_visit {
public:
  explicit network_visit(int process)
      : home_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC))
      , there_(home_ && ::setns(process, CLONE_NEWNET) == 0) {}
  ~network_visit() {
    if (there_ && ::setns(home_.get(), CLONE_NEWNET) != 0)
      std::abort(); // Else the next sandbox would be made from inside of this one.
  }
  network_visit(const network_visit&) = delete;
  network_visit& operator=(const network_visit&) = delete;

  explicit operator bool() const { return there_; } ///< If not, errno says why.

private:
  const unique_fd home_;
  const bool there_;
};

} // namespace insula::runtime::spawner
