#include "runtime/spawner/memory_kinds.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <memory>
#include <poll.h>
#include <sched.h>
#include <string_view>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

constexpr std::uint64_t bytes_per_lock = 192; ///< An object of the slab file_lock_cache.
constexpr std::uint64_t shortest_lock_line = 44;

std::string of_process(pid_t process, const char* file) {
  return "/proc/" + std::to_string(process) + file;
}

using open_listing = std::unique_ptr<DIR, int (*)(DIR*)>;

open_listing open_directory(const std::string& path) {
  return {::opendir(path.c_str()), ::closedir};
}

/// The beginning of a file, `most` bytes of it.
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

/// The words of a line.
template <std::size_t N>
std::array<std::string_view, N> words_of(std::string_view line) {
  std::array<std::string_view, N> words;
  for (auto& each : words) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    each = line.substr(0, line.find_first_of(" \t"));
    line.remove_prefix(each.size());
  }
  return words;
}

std::uint64_t number(std::string_view text, int base = 10) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

template <class Do>
void for_each_line(std::string_view text, Do what) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    what(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// The number behind `name` in a text of lines.
std::optional<std::uint64_t> value_of(std::string_view text, std::string_view name) {
  std::optional<std::uint64_t> found;
  for_each_line(text, [&](std::string_view line) {
    if (!found && line.starts_with(name))
      found = number(words_of<1>(line.substr(name.size()))[0]);
  });
  return found;
}

} // namespace

// ---- The machine

namespace {

/// Adds what a part of /proc/locks says, each line for so many. Answers how many lines there were.
std::uint64_t add_lines(std::string_view text, std::uint64_t each_for, lock_sample& to) {
  std::uint64_t lines = 0;
  for_each_line(text, [&](std::string_view line) {
    // "1: POSIX  ADVISORY  WRITE 4711 00:2a:1234 0 EOF"; one that waits for a lock has "->".
    const auto words = words_of<7>(line);
    const bool waits = words[1] == "->";
    const auto &owner = words[waits ? 5 : 4], &place = words[waits ? 6 : 5];
    ++lines;
    if (!owner.empty() && owner[0] != '-' && owner != "0") {
      to.of_process[static_cast<pid_t>(number(owner))] += each_for;
    } else if (const auto colon = place.find(':'); colon != std::string_view::npos) {
      const auto minor = place.substr(colon + 1);
      const auto device =
        ::makedev(static_cast<unsigned>(number(place.substr(0, colon), 16)),
                  static_cast<unsigned>(number(minor.substr(0, minor.find(':')), 16)));
      to.of_device[device] += each_for;
    }
  });
  return lines;
}

/// How many locks there are on the machine.
std::uint64_t locks_of_machine() {
  std::uint64_t found = 0;
  for_each_line(beginning_of("/proc/slabinfo", 1 << 20), [&](std::string_view line) {
    const auto words = words_of<2>(line);
    if (words[0] == "file_lock_cache")
      found = number(words[1]);
  });
  return found;
}

} // namespace

lock_sample lock_sample::read() {
  lock_sample found;
  const unique_fd file{::open("/proc/locks", O_RDONLY | O_CLOEXEC)};
  std::array<char, 16384> buffer;
  std::string text;
  std::uint64_t lines = 0, bytes = 0;
  ssize_t n = 0;
  while (file && lines < counted && (n = ::read(file.get(), buffer.data(), buffer.size())) > 0) {
    bytes += static_cast<std::uint64_t>(n);
    text.append(buffer.data(), static_cast<std::size_t>(n));
    const auto whole = text.rfind('\n') + 1;
    lines += add_lines(std::string_view{text}.substr(0, whole), 1, found);
    text.erase(0, whole);
  }
  if (n <= 0 || lines == 0)
    return found; // That was all of them.
  // Each sample stands for those from half way to the one before to half way to the next.
  const auto all = locks_of_machine();
  for (auto from = lines; from < all;) {
    const auto at = std::min(from + from / 2, farthest);
    const bool last = at == farthest || at >= all;
    const auto to = last ? all : std::min(2 * from, all);
    const unique_fd anew{::open("/proc/locks", O_RDONLY | O_CLOEXEC)};
    n = ::pread(anew.get(), buffer.data(), buffer.size(),
                static_cast<off_t>(std::min(at, (from + to) / 2) * bytes / lines));
    const std::string_view part{buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
    const auto begin = std::min(part.find('\n'), part.size()), end = part.rfind('\n');
    if (end == std::string_view::npos || end <= begin)
      break; // There are fewer than was said.
    const auto whole = part.substr(begin + 1, end - begin);
    const auto seen = static_cast<std::uint64_t>(std::count(whole.begin(), whole.end(), '\n'));
    add_lines(whole, (to - from) / std::max<std::uint64_t>(seen, 1), found);
    from = to;
  }
  return found;
}

// ---- One sandbox

inhabitants::inhabitants(const watched_sandbox& who, const cgroup_tree& groups,
                         const lock_sample& locks)
    : who_(who)
    , locks_(locks)
    , processes_(groups.processes(who.slot)) {}

/// Of mounts of its own: overlays and file systems in memory.
const std::set<std::uint64_t>& inhabitants::devices() const {
  if (!devices_) {
    devices_.emplace();
    for_each_line(
      beginning_of(of_process(who_.first, "/mountinfo"), 1 << 18), [&](std::string_view line) {
        const auto device = words_of<3>(line)[2];
        const auto colon = device.find(':');
        if (colon != std::string_view::npos &&
            (line.find(" - overlay ") != std::string_view::npos ||
             line.find(" - tmpfs ") != std::string_view::npos))
          devices_->insert(::makedev(static_cast<unsigned>(number(device.substr(0, colon))),
                                     static_cast<unsigned>(number(device.substr(colon + 1)))));
      });
  }
  return *devices_;
}

/// The descriptors in a directory of /proc.
void inhabitants::count(const std::string& path, descriptors& into, std::size_t& left) const {
  const auto all = open_directory(path);
  while (const dirent* each = all && left > 0 ? ::readdir(all.get()) : nullptr) {
    if (each->d_name[0] == '.')
      continue;
    --left;
    std::array<char, 4096> text;
    const ssize_t n = ::readlinkat(::dirfd(all.get()), each->d_name, text.data(), text.size());
    const std::string_view target{text.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
    if (target == "anon_inode:[timerfd]") {
      ++into.timers;
    } else if (target == "anon_inode:[eventfd]" || target == "anon_inode:[signalfd]") {
      ++into.events;
    } else if (target == "anon_inode:[eventpoll]") {
      ++into.polls;
    } else if (target.starts_with('/')) {
      // As it is known here: the program behind a bucket is not asked, which need not answer.
      struct statx info {};
      if (::statx(::dirfd(all.get()), each->d_name, AT_STATX_DONT_SYNC, STATX_TYPE, &info) == 0 &&
          S_ISDIR(info.stx_mode))
        ++into.directories[std::string{target}];
    }
  }
}

const inhabitants::descriptors& inhabitants::open() const {
  if (open_)
    return *open_;
  open_.emplace();
  std::size_t left = max_descriptors;
  for (const auto process : processes_) {
    count(of_process(process, "/fd"), *open_, left);
    // A thread may have descriptors of its own.
    const auto threads = open_directory(of_process(process, "/task"));
    while (const dirent* each = threads && left > 0 ? ::readdir(threads.get()) : nullptr) {
      const auto thread = std::atoi(each->d_name);
      if (thread > 0 && thread != process && --left > 0 &&
          ::syscall(SYS_kcmp, process, thread, KCMP_FILES, 0, 0) > 0)
        count(of_process(process, "/task/") + each->d_name + "/fd", *open_, left);
    }
  }
  return *open_;
}

// ---- The kinds

namespace {

std::uint64_t file_locks(const inhabitants& in) {
  std::uint64_t mine = 0;
  for (const auto each : in.processes())
    if (const auto at = in.locks().of_process.find(each); at != in.locks().of_process.end())
      mine += at->second;
  for (const auto& [device, count] : in.locks().of_device)
    if (in.devices().contains(device))
      mine += count;
  return mine * bytes_per_lock;
}

/// Where a path leads in a layer of its own for /usr, beginning with a slash; empty: not there.
std::string_view below_usr(std::string_view path) {
  constexpr std::string_view usr = "/usr";
  if (path == usr)
    return "/";
  return path.starts_with("/usr/") ? path.substr(usr.size()) : std::string_view{};
}

/// A directory below another one, to which no link leads. Its path begins with a slash.
unique_fd open_below(const std::string& top, std::string_view path) {
  const unique_fd from{::open(top.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  open_how how{};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  const std::string below{path == "/" ? "." : path.substr(1)};
  return unique_fd{
    static_cast<int>(::syscall(SYS_openat2, from.get(), below.c_str(), &how, sizeof how))};
}

/// Does overlayfs merge that directory: is it in the image, and nothing above it is opaque in the
/// own layer?
bool is_merged(const watched_sandbox& who, const std::string& path) {
  if (path == "/")
    return true;
  if (!open_below(who.image, path))
    return !below_usr(path).empty() && open_below("/usr", below_usr(path));
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const auto upper = open_below(who.disk + "/u", std::string_view{path}.substr(0, end));
    char mark = 0;
    if (upper && ::fgetxattr(upper.get(), "user.overlay.opaque", &mark, 1) == 1 && mark == 'y')
      return false;
    if (end == std::string::npos)
      return true;
  }
}

/// What the names of a directory of the own layer take as a list in memory.
std::uint64_t bytes_of_names(unique_fd from, std::size_t& left) {
  constexpr std::uint64_t head = 80, step = 64;
  std::uint64_t bytes = 0;
  const open_listing all{from ? ::fdopendir(from.release()) : nullptr, ::closedir};
  while (const dirent* each = all && left > 0 ? ::readdir(all.get()) : nullptr) {
    --left;
    bytes += (head + std::strlen(each->d_name) + step) / step * step;
  }
  return bytes;
}

std::uint64_t directory_names(const inhabitants& in) {
  std::uint64_t bytes = 0;
  std::size_t left = 500'000; // Names, of all directories together.
  for (const auto& [path, handles] : in.open().directories) {
    if (!is_merged(in.who(), path))
      continue;
    const auto& disk = in.who().disk;
    auto names = bytes_of_names(open_below(disk + "/u", path), left);
    if (const auto usr = below_usr(path); !usr.empty())
      names += bytes_of_names(open_below(disk + "/uu", usr), left);
    bytes += handles * names;
  }
  return bytes;
}

std::uint64_t netlink_queues(const inhabitants& in) {
  std::uint64_t bytes = 0;
  for_each_line(beginning_of(of_process(in.who().first, "/net/netlink"), 4 << 20),
                [&](std::string_view line) {
                  // sk Eth Pid Groups Rmem Wmem …
                  const auto words = words_of<6>(line);
                  bytes += number(words[4]) + number(words[5]);
                });
  return bytes;
}

/// What waits in UDP sockets. The data of that is charged, but not what the network answered.
std::uint64_t socket_errors(const inhabitants& in) {
  std::uint64_t bytes = 0;
  for (const char* each : {"/net/udp", "/net/udp6"})
    for_each_line(beginning_of(of_process(in.who().first, each), 4 << 20),
                  [&](std::string_view line) {
                    // sl local_address rem_address st tx_queue:rx_queue …
                    const auto queues = words_of<5>(line)[4];
                    if (const auto colon = queues.find(':'); colon != std::string_view::npos)
                      bytes += number(queues.substr(colon + 1), 16);
                  });
  return bytes;
}

std::uint64_t connection_records(const inhabitants& in) {
  constexpr std::uint64_t bytes_each = 320;
  const auto text = beginning_of(of_process(in.who().first, "/net/stat/nf_conntrack"), 4096);
  const auto line = text.find('\n');
  return line == std::string::npos
           ? 0
           : number(words_of<1>(std::string_view{text}.substr(line + 1))[0], 16) * bytes_each;
}

std::uint64_t filters_in(const std::string& status) {
  return value_of(beginning_of(status, 8192), "Seccomp_filters:").value_or(0);
}

/// At most: one filter may be as large as all that a process may have, and those of a parent are
/// its children's as well. A thread has those of the first one of its process, and its own.
std::uint64_t seccomp_filters(const inhabitants& in) {
  constexpr std::uint64_t largest = 82 * 1024; // Compiled and as it was loaded: decision 26.
  static constexpr std::uint64_t most_of_thread = 2 * largest;
  const auto born_with = filters_in(of_process(in.who().first, "/status"));
  const auto bytes_of = [](std::uint64_t has, std::uint64_t given) {
    return std::min((has - std::min(has, given)) * largest, most_of_thread);
  };
  std::uint64_t bytes = 0;
  for (const auto process : in.processes()) {
    const auto tasks = of_process(process, "/task/");
    const auto own = filters_in(tasks + std::to_string(process) + "/status");
    bytes += bytes_of(own, born_with);
    const auto threads = open_directory(tasks);
    while (const dirent* each = threads ? ::readdir(threads.get()) : nullptr)
      if (each->d_name[0] != '.' && std::atoi(each->d_name) != process)
        bytes += bytes_of(filters_in(tasks + each->d_name + "/status"), own);
  }
  return bytes;
}

std::uint64_t small_objects(const inhabitants& in) {
  constexpr std::uint64_t timer = 256, event = 64, poll = 256;
  const auto& open = in.open();
  return open.timers * timer + open.events * event + open.polls * poll;
}

} // namespace

const std::array<kind_of_memory, memory_kinds>& all_kinds() {
  static constexpr std::array<kind_of_memory, memory_kinds> kinds{{
    {memory_kind::file_locks, file_locks},
    {memory_kind::directory_names, directory_names},
    {memory_kind::netlink_queues, netlink_queues},
    {memory_kind::socket_errors, socket_errors},
    {memory_kind::connection_records, connection_records},
    {memory_kind::seccomp_filters, seccomp_filters},
    {memory_kind::small_objects, small_objects},
  }};
  return kinds;
}

kinds_held read_kinds(const watched_sandbox& who, const cgroup_tree& groups,
                      const lock_sample& locks) {
  const inhabitants in{who, groups, locks};
  kinds_held held{};
  for (const auto& each : all_kinds())
    held[static_cast<std::size_t>(each.kind)] = each.held(in);
  return held;
}

namespace {

/// In a child that only answers, and whose parent has another thread. What is read from an offset
/// is preceded by all before it, in one walk.
[[noreturn]] void look_for_lock(int mounts_there, std::uint64_t nth, int answer) {
  char byte = 0;
  if (::setns(mounts_there, CLONE_NEWNS) == 0) {
    // A copy of that mount alone has no masks on it.
    const auto tree = static_cast<int>(
      ::syscall(SYS_open_tree, AT_FDCWD, "/proc", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
    const int file = ::openat(tree, "locks", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (::pread(file, &byte, 1, static_cast<off_t>(nth * shortest_lock_line)) == 1) [[maybe_unused]]
      const auto said = ::write(answer, &byte, 1);
  }
  ::_exit(0);
}

} // namespace

bool has_locks(const watched_sandbox& who, std::uint64_t count) {
  constexpr int patience_ms = 10'000;
  const unique_fd there{::open(of_process(who.first, "/ns/mnt").c_str(), O_RDONLY | O_CLOEXEC)};
  int ends[2];
  if (!there || ::pipe2(ends, O_CLOEXEC) != 0)
    return false;
  const unique_fd answer{ends[0]};
  unique_fd childs{ends[1]};
  // Its end is told to nobody, so that it is this thread's alone to wait for.
  clone_args how{};
  const auto child = static_cast<pid_t>(::syscall(SYS_clone3, &how, sizeof how));
  if (child == 0)
    look_for_lock(there.get(), count, childs.get());
  childs.reset();
  pollfd said{answer.get(), POLLIN, 0};
  char byte = 0;
  const bool has =
    child > 0 && ::poll(&said, 1, patience_ms) == 1 && ::read(answer.get(), &byte, 1) == 1;
  if (child > 0) {
    ::kill(child, SIGKILL);
    while (::waitpid(child, nullptr, __WCLONE) < 0 && errno == EINTR) {
    }
  }
  return has;
}

} // namespace insula::runtime::spawner
