#include "storage/private_file.hpp"

#include "base/secret_box.hpp"
#include "base/unique_fd.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace insula::storage {

namespace {

namespace fs = std::filesystem;

error failed_at(const std::string& path, const std::string& what, int why = errno) {
  return {errc::io_failed, path + ": " + what + ": " + std::strerror(why)};
}

error refused_file(const std::string& path, const std::string& why) {
  return {errc::invalid_request, path + ": " + why};
}

/// A name beside `path` that nothing has.
result<std::string> name_beside(const std::string& path) {
  std::array<unsigned char, 8> random{};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return failed_at(path, "getrandom");
  std::string name = path + ".";
  constexpr std::string_view digits = "0123456789abcdef";
  for (const auto byte : random)
    name.append(1, digits[byte >> 4]).append(1, digits[byte & 15]);
  return name + ".new";
}

/// A whole file under a name of its own, on the disk. It goes with this object, but for what has
/// been given another name.
class draft_file {
public:
  explicit draft_file(std::string path)
      : path_(std::move(path)) {}
  draft_file(const draft_file&) = delete;
  draft_file& operator=(const draft_file&) = delete;
  ~draft_file() { ::unlink(path_.c_str()); }

  const std::string& path() const { return path_; }

  /// It has the owner of `like`. Null: this process' user is the owner.
  result<void> write(std::string_view content, const struct stat* like) {
    const unique_fd file{
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)};
    if (!file || ::fchmod(file.get(), 0600) != 0)
      return failed_at(path_, "cannot be made");
    if (like != nullptr && ::fchown(file.get(), like->st_uid, like->st_gid) != 0)
      return failed_at(path_, "cannot be given to its owner");
    while (!content.empty()) {
      const auto n = ::write(file.get(), content.data(), content.size());
      if (n < 0 && errno == EINTR)
        continue;
      if (n <= 0)
        return failed_at(path_, "cannot be written", n < 0 ? errno : ENOSPC);
      content.remove_prefix(static_cast<std::size_t>(n));
    }
    if (::fsync(file.get()) != 0)
      return failed_at(path_, "cannot be written");
    return {};
  }

private:
  const std::string path_;
};

/// The name is on the disk once its directory is.
result<void> sync_directory_of(const std::string& path) {
  auto above = fs::path{path}.parent_path();
  if (above.empty())
    above = ".";
  const unique_fd directory{::open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!directory || ::fsync(directory.get()) != 0)
    return failed_at(path, "its directory cannot be written");
  return {};
}

std::string in_octal(mode_t mode) {
  std::string text = "0000";
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, mode >>= 3)
    *digit = static_cast<char>('0' + (mode & 7));
  return text;
}

} // namespace

result<std::string> read_private_file(const std::string& path, std::size_t most) {
  // Without waiting for the other end, if it is a pipe.
  const unique_fd file{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  if (!file && errno == ENOENT)
    return error{errc::not_found, path + ": there is no such file"};
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0)
    return failed_at(path, "cannot be read");
  if (!S_ISREG(info.st_mode))
    return refused_file(path, "it has keys in it and has to be a regular file");
  if ((info.st_mode & 077) != 0)
    return refused_file(path, "it has keys in it, and others than its owner may use it (mode " +
                                in_octal(info.st_mode & 07777) + "); chmod 600 makes it safe");
  if (info.st_uid != 0 && info.st_uid != ::geteuid())
    return refused_file(path, "it has keys in it, and belongs to the user " +
                                std::to_string(info.st_uid) + "; chown root makes it safe");
  std::string text(most + 1, '\0');
  std::size_t size = 0;
  ssize_t n = 0;
  while (size < text.size() &&
         ((n = ::read(file.get(), text.data() + size, text.size() - size)) > 0 ||
          (n < 0 && errno == EINTR)))
    size += n > 0 ? static_cast<std::size_t>(n) : 0;
  if (n < 0 || size > most) {
    const auto why = errno;
    wipe(text);
    return n < 0 ? failed_at(path, "cannot be read", why)
                 : refused_file(path, "it has more than " + std::to_string(most) + " bytes");
  }
  text.resize(size);
  return text;
}

result<bool> make_private_file(const std::string& path, std::string_view content) {
  const auto name = name_beside(path);
  if (!name)
    return name.reason();
  draft_file draft{*name};
  if (auto ok = draft.write(content, nullptr); !ok)
    return ok.reason();
  if (::link(draft.path().c_str(), path.c_str()) != 0) {
    if (errno == EEXIST)
      return false;
    return failed_at(path, "cannot be made");
  }
  if (auto ok = sync_directory_of(path); !ok)
    return ok.reason();
  return true;
}

result<void> replace_private_file(const std::string& path, std::string_view content) {
  std::error_code why;
  const auto real = fs::canonical(path, why).string(); // A link stays one.
  struct stat info {};
  if (why || ::stat(real.c_str(), &info) != 0)
    return error{why && why != std::errc::no_such_file_or_directory ? errc::io_failed
                                                                    : errc::not_found,
                 path + ": " + (why ? why.message() : std::strerror(errno))};
  const auto name = name_beside(real);
  if (!name)
    return name.reason();
  draft_file draft{*name};
  if (auto ok = draft.write(content, &info); !ok)
    return ok;
  if (::rename(draft.path().c_str(), real.c_str()) != 0)
    return failed_at(path, "cannot be replaced");
  return sync_directory_of(real);
}

} // namespace insula::storage
