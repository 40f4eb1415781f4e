#include "runtime/spawner/machine_ceilings.hpp"

#include "base/log.hpp"
#include "base/unique_fd.hpp"

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

struct ceiling {
  const char* path;
  std::uint64_t wanted; ///< The most that the kernel has.
  const char* risk;
};

constexpr ceiling ceilings[] = {
  {"/proc/sys/fs/file-max", 9'223'372'036'854'775'807,
   "one sandbox can use up the machine's open files"},
  {"/proc/sys/kernel/pty/max", 1 << 20, "sandboxes can use up the machine's terminals"},
  {"/proc/sys/kernel/pid_max", 1 << 22, "sandboxes can use up the machine's process numbers"},
};

void raise(const ceiling& which) {
  const unique_fd file{::open(which.path, O_RDWR | O_CLOEXEC)};
  char text[32];
  const ssize_t n = file ? ::read(file.get(), text, sizeof text) : -1;
  std::uint64_t now = 0;
  if (n > 0 && std::from_chars(text, text + n, now).ec == std::errc{} && now >= which.wanted)
    return;
  const auto line = std::to_string(which.wanted) + "\n";
  if (n > 0 && ::pwrite(file.get(), line.data(), line.size(), 0) > 0)
    return log::info("spawner.ceiling_raised",
                     {{"path", which.path}, {"before", now}, {"now", which.wanted}});
  log::warning("spawner.ceiling_not_raised",
               {{"path", which.path}, {"reason", std::strerror(errno)}, {"risk", which.risk}});
}

} // namespace

void raise_ceilings_of_machine() {
  for (const auto& each : ceilings)
    raise(each);
}

} // namespace insula::runtime::spawner
