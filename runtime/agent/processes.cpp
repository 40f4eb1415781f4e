#include "runtime/agent/processes.hpp"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <iterator>
#include <unistd.h>

namespace insula::runtime::agent {
namespace {

struct process {
  pid_t pid;
  pid_t parent;
  pid_t group;
  pid_t session;
  pid_t foreground;         ///< The group that its terminal listens to; -1: it has no terminal.
  bool waits;               ///< It sleeps, until something comes.
  bool ended;               ///< Nobody has buried it yet.
  unsigned long long began; ///< In ticks since the machine started.
};

constexpr int most_processes = 8192;
DIR* list = nullptr; ///< /proc, as it was when this program began: nothing can be put over it.
process all[most_processes];
int count = 0;

/// A small file of /proc as text. False: there is none, or nothing in it.
template <std::size_t N>
bool read_text(const char* path, char (&text)[N]) {
  const int file = ::openat(::dirfd(list), path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return false;
  const ssize_t n = ::read(file, text, N - 1);
  ::close(file);
  text[std::max<ssize_t>(n, 0)] = '\0';
  return n > 0;
}

/// The name, which can be anything, ends with the last parenthesis. After it come the state, the
/// parent, the group, the session, the terminal and its foreground; the start is the twentieth.
bool read_process(pid_t pid, process& into) {
  char path[64], text[1024];
  std::snprintf(path, sizeof path, "%d/stat", static_cast<int>(pid));
  if (!read_text(path, text))
    return false;
  const char* at = std::strrchr(text, ')');
  char state = 0;
  int parent = 0, group = 0, session = 0, foreground = 0;
  if (at == nullptr || std::sscanf(at + 1, " %c %d %d %d %*d %d", &state, &parent, &group, &session,
                                   &foreground) != 5)
    return false;
  for (int field = 0; field < 20 && at != nullptr; ++field)
    at = std::strchr(at + 1, ' ');
  if (at == nullptr)
    return false;
  into = {pid,
          static_cast<pid_t>(parent),
          static_cast<pid_t>(group),
          static_cast<pid_t>(session),
          static_cast<pid_t>(foreground),
          state == 'S',
          state == 'Z' || state == 'X',
          std::strtoull(at, nullptr, 10)};
  return true;
}

unsigned long long ticks_per_second() {
  return static_cast<unsigned long long>(::sysconf(_SC_CLK_TCK));
}

/// Since the machine started.
unsigned long long ticks_now() {
  timespec time{};
  ::clock_gettime(CLOCK_BOOTTIME, &time);
  return static_cast<unsigned long long>(time.tv_sec) * ticks_per_second() +
         static_cast<unsigned long long>(time.tv_nsec) * ticks_per_second() / 1'000'000'000u;
}

const process* find(pid_t pid) {
  const auto* const at = std::lower_bound(
    all, all + count, pid, [](const process& each, pid_t wanted) { return each.pid < wanted; });
  return at != all + count && at->pid == pid ? at : nullptr;
}

/// Does it come of this process, by way of nobody for whom `stops` holds?
template <class Stop>
bool descends(const process* at, pid_t of, Stop stops) {
  for (int depth = 0; at != nullptr && depth < most_processes; ++depth) {
    if (at->pid == of)
      return true;
    if (stops(*at))
      return false;
    at = find(at->parent);
  }
  return false;
}

bool has(const signalled_processes& among, pid_t pid) {
  return std::find(among.all, among.all + among.count, pid) != among.all + among.count;
}

/// True if it is a new one, which is remembered as long as there is room.
bool is_first(pid_t pid, signalled_processes* had) {
  if (had == nullptr)
    return true;
  if (had->count == signalled_processes::most || has(*had, pid))
    return false;
  had->all[had->count++] = pid;
  return true;
}

/// How many there are of them, whether or not they had it already.
template <class Which>
int signal_where(int number, signalled_processes* had, Which wanted) {
  int found = 0;
  for (int i = 0; i < count; ++i) {
    if (all[i].ended || !wanted(all[i]))
      continue;
    ++found;
    if (is_first(all[i].pid, had))
      ::kill(all[i].pid, number);
  }
  return found;
}

bool is_known(const hunted_processes& known, const process& which) {
  return std::any_of(known.all, known.all + known.count, [&](const auto& each) {
    return each.pid == which.pid && each.began == which.began;
  });
}

/// A shell that reads from its terminal: by its name, and by having no script to run, so that each
/// of its words is an option. One that is not known here is none.
bool is_shell(pid_t pid) {
  constexpr const char* known[] = {"ash", "bash", "dash", "fish", "ksh", "mksh", "sh", "zsh"};
  char path[64], name[32], words[4096];
  std::snprintf(path, sizeof path, "%d/comm", static_cast<int>(pid));
  if (!read_text(path, name))
    return false;
  name[std::strcspn(name, "\n")] = '\0';
  if (std::none_of(std::begin(known), std::end(known),
                   [&](const char* each) { return std::strcmp(name, each) == 0; }))
    return false;
  std::snprintf(path, sizeof path, "%d/cmdline", static_cast<int>(pid));
  const int file = ::openat(::dirfd(list), path, O_RDONLY | O_CLOEXEC);
  const ssize_t n = file < 0 ? -1 : ::read(file, words, sizeof words);
  ::close(file);
  if (n <= 0 || n == sizeof words || words[n - 1] != '\0')
    return false;
  for (const char* at = words + std::strlen(words) + 1; at < words + n; at += std::strlen(at) + 1)
    if (*at != '-')
      return false;
  return true;
}

/// The numbers of its children, the oldest first. False: there is none.
template <std::size_t N>
bool read_children(pid_t of, char (&text)[N]) {
  char path[64];
  std::snprintf(path, sizeof path, "%d/task/%d/children", static_cast<int>(of),
                static_cast<int>(of));
  return read_text(path, text);
}

void add_children(pid_t of, process_mark& mark) {
  char text[4096];
  if (!read_children(of, text))
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

void open_process_list() {
  list = ::opendir("/proc");
}

pid_t first_child_of(pid_t process) {
  char text[64];
  return read_children(process, text) ? static_cast<pid_t>(std::atoi(text)) : 0;
}

void look_at_processes() {
  count = 0;
  if (list == nullptr)
    return;
  ::rewinddir(list);
  while (const dirent* const entry = ::readdir(list)) {
    const auto pid = static_cast<pid_t>(std::atoi(entry->d_name));
    if (pid > 0 && count < most_processes && read_process(pid, all[count]))
      ++count;
  }
  std::sort(all, all + count, [](const process& a, const process& b) { return a.pid < b.pid; });
}

int young_descendants_of(pid_t leader, pid_t (&into)[64]) {
  const auto second_ago = ticks_now() - ticks_per_second();
  int found = 0;
  const auto add = [&](pid_t of) {
    process_mark children;
    add_children(of, children);
    for (int i = 0; i < children.count; ++i)
      if (struct process each{}; found < 64 && read_process(children.children[i], each) &&
                                 !each.ended && each.began >= second_ago)
        into[found++] = each.pid;
  };
  add(leader);
  for (int i = 0; i < found; ++i)
    add(into[i]);
  return found;
}

process_mark mark_processes(pid_t shell) {
  process_mark mark;
  mark.tick = ticks_now();
  add_children(::getpid(), mark);
  add_children(shell, mark);
  return mark;
}

int signal_new_processes(pid_t shell, const process_mark& before, int number,
                         signalled_processes* had, const signalled_processes* only) {
  look_at_processes();
  const auto self = ::getpid();
  const auto old = [&](const process& each) {
    if (each.pid == shell)
      return false;
    return each.began < before.tick || std::find(before.children, before.children + before.count,
                                                 each.pid) != before.children + before.count;
  };
  return signal_where(number, had, [&](const process& each) {
    return each.pid != self && each.pid != shell && (only == nullptr || has(*only, each.pid)) &&
           descends(&each, self, old);
  });
}

void signal_descendants(int number) {
  look_at_processes();
  const auto self = ::getpid();
  signal_where(number, nullptr, [&](const process& each) {
    return each.pid != self && descends(&each, self, [](const process&) { return false; });
  });
}

bool signal_session(pid_t session, int number, pid_t but) {
  const auto stranger = [](const process& each) { return each.pid == 1; };
  return signal_where(number, nullptr, [&](const process& each) {
           return each.pid != 1 && each.pid != but &&
                  (each.session == session || descends(&each, session, stranger));
         }) > 0;
}

int find_quiet_shells(pid_t* into, int most) {
  int found = 0;
  for (int i = 0; i < count && found < most; ++i) {
    const auto& each = all[i];
    const auto is_its_own = [&](const process& other) {
      return &other != &each && !other.ended &&
             (other.session == each.pid || other.parent == each.pid);
    };
    if (each.session == each.pid && each.group == each.pid && each.foreground == each.pid &&
        each.waits && std::none_of(all, all + count, is_its_own) && is_shell(each.pid))
      into[found++] = each.pid;
  }
  return found;
}

int hunt(pid_t leader, int number, pid_t spared_group, hunted_processes& known) {
  // Each process is judged once: by itself, else as its parent is.
  enum class verdict : std::uint8_t { open, hunted, not_hunted };
  static verdict verdicts[most_processes];
  const auto place = [](const process* at) { return at - all; };
  std::fill(verdicts, verdicts + count, verdict::open);
  for (int i = 0; i < known.count; ++i)
    if (const auto* at = find(known.all[i].pid); at != nullptr && at->began == known.all[i].began)
      verdicts[place(at)] = verdict::hunted;
  for (int i = 0; i < count && leader > 0; ++i)
    if (all[i].pid == leader || all[i].session == leader)
      verdicts[i] = verdict::hunted;
  const auto judge = [&](const process& of) {
    auto found = verdict::not_hunted;
    const auto* top = &of;
    for (int depth = 0; top != nullptr && top->pid != 1 && depth < count; ++depth) {
      if (verdicts[place(top)] != verdict::open) {
        found = verdicts[place(top)];
        break;
      }
      top = find(top->parent);
    }
    for (const auto* at = &of; at != nullptr && at != top && verdicts[place(at)] == verdict::open;
         at = find(at->parent))
      verdicts[place(at)] = found;
    return found;
  };
  int found = 0;
  for (int i = 0; i < count; ++i) {
    const auto& each = all[i];
    if (each.ended || each.pid == 1 || judge(each) != verdict::hunted)
      continue;
    ++found;
    if (!is_known(known, each) && known.count < hunted_processes::most)
      known.all[known.count++] = {each.pid, each.began};
    if (each.group != spared_group)
      ::kill(each.pid, number);
  }
  return found;
}

} // namespace insula::runtime::agent
