#include "runtime/spawner/memory_kinds.hpp"

#include "base/unique_fd.hpp"
#include "runtime/spawner/proc_text.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <set>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace insula::runtime::spawner {

// ---- Names of directories

namespace {

/// Where a path leads in a layer of its own for /usr, beginning with a slash; empty: not there.
std::string_view below_usr(std::string_view path) {
  constexpr std::string_view usr = "/usr";
  if (path == usr)
    return "/";
  return path.starts_with("/usr/") ? path.substr(usr.size()) : std::string_view{};
}

/// A directory below another one, to which no link leads. None: its path does not begin with a
/// slash.
unique_fd open_below(const std::string& top, std::string_view path) {
  if (!path.starts_with('/'))
    return {};
  const unique_fd from{::open(top.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  open_how how{};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  const std::string below{path == "/" ? "." : path.substr(1)};
  return unique_fd{
    static_cast<int>(::syscall(SYS_openat2, from.get(), below.c_str(), &how, sizeof how))};
}

/// In the layer, which need not be there.
unique_fd open_in_layer(const std::string& layer, std::string_view path) {
  return layer.empty() ? unique_fd{} : open_below(layer, path);
}

/// Is the directory in the image, in a layer over it, or in the machine's /usr?
bool is_below(const watched_sandbox& who, const std::string& path) {
  return open_below(who.image, path) || open_in_layer(who.sudo, path) ||
         open_in_layer(who.lists, path) ||
         (!below_usr(path).empty() && open_below("/usr", below_usr(path)));
}

/// Is a directory of the own layer opaque, or one above it?
bool is_own(const watched_sandbox& who, const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const auto upper = open_below(who.disk + "/u", std::string_view{path}.substr(0, end));
    char mark = 0;
    if (upper && ::fgetxattr(upper.get(), "user.overlay.opaque", &mark, 1) == 1 && mark == 'y')
      return true;
    if (end == std::string::npos)
      return false;
  }
}

/// Does overlayfs merge that directory, or did it before the directory was removed?
bool is_merged(const watched_sandbox& who, const std::string& path, bool removed) {
  return is_below(who, path) && (removed || !is_own(who, path));
}

/// What the names of a directory of one layer take as a list in memory.
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

/// Weighs the directories of one sandbox. Names that two layers have count twice.
class name_scales {
public:
  explicit name_scales(const watched_sandbox& who)
      : who_(who) {
    // The root and a layer of its own for /usr. No link is followed, which could lead anywhere.
    const unique_fd root{
      ::open(proc_file(who.first, "/root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
    for (const char* each : {".", "usr"}) {
      struct stat info {};
      if (root && ::fstatat(root.get(), each, &info, AT_SYMLINK_NOFOLLOW) == 0)
        overlays_.insert(info.st_dev);
    }
  }

  std::optional<std::uint64_t> weigh(dev_t device, std::string path) {
    constexpr std::string_view removed = " (deleted)";
    const bool is_removed = path.ends_with(removed);
    if (is_removed)
      path.resize(path.size() - removed.size());
    if (!overlays_.contains(device))
      return std::nullopt;
    if (!path.starts_with('/')) // It is longer than a path can be: nobody can tell what it holds.
      return 0;
    if (!is_merged(who_, path, is_removed))
      return std::nullopt;
    if (left_ == 0)
      return bytes_ / directories_; // As those before it, on the average.
    auto bytes = bytes_of_names(open_below(who_.disk + "/u", path), left_) +
                 bytes_of_names(open_below(who_.image, path), left_) +
                 bytes_of_names(open_in_layer(who_.sudo, path), left_) +
                 bytes_of_names(open_in_layer(who_.lists, path), left_);
    if (const auto usr = below_usr(path); !usr.empty())
      bytes += bytes_of_names(open_below(who_.disk + "/uu", usr), left_) +
               bytes_of_names(open_below("/usr", usr), left_);
    bytes_ += bytes;
    ++directories_;
    return bytes;
  }

private:
  const watched_sandbox& who_;
  std::set<dev_t> overlays_;
  std::size_t left_ = 500'000; ///< Names, of all directories together.
  std::uint64_t bytes_ = 0, directories_ = 0;
};

} // namespace

// ---- One sandbox

inhabitants::inhabitants(const watched_sandbox& who, const cgroup_tree& groups)
    : who_(who)
    , processes_(groups.processes(who.slot)) {}

const open_files& inhabitants::open() const {
  if (!open_) {
    name_scales scales{who_};
    open_ = count_open_files(processes_, [&](dev_t device, const std::string& path) {
      return scales.weigh(device, path);
    });
  }
  return *open_;
}

// ---- The kinds

namespace {

std::uint64_t file_locks(const inhabitants& in) {
  constexpr std::uint64_t bytes_each = 192; // An object of the slab file_lock_cache.
  return in.open().locks * bytes_each;
}

std::uint64_t directory_names(const inhabitants& in) {
  return in.open().name_bytes;
}

std::uint64_t netlink_queues(const inhabitants& in) {
  std::uint64_t bytes = 0;
  for_each_line(beginning_of(proc_file(in.who().first, "/net/netlink"), 4 << 20),
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
    for_each_line(beginning_of(proc_file(in.who().first, each), 4 << 20),
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
  const auto text = beginning_of(proc_file(in.who().first, "/net/stat/nf_conntrack"), 4096);
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
  const auto born_with = filters_in(proc_file(in.who().first, "/status"));
  const auto bytes_of = [](std::uint64_t has, std::uint64_t given) {
    return std::min((has - std::min(has, given)) * largest, most_of_thread);
  };
  std::uint64_t bytes = 0;
  for (const auto process : in.processes()) {
    const auto tasks = proc_file(process, "/task/");
    const auto own = filters_in(tasks + std::to_string(process) + "/status");
    bytes += bytes_of(own, born_with);
    const auto threads = open_directory(tasks);
    while (const dirent* each = threads ? ::readdir(threads.get()) : nullptr)
      if (each->d_name[0] != '.' && std::atoi(each->d_name) != process)
        bytes += bytes_of(filters_in(tasks + each->d_name + "/status"), own);
  }
  return bytes;
}

/// How long the text of a file of lines is, or `most`. Read from ever later offsets: the kernel
/// walks over what comes before once for each of these, where reading all of it walks for each
/// page.
std::uint64_t length_of(const std::string& path, std::uint64_t most) {
  const unique_fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  std::array<char, 4096> text;
  std::uint64_t known = 0;
  for (std::uint64_t at = 0; file && at < most; at = std::max<std::uint64_t>(2 * at, 4096)) {
    const ssize_t n = ::pread(file.get(), text.data(), text.size(), static_cast<off_t>(at));
    if (n <= 0)
      break;
    known = at + static_cast<std::uint64_t>(n);
  }
  return std::min(known, most);
}

/// In groups of IPv6 multicast, and their lists of senders. What is behind half of a text at most
/// is not seen.
std::uint64_t memberships(const inhabitants& in) {
  constexpr std::uint64_t most = 64 << 20, group_line = 71, group = 512, sender_line = 91,
                          sender = 64;
  return length_of(proc_file(in.who().first, "/net/igmp6"), most) / group_line * group +
         length_of(proc_file(in.who().first, "/net/mcfilter6"), most) / sender_line * sender;
}

std::uint64_t small_objects(const inhabitants& in) {
  constexpr std::uint64_t timer = 256, event = 64, poll = 256;
  const auto& open = in.open();
  return open.timers * timer + open.events * event + open.polls * poll;
}

/// File systems in memory: the sandbox's own, and the kernel's.
std::set<dev_t> memory_devices(const inhabitants& in) {
  std::set<dev_t> devices;
  for_each_line(
    beginning_of(proc_file(in.who().first, "/mountinfo"), 1 << 18), [&](std::string_view line) {
      const auto device = words_of<3>(line)[2];
      const auto colon = device.find(':');
      if (colon != std::string_view::npos && line.find(" - tmpfs ") != std::string_view::npos)
        devices.insert(::makedev(static_cast<unsigned>(number(device.substr(0, colon))),
                                 static_cast<unsigned>(number(device.substr(colon + 1)))));
    });
  const unique_fd in_memory{::memfd_create("which", MFD_CLOEXEC)};
  struct stat info {};
  if (in_memory && ::fstat(in_memory.get(), &info) == 0)
    devices.insert(info.st_dev);
  return devices;
}

/// Files with locks of an open file that a mapping may keep when no descriptor does. A mapping of
/// overlayfs keeps the file below alone, which has no locks.
std::uint64_t locked_and_only_mapped(const inhabitants& in) {
  constexpr std::size_t most_files = 2'000;
  const auto devices = memory_devices(in);
  std::set<std::pair<dev_t, ino_t>> seen;
  std::uint64_t found = 0;
  for (const auto process : in.processes()) {
    const auto files = proc_file(process, "/map_files/");
    for_each_line(beginning_of(proc_file(process, "/maps"), 1 << 18), [&](std::string_view line) {
      // "7f0c2c000000-7f0c2c021000 rw-p 00000000 00:01 1234 /memfd:x (deleted)"
      const auto words = words_of<5>(line);
      const auto colon = std::min(words[3].find(':'), words[3].size());
      const auto device = ::makedev(
        static_cast<unsigned>(number(words[3].substr(0, colon), 16)),
        static_cast<unsigned>(number(words[3].substr(std::min(colon + 1, words[3].size())), 16)));
      if (seen.size() >= most_files || !devices.contains(device) ||
          !seen.emplace(device, number(words[4])).second)
        return;
      const unique_fd file{
        ::open((files + std::string{words[0]}).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
      struct flock lock {};
      lock.l_type = F_WRLCK;
      if (file && ::fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK &&
          lock.l_pid == -1)
        ++found;
    });
  }
  return found;
}

} // namespace

const std::vector<kind_of_memory>& counted_kinds() {
  static const std::vector<kind_of_memory> kinds{
    {memory_kind::file_locks, file_locks},
    {memory_kind::directory_names, directory_names},
    {memory_kind::netlink_queues, netlink_queues},
    {memory_kind::socket_errors, socket_errors},
    {memory_kind::connection_records, connection_records},
    {memory_kind::seccomp_filters, seccomp_filters},
    {memory_kind::small_objects, small_objects},
    {memory_kind::memberships, memberships},
  };
  return kinds;
}

sandbox_memory read_memory(const watched_sandbox& who, const cgroup_tree& groups, bool is_short) {
  const inhabitants in{who, groups};
  sandbox_memory read{who.id};
  for (const auto& each : counted_kinds())
    read.held[static_cast<std::size_t>(each.kind)] = each.held(in);
  read.may_hide = in.open().name_handles + in.open().in_flight;
  if (is_short)
    read.may_hide += locked_and_only_mapped(in);
  return read;
}

} // namespace insula::runtime::spawner
