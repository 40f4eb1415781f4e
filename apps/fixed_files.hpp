#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"

#include <cstddef>
#include <string>
#include <sys/types.h>
#include <vector>

namespace insula {

/// Some files that a server reads again after it has given up root, although only root may read
/// them. A child that stays root opens them. Which ones is decided before there is that child, so a
/// server that was taken over gets no other file by it: the child takes a number and no path, can
/// do nothing but open files for reading, and opens none that the server's user could have put
/// there.
///
/// Owner:   the caller; the child ends with it, and with the process.
/// Threads: one at a time.
class fixed_files {
public:
  /// With one thread in the process, while it is root. `uid` and `gid` are those of the server
  /// later on; for root there is no child. Errors: launch_failed.
  static result<fixed_files> prepare(std::vector<std::string> paths, uid_t uid, gid_t gid);

  struct content {
    std::string text;
    bool others_can_read = false;
  };
  /// What is in paths[which] now. Blocks, for a few seconds at most. Errors: io_failed, naming the
  /// file; also for one that is no regular file, or has more than a MiB.
  result<content> read(std::size_t which);

private:
  std::vector<std::string> paths_;
  unique_fd child_; ///< None: there is no child, or it has ended.
  bool has_child_ = false;
};

} // namespace insula
