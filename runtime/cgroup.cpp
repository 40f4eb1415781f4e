#include "runtime/cgroup.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <span>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

namespace insula::runtime {

namespace {

/// The v1 controllers that hold the limits, and the unified hierarchy, which has no name. The
/// freezer is only needed where there is none of that.
constexpr std::array<std::string_view, 5> controllers_with_limits{"memory", "pids", "cpu",
                                                                  "freezer", ""};

/// Those of the unified hierarchy.
constexpr std::array<std::string_view, 3> v2_controllers{"memory", "pids", "cpu"};

/// Of v1, for find_shown_hierarchies().
constexpr std::array<std::string_view, 2> v1_shown_controllers{"cpuset", "cpuacct"};

/// Of version 1: what sockets may hold, in bytes. Their protocols charge it, UDP's as well.
constexpr const char* sockets_limit = "/memory.kmem.tcp.limit_in_bytes";

/// Of version 1: the processor's time in each period.
constexpr const char* quota_file = "/cpu.cfs_quota_us";

bool write_file(const std::string& path, std::string_view text) {
  const unique_fd file{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
  return file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

/// The same into a file that stays open.
bool write_anew(int file, std::string_view text) {
  return ::pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

std::string read_file(const std::string& path) {
  const unique_fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n; file && (n = ::read(file.get(), buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(n));
  return text;
}

/// The number in a text, or the one that follows `name` there.
std::optional<std::uint64_t> number_of(std::string text, std::string_view name = {}) {
  std::istringstream words{std::move(text)};
  std::string word;
  while (word != name && words >> word) {
  }
  std::uint64_t number = 0;
  return words >> number ? std::optional{number} : std::nullopt;
}

/// The same of a file.
std::optional<std::uint64_t> number_in(const std::string& path, std::string_view name = {}) {
  return number_of(read_file(path), name);
}

error failed(const std::string& what) {
  return {errc::launch_failed, what + ": " + std::strerror(errno)};
}

error not_handed_down(const std::string& group, std::string_view controller) {
  const std::string way =
    " (under systemd: systemd-run --scope -p Delegate=yes, or Delegate=yes in the unit)";
  if (errno == EBUSY)
    return {errc::launch_failed, "other processes are in the cgroup " + group +
                                   ", so it can hand no controllers down to sandboxes; start the "
                                   "server in a cgroup of its own" +
                                   way};
  return {errc::launch_failed, "the cgroup " + group + " cannot hand the controller " +
                                 std::string{controller} + " down to sandboxes" + way + ": " +
                                 std::strerror(errno)};
}

bool has_word(std::string_view list, char separator, std::string_view word) {
  while (!list.empty()) {
    const auto end = list.find(separator);
    if (list.substr(0, end) == word)
      return true;
    list = end == std::string_view::npos ? std::string_view{} : list.substr(end + 1);
  }
  return false;
}

/// Kills those of a group one by one: cgroup.kill is newer than what is supported, and v1 never had
/// it. This process and the one that started it live on.
struct killed {
  bool any = false;  ///< There was somebody,
  bool ours = false; ///< and one of us.
};
killed kill_all_in(const std::string& group) {
  killed found;
  std::istringstream pids{read_file(group + "/cgroup.procs")};
  for (std::string pid; std::getline(pids, pid);)
    if (const auto number = std::atoi(pid.c_str()); number > 0) {
      const bool is_ours = number == ::getpid() || number == ::getppid();
      found.any = true;
      found.ours |= is_ours;
      if (!is_ours)
        ::kill(number, SIGKILL);
    }
  return found;
}

/// The names of the directories in `path`.
std::vector<std::string> directories_in(const std::string& path) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir{::opendir(path.c_str()), ::closedir};
  while (const dirent* entry = dir ? ::readdir(dir.get()) : nullptr)
    if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
      names.emplace_back(entry->d_name);
  return names;
}

/// Those of the groups below `top`, the inner ones first.
std::vector<std::string> groups_below(const std::string& top) {
  std::vector<std::string> names;
  for (const auto& outer : directories_in(top)) {
    for (const auto& inner : groups_below(top + "/" + outer))
      names.push_back(outer + "/" + inner);
    names.push_back(outer);
  }
  return names;
}

const char* name_of(cgroup_part part) {
  return part == cgroup_part::commands ? "/commands" : "/reserve";
}

constexpr std::uint32_t most_processes = 4u << 20; ///< That pids.max takes.

cgroup_limits limits_with_reserve(cgroup_limits slot) {
  slot.memory_bytes += reserved_memory(slot.memory_bytes);
  if (slot.processes > 0)
    slot.processes = std::min(slot.processes + reserved_processes, most_processes);
  return slot;
}

} // namespace

std::uint64_t reserved_memory(std::uint64_t limit) {
  constexpr std::uint64_t part = 16, least = 4u << 20, most = 32u << 20;
  return std::min(std::clamp(limit / part, least, most), limit / 4);
}

namespace {

std::vector<cgroup_hierarchy> find_hierarchies(std::string_view proc_mounts,
                                               std::string_view proc_self_cgroup,
                                               std::span<const std::string_view> controllers) {
  // "<id>:<controllers>:<path>", the unified one with id 0 and no controllers.
  const auto own_path = [&](std::string_view controller) -> std::optional<std::string> {
    std::istringstream lines{std::string{proc_self_cgroup}};
    for (std::string line; std::getline(lines, line);) {
      const auto first = line.find(':');
      const auto second = line.find(':', first + 1);
      if (second == std::string::npos)
        continue;
      const auto named = std::string_view{line}.substr(first + 1, second - first - 1);
      if (controller.empty() ? named.empty() : has_word(named, ',', controller)) {
        auto path = line.substr(second + 1);
        return path == "/" ? std::string{} : path;
      }
    }
    return std::nullopt;
  };
  std::vector<cgroup_hierarchy> found;
  std::istringstream lines{std::string{proc_mounts}};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words{line};
    std::string source, target, type, options;
    words >> source >> target >> type >> options;
    const auto add = [&](std::string_view controller) {
      const bool known = std::any_of(found.begin(), found.end(),
                                     [&](auto& h) { return h.controller == controller; });
      if (const auto path = own_path(controller); path && !known)
        found.push_back({std::string{controller}, target + *path});
    };
    for (const auto controller : controllers)
      if (controller.empty() ? type == "cgroup2"
                             : type == "cgroup" && has_word(options, ',', controller))
        add(controller);
  }
  return found;
}

} // namespace

std::vector<cgroup_hierarchy> find_cgroup_hierarchies(std::string_view proc_mounts,
                                                      std::string_view proc_self_cgroup) {
  auto found = find_hierarchies(proc_mounts, proc_self_cgroup, controllers_with_limits);
  // With the unified hierarchy at hand, its own freezer and kill need no controller.
  if (std::any_of(found.begin(), found.end(), [](auto& h) { return h.controller.empty(); }))
    std::erase_if(found, [](auto& h) { return h.controller == "freezer"; });
  return found;
}

std::vector<cgroup_hierarchy> find_shown_hierarchies(std::string_view proc_mounts,
                                                     std::string_view proc_self_cgroup) {
  const auto limits = find_cgroup_hierarchies(proc_mounts, proc_self_cgroup);
  auto found = find_hierarchies(proc_mounts, proc_self_cgroup, v1_shown_controllers);
  std::erase_if(found, [&](auto& each) {
    return std::any_of(limits.begin(), limits.end(),
                       [&](auto& other) { return other.directory == each.directory; });
  });
  return found;
}

std::string without_group_counts(std::string_view proc_cgroups) {
  std::string text;
  std::istringstream lines{std::string{proc_cgroups}};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words{line};
    std::string name, hierarchy, groups, enabled;
    if (line.starts_with('#'))
      text += line + '\n';
    else if (words >> name >> hierarchy >> groups >> enabled)
      text += name + '\t' + hierarchy + "\t1\t" + enabled + '\n';
  }
  return text;
}

std::string list_of_controllers() {
  return without_group_counts(read_file("/proc/cgroups"));
}

cgroup_tree cgroup_tree::of_process(pid_t pid, std::string key) {
  const auto mounts = read_file("/proc/self/mounts");
  const auto cgroups = read_file("/proc/" + std::to_string(pid) + "/cgroup");
  return {find_cgroup_hierarchies(mounts, cgroups), std::move(key),
          find_shown_hierarchies(mounts, cgroups)};
}

cgroup_tree cgroup_tree::of_this_process(std::string key) {
  return of_process(::getpid(), std::move(key));
}

cgroup_tree::cgroup_tree(std::vector<cgroup_hierarchy> hierarchies, std::string key,
                         std::vector<cgroup_hierarchy> shown)
    : hierarchies_(std::move(hierarchies))
    , shown_(std::move(shown))
    , key_(std::move(key)) {
  const auto v1_memory = std::any_of(hierarchies_.begin(), hierarchies_.end(),
                                     [](auto& h) { return h.controller == "memory"; });
  unified_controllers_ = !v1_memory;
  // A process that prepare() has moved sees itself in the leaf; the node's place is above.
  const auto leaf = "/insula-" + key_ + "/host";
  for (auto& each : hierarchies_)
    if (each.directory.ends_with(leaf))
      each.directory.resize(each.directory.size() - leaf.size());
}

std::string cgroup_tree::mode() const {
  const auto unified = std::any_of(hierarchies_.begin(), hierarchies_.end(),
                                   [](auto& h) { return h.controller.empty(); });
  return !unified ? "v1" : unified_controllers_ ? "v2" : "hybrid";
}

std::string cgroup_tree::node(const cgroup_hierarchy& in) const {
  return in.directory + "/insula-" + key_;
}

std::string cgroup_tree::sandboxes(const cgroup_hierarchy& in) const {
  return node(in) + "/sandboxes";
}

std::string cgroup_tree::path(const cgroup_hierarchy& in, cgroup_id which) const {
  return node(in) + "/" + which.kind + "-" + std::to_string(which.number);
}

bool cgroup_tree::limited(const cgroup_hierarchy& in) const {
  return in.controller.empty() && unified_controllers_;
}

bool cgroup_tree::has_limits(const cgroup_hierarchy& in) const {
  return limited(in) || (!in.controller.empty() && in.controller != "freezer");
}

/// Where the processes of a part are.
std::string cgroup_tree::path(const cgroup_hierarchy& in, cgroup_id which, cgroup_part part) const {
  const bool own = part == cgroup_part::commands || limited(in);
  const auto slot = path(in, which);
  return which.divided && has_limits(in) && own ? slot + name_of(part) : slot;
}

/// All of a slot's, the outermost first.
std::vector<std::string> cgroup_tree::groups(const cgroup_hierarchy& in, cgroup_id which) const {
  std::vector<std::string> all{path(in, which)};
  for (const auto part : {cgroup_part::commands, cgroup_part::reserve})
    if (auto group = path(in, which, part); group != all.front())
      all.push_back(std::move(group));
  return all;
}

result<void> cgroup_tree::prepare() const {
  const auto enter = [this](const cgroup_hierarchy& in) -> result<void> {
    const auto top = node(in);
    for (const auto& made : {top, top + "/host", sandboxes(in)})
      if (::mkdir(made.c_str(), 0755) != 0 && errno != EEXIST)
        return failed(made);
    if (!write_file(top + "/host/cgroup.procs", "0"))
      return failed(top + "/host/cgroup.procs");
    if (&in == freezing()) // A dead node may have left it standing still, with what does not die.
      write_file(sandboxes(in) + freezer_file(in), in.controller.empty() ? "0" : "THAWED");
    // Without this a group's limit does not hold for the groups in it, and its figures are without
    // theirs. Newer kernels have no other way, and refuse it where it has been so for long.
    const auto with_inner = sandboxes(in) + "/memory.use_hierarchy";
    if (in.controller == "memory" && !write_file(with_inner, "1") && errno != ENOENT &&
        number_in(with_inner) != 1u)
      return failed(with_inner);
    if (!limited(in))
      return {};
    // A group with processes of its own cannot hand controllers down, so the server that started us
    // moves as well, if it is there.
    const auto server = std::to_string(::getppid());
    if (has_word(read_file(in.directory + "/cgroup.procs"), '\n', server))
      write_file(top + "/host/cgroup.procs", server);
    for (const auto& level : {in.directory, top, sandboxes(in)})
      for (const auto controller : v2_controllers)
        if (!write_file(level + "/cgroup.subtree_control", "+" + std::string{controller}))
          return not_handed_down(level, controller);
    return {};
  };
  for (const auto& each : hierarchies_)
    if (auto ok = enter(each); !ok) {
      leave();
      return ok;
    }
  // A sandbox that cannot be shown one of these has its limits all the same.
  for (const auto& each : shown_)
    if (::mkdir(node(each).c_str(), 0755) == 0)
      ::mkdir(sandboxes(each).c_str(), 0755);
  return {};
}

void cgroup_tree::leave() const {
  for (const auto& each : hierarchies_) {
    const auto top = node(each);
    // A group that hands controllers down takes nobody in, but for the root of all, and that is not
    // ours to change. Where we have been, nothing was handed down before; where somebody else does
    // by now, the kernel refuses, and `host` stays.
    const bool root = ::access((each.directory + "/cgroup.type").c_str(), F_OK) != 0;
    if (limited(each))
      for (const auto& level : {sandboxes(each), top, each.directory})
        for (const auto controller : v2_controllers)
          if (level != each.directory || !root)
            write_file(level + "/cgroup.subtree_control", "-" + std::string{controller});
    std::istringstream pids{read_file(top + "/host/cgroup.procs")};
    for (std::string pid; std::getline(pids, pid);)
      write_file(each.directory + "/cgroup.procs", pid);
  }
  sweep();
}

/// Is there a controller for each of them?
result<void> cgroup_tree::held(const cgroup_limits& limits) const {
  const auto has = [this](std::string_view controller) {
    return std::any_of(hierarchies_.begin(), hierarchies_.end(),
                       [&](auto& each) { return each.controller == controller || limited(each); });
  };
  for (const auto& [controller, wanted] :
       {std::pair<std::string, bool>{"memory", limits.memory_bytes > 0},
        {"pids", limits.processes > 0},
        {"cpu", limits.cpu_percent > 0}})
    if (wanted && !has(controller))
      return {
        {errc::launch_failed, "this machine has no cgroup controller " + controller + " mounted"}};
  return {};
}

/// `lift`: there may be limits already, and what has none now must lose them.
result<void> cgroup_tree::set_limits(const cgroup_hierarchy& in, const std::string& dir,
                                     const cgroup_limits& limits, bool lift) const {
  const auto set = [&](const char* file, const std::string& value) -> result<void> {
    if (!write_file(dir + file, value))
      return failed(dir + file);
    return {};
  };
  constexpr std::uint32_t period_us = 100'000;
  const auto quota_us = std::to_string(std::uint64_t{limits.cpu_percent} * period_us / 100);
  const auto bytes = limits.memory_bytes > 0 ? std::to_string(limits.memory_bytes)
                     : limited(in)           ? std::string{"max"}
                                             : std::string{"-1"};
  if ((in.controller == "memory" || limited(in)) && (lift || limits.memory_bytes > 0)) {
    // With swap it may never be less than without: where the limit rises, this one goes first.
    constexpr const char* with_swap = "/memory.memsw.limit_in_bytes";
    if (lift && !limited(in))
      write_file(dir + with_swap, bytes);
    if (auto ok = set(limited(in) ? "/memory.max" : "/memory.limit_in_bytes", bytes); !ok)
      return ok;
    // No way round the limit through swap. Where the kernel has no such file there is no
    // accounting of swap either.
    if (limited(in))
      write_file(dir + "/memory.swap.max", limits.memory_bytes > 0 ? "0" : "max");
    else
      write_file(dir + with_swap, bytes);
    // Version 1 charges the buffers of sockets apart, and only where they have a limit of their
    // own. It holds for sockets that are made later. A kernel without the file has no such charge.
    if (!limited(in) && !write_file(dir + sockets_limit, bytes) && errno != ENOENT)
      return failed(dir + sockets_limit);
  }
  if ((in.controller == "pids" || limited(in)) && (lift || limits.processes > 0))
    if (auto ok = set("/pids.max", limits.processes > 0 ? std::to_string(limits.processes) : "max");
        !ok)
      return ok;
  if (in.controller == "cpu" && (lift || limits.cpu_percent > 0))
    if (auto ok = set(quota_file, limits.cpu_percent > 0 ? quota_us : "-1"); !ok)
      return ok;
  if (limited(in) && (lift || limits.cpu_percent > 0))
    if (auto ok = set("/cpu.max", (limits.cpu_percent > 0 ? quota_us : std::string{"max"}) + " " +
                                    std::to_string(period_us));
        !ok)
      return ok;
  return {};
}

result<void> cgroup_tree::set_limits(const cgroup_hierarchy& in, cgroup_id which,
                                     const cgroup_limits& limits, bool lift) const {
  if (!which.divided || !has_limits(in))
    return set_limits(in, path(in, which), limits, lift);
  const auto slot = path(in, which), commands = path(in, which, cgroup_part::commands);
  // Its controllers are handed on to its parts; nothing is in it itself. Also where there is no
  // limit yet, and then it need not work: what a sandbox is shown is there from the first moment.
  const auto handed_on = slot + "/cgroup.subtree_control";
  if (limited(in) && !write_file(handed_on, "+memory +pids +cpu") &&
      (lift || !(limits == cgroup_limits{})))
    return failed(handed_on);
  // Version 1 refuses a quota below that of an inner group, and one above that of an outer one.
  if (lift && in.controller == "cpu" && !write_file(commands + quota_file, "-1"))
    return failed(commands + quota_file);
  if (auto ok = set_limits(in, slot, limits_with_reserve(limits), lift); !ok)
    return ok;
  return set_limits(in, commands, limits, lift);
}

result<void> cgroup_tree::create(cgroup_id slot, const cgroup_limits& limits) const {
  if (auto ok = held(limits); !ok)
    return ok;
  const auto fill = [&](const cgroup_hierarchy& in) -> result<void> {
    for (const auto& each : groups(in, slot))
      if (::mkdir(each.c_str(), 0755) != 0)
        return failed(each);
    return set_limits(in, slot, limits, false);
  };
  for (const auto& each : hierarchies_)
    if (auto ok = fill(each); !ok) {
      remove(slot);
      return ok;
    }
  for (const auto& each : shown_)
    ::mkdir(path(each, slot).c_str(), 0755);
  return {};
}

result<void> cgroup_tree::limit(std::uint32_t slot, const cgroup_limits& limits) const {
  if (auto ok = held(limits); !ok)
    return ok;
  for (const auto& each : hierarchies_)
    if (auto ok = set_limits(each, cgroup_id{slot}, limits, true); !ok)
      return ok;
  return {};
}

result<std::vector<unique_fd>> cgroup_tree::open_procs(cgroup_id slot, cgroup_part part) const {
  std::vector<unique_fd> files;
  for (const auto& each : hierarchies_) {
    const auto name = path(each, slot, part) + "/cgroup.procs";
    files.emplace_back(::open(name.c_str(), O_WRONLY | O_CLOEXEC));
    if (!files.back())
      return failed(name);
  }
  return files;
}

std::vector<shown_cgroup> cgroup_tree::shown(std::uint32_t slot) const {
  std::vector<shown_cgroup> found;
  for (const auto& each : hierarchies_)
    if (has_limits(each))
      found.push_back({each.controller, path(each, slot, cgroup_part::commands)});
  for (const auto& each : shown_)
    if (const auto group = path(each, slot); ::access(group.c_str(), F_OK) == 0)
      found.push_back({each.controller, group});
  return found;
}

bool cgroup_tree::remove(cgroup_id slot) const {
  bool gone = true;
  for (const auto& each : hierarchies_) {
    const auto all = groups(each, slot);
    std::for_each(all.rbegin(), all.rend(), [&](const auto& group) {
      gone &= ::rmdir(group.c_str()) == 0 || errno == ENOENT;
    });
  }
  for (const auto& each : shown_)
    ::rmdir(path(each, slot).c_str());
  return gone;
}

std::optional<std::uint64_t> killed_processes(const std::vector<unique_fd>& counts) {
  std::optional<std::uint64_t> all;
  for (const auto& each : counts) {
    std::array<char, 512> text; // Of a few short lines.
    const auto size = ::pread(each.get(), text.data(), text.size(), 0);
    if (size <= 0)
      continue;
    if (const auto own = number_of({text.data(), static_cast<std::size_t>(size)}, "oom_kill"))
      all = all.value_or(0) + *own;
  }
  return all;
}

std::vector<unique_fd> cgroup_tree::open_kill_counts(std::uint32_t slot) const {
  std::vector<unique_fd> files;
  const auto open = [&](const std::string& path) {
    if (unique_fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)})
      files.push_back(std::move(file));
  };
  for (const auto& each : hierarchies_)
    if (limited(each))
      open(path(each, slot) + "/memory.events");
    else if (each.controller == "memory")
      for (const auto& group : groups(each, slot)) // Each counts its own.
        open(group + "/memory.oom_control");
  return files;
}

cgroup_usage cgroup_tree::usage(std::uint32_t slot) const {
  cgroup_usage now;
  for (const auto& each : hierarchies_) {
    const auto dir = path(each, slot);
    if (each.controller == "memory" || limited(each))
      now.memory_bytes =
        number_in(dir + (limited(each) ? "/memory.current" : "/memory.usage_in_bytes"));
    if (each.controller == "pids" || limited(each))
      now.processes = number_in(dir + "/pids.current");
    if (each.controller.empty())
      now.cpu_us = number_in(dir + "/cpu.stat", "usage_usec");
    if (each.controller == "cpu" && !now.cpu_us)
      if (const auto ns = number_in(dir + "/cpuacct.usage"))
        now.cpu_us = *ns / 1000;
  }
  return now;
}

std::uint64_t cgroup_tree::kernel_memory(std::uint32_t slot) const {
  std::uint64_t bytes = 0;
  for (const auto& each : hierarchies_) {
    const auto dir = path(each, slot);
    if (each.controller == "memory")
      for (const char* file : {"/memory.kmem.usage_in_bytes", "/memory.kmem.tcp.usage_in_bytes"})
        bytes += number_in(dir + file).value_or(0);
    if (!limited(each))
      continue;
    std::istringstream words{read_file(dir + "/memory.stat")};
    std::optional<std::uint64_t> whole; // Only newer kernels have the sum.
    std::uint64_t parts = 0, given_back = 0, value = 0;
    for (std::string name; words >> name >> value;)
      if (name == "kernel")
        whole = value;
      else if (name == "sock")
        bytes += value;
      else if (name == "slab_reclaimable")
        given_back = value;
      else if (name == "slab" || name == "kernel_stack" || name == "pagetables" || name == "percpu")
        parts += value;
    const auto all = whole.value_or(parts);
    bytes += all - std::min(given_back, all);
  }
  return bytes;
}

bool cgroup_tree::charges_reclaimable() const {
  return std::any_of(hierarchies_.begin(), hierarchies_.end(),
                     [](const auto& each) { return each.controller == "memory"; });
}

std::vector<pid_t> cgroup_tree::processes(std::uint32_t slot) const {
  std::vector<pid_t> found;
  if (hierarchies_.empty())
    return found;
  for (const auto& group : groups(hierarchies_.front(), slot)) {
    std::istringstream pids{read_file(group + "/cgroup.procs")};
    for (pid_t pid = 0; pids >> pid;)
      found.push_back(pid);
  }
  return found;
}

// ---- Standing still

/// The hierarchy that can have processes stand still. The unified one comes first.
const cgroup_hierarchy* cgroup_tree::freezing() const {
  const cgroup_hierarchy* found = nullptr;
  for (const auto& each : hierarchies_)
    if (each.controller.empty() || (each.controller == "freezer" && found == nullptr))
      found = &each;
  return found;
}

const char* cgroup_tree::freezer_file(const cgroup_hierarchy& in) {
  return in.controller.empty() ? "/cgroup.freeze" : "/freezer.state";
}

bool cgroup_tree::can_freeze() const {
  const auto* in = freezing();
  return in != nullptr && ::access((node(*in) + "/host" + freezer_file(*in)).c_str(), F_OK) == 0;
}

unique_fd cgroup_tree::open_freezer(const std::string& group) const {
  return unique_fd{::open((group + freezer_file(*freezing())).c_str(), O_WRONLY | O_CLOEXEC)};
}

unique_fd cgroup_tree::open_freezer(std::uint32_t slot) const {
  const auto* in = freezing();
  return in != nullptr ? open_freezer(path(*in, slot)) : unique_fd{};
}

unique_fd cgroup_tree::open_freezer_of_all() const {
  const auto* in = freezing();
  return in != nullptr ? open_freezer(sandboxes(*in)) : unique_fd{};
}

bool cgroup_tree::freeze(int freezer) const {
  const auto* in = freezing();
  return in != nullptr && write_anew(freezer, in->controller.empty() ? "1" : "FROZEN");
}

bool cgroup_tree::thaw(int freezer) const {
  const auto* in = freezing();
  return in != nullptr && write_anew(freezer, in->controller.empty() ? "0" : "THAWED");
}

bool cgroup_tree::is_frozen(const std::string& group) const {
  return freezing()->controller.empty() ? number_in(group + "/cgroup.events", "frozen") == 1u
                                        : read_file(group + "/freezer.state").starts_with("FROZEN");
}

bool cgroup_tree::is_frozen(std::uint32_t slot) const {
  const auto* in = freezing();
  return in != nullptr && is_frozen(path(*in, slot));
}

bool cgroup_tree::all_frozen() const {
  const auto* in = freezing();
  return in != nullptr && is_frozen(sandboxes(*in));
}

void cgroup_tree::let_die(std::uint32_t slot) const {
  const auto* in = freezing();
  if (in == nullptr || in->controller.empty())
    return;
  const auto group = path(*in, slot);
  if (number_in(group + "/freezer.parent_freezing") == 1u) {
    // Killed before it goes on, so it does nothing but die.
    kill_all_in(group);
    std::istringstream pids{read_file(group + "/cgroup.procs")};
    for (std::string pid; std::getline(pids, pid);)
      write_file(node(*in) + "/host/cgroup.procs", pid);
  }
  write_file(group + "/freezer.state", "THAWED");
}

bool cgroup_tree::sweep() const {
  bool gone = true;
  if (const auto* in = freezing(); in != nullptr && !in->controller.empty()) {
    const auto groups = groups_below(node(*in));
    for (const auto& name : groups) // As in let_die().
      kill_all_in(node(*in) + "/" + name);
    for (const auto& name : groups)
      write_file(node(*in) + "/" + name + "/freezer.state", "THAWED");
  }
  for (const auto& each : hierarchies_) {
    const auto top = node(each);
    for (const auto& name : groups_below(top)) {
      const auto dir = top + "/" + name;
      for (int round = 0; round < 50; ++round) {
        const auto found = kill_all_in(dir);
        if (::rmdir(dir.c_str()) == 0 || errno == ENOENT || (found.ours && round > 0))
          break;
        if (found.any || errno == EBUSY)
          ::usleep(10'000); // The kernel says nothing when a group becomes empty in v1.
      }
      gone &= ::access(dir.c_str(), F_OK) != 0;
    }
    ::rmdir(top.c_str());
    gone &= ::access(top.c_str(), F_OK) != 0;
  }
  for (const auto& each : shown_) { // Nothing lives in there.
    for (const auto& name : groups_below(node(each)))
      ::rmdir((node(each) + "/" + name).c_str());
    gone &= ::rmdir(node(each).c_str()) == 0 || errno == ENOENT;
  }
  return gone;
}

} // namespace insula::runtime
