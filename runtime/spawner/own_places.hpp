#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace insula::runtime::spawner {

/// The directories of an image in which a sandbox's user may write: /tmp, /workspace, the home and
/// the like. Overlayfs merges what is in two layers, and keeps all names of a merged directory in
/// memory for each handle that reads it; no cgroup is charged for that. So a sandbox has these
/// directories in its own layer alone: they are opaque there, and what the image has in them is
/// copied.
///
/// A directory with more than max_entries or max_bytes in it stays merged, and so does one with
/// extended attributes or special files.
///
/// Owner:   the spawner. Threads: its own.
class own_places {
public:
  static constexpr std::size_t max_entries = 64;      ///< In one such directory.
  static constexpr std::size_t max_bytes = 64 * 1024; ///< Of an image, all such files together.
  static constexpr int max_depth = 3;                 ///< Below the root of the image.
  static constexpr std::size_t max_looked_at = 4096;  ///< Names of one image.

  /// Makes them in `upper`, the empty upper layer of a sandbox whose image has its root in the
  /// directory `image`. The first call for an image looks through it and the next ones do not: an
  /// image never changes. False: errno says why. A file system that keeps no such mark on a
  /// directory has them merged.
  bool make(int image, int upper);

  /// What stays merged of the image that was looked through last, as paths.
  const std::vector<std::string>& merged() const { return merged_; }

  /// Has a file system refused the marks? It is logged once.
  bool merges_all() const { return merges_all_; }

private:
  struct entry {
    std::string path; ///< Below the root, without a slash before it.
    mode_t mode = 0;  ///< With the kind.
    uid_t owner = 0;
    gid_t group = 0;
    bool opaque = false;
    std::string content; ///< Of a file; of a symlink where it leads.
  };
  struct plan {
    std::uint64_t device, inode;
    std::int64_t changed_ns;
    std::vector<entry> entries; ///< A directory before what is in it.
  };
  class search;

  const plan* plan_of(int image);
  bool mark(const std::string& directory);

  std::deque<plan> plans_; ///< Of some images, the newest last.
  std::vector<std::string> merged_;
  bool merges_all_ = false;
};

} // namespace insula::runtime::spawner
