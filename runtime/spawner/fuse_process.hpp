#pragma once

#include "base/unique_fd.hpp"

#include <cstdint>
#include <linux/filter.h>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace insula::runtime::spawner {

// What a FUSE program finds.
inline constexpr int fuse_device_fd = 100; ///< The device; fusermount hands it on.
inline constexpr int fuse_secret_fd =
  101; ///< What it must know and nobody else may, to be read once.
inline constexpr const char* fuse_log = "/proc/self/fd/2"; ///< What it says there is heard.
/// In a file system of its own that is in memory and has a ceiling.
inline constexpr const char* fuse_cache_directory = "/tmp/cache";
inline constexpr const char* fuse_mount_directory = "/tmp/mount"; ///< Where it is told to mount.

/// What is run, and for whom.
struct fuse_program {
  std::vector<std::string_view> argv; ///< argv[0]: "s3fs" or "rclone".
  std::string_view secret;
  std::uint32_t user = 0; ///< Of the machine; owns nothing else.
  std::uint32_t cache_mib = 0;
  const std::vector<unique_fd>* cgroup_procs = nullptr; ///< It enters these.
  const std::vector<sock_filter>* filter = nullptr;     ///< System calls that are allowed.
};

struct fuse_process {
  pid_t pid = -1;    ///< -1: errno says why.
  unique_fd process; ///< Its pidfd.
  unique_fd said;    ///< What it says, to be read without waiting.
  unique_fd go;      ///< It waits for let_run(); without that it ends.
};

/// Starts it: in network, pid, mount, ipc and uts namespaces of its own, as that user, without
/// capabilities, behind the filter. Its root directory has the machine's /usr and what of /etc is
/// needed for TLS, all of which it can only read; /proc, /dev and /tmp are its own. It does nothing
/// before let_run(), until when its network can be made. What goes wrong there, it says, and ends.
/// It ends with the spawner.
fuse_process start_fuse_process(const fuse_program& what, int device);

/// False: it has ended.
bool let_run(fuse_process& which);

/// Of its `said`: it says nothing more, since it has ended.
bool has_ended(const unique_fd& said);

} // namespace insula::runtime::spawner
