#pragma once

#include "base/unique_fd.hpp"

#include <cstdint>
#include <string>
#include <sys/types.h>

namespace insula::storage::images {

/// openat2() that neither leaves `root` nor follows any symlink. Empty, with errno set: ELOOP where
/// a symlink is in the way; one at the end opens with O_PATH | O_NOFOLLOW alone.
unique_fd open_beneath(int root, const std::string& path, int flags, mode_t mode = 0);

/// openat2() that follows symlinks as a process would whose root directory this is.
unique_fd open_inside(int root, const std::string& path, int flags);

/// Removes what has that name in the directory, with everything in it; it may be missing. Follows
/// no symlink. False, with errno set, when something stays.
bool remove_all_at(int directory, const char* name);

/// Calls `take` with the name of each entry but "." and ".."; stops when it is false. False, with
/// errno set, when the directory cannot be read or `take` was false.
template <class Take>
bool for_each_name(int directory, Take take);

/// Writes all of it. False, with errno set.
bool write_all(int file, const void* bytes, std::size_t count);

} // namespace insula::storage::images

#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <vector>

template <class Take>
bool insula::storage::images::for_each_name(int directory, Take take) {
  unique_fd again{::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  DIR* open = again ? ::fdopendir(again.get()) : nullptr;
  if (open == nullptr)
    return false;
  static_cast<void>(again.release());
  // All names first: what `take` changes must not come up again.
  std::vector<std::string> names;
  errno = 0;
  while (const auto* entry = ::readdir(open)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..")
      names.push_back(name);
  }
  const int why = errno;
  ::closedir(open);
  if (why != 0) {
    errno = why;
    return false;
  }
  for (const auto& each : names)
    if (!take(each))
      return false;
  return true;
}
