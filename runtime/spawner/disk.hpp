#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace insula::runtime::spawner {

/// A snapshot on its way, from one disk. Both steps may wait for the machine's disk, for seconds:
/// what has been written and is not there yet is written first. They run one after the other, on
/// any one thread, while the pool is used by another one. One that goes before take() leaves
/// nothing.
class disk_copy {
public:
  virtual ~disk_copy() = default;

  /// Writes what is dirty of the disk, while its sandbox goes on, so that there is little left for
  /// take(). Errors: io_failed, disk_full.
  virtual result<void> flush() = 0;

  /// The disk as it is now, all at one moment if nothing in the sandbox runs meanwhile. It is there
  /// after a power cut once this has answered, if the pool keeps snapshots. Answers how many bytes
  /// the disk has. Errors: as of flush(); nothing is left then.
  virtual result<std::uint64_t> take() = 0;
};

/// The writable layers of all sandboxes, each with a ceiling on what it can hold, and copies of
/// them as they were at some moment.
///
/// Everything is mounted in the spawner's own mount namespace, so nothing is left on the machine
/// when it dies but the file with the snapshots. What a sandbox wrote does not outlive the spawner
/// otherwise: nothing that runs in it does either.
///
/// Threads: the spawner's, but for what a disk_copy does.
class disk_pool {
public:
  virtual ~disk_pool() = default;

  /// Makes the directory of a slot, empty but for what the overlays need (directories `u`, `w`,
  /// `uu`, `uw`), and opens it. Errors: launch_failed.
  virtual result<unique_fd> create(std::uint32_t slot, std::uint64_t bytes) = 0;

  /// The same with the files of a snapshot, which stays as it is. Waits for the machine's disk,
  /// some milliseconds. Several threads at once, while the pool is used by another one; the slot is
  /// used by nobody else before this has answered. Errors: not_found, launch_failed, disk_full.
  virtual result<unique_fd> create_from(const std::string& snapshot, std::uint32_t slot,
                                        std::uint64_t bytes) = 0;

  /// The directory of a slot. Errors: not_found.
  virtual result<unique_fd> open(std::uint32_t slot) = 0;

  /// The next create_from() of this snapshot is to wait for nothing, if that can be. Waits for the
  /// machine's disk, as that one does, and on the same threads.
  virtual void expect_use(const std::string& /*snapshot*/) {}

  /// Gives it another ceiling. Errors: launch_failed.
  virtual result<void> resize(std::uint32_t slot, std::uint64_t bytes) = 0;

  /// Counts so many bytes that are elsewhere as if they were in it, in place of what was counted so
  /// before. False with errno: it has no room for them, and counts what it did before.
  virtual bool charge(std::uint32_t slot, std::uint64_t bytes) = 0;

  /// Removes it with all that is in it; that nothing is there is fine. False: it is still busy.
  virtual bool destroy(std::uint32_t slot) = 0;

  /// Makes an empty directory beside those of the slots, in which at most so many bytes have room,
  /// and opens it: for files that several sandboxes have below their own. Errors: launch_failed.
  virtual result<unique_fd> create_shared(const std::string& name, std::uint64_t bytes) = 0;

  /// Removes it with all that is in it; that nothing is there is fine. False: it is still busy.
  virtual bool destroy_shared(const std::string& name) = 0;

  /// Begins a snapshot of the disk of a slot, which goes on to be that disk whatever becomes of the
  /// slot. `name`: as is_snapshot_name() has it. Errors: not_found, already_exists.
  virtual result<std::unique_ptr<disk_copy>> copy(std::uint32_t slot, const std::string& name) = 0;

  /// The directory of a snapshot, with `u` and `uu` as a slot's. Errors: not_found.
  virtual result<unique_fd> open_snapshot(const std::string& name) = 0;

  /// Removes it; that it is not there is fine. False: it is still busy. Layers that are mounted
  /// somewhere stay until they are not.
  virtual bool drop_snapshot(const std::string& name) = 0;

  /// Those that are there, in the order of their names.
  virtual std::vector<std::string> snapshots() const = 0;

  /// Do snapshots outlive the spawner, and the machine's restart?
  virtual bool keeps_snapshots() const = 0;

  /// Is what is written memory, which counts as the sandbox's?
  virtual bool in_memory() const = 0;

  virtual const char* name() const = 0;
};

/// One sparse btrfs image for the whole node, with a subvolume and a quota for each sandbox. Making
/// and removing one takes 50 µs, whatever was written (docs/decisions/0003). Needs mkfs.btrfs and
/// loop devices; bytes: the image's size, which never becomes less. The image that an earlier
/// spawner has left is used again with the snapshots in it; all else goes. One that cannot be
/// mounted is put aside under another name.
result<std::unique_ptr<disk_pool>> make_btrfs_pool(const std::string& state_directory,
                                                   std::uint64_t bytes);

/// One tmpfs for each sandbox: what is written counts as memory. Needs a kernel from 6.3 on. A
/// snapshot is a copy of all bytes, in memory as well, and goes with the spawner.
result<std::unique_ptr<disk_pool>> make_tmpfs_pool(const std::string& state_directory);

} // namespace insula::runtime::spawner
