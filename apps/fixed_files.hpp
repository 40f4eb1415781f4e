#pragma once

#include "apps/child_process.hpp"
#include "base/error.hpp"
#include "base/unique_fd.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

namespace insula {

/// Some files that a server reads again after it has given up root, although only root may read
/// them. A child that keeps the right to read them does it. Which ones is decided before there is
/// that child, so a server that was taken over gets no other file by it: the child takes a number
/// and no path, can do nothing but read, and uses that right for no file that the server's user
/// could have put there. A file system that does not answer holds up the child alone.
///
/// Owner:   the caller; the child ends with it, and with the process.
/// Threads: one at a time.
class fixed_files {
public:
  /// With one thread in the process, while it is root. `uid` and `gid` are those of the server
  /// later on. Errors: launch_failed.
  static result<fixed_files> prepare(std::vector<std::string> paths, uid_t uid, gid_t gid);

  struct content {
    std::string text;
    bool others_can_read = false;
  };
  /// How long an answer is waited for: not when one of `ends` is readable, either.
  struct patience {
    std::chrono::steady_clock::time_point until;
    std::vector<int> ends = {};
  };
  /// What is in paths[which] now. Blocks. Errors: io_failed, naming the file; also for one that is
  /// no regular file, or has more than a MiB. After one that came too late, the next call works.
  result<content> read(std::size_t which, const patience& how_long);

private:
  std::vector<std::string> paths_;
  child_process child_;
  unique_fd way_;              ///< To the child. None: it has ended.
  std::uint32_t question_ = 0; ///< The last one.
};

} // namespace insula
