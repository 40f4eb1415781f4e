#include "runtime/spawner/package_lists.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <memory>
#include <set>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

constexpr const char* machines = "/var/lib/dpkg/info";
constexpr const char* status = "var/lib/dpkg/status"; ///< In an image.
constexpr const char* directories[] = {"var", "var/lib", "var/lib/dpkg", "var/lib/dpkg/info"};

error failed(const std::string& what) {
  return {errc::launch_failed, what + ": " + std::strerror(errno)};
}

bool is_wanted(const struct stat& info) {
  return S_ISREG(info.st_mode) && (info.st_mode & S_IROTH) != 0;
}

/// False: errno says why.
bool copy_file(int from, int to, const std::string& name) {
  const unique_fd original{
    ::openat(from, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
  struct stat info {};
  if (!original)
    return errno == ENOENT;
  if (::fstat(original.get(), &info) != 0)
    return false;
  if (!is_wanted(info))
    return true;
  const unique_fd copy{
    ::openat(to, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, info.st_mode & 0755)};
  std::array<char, 16'384> bytes;
  ssize_t n = 0;
  while (copy && (n = ::read(original.get(), bytes.data(), bytes.size())) > 0)
    if (::write(copy.get(), bytes.data(), static_cast<std::size_t>(n)) != n)
      return false;
  return copy && n == 0;
}

void warn(const error& why) {
  log::warning(
    "spawner.no_package_lists",
    {{"reason", why.message},
     {"consequence", "in sandboxes of this machine's image dpkg knows no files of packages"}});
}

/// Its directories look like those of the image, which they cover.
result<void> make_layer(int layer, const std::atomic<bool>& stop) {
  const unique_fd from{::open(machines, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!from)
    return {failed(machines)};
  for (const char* each : directories)
    if (::mkdirat(layer, each, 0755) != 0)
      return {failed("making " + std::string{each})};
  const unique_fd to{::openat(layer, machines + 1, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!to)
    return {failed("making " + std::string{machines + 1})};
  return copy_package_lists(from.get(), to.get(), stop);
}

} // namespace

result<void> copy_package_lists(int from, int to, const std::atomic<bool>& stop) {
  std::set<std::string> names; // One that is made anew meanwhile may come twice.
  std::uint64_t bytes = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries{
    ::fdopendir(::openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), ::closedir};
  if (!entries)
    return {failed(machines)};
  while (const dirent* each = ::readdir(entries.get())) {
    struct stat info {};
    if (::fstatat(from, each->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !is_wanted(info))
      continue;
    names.insert(each->d_name);
    bytes += static_cast<std::uint64_t>(info.st_size);
    if (names.size() > limits::package_list_files || bytes > limits::package_list_bytes)
      return {{errc::launch_failed, "dpkg's lists of packages are more than " +
                                      std::to_string(limits::package_list_files) + " files or " +
                                      std::to_string(limits::package_list_bytes) + " bytes"}};
  }
  for (const auto& each : names) {
    if (stop)
      return {{errc::launch_failed, "not wanted any more"}};
    if (!copy_file(from, to, each))
      return {failed("copying " + each)};
  }
  return {};
}

bool package_lists::can_be_over(int root) {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  return static_cast<bool>(
    unique_fd{static_cast<int>(::syscall(SYS_openat2, root, status, &how, sizeof how))});
}

package_lists::package_lists(disk_pool& disks, std::string name, int root)
    : disks_(disks)
    , name_(std::move(name)) {
  struct stat info {};
  ::fstat(root, &info);
  device_ = info.st_dev;
  inode_ = info.st_ino;
  auto made = disks_.create_shared(name_, limits::package_list_bytes);
  if (!made) {
    warn(made.reason());
    return;
  }
  layer_ = std::move(*made);
  try {
    copied_ = std::async(std::launch::async, [this] {
      const auto done = make_layer(layer_.get(), stop_);
      if (!done && !stop_)
        warn(done.reason());
      return static_cast<bool>(done);
    });
  } catch (const std::system_error& no_thread) {
    warn({errc::launch_failed, no_thread.what()});
  }
}

package_lists::~package_lists() {
  stop_ = true;
  if (copied_.valid())
    copied_.wait();
  layer_.reset();
  disks_.destroy_shared(name_);
}

bool package_lists::ready() const {
  return !copied_.valid() || copied_.wait_for(std::chrono::seconds{0}) == std::future_status::ready;
}

int package_lists::layer() const {
  return ready() && copied_.valid() && copied_.get() ? layer_.get() : -1;
}

bool package_lists::is_over(int root) const {
  struct stat info {};
  return ::fstat(root, &info) == 0 && info.st_dev == device_ && info.st_ino == inode_;
}

} // namespace insula::runtime::spawner
