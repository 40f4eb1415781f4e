#pragma once

#include "base/unique_fd.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>

/// Volumes of btrfs, and copies of them. A copy is made in a directory of its own, in which it has
/// the name `v`: the kernel holds that directory until the copy is committed, so copies in one
/// directory wait for each other, and those in different ones share a commit.
///
/// Threads: any. `top` is the directory in which all of it is.
namespace insula::runtime::spawner {

/// That it is not there is fine. False: errno says why.
bool remove_volume(int directory, const std::string& name);

/// What a volume has, in the volume `v` of a new directory. False: errno says why, and nothing is
/// left.
bool copy_volume(int top, int from, const std::string& name, bool read_only);

/// The volume in that directory. What an earlier version has made has no directory of its own, and
/// is opened as well.
unique_fd open_copy(int top, const std::string& name);

/// Removes the volume with its directory, or what an earlier version has made; that it is not there
/// is fine. False: errno says why.
bool remove_copy(int top, const std::string& name);

/// The volume is `to` from now on, without a directory of its own. False: errno says why, and it is
/// removed.
bool move_copy(int top, const std::string& name, const std::string& to);

/// Of a volume. 0: it could not be asked.
std::uint64_t tree_of(int volume);

/// What a volume is charged for, as of the last commit. 0: that is not known.
std::uint64_t charged_bytes(int top, std::uint64_t tree);

/// Of the disk that it was before it was a snapshot: what was reserved for logs, and the overlays'
/// work, which a `volatile` one leaves marked as not to be used again. False: errno says why.
bool forget_mount(int disk);

/// A writable copy of a snapshot for the next sandbox that begins with it, so that this one waits
/// for no commit. Only the snapshots that were taken or used last have one.
///
/// Ceiling: `most`. Threads: any, but for two of the same snapshot at once.
class ready_copies {
public:
  static constexpr std::size_t most = 64;

  explicit ready_copies(int top)
      : top_(top) {}

  /// Unless there is one. Waits for the machine's disk.
  void make(const std::string& snapshot);

  /// False: there is none. Else it is the volume `to` from now on. Waits for one that is being made
  /// and nobody else waits for.
  bool take(const std::string& snapshot, const std::string& to);

  /// The snapshot goes, and so does what was made of it.
  void drop(const std::string& snapshot);

private:
  struct copy {
    bool made = false, awaited = false, unwanted = false;
  };

  std::string make_room();

  const int top_; ///< The pool's, which is there for longer.
  std::mutex guard_;
  std::condition_variable news_;
  std::map<std::string, copy> all_; ///< By the snapshot.
  std::deque<std::string> made_;    ///< In the order in which they were made.
};

} // namespace insula::runtime::spawner
