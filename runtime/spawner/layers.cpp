#include "runtime/spawner/layers.hpp"

#include <cerrno>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace insula::runtime::spawner {

bool layers::open(const std::string& state_directory) {
  constexpr int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  failed_at_ = state_directory + "/images";
  images_.reset(::open(failed_at_.c_str(), flags | O_NOFOLLOW));
  if (!images_)
    return false;
  failed_at_ = "/usr";
  usr_.reset(::open(failed_at_.c_str(), flags));
  return static_cast<bool>(usr_);
}

unique_fd layers::root_of(const std::string& tree) const {
  return open_in(tree, "root");
}

unique_fd layers::over_of(const std::string& tree) const {
  return open_in(tree, "over");
}

unique_fd layers::open_in(const std::string& tree, const char* name) const {
  const auto path = tree + "/" + name;
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  return unique_fd{
    static_cast<int>(::syscall(SYS_openat2, images_.get(), path.c_str(), &how, sizeof how))};
}

} // namespace insula::runtime::spawner
