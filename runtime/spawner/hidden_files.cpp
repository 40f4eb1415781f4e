#include "runtime/spawner/hidden_files.hpp"

#include "base/limits.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <memory>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

error failed(const std::string& what) {
  return {errc::launch_failed, what + ": " + std::strerror(errno)};
}

unique_fd open_below(int directory, const char* name) {
  open_how how{};
  how.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
  return unique_fd{static_cast<int>(::syscall(SYS_openat2, directory, name, &how, sizeof how))};
}

bool others_may_read(const struct stat& info) {
  const mode_t needed = S_ISDIR(info.st_mode) ? S_IROTH | S_IXOTH : S_IROTH;
  return S_ISLNK(info.st_mode) || (info.st_mode & needed) == needed;
}

/// False: there are too many of them, or it is to stop.
bool look_into(unique_fd directory, const std::string& path, const std::atomic<bool>& stop,
               std::vector<std::string>& found) {
  if (stop)
    return false;
  const int itself = directory.get();
  const std::unique_ptr<DIR, int (*)(DIR*)> entries{::fdopendir(directory.release()), ::closedir};
  while (const dirent* each = entries ? ::readdir(entries.get()) : nullptr) {
    const std::string name{each->d_name};
    struct stat info {};
    if (name == "." || name == ".." || each->d_type == DT_LNK)
      continue;
    const bool known =
      ::fstatat(itself, name.c_str(), &info, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0;
    bool hides = known ? !others_may_read(info) : errno != ENOENT;
    if (known && !hides && S_ISDIR(info.st_mode)) {
      auto below = open_below(itself, name.c_str());
      // Another file system that is mounted here is not in the layer. What cannot be looked into
      // for any other reason is hidden.
      hides = !below && errno != EXDEV && errno != ENOENT;
      if (below && !look_into(std::move(below), path + name + "/", stop, found))
        return false;
    }
    if (hides)
      found.push_back(path + name);
    if (found.size() > limits::hidden_files)
      return false;
  }
  return true;
}

/// A directory in the layer covers that of /usr, so it has to look the same.
bool make_alike(int usr, int layer, const std::string& path) {
  struct stat info {};
  if (::fstatat(usr, path.c_str(), &info, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0)
    return false;
  if (!path.empty() && ::mkdirat(layer, path.c_str(), 0700) != 0 && errno != EEXIST)
    return false;
  const char* const name = path.empty() ? "." : path.c_str();
  const timespec times[] = {info.st_atim, info.st_mtim};
  return ::fchownat(layer, name, info.st_uid, info.st_gid, AT_SYMLINK_NOFOLLOW) == 0 &&
         ::fchmodat(layer, name, info.st_mode & 07777, 0) == 0 &&
         ::utimensat(layer, name, times, AT_SYMLINK_NOFOLLOW) == 0;
}

} // namespace

result<std::vector<std::string>> find_hidden(int top, const std::atomic<bool>& stop) {
  std::vector<std::string> found;
  auto directory = open_below(top, ".");
  if (!directory)
    return failed("reading /usr");
  if (!look_into(std::move(directory), "", stop, found))
    return error{errc::launch_failed,
                 "more than " + std::to_string(limits::hidden_files) +
                   " files below /usr may not be read by everybody, so they cannot be hidden"};
  return found;
}

void hidden_files::look(int usr) {
  usr_ = usr;
  found_ = std::async(std::launch::async, [this, usr] {
    sigset_t all; // They are the spawner's.
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    return find_hidden(usr, stop_);
  });
}

bool hidden_files::ready() const {
  return !found_.valid() || found_.wait_for(std::chrono::seconds{0}) == std::future_status::ready;
}

result<void> hidden_files::make_layer(const std::string& in) {
  if (!ready())
    return {{errc::launch_failed, "it is still looked for what of /usr is to be hidden"}};
  if (found_.valid()) {
    const auto found = found_.get();
    const auto made = found ? make_of(*found, in) : result<void>{found.reason()};
    if (!made)
      failed_ = made.reason();
  }
  if (failed_)
    return {*failed_};
  return {};
}

result<void> hidden_files::make_of(const std::vector<std::string>& found, const std::string& in) {
  if (found.empty())
    return {};
  if (::mkdir(in.c_str(), 0755) != 0)
    return {failed(in)};
  unique_fd layer{::open(in.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!layer)
    return {failed(in)};
  for (const auto& each : found) {
    for (auto end = each.find('/'); end != std::string::npos; end = each.find('/', end + 1))
      if (::mkdirat(layer.get(), each.substr(0, end).c_str(), 0755) != 0 && errno != EEXIST)
        return {failed(in + "/" + each)};
    if (::mknodat(layer.get(), each.c_str(), S_IFCHR, makedev(0, 0)) != 0)
      return {failed(in + "/" + each)};
  }
  // The outer ones last, since what is made in a directory changes its times.
  for (const auto& each : found)
    for (auto end = each.rfind('/'); end != std::string::npos && end > 0;
         end = each.rfind('/', end - 1))
      if (!make_alike(usr_, layer.get(), each.substr(0, end)) && errno != ENOENT)
        return {failed(in + "/" + each)};
  if (!make_alike(usr_, layer.get(), ""))
    return {failed(in)};
  layer_ = std::move(layer);
  return {};
}

} // namespace insula::runtime::spawner
