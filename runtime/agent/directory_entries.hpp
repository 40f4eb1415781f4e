#pragma once

#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>

namespace insula::runtime::agent {

/// Calls `tell(name, d_type)` for all that is in a directory. It is closed before this returns: an
/// open DIR costs a buffer, and trees can be deep. False: errno says why.
template <class Tell>
bool for_each_entry(int directory, Tell tell) {
  const int copy = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* open = copy < 0 ? nullptr : ::fdopendir(copy);
  if (open == nullptr) {
    if (copy >= 0)
      ::close(copy);
    return false;
  }
  errno = 0;
  while (const dirent* each = ::readdir(open)) {
    const std::string_view name = each->d_name;
    if (name != "." && name != "..")
      tell(name, each->d_type);
  }
  const int why = errno;
  ::closedir(open);
  errno = why;
  return why == 0;
}

} // namespace insula::runtime::agent
