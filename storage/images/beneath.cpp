#include "storage/images/beneath.hpp"

#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace insula::storage::images {

namespace {

unique_fd open_resolved(int root, const std::string& path, int flags, mode_t mode,
                        std::uint64_t resolve) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags) | O_CLOEXEC;
  how.mode = mode;
  how.resolve = resolve;
  for (;;) {
    const long fd =
      ::syscall(SYS_openat2, root, path.empty() ? "." : path.c_str(), &how, sizeof how);
    // EAGAIN: something was renamed meanwhile, and the kernel cannot say where the way led.
    if (fd >= 0 || (errno != EINTR && errno != EAGAIN))
      return unique_fd{static_cast<int>(fd)};
  }
}

} // namespace

unique_fd open_beneath(int root, const std::string& path, int flags, mode_t mode) {
  return open_resolved(root, path, flags, mode,
                       RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
}

unique_fd open_inside(int root, const std::string& path, int flags) {
  return open_resolved(root, path, flags, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
}

bool remove_all_at(int directory, const char* name) {
  if (::unlinkat(directory, name, 0) == 0 || errno == ENOENT)
    return true;
  if (errno != EISDIR && errno != EPERM)
    return false;
  {
    const unique_fd inside{
      ::openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (!inside || !for_each_name(inside.get(), [&](const std::string& each) {
          return remove_all_at(inside.get(), each.c_str());
        }))
      return false;
  }
  return ::unlinkat(directory, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

bool write_all(int file, const void* bytes, std::size_t count) {
  const auto* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const auto n = ::write(file, at, count);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    at += n;
    count -= static_cast<std::size_t>(n);
  }
  return true;
}

} // namespace insula::storage::images
