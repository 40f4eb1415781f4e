#include "runtime/agent/shortage.hpp"

#include "runtime/agent/clock.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace insula::runtime::agent {
namespace {

/// Processes that have to be left.
constexpr unsigned long long few = 8;

/// How long a refusal counts: for as long as shells wait before they fork again.
constexpr long recent_ms = 10'000;

/// One kind of what is limited.
struct supply {
  int used = -1, most = -1, refusals = -1; ///< Files.
  const char* title = nullptr;             ///< Of the number of refusals in its file.
  unsigned long long seen = 0;             ///< Of these; and when the last of them was.
  long refused_at = -recent_ms, looked_at = -recent_ms;
};
supply processes, memory;

int open_one(const char* path) {
  return ::open(path, O_RDONLY | O_CLOEXEC);
}

/// Of version 1, where each controller has a directory, or of version 2.
int open_either(const char* of_v1, const char* of_v2) {
  const int file = open_one(of_v1);
  return file >= 0 ? file : open_one(of_v2);
}

/// The number in a file, or the one behind `title`. 0: there is none.
unsigned long long number_in(int file, const char* title = nullptr) {
  char text[512];
  const auto n = file < 0 ? 0 : ::pread(file, text, sizeof text - 1, 0);
  text[std::max<ssize_t>(n, 0)] = '\0';
  const char* at = text;
  // At the beginning of a line: "oom" is also the beginning of "oom_kill".
  for (const auto length = title == nullptr ? 0 : std::strlen(title);
       length > 0 && (std::strncmp(at, title, length) != 0 || at[length] != ' ');) {
    at = std::strchr(at, '\n');
    if (at == nullptr)
      return 0;
    ++at;
  }
  return std::strtoull(title == nullptr ? at : at + std::strlen(title), nullptr, 10);
}

/// Has something been refused a moment ago? Of what was refused since an earlier look nobody knows
/// when, so it does not count where most of the supply is there again.
bool has_refused(supply& of, bool much_is_used) {
  const long now = now_ms();
  const auto refusals = number_in(of.refusals, of.title);
  if (refusals != of.seen && (much_is_used || now - of.looked_at < recent_ms))
    of.refused_at = now;
  of.seen = refusals;
  of.looked_at = now;
  return now - of.refused_at < recent_ms;
}

} // namespace

void open_shortage() {
  processes.used = open_one("/sys/fs/cgroup/pids.current");
  processes.most = open_one("/sys/fs/cgroup/pids.max");
  processes.refusals = open_either("/sys/fs/cgroup/pids/pids.events", "/sys/fs/cgroup/pids.events");
  processes.title = "max";
  memory.used = open_one("/sys/fs/cgroup/memory.current");
  memory.most = open_one("/sys/fs/cgroup/memory.max");
  memory.refusals =
    open_either("/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events");
  memory.title = "oom_kill";
}

bool is_short() {
  const auto most = number_in(processes.most), used = number_in(processes.used);
  const auto all = number_in(memory.most), taken = number_in(memory.used);
  // What has no limit reads as 0, or as more than there can be.
  const bool many = most > 0 && used > most / 4 * 3, much = all > 0 && taken > all / 4 * 3;
  const bool forked = has_refused(processes, many), killed = has_refused(memory, much);
  return (most > 0 && (forked || used + std::min(few, most / few) > most)) || (killed && much);
}

} // namespace insula::runtime::agent
