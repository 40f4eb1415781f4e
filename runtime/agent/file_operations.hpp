#pragma once

#include "base/stream_frames.hpp"

#include <limits.h>
#include <sys/stat.h>

namespace insula::runtime::agent {

/// How a file that is written is to be. Without a mode, a new one gets new_mode before the umask,
/// and one that was there keeps its own.
struct file_wishes {
  mode_t new_mode = 0666;
  int mode = -1; ///< -1: none. The same of the next.
  uid_t owner = static_cast<uid_t>(-1);
  gid_t group = static_cast<gid_t>(-1);
};

/// Reads or replaces one file through `channel` (base/stream_frames.hpp). Runs in a child of the
/// agent that has already become the sandbox's user: whatever the path leads to, it is the
/// sandbox's own view and its own rights. Blocks; the child ends right after it.
void send_file(int channel, const char* path);
void receive_file(int channel, const char* path, const file_wishes& wishes = {});

/// Answers a write that cannot be done, and takes what is still sent: a sender that meets a closed
/// socket would miss the answer.
void refuse(int channel, int error, file_step step, const struct stat* info = nullptr);

/// The directory part of `path`, without the last name; "/" for a name below the root.
void parent_of(const char* path, char (&parent)[PATH_MAX]);

/// mkdir -p. Returns errno.
int make_directories(char* path);

} // namespace insula::runtime::agent
