#include "runtime/agent/processors.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

namespace insula::runtime::agent {
namespace {

int limit_to = -1, list_to = -1;
int quota = -1;      ///< Of v1, in microseconds for each period.
int limit_from = -1; ///< Of v2: both in one line.
long period = 100'000;
char shown[64]; ///< The limit as it was shown last.
long worth = 0; ///< Processors. 0: no limit.

bool read_line(int file, char (&text)[64]) {
  const auto n = ::pread(file, text, sizeof text - 1, 0);
  text[std::max<ssize_t>(n, 0)] = '\0';
  return n > 0;
}

void write_anew(int file, const char* text) {
  const auto length = static_cast<ssize_t>(std::strlen(text));
  if (file >= 0 && ::pwrite(file, text, static_cast<std::size_t>(length), 0) == length)
    [[maybe_unused]]
    const auto cut = ::ftruncate(file, length);
}

/// `text` as v2 has it: "50000 100000" or "max 100000".
long processors_in(const char* text) {
  char* end = nullptr;
  const long allowed = std::strtol(text, &end, 10);
  const long each = std::strtol(end, nullptr, 10);
  return allowed > 0 && each > 0 ? (allowed + each - 1) / each : 0;
}

/// As the kernel writes it: "0-3" or "0,2". Without the last ones where there is no room for them,
/// and always with room for a line's end.
void list_of(const cpu_set_t& set, char (&text)[256]) {
  std::size_t at = 0;
  text[0] = '\0';
  for (int first = 0; first < CPU_SETSIZE; ++first) {
    if (!CPU_ISSET(first, &set))
      continue;
    int last = first;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set))
      ++last;
    const auto left = sizeof text - 1 - at;
    const int n = first == last
                    ? std::snprintf(text + at, left, "%s%d", at == 0 ? "" : ",", first)
                    : std::snprintf(text + at, left, "%s%d-%d", at == 0 ? "" : ",", first, last);
    if (n < 0 || static_cast<std::size_t>(n) >= left) {
      text[at] = '\0';
      return;
    }
    at += static_cast<std::size_t>(n);
    first = last;
  }
}

void show_list() {
  cpu_set_t machine;
  if (list_to < 0 || ::sched_getaffinity(0, sizeof machine, &machine) != 0)
    return;
  char text[256];
  if (worth > 0 && worth < CPU_COUNT(&machine)) {
    CPU_ZERO(&machine);
    for (long each = 0; each < worth; ++each)
      CPU_SET(static_cast<std::size_t>(each), &machine);
  }
  list_of(machine, text);
  std::strcat(text, "\n");
  write_anew(list_to, text);
}

} // namespace

void open_processors(int limit_file, int list_file) {
  limit_to = limit_file;
  list_to = list_file;
  quota = ::open("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", O_RDONLY | O_CLOEXEC);
  if (quota < 0) {
    limit_from = ::open("/sys/fs/cgroup/cpu.max", O_RDONLY | O_CLOEXEC);
    limit_to = -1;
  } else if (const int file = ::open("/sys/fs/cgroup/cpu/cpu.cfs_period_us", O_RDONLY | O_CLOEXEC);
             file >= 0) {
    char text[64];
    if (read_line(file, text))
      period = std::strtol(text, nullptr, 10);
    ::close(file);
  }
  show_processors();
}

void show_processors() {
  char now[64], limit[64];
  if (!read_line(quota >= 0 ? quota : limit_from, now) || std::strcmp(now, shown) == 0)
    return;
  std::strcpy(shown, now);
  if (quota < 0)
    std::strcpy(limit, now);
  else if (const long us = std::strtol(now, nullptr, 10); us > 0)
    std::snprintf(limit, sizeof limit, "%ld %ld\n", us, period);
  else
    std::snprintf(limit, sizeof limit, "max %ld\n", period);
  worth = processors_in(limit);
  write_anew(limit_to, limit);
  show_list();
}

void stay_on_processors() {
  const int file = ::open("/sys/fs/cgroup/cpu.max", O_RDONLY | O_CLOEXEC);
  char text[64];
  const long wanted = file >= 0 && read_line(file, text) ? processors_in(text) : 0;
  if (file >= 0)
    ::close(file);
  cpu_set_t machine, own;
  unsigned here = 0;
  if (wanted == 0 || ::sched_getaffinity(0, sizeof machine, &machine) != 0 ||
      wanted >= CPU_COUNT(&machine) || ::getcpu(&here, nullptr) != 0)
    return;
  CPU_ZERO(&own);
  for (std::size_t step = 0; step < CPU_SETSIZE && CPU_COUNT(&own) < wanted; ++step)
    if (const auto each = (here + step) % CPU_SETSIZE; CPU_ISSET(each, &machine))
      CPU_SET(each, &own);
  ::sched_setaffinity(0, sizeof own, &own);
}

} // namespace insula::runtime::agent
