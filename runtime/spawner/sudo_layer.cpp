#include "runtime/spawner/sudo_layer.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// The program, linked in.
extern "C" const unsigned char insula_sudo_begin[], insula_sudo_end[];

namespace insula::runtime::spawner {

namespace {

constexpr const char* directories[] = {"usr", "usr/local", "usr/local/bin"};
constexpr const char* program = "usr/local/bin/sudo";

bool write_program(int top) {
  const unique_fd file{::openat(top, program, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
  const auto* at = insula_sudo_begin;
  while (file && at != insula_sudo_end) {
    const auto n = ::write(file.get(), at, static_cast<std::size_t>(insula_sudo_end - at));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    at += n;
  }
  // Last: writing to a program takes from it that it changes the user.
  return file && ::fchmod(file.get(), 04755) == 0;
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
  for (const auto* each : directories)
    if (::mkdirat(top.get(), each, 0755) != 0 && errno != EEXIST)
      return failed();
  // Of an attempt that broke off.
  if ((::unlinkat(top.get(), program, 0) != 0 && errno != ENOENT) || !write_program(top.get()))
    return failed();
  unique_fd usr{::openat(top.get(), directories[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!usr)
    return failed();
  top_ = std::move(top);
  usr_ = std::move(usr);
  return {};
}

int sudo_layer::over(int root, bool below_usr) const {
  constexpr std::size_t behind_usr = 4; // "usr/"
  for (const auto* each : directories)
    if (std::strlen(each) > behind_usr &&
        !is_directory_or_missing(root, below_usr ? each + behind_usr : each))
      return -1;
  return below_usr ? usr_.get() : top_.get();
}

} // namespace insula::runtime::spawner
