#include "runtime/spawner/open_files.hpp"

#include "base/unique_fd.hpp"
#include "runtime/spawner/proc_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <map>
#include <random>
#include <set>
#include <string_view>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <tuple>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

std::uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

/// The order that the kernel keeps of what two tasks have: -1, 0, 1. By number where it says none:
/// one of them may be gone.
template <class Key>
int order_of(int what, pid_t a, pid_t b, int fd_a, int fd_b, const Key& key_a, const Key& key_b) {
  const auto said = ::syscall(SYS_kcmp, a, b, what, fd_a, fd_b);
  if (said >= 0 && said <= 2)
    return said == 0 ? 0 : said == 1 ? -1 : 1;
  return key_a < key_b ? -1 : key_b < key_a ? 1 : 0;
}

/// A table of descriptors, which tasks may share.
struct table {
  pid_t task;
  bool operator<(const table& other) const {
    return order_of(KCMP_FILES, task, other.task, 0, 0, task, other.task) < 0;
  }
};

/// An open file, by a descriptor of it.
struct open_file {
  dev_t device;
  ino_t inode;
  pid_t task;
  int fd;
  mutable std::uint32_t seen_in; ///< The number of the last table that had it.

  bool operator<(const open_file& other) const {
    const auto mine = std::tie(device, inode), theirs = std::tie(other.device, other.inode);
    if (mine != theirs)
      return mine < theirs;
    return order_of(KCMP_FILE, task, other.task, fd, other.fd, std::tie(task, fd),
                    std::tie(other.task, other.fd)) < 0;
  }
};

/// What a file in fdinfo says.
struct description {
  std::uint64_t table_locks = 0; ///< POSIX: of one table.
  std::uint64_t file_locks = 0;  ///< Of whoever has the open file.
  std::uint64_t in_flight = 0;
};

description read_description(int directory, const char* name) {
  description found;
  const unique_fd file{::openat(directory, name, O_RDONLY | O_CLOEXEC)};
  std::array<char, 16384> text;
  std::size_t kept = 0; // The beginning of a line.
  while (file) {
    const ssize_t n = ::read(file.get(), text.data() + kept, text.size() - kept);
    if (n <= 0)
      break;
    const std::string_view all{text.data(), kept + static_cast<std::size_t>(n)};
    const auto whole = all.rfind('\n') + 1;
    for_each_line(all.substr(0, whole), [&](std::string_view line) {
      // "lock:	1: POSIX  ADVISORY  WRITE 4711 00:2a:1234 0 EOF"
      if (line.starts_with("lock:"))
        ++(words_of<3>(line)[2] == "POSIX" ? found.table_locks : found.file_locks);
      else if (line.starts_with("scm_fds:"))
        found.in_flight += number(words_of<2>(line)[1]);
    });
    const bool full = all.size() == text.size();
    kept = whole == 0 && full ? 0 : all.size() - whole; // No line is as long as that.
    std::copy(all.end() - static_cast<std::ptrdiff_t>(kept), all.end(), text.begin());
    if (!full)
      break; // The kernel gives as much as there is room for.
  }
  return found;
}

class census {
public:
  census(const weigh_directory& weigh, std::uint64_t patience_ms)
      : weigh_(weigh)
      , deadline_(now_ns() + patience_ms * 1'000'000) {}

  void count(const std::vector<pid_t>& processes) {
    std::vector<std::pair<std::string, pid_t>> tables; // One task of each.
    for (const auto process : processes) {
      const auto tasks = proc_file(process, "/task/");
      const auto add = [&](pid_t task) {
        if (tables_.insert({task}).second)
          tables.emplace_back(tasks + std::to_string(task), task);
      };
      add(process);
      const auto threads = open_directory(tasks);
      while (const dirent* each = threads ? ::readdir(threads.get()) : nullptr) {
        const auto thread = std::atoi(each->d_name);
        if (thread > 0 && thread != process &&
            ::syscall(SYS_kcmp, process, thread, KCMP_FILES, 0, 0) != 0)
          add(thread); // A few have descriptors of their own.
      }
    }
    for (auto left = tables.size(); const auto& [path, task] : tables) {
      const auto now = now_ns();
      const auto patience = deadline_ > now ? (deadline_ - now) / left : 0;
      look(path, task, (max_descriptors - looked_at_) / left--, now + patience);
    }
  }

  open_files found;

private:
  /// At a table: at `share` of its descriptors, or as many as can be until then, and a few at
  /// least.
  void look(const std::string& task, pid_t thread, std::size_t share, std::uint64_t until) {
    const auto all = open_directory(task + "/fd");
    const unique_fd info{::open((task + "/fdinfo").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (!all || !info)
      return;
    const auto slots = value_of(beginning_of(task + "/status", 8192), "FDSize:").value_or(0);
    const auto parts = std::clamp<std::uint64_t>(std::min<std::uint64_t>(share, slots) / 16, 1, 16);
    ++tables_seen_;
    stretch here{all.get(), info.get(), thread, std::max<std::size_t>(share / parts, 1), 0};
    for (std::uint64_t i = 0; i < parts; ++i) {
      const auto now = now_ns();
      here.until = now + (until > now ? (until - now) / (parts - i) : 0);
      here.found = {};
      const auto begin = i * slots / parts, end = (i + 1) * slots / parts;
      const auto passed = pass(here, begin, end, parts > 1);
      add(here.found,
          passed > 0 ? static_cast<double>(end - begin) / static_cast<double>(passed) : 0);
    }
  }

  /// What was seen of a part of a table stands for all of it.
  void add(const open_files& seen, double each_for) {
    for (const auto field :
         {&open_files::locks, &open_files::timers, &open_files::events, &open_files::polls,
          &open_files::name_handles, &open_files::name_bytes, &open_files::in_flight})
      found.*field +=
        static_cast<std::uint64_t>(std::llround(static_cast<double>(seen.*field) * each_for));
  }

  /// Some descriptors of a table.
  struct stretch {
    DIR* fds;
    int info;
    pid_t thread;
    std::size_t most; ///< Of each part of the table.
    std::uint64_t until;
    open_files found{};
  };

  /// From a random descriptor of those in [begin, end) on and around. Answers how many numbers of
  /// descriptors it has passed.
  std::uint64_t pass(stretch& here, std::uint64_t begin, std::uint64_t end, bool at_random) {
    const auto from =
      at_random ? std::uniform_int_distribution<std::uint64_t>{begin, end - 1}(random_) : begin;
    constexpr std::uint64_t dots = 2;
    ::seekdir(here.fds, static_cast<long>(from + dots));
    bool around = false;
    for (std::size_t n = 0;;) {
      const dirent* each = ::readdir(here.fds);
      if (each != nullptr && each->d_name[0] == '.')
        continue;
      const auto fd = each != nullptr ? static_cast<std::uint64_t>(std::atoi(each->d_name)) : end;
      if (fd >= end && !around) {
        around = true;
        ::seekdir(here.fds, static_cast<long>(begin + dots));
        continue;
      }
      if (around && fd >= from)
        return end - begin;
      if (looked_at_ >= max_descriptors || n >= here.most || (n > 0 && now_ns() >= here.until))
        return around ? end - from + fd - begin : fd - from;
      ++n;
      ++looked_at_;
      look_at(here, each->d_name, static_cast<int>(fd));
    }
  }

  void look_at(stretch& in, const char* name, int fd) {
    auto& here = in.found;
    const int fds = ::dirfd(in.fds);
    // As it is known here: the program behind a bucket is not asked, which need not answer.
    struct statx what {};
    if (::statx(fds, name, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &what) != 0)
      return;
    const auto device = ::makedev(what.stx_dev_major, what.stx_dev_minor);
    const auto [at, is_new] = files_.insert({device, what.stx_ino, in.thread, fd, tables_seen_});
    if (!is_new && at->seen_in == tables_seen_)
      return;
    at->seen_in = tables_seen_;
    const auto said = read_description(in.info, name);
    here.locks += said.table_locks;
    if (!is_new)
      return;
    here.locks += said.file_locks;
    here.in_flight += said.in_flight;
    if (S_ISDIR(what.stx_mode))
      return look_at_directory(fds, name, {device, what.stx_ino}, here);
    if ((what.stx_mode & S_IFMT) != 0)
      return;
    const auto target = target_of(fds, name);
    if (target == "anon_inode:[timerfd]")
      ++here.timers;
    else if (target == "anon_inode:[eventfd]" || target == "anon_inode:[signalfd]")
      ++here.events;
    else if (target == "anon_inode:[eventpoll]")
      ++here.polls;
  }

  void look_at_directory(int fds, const char* name, std::pair<dev_t, ino_t> which,
                         open_files& here) {
    auto known = directories_.find(which);
    if (known == directories_.end()) {
      const auto bytes = weigh_(which.first, target_of(fds, name));
      known = directories_.emplace(which, bytes ? *bytes : no_weight).first;
    }
    if (known->second == no_weight)
      return;
    ++here.name_handles;
    here.name_bytes += known->second;
  }

  static std::string target_of(int fds, const char* name) {
    std::array<char, 4096> text;
    const ssize_t n = ::readlinkat(fds, name, text.data(), text.size());
    return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
  }

  static constexpr std::uint64_t no_weight = ~std::uint64_t{0};

  const weigh_directory& weigh_;
  const std::uint64_t deadline_;
  std::minstd_rand random_{std::random_device{}()};
  std::size_t looked_at_ = 0;
  std::uint32_t tables_seen_ = 0;
  std::set<table> tables_;
  std::set<open_file> files_;
  std::map<std::pair<dev_t, ino_t>, std::uint64_t> directories_;
};

} // namespace

open_files count_open_files(const std::vector<pid_t>& processes, const weigh_directory& weigh,
                            std::uint64_t patience_ms) {
  census all{weigh, patience_ms};
  all.count(processes);
  return all.found;
}

} // namespace insula::runtime::spawner
