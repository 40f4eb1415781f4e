#include "runtime/spawner/proc_text.hpp"

#include "base/unique_fd.hpp"

#include <algorithm>
#include <charconv>
#include <fcntl.h>
#include <unistd.h>

namespace insula::runtime::spawner {

std::string proc_file(pid_t process, const char* file) {
  return "/proc/" + std::to_string(process) + file;
}

open_listing open_directory(const std::string& path) {
  return {::opendir(path.c_str()), ::closedir};
}

std::string beginning_of(const std::string& path, std::size_t most) {
  const unique_fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  std::string text;
  std::array<char, 16384> buffer;
  for (ssize_t n = 1; file && n > 0 && text.size() < most;) {
    n = ::read(file.get(), buffer.data(), buffer.size());
    text.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  }
  return text;
}

std::uint64_t number(std::string_view text, int base) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

std::optional<std::uint64_t> value_of(std::string_view text, std::string_view name) {
  std::optional<std::uint64_t> found;
  for_each_line(text, [&](std::string_view line) {
    if (!found && line.starts_with(name))
      found = number(words_of<1>(line.substr(name.size()))[0]);
  });
  return found;
}

} // namespace insula::runtime::spawner
