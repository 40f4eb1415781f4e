#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

namespace insula::runtime::spawner {

/// The writable layers of all sandboxes, each with a ceiling on what it can hold.
///
/// Everything is mounted in the spawner's own mount namespace, so nothing is left on the machine
/// when it dies. What a sandbox wrote does not outlive the spawner: nothing that runs in it does
/// either.
class disk_pool {
public:
  virtual ~disk_pool() = default;

  /// Makes the directory of a slot, empty but for what the overlays need (directories `u`, `w`,
  /// `uu`, `uw`), and opens it. Errors: launch_failed.
  virtual result<unique_fd> create(std::uint32_t slot, std::uint64_t bytes) = 0;

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

  /// Is what is written memory, which counts as the sandbox's?
  virtual bool in_memory() const = 0;

  virtual const char* name() const = 0;
};

/// One sparse btrfs image for the whole node, with a subvolume and a quota for each sandbox. Making
/// and removing one takes 50 µs, whatever was written (docs/decisions/0003). Needs mkfs.btrfs and
/// loop devices; bytes: the image's size.
result<std::unique_ptr<disk_pool>> make_btrfs_pool(const std::string& state_directory,
                                                   std::uint64_t bytes);

/// One tmpfs for each sandbox: what is written counts as memory. Needs a kernel from 6.3 on.
result<std::unique_ptr<disk_pool>> make_tmpfs_pool(const std::string& state_directory);

} // namespace insula::runtime::spawner
