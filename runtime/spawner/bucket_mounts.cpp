#include "runtime/spawner/bucket_mounts.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"
#include "runtime/descriptors.hpp"
#include "runtime/spawner/request_check.hpp"
#include "runtime/spawner/wire_network.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

using namespace std::chrono_literals;

/// A program that serves one bucket uses little beside its cache: buffers of what is on its way.
constexpr std::uint64_t program_bytes = 512ull << 20;
constexpr std::uint32_t program_threads = 512;
constexpr std::uint32_t program_cpu_percent = 100; ///< Outside of what its sandbox may use.
constexpr std::size_t kept_of_said = max_said;
constexpr auto detach_patience = 5s;
constexpr auto undo_patience = 1s;
constexpr auto between_counts = 10ms;

/// Without it nothing is waited for.
unique_fd open_connections() {
  const unique_fd made{static_cast<int>(::syscall(SYS_fsopen, "fusectl", FSOPEN_CLOEXEC))};
  unique_fd mounted;
  if (made && ::syscall(SYS_fsconfig, made.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0)
    mounted.reset(static_cast<int>(
      ::syscall(SYS_fsmount, made.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)));
  if (!mounted)
    log::warning("mount.no_fusectl", {{"reason", std::strerror(errno)}});
  return mounted;
}

/// What was closed may still be on its way to the bucket. With s3fs it is there.
bool writes_behind(const mount_visit& what) {
  return what.type == "rclone";
}

/// Of what has been cut anywhere, whole lines: half a secret would not be known for one.
std::string whole_lines(const std::string& said, bool cut) {
  const auto line = said.find('\n');
  return !cut ? said : line == std::string::npos ? std::string{} : said.substr(line + 1);
}

} // namespace

void bucket_mounts::answer(one& mine, event what, visit_report how) {
  if (!std::exchange(mine.asked, false) && what != event::mount_ended)
    return;
  tell_({what, mine.slot, mine.name, how.failed == mount_step::none ? 0 : std::max(how.error, 1),
         how.failed,
         how.failed == mount_step::none ? std::string{} : whole_lines(mine.said, mine.said_more)});
}

void bucket_mounts::kill(const one& mine) {
  for (const pid_t each : {mine.visitor, mine.program})
    if (each > 0)
      ::kill(each, SIGKILL);
}

void bucket_mounts::mount(const request& wanted, std::string_view text, int process) {
  auto words = read_mount(text);
  const auto refuse = [&](mount_step step, int error) {
    tell_({event::mounted, wanted.slot, wanted.name, error, step});
  };
  if (!words)
    return refuse(mount_step::request, EINVAL);
  const auto of_slot = std::count_if(all_.begin(), all_.end(), [&](auto& each) {
    return each.slot == wanted.slot && !each.nobodys;
  });
  // Those that are away count as well, until their last write has gone.
  if (static_cast<std::size_t>(of_slot) >= 2 * ::insula::limits::mounts_per_sandbox)
    return refuse(mount_step::request, EMFILE);
  auto& mine = all_.emplace_back(
    one{wanted.slot,
        wanted.name,
        ++last_group_,
        {std::move(words->path), std::move(words->source), std::move(words->type),
         (wanted.flags & mount_read_only) != 0, (wanted.flags & mount_over_files) != 0,
         (wanted.flags & mount_keeps_directory) != 0, (wanted.flags & mount_is_listed) != 0,
         wanted.owner},
        std::move(words->argv),
        std::move(words->secret),
        std::move(words->reach),
        wanted.count});
  calm();
  if (!connections_ && writes_behind(mine.visit))
    connections_ = open_connections();
  const auto fail = [&](mount_step step) {
    mine.report = {step, errno};
    undo(mine, mine.report);
    drop_finished();
  };
  const cgroup_limits ceilings{(std::uint64_t{mine.cache_mib} << 20) + program_bytes,
                               program_cpu_percent, program_threads};
  if (const auto made = cgroups_.create(group_of_mount(mine.group), ceilings); !made) {
    log::error("mount.no_cgroup", {{"slot", mine.slot}, {"reason", made.reason().message}});
    errno = EIO;
    return fail(mount_step::cgroup);
  }
  if (!start_visitor(mine, process, true))
    return fail(mount_step::visit);
  mine.due = clock::now() + ::insula::limits::mount_patience;
}

bool bucket_mounts::start_visitor(one& mine, int process, bool mounts) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return false;
  unique_fd ours{ends[0]};
  const unique_fd theirs{ends[1]};
  mine.report = {mounts ? mount_step::visit : mount_step::detach, ECHILD};
  const auto child = ::fork();
  if (child == 0) {
    if (mounts)
      visit_to_mount(mine.visit, process, theirs.get());
    visit_to_unmount(mine.visit, process, theirs.get());
  }
  if (child < 0)
    return false;
  mine.visitor = child;
  mine.way = std::move(ours);
  watch_(mine.way.get());
  return true;
}

void bucket_mounts::start_program(one& mine, unique_fd device) {
  auto procs = cgroups_.open_procs(group_of_mount(mine.group));
  fuse_process made;
  if (procs) {
    fuse_program what{{mine.argv.begin(), mine.argv.end()},
                      mine.secret,
                      mount_user(mine.slot),
                      mine.cache_mib,
                      &*procs,
                      &filter_};
    made = start_fuse_process(what, device.get());
  }
  std::fill(mine.secret.begin(), mine.secret.end(), '\0');
  mine.secret.clear();
  if (made.pid < 0)
    return undo(mine, {mount_step::program, errno});
  mine.program = made.pid;
  mine.out = std::move(made.said);
  watch_(mine.out.get());
  const auto failed = wire(mine, made);
  if (failed == mount_step::program) // It says what it lacks, which is read when it is reaped.
    undo(mine, {failed, ENOTCONN});
  else if (failed != mount_step::none)
    undo(mine, {failed, std::max(errno, 1)});
}

/// It begins once all that it sends arrives at the gateway, which has been told what may pass.
/// What fails.
mount_step bucket_mounts::wire(one& mine, fuse_process& which) {
  network_sockets sockets;
  if (!wire_network(which.process.get(), sockets, wired_for::mount))
    return has_ended(mine.out) ? mount_step::program : mount_step::network;
  gateway_.add_mount(gateway::slot_of_mount(mine.group), std::move(sockets), std::move(mine.reach),
                     mine.slot);
  return let_run(which) ? mount_step::none : mount_step::program;
}

/// A device, or how it went.
void bucket_mounts::heard_visitor(one& mine) {
  visit_report said{};
  int fds[1], count = 0;
  const auto n = receive_packet(mine.way.get(), {&said, sizeof said}, fds, count, MSG_DONTWAIT);
  if (n < 0 && errno == EAGAIN)
    return;
  if (count > 0 && n == 1 && mine.now == phase::making && mine.program < 0)
    return start_program(mine, unique_fd{fds[0]});
  for (int i = 0; i < count; ++i) {
    unique_fd handed{fds[i]};
    if (n == sizeof said && mine.now == phase::making && writes_behind(mine.visit))
      mine.mounted = std::move(handed);
  }
  if (n == sizeof said)
    mine.report = mine.now == phase::undoing ? mine.report : said;
  else
    mine.way.reset(); // Its end; that of the child follows.
}

void bucket_mounts::read_out(one& mine) {
  std::array<char, 4096> bytes;
  const auto n = ::read(mine.out.get(), bytes.data(), bytes.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (n <= 0)
    return mine.out.reset();
  mine.said.append(bytes.data(), static_cast<std::size_t>(n));
  if (mine.said.size() > kept_of_said) {
    mine.said.erase(0, mine.said.size() - kept_of_said);
    mine.said_more = true;
  }
}

bool bucket_mounts::readable(int fd) {
  for (auto& each : all_) {
    if (each.way.get() == fd)
      heard_visitor(each);
    else if (each.out.get() == fd)
      read_out(each);
    else
      continue;
    return true;
  }
  return false;
}

void bucket_mounts::undo(one& mine, visit_report why) {
  mine.now = phase::undoing;
  mine.report = why;
  mine.due = clock::now() + undo_patience;
  // A visitor that waits for the program hears of its end, and takes back what it has made.
  if (mine.program > 0)
    ::kill(mine.program, SIGKILL);
  else
    kill(mine);
}

/// Its visitor has ended, and all that it has said has been heard.
void bucket_mounts::visited(one& mine) {
  const bool good = mine.report.failed == mount_step::none;
  mine.way.reset();
  switch (mine.now) {
    case phase::making:
      if (!good)
        return undo(mine, mine.report);
      mine.now = phase::live;
      mine.due = clock::time_point::max();
      mine.device = mine.report.device;
      answer(mine, event::mounted, {mount_step::none, 0});
      if (mine.program < 0) // It has ended since.
        answer(mine, event::mount_ended, {mount_step::program, ENOTCONN});
      return;
    case phase::detaching:
      // One that is not there any more is gone as well: the sandbox cannot have it back.
      if (!good && mine.report.failed != mount_step::not_there) {
        mine.now = phase::live;
        mine.due = clock::time_point::max();
        return answer(mine, event::unmounted, mine.report);
      }
      mine.now = phase::leaving;
      mine.due = clock::now() + ::insula::limits::unmount_patience;
      // Who had asked is gone, or has been told that it fails: a server that knows of it mounts it
      // again.
      if (!mine.asked)
        answer(mine, event::mount_ended, {mount_step::not_there, ENOENT});
      return let_go(mine);
    case phase::undoing:
    case phase::live:
    case phase::leaving: return;
  }
}

bool bucket_mounts::ended(pid_t child) {
  for (auto& each : all_) {
    if (each.visitor == child) {
      each.visitor = -1;
      for (int i = 0; i < 3 && each.way; ++i) // A device, how it went, the end.
        heard_visitor(each);
      visited(each);
    } else if (each.program == child) {
      each.program = -1;
      gateway_.remove(gateway::slot_of_mount(each.group));
      each.mounted.reset();
      while (each.out) {
        const auto before = each.said.size();
        read_out(each);
        if (each.out && each.said.size() == before)
          break; // What it has started has the pipe as well.
      }
      each.out.reset();
      if (each.now == phase::live) {
        log::warning("mount.program_ended", {{"slot", each.slot}, {"path", each.visit.path}});
        answer(each, event::mount_ended, {mount_step::program, ENOTCONN});
      }
    } else {
      continue;
    }
    let_write();
    drop_finished();
    return true;
  }
  return false;
}

/// What has no children any more and is in no sandbox goes.
void bucket_mounts::drop_finished() {
  for (auto at = all_.begin(); at != all_.end();) {
    auto& mine = *at;
    const bool over = mine.visitor < 0 && mine.program < 0 &&
                      (mine.now == phase::undoing || mine.now == phase::leaving);
    if (!over || !cgroups_.remove(group_of_mount(mine.group))) {
      if (over) // The kernel takes a moment to see that a cgroup is empty.
        mine.due = clock::now() + 5ms;
      ++at;
      continue;
    }
    if (mine.now == phase::undoing)
      answer(mine, event::mounted, mine.report);
    else
      answer(mine, event::unmounted, {mount_step::none, 0});
    at = all_.erase(at);
  }
}

void bucket_mounts::unmount(std::uint32_t slot, std::uint64_t name, int process) {
  const auto at = std::find_if(all_.begin(), all_.end(), [&](const auto& each) {
    return each.slot == slot && each.name == name && !each.nobodys; // Whose it was knows that name.
  });
  if (at == all_.end() || at->now == phase::leaving) // It is away, as is wanted.
    return tell_({event::unmounted, slot, name});
  if (at->now != phase::live)
    return tell_({event::unmounted, slot, name, EBUSY, mount_step::detach});
  at->asked = true;
  if (!start_visitor(*at, process, false))
    return answer(*at, event::unmounted, {mount_step::visit, errno});
  at->now = phase::detaching;
  at->due = clock::now() + detach_patience;
}

void bucket_mounts::forget_askers() {
  for (auto& each : all_) {
    each.asked = false;
    if (each.now == phase::making)
      undo(each, {mount_step::request, ECANCELED});
  }
}

void bucket_mounts::sandbox_ends(std::uint32_t slot) {
  for (auto& each : all_)
    if (each.slot == slot && !each.nobodys) {
      each.ending = true;
      if (each.now == phase::making)
        undo(each, {mount_step::request, ESRCH});
      else if (each.now != phase::undoing) {
        // Its file system goes with the sandbox, and its program with that.
        if (each.now == phase::detaching)
          ::kill(each.visitor, SIGKILL);
        answer(each, event::unmounted, {mount_step::none, 0});
        each.now = phase::leaving;
        each.due = clock::now() + ::insula::limits::mount_end_patience;
      }
    }
  drop_finished();
}

void bucket_mounts::sandbox_ended(std::uint32_t slot) {
  for (auto& each : all_)
    if (each.slot == slot) {
      each.gone = true;
      let_go(each);
    }
  let_write();
}

/// Requests of a file system's that its program has not answered, or not even heard.
unsigned bucket_mounts::on_the_way(const one& mine) const {
  const auto name = std::to_string(mine.device) + "/waiting";
  const unique_fd file{
    connections_ ? ::openat(connections_.get(), name.c_str(), O_RDONLY | O_CLOEXEC) : -1};
  char text[16] = {};
  if (!file || ::read(file.get(), text, sizeof text - 1) <= 0)
    return 0;
  return static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

/// Of one that is in no sandbox any more. Nobody else is in one that is gone; from one that goes
/// on, whoever still has a file open goes on as well.
void bucket_mounts::let_go(one& mine) {
  mine.count_at = clock::time_point::max();
  if (!mine.mounted || mine.now != phase::leaving || (mine.ending && !mine.gone))
    return;
  if (on_the_way(mine) > 0)
    mine.count_at = clock::now() + between_counts;
  else
    mine.mounted.reset(); // If it was the last its program ends.
}

/// A visitor that is stuck keeps what is mounted in a sandbox that is no more, and waits for one of
/// these programs: then they end as the others.
void bucket_mounts::let_write() {
  auto writing = static_cast<std::size_t>(
    std::count_if(all_.begin(), all_.end(), [](const auto& each) { return each.nobodys; }));
  for (auto& each : all_) {
    const bool stuck = std::any_of(all_.begin(), all_.end(), [&](const auto& other) {
      return other.slot == each.slot && other.gone && other.visitor > 0;
    });
    if (!each.gone || each.nobodys || each.now != phase::leaving || each.program < 0 || stuck ||
        !writes_behind(each.visit) || writing >= ::insula::limits::late_writers)
      continue;
    ++writing;
    each.nobodys = true;
    each.due = clock::now() + ::insula::limits::late_write_patience;
  }
}

bool bucket_mounts::none_of(std::uint32_t slot) const {
  return std::none_of(all_.begin(), all_.end(),
                      [slot](const auto& each) { return each.slot == slot && !each.nobodys; });
}

bool bucket_mounts::hurry() {
  const auto now = clock::now();
  if (!hurried_)
    hurried_ = now;
  if (all_.empty())
    return true;
  if (now < *hurried_ + ::insula::limits::unmount_patience)
    return false;
  for (auto& each : all_)
    kill(each);
  // What cannot be taken away by then dies with this process.
  return now >= *hurried_ + 2 * ::insula::limits::unmount_patience;
}

std::vector<bucket_mounts::live_mount> bucket_mounts::live_of(std::uint32_t slot) const {
  std::vector<live_mount> found;
  for (const auto& each : all_)
    if (each.slot == slot && (each.now == phase::live || each.now == phase::detaching))
      found.push_back({each.name, each.visit.path, each.program > 0});
  return found;
}

int bucket_mounts::until_look() const {
  auto first = clock::time_point::max();
  for (const auto& each : all_)
    first = std::min({first, each.due, each.count_at});
  if (hurried_ && !all_.empty())
    first = std::min(
      first, std::max(*hurried_ + ::insula::limits::unmount_patience, clock::now() + 100ms));
  if (first == clock::time_point::max())
    return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

void bucket_mounts::look() {
  const auto now = clock::now();
  for (auto& each : all_) {
    if (each.count_at <= now)
      let_go(each);
    if (each.due > now)
      continue;
    each.due = clock::time_point::max();
    switch (each.now) {
      case phase::making: undo(each, {mount_step::answer, ETIMEDOUT}); break;
      // A visitor that waits for another mount, whose service hangs, may be unable to end: who has
      // asked does not wait for that.
      case phase::detaching:
        ::kill(each.visitor, SIGKILL);
        answer(each, event::unmounted, {mount_step::detach, ETIMEDOUT});
        break;
      case phase::undoing:
        kill(each);
        answer(each, event::mounted, each.report);
        break;
      case phase::leaving:
        // Whoever has asked has waited for long enough; who still writes gets more time, unless
        // there is nobody left.
        if (!each.ending && !std::exchange(each.late, true)) {
          answer(each, event::unmounted, {mount_step::none, 0});
          each.due = now + ::insula::limits::late_write_patience;
        } else if (each.visitor > 0 || each.program > 0) {
          log::warning("mount.killed", {{"slot", each.slot}, {"path", each.visit.path}});
          kill(each);
        }
        break;
      case phase::live: break;
    }
  }
  drop_finished();
}

} // namespace insula::runtime::spawner
