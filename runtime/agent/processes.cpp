#include "runtime/agent/processes.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

namespace insula::runtime::agent {
namespace {

struct process {
  pid_t pid;
  pid_t parent;
  unsigned long long began; ///< In ticks since the machine started.
};

constexpr int most_processes = 8192;
process all[most_processes];
int count = 0;

/// A small file of /proc as text; empty if there is none.
template <std::size_t N>
bool read_text(const char* path, char (&text)[N]) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return false;
  const ssize_t n = ::read(file, text, N - 1);
  ::close(file);
  text[std::max<ssize_t>(n, 0)] = '\0';
  return n > 0;
}

/// The name, which can be anything, ends with the last parenthesis; the parent is the second field
/// after it, the start the twentieth.
bool read_process(pid_t pid, process& into) {
  char path[64], text[1024];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  if (!read_text(path, text))
    return false;
  const char* at = std::strrchr(text, ')');
  int parent = 0;
  if (at == nullptr || std::sscanf(at + 1, " %*c %d", &parent) != 1)
    return false;
  for (int field = 0; field < 20 && at != nullptr; ++field)
    at = std::strchr(at + 1, ' ');
  if (at == nullptr)
    return false;
  into = {pid, static_cast<pid_t>(parent), std::strtoull(at, nullptr, 10)};
  return true;
}

void look() {
  count = 0;
  DIR* const proc = ::opendir("/proc");
  if (proc == nullptr)
    return;
  while (const dirent* const entry = ::readdir(proc)) {
    const auto pid = static_cast<pid_t>(std::atoi(entry->d_name));
    if (pid > 0 && count < most_processes && read_process(pid, all[count]))
      ++count;
  }
  ::closedir(proc);
  std::sort(all, all + count, [](const process& a, const process& b) { return a.pid < b.pid; });
}

const process* find(pid_t pid) {
  const auto* const at = std::lower_bound(
    all, all + count, pid, [](const process& each, pid_t wanted) { return each.pid < wanted; });
  return at != all + count && at->pid == pid ? at : nullptr;
}

/// Does it come of this process, by way of nobody for whom `stops` holds?
template <class Stop>
bool descends(const process* at, Stop stops) {
  const auto self = ::getpid();
  for (int depth = 0; at != nullptr && depth < most_processes; ++depth) {
    if (at->pid == self)
      return true;
    if (stops(*at))
      return false;
    at = find(at->parent);
  }
  return false;
}

/// True if it is a new one, which is remembered as long as there is room.
bool is_first(pid_t pid, signalled_processes* had) {
  if (had == nullptr)
    return true;
  if (had->count == signalled_processes::most ||
      std::find(had->all, had->all + had->count, pid) != had->all + had->count)
    return false;
  had->all[had->count++] = pid;
  return true;
}

template <class Stop>
void signal_where(int number, pid_t but, signalled_processes* had, Stop stops) {
  look();
  for (int i = 0; i < count; ++i)
    if (all[i].pid != ::getpid() && all[i].pid != but && descends(&all[i], stops) &&
        is_first(all[i].pid, had))
      ::kill(all[i].pid, number);
}

void add_children(pid_t of, process_mark& mark) {
  char path[64], text[4096];
  std::snprintf(path, sizeof path, "/proc/%d/task/%d/children", static_cast<int>(of),
                static_cast<int>(of));
  if (!read_text(path, text))
    return;
  for (char* at = text; mark.count < process_mark::most;) {
    char* end = nullptr;
    const long pid = std::strtol(at, &end, 10);
    if (end == at)
      return;
    mark.children[mark.count++] = static_cast<pid_t>(pid);
    at = end;
  }
}

} // namespace

process_mark mark_processes(pid_t shell) {
  process_mark mark;
  timespec time{};
  ::clock_gettime(CLOCK_BOOTTIME, &time);
  const auto per_second = static_cast<unsigned long long>(::sysconf(_SC_CLK_TCK));
  mark.tick = static_cast<unsigned long long>(time.tv_sec) * per_second +
              static_cast<unsigned long long>(time.tv_nsec) * per_second / 1'000'000'000u;
  add_children(::getpid(), mark);
  add_children(shell, mark);
  return mark;
}

void signal_new_processes(pid_t shell, const process_mark& before, int number,
                          signalled_processes* had) {
  signal_where(number, shell, had, [&](const process& each) {
    if (each.pid == shell)
      return false;
    return each.began < before.tick || std::find(before.children, before.children + before.count,
                                                 each.pid) != before.children + before.count;
  });
}

void signal_descendants(int number) {
  signal_where(number, 0, nullptr, [](const process&) { return false; });
}

} // namespace insula::runtime::agent
