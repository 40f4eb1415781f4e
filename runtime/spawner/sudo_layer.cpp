#include "runtime/spawner/sudo_layer.hpp"

#include "base/inner_places.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string_view>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// The program, linked in.
extern "C" const unsigned char insula_sudo_begin[], insula_sudo_end[];

namespace insula::runtime::spawner {

namespace {

struct layer_directory {
  const char* path;
  mode_t mode;
};
constexpr layer_directory directories[] = {{"usr", 0755},
                                           {"usr/local", 0755},
                                           {"usr/local/bin", 0755},
                                           {"etc", 0755},
                                           {"etc/sudoers.d", 0750}};
constexpr const char* usr = "usr";
constexpr const char* program = "usr/local/bin/sudo";
constexpr const char* rule = "etc/sudoers.d/90-sandbox";

/// In place of what an attempt that broke off has left.
bool write_file(int top, const char* path, const void* bytes, std::size_t count, mode_t mode) {
  if (::unlinkat(top, path, 0) != 0 && errno != ENOENT)
    return false;
  const unique_fd file{::openat(top, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
  // The mode last: writing to a program takes from it that it changes the user.
  return file && ::write(file.get(), bytes, count) == static_cast<ssize_t>(count) &&
         ::fchmod(file.get(), mode) == 0;
}

bool is_directory_or_missing(int root, const char* path) {
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  const unique_fd there{static_cast<int>(::syscall(SYS_openat2, root, path, &how, sizeof how))};
  return there || errno == ENOENT;
}

} // namespace

result<void> sudo_layer::make(const std::string& in) {
  if (usr_)
    return {};
  const auto failed = [&] { return error{errc::launch_failed, in + ": " + std::strerror(errno)}; };
  if (::mkdir(in.c_str(), 0755) != 0 && errno != EEXIST)
    return failed();
  unique_fd top{::open(in.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!top)
    return failed();
  for (const auto& [path, mode] : directories)
    if (::mkdirat(top.get(), path, mode) != 0 && errno != EEXIST)
      return failed();
  const auto size = static_cast<std::size_t>(insula_sudo_end - insula_sudo_begin);
  if (!write_file(top.get(), program, insula_sudo_begin, size, 04755) ||
      !write_file(top.get(), rule, inner_sudo_rule.data(), inner_sudo_rule.size(), 0440))
    return failed();
  unique_fd below{::openat(top.get(), usr, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!below)
    return failed();
  top_ = std::move(top);
  usr_ = std::move(below);
  return {};
}

int sudo_layer::over(int root, bool below_usr) const {
  constexpr std::string_view there = "usr/";
  for (const std::string_view each : {"usr/local/bin", "etc/sudoers.d"}) {
    if (below_usr && !each.starts_with(there))
      continue;
    const auto* path = each.data() + (below_usr ? there.size() : 0);
    if (!is_directory_or_missing(root, path))
      return -1;
  }
  return below_usr ? usr_.get() : top_.get();
}

} // namespace insula::runtime::spawner
