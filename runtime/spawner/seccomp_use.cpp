#include "runtime/spawner/seccomp_use.hpp"

#include "base/unique_fd.hpp"

#include <array>
#include <charconv>
#include <cstdio>
#include <fcntl.h>
#include <memory>
#include <string_view>
#include <unistd.h>

namespace insula::runtime::spawner {

std::optional<std::uint32_t> filters_of(pid_t which) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/status", static_cast<int>(which));
  const unique_fd status{::open(path, O_RDONLY | O_CLOEXEC)};
  std::array<char, 8192> text; // Some 1,500 bytes; long lists of groups are before what is wanted.
  const ssize_t n = status ? ::read(status.get(), text.data(), text.size()) : -1;
  if (n <= 0)
    return {};
  const std::string_view all{text.data(), static_cast<std::size_t>(n)};
  constexpr std::string_view key = "\nSeccomp_filters:\t";
  const auto at = all.find(key);
  std::uint32_t count = 0;
  if (at == std::string_view::npos ||
      std::from_chars(all.data() + at + key.size(), all.data() + all.size(), count).ec !=
        std::errc{})
    return {};
  return count;
}

std::optional<seccomp_use> filters_in(const std::string& list, std::uint32_t each_has,
                                      std::size_t at_most) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> tasks{std::fopen(list.c_str(), "re"),
                                                              std::fclose};
  if (!tasks)
    return {};
  seccomp_use use;
  std::size_t asked = 0;
  for (int task = 0; std::fscanf(tasks.get(), "%d", &task) == 1;) {
    if (asked++ == at_most) {
      use.whole = false;
      break;
    }
    if (const auto held = filters_of(task)) {
      ++use.looked_at;
      use.filters += *held > each_has ? *held - each_has : 0;
    }
  }
  return use;
}

} // namespace insula::runtime::spawner
