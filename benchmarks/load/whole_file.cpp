#include "benchmarks/load/whole_file.hpp"

#include "base/unique_fd.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace insula::load {

namespace {

namespace fs = std::filesystem;

error failed(const std::string& path, const char* what, int why) {
  return {errc::io_failed, path + ": cannot be " + what + ": " + std::strerror(why)};
}

/// 0, or why not.
int write_all(int to, std::string_view text) {
  while (!text.empty()) {
    const auto n = ::write(to, text.data(), text.size());
    if (n < 0 && errno != EINTR)
      return errno;
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  }
  return 0;
}

int write_as_it_is(const std::string& path, std::string_view text) {
  const unique_fd to{::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY)};
  return to ? write_all(to.get(), text) : errno;
}

int write_and_rename(const std::string& path, std::string_view text) {
  constexpr mode_t mode = 0644;
  auto beside = path + ".XXXXXX";
  const unique_fd to{::mkostemp(beside.data(), O_CLOEXEC)};
  if (!to)
    return errno;
  int why = write_all(to.get(), text);
  if (why == 0 && (::fchmod(to.get(), mode) != 0 || ::fsync(to.get()) != 0 ||
                   ::rename(beside.c_str(), path.c_str()) != 0))
    why = errno;
  if (why != 0)
    ::unlink(beside.c_str());
  return why;
}

} // namespace

result<void> write_whole(const std::string& path, const std::string& text) {
  std::error_code none;
  const auto now = fs::status(path, none);
  const bool special = fs::exists(now) && !fs::is_regular_file(now);
  // A link stays one: what it leads to is replaced.
  const auto file =
    fs::is_symlink(path, none) && fs::exists(now) ? fs::canonical(path, none).string() : path;
  const int why = special ? write_as_it_is(path, text) : write_and_rename(file, text);
  if (why != 0)
    return failed(path, "written", why);
  return {};
}

result<std::string> read_whole(const std::string& path, std::size_t most) {
  const unique_fd from{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY)};
  if (!from)
    return failed(path, "read", errno);
  std::string text;
  char piece[64 * 1024];
  for (;;) {
    const auto n = ::read(from.get(), piece, sizeof piece);
    if (n == 0)
      return text;
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return failed(path, "read", errno);
    text.append(piece, static_cast<std::size_t>(n));
    if (text.size() > most)
      return error{errc::invalid_request,
                   path + ": expected at most " + std::to_string(most >> 20) + " MiB"};
  }
}

} // namespace insula::load
