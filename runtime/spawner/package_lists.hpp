#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "runtime/spawner/disk.hpp"

#include <atomic>
#include <cstdint>
#include <future>
#include <string>

namespace insula::runtime::spawner {

/// What dpkg knows of the machine's packages beside their names: which files each of them has, and
/// its scripts. These are thousands of small files in /var/lib/dpkg/info. Root of a sandbox whose
/// image is the machine needs them where it installs and removes packages. So they are a layer over
/// that image, in sandboxes in which users may become root, and are copied when the first of these
/// is wanted: most nodes never have one.
///
/// They are as the machine has them then. An image that is made anew, because the machine's
/// packages have changed, has lists of its own.
///
/// Threads: one of its own, which copies; all calls come from the spawner's.
class package_lists {
public:
  /// Has the image with this root a list of the machine's packages?
  static bool can_be_over(int root);

  /// Begins to copy, for the image with this root. `name` is of nothing else in `disks`, which is
  /// there for longer than this.
  package_lists(disk_pool& disks, std::string name, int root);
  /// Nothing uses the layer any more. Waits for the thread, which ends at once.
  ~package_lists();

  /// Has that been done?
  bool ready() const;
  /// It has been tried, and there is no layer, for a reason that is logged. Another one may have
  /// it.
  bool failed() const { return ready() && layer() < 0; }
  /// The layer; -1: it is not ready(), or has failed().
  int layer() const;

  /// Is it for the image with this root?
  bool is_over(int root) const;
  const std::string& name() const { return name_; }

private:
  disk_pool& disks_;
  const std::string name_;
  std::uint64_t device_ = 0, inode_ = 0;
  unique_fd layer_;
  std::atomic<bool> stop_ = false;
  std::shared_future<bool> copied_; ///< None: that could not even begin.
};

/// Copies the files of dpkg's directory `from` into the empty directory `to`: those that everybody
/// may read. Only the owner may write to a copy, with a umask of 022 or less. One that goes
/// meanwhile is one that was about to be replaced, since packages may be installed on the machine.
/// Errors: launch_failed, also when these are more than limits::package_list_files or
/// limits::package_list_bytes, before the first is copied, and once `stop` is set.
result<void> copy_package_lists(int from, int to, const std::atomic<bool>& stop);

} // namespace insula::runtime::spawner
