#include "runtime/spawner/drive_mounts.hpp"

#include "base/limits.hpp"
#include "runtime/descriptors.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <sys/socket.h>
#include <unistd.h>

namespace insula::runtime::spawner {

void drive_mounts::attach(const request& wanted, const std::string& path,
                          std::optional<std::uint32_t> source, int process, unique_fd files) {
  const bool writes = source && (wanted.flags & mount_read_only) == 0;
  const auto answer = [&](mount_step step, int error) {
    tell_({wanted.slot, wanted.name, error, step});
  };
  std::size_t of_slot = 0;
  for (const auto& each : all_) {
    of_slot += each.slot == wanted.slot ? 1 : 0;
    if (each.slot == wanted.slot && each.path == path && !each.gone) {
      const bool same = each.source == source && each.writes == writes;
      return !same              ? answer(mount_step::place, EBUSY)
             : each.visitor < 0 ? answer(mount_step::none, 0)
                                : answer(mount_step::answer, EAGAIN);
    }
    if (writes && each.writes && !each.gone && each.source == source)
      return answer(mount_step::in_use, EBUSY);
  }
  if (of_slot >= ::insula::limits::drives_per_sandbox)
    return answer(mount_step::request, EMFILE);
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return answer(mount_step::visit, errno);
  unique_fd ours{ends[0]};
  const unique_fd theirs{ends[1]};
  mount_visit visit;
  visit.path = path;
  visit.owner = wanted.owner;
  const auto child = ::fork();
  if (child == 0)
    visit_to_attach(visit, process, theirs.get(), files.get());
  if (child < 0)
    return answer(mount_step::visit, errno);
  auto& mine = all_.emplace_back(one{wanted.slot, wanted.name, path, source, writes, child});
  mine.way = std::move(ours);
  mine.due = clock::now() + ::insula::limits::mount_patience;
  watch_(mine.way.get());
}

void drive_mounts::hear(one& mine) {
  visit_report said{};
  const auto n = ::recv(mine.way.get(), &said, sizeof said, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (n == static_cast<ssize_t>(sizeof said))
    mine.report = said;
  else
    mine.way.reset(); // Its end; that of the child follows.
}

bool drive_mounts::readable(int fd) {
  const auto at =
    std::find_if(all_.begin(), all_.end(), [fd](const auto& each) { return each.way.get() == fd; });
  if (at == all_.end())
    return false;
  hear(*at);
  return true;
}

bool drive_mounts::ended(pid_t child) {
  const auto at = std::find_if(all_.begin(), all_.end(),
                               [child](const auto& each) { return each.visitor == child; });
  if (at == all_.end())
    return false;
  at->visitor = -1;
  at->due = clock::time_point::max();
  for (int i = 0; i < 2 && at->way; ++i) // How it went, and the end.
    hear(*at);
  at->way.reset();
  const auto how = at->report;
  const bool good = how.failed == mount_step::none;
  tell_({at->slot, at->name, good ? 0 : std::max(how.error, 1), how.failed});
  // One that was killed may have put the drive in its place.
  if ((!good && how.failed != mount_step::answer) || at->gone)
    all_.erase(at);
  return true;
}

void drive_mounts::sandbox_ended(std::uint32_t slot) {
  for (auto at = all_.begin(); at != all_.end();) {
    if (at->source == slot) // What it was mounts nothing any more, and the slot is another's soon.
      at->source.reset();
    if (at->slot != slot) {
      ++at;
    } else if (at->visitor < 0) {
      at = all_.erase(at);
    } else {
      at->gone = true;
      ::kill(at->visitor, SIGKILL);
      ++at;
    }
  }
}

bool drive_mounts::none_of(std::uint32_t slot) const {
  return std::none_of(all_.begin(), all_.end(),
                      [slot](const auto& each) { return each.slot == slot && each.visitor >= 0; });
}

int drive_mounts::until_look() const {
  auto first = clock::time_point::max();
  for (const auto& each : all_)
    first = std::min(first, each.due);
  if (first == clock::time_point::max())
    return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

/// A visitor waits for nothing but the sandbox's own file systems, some of which may hang.
void drive_mounts::look() {
  const auto now = clock::now();
  for (auto& each : all_) {
    if (each.due > now)
      continue;
    each.due = clock::time_point::max();
    each.report = {mount_step::answer, ETIMEDOUT};
    ::kill(each.visitor, SIGKILL);
  }
}

} // namespace insula::runtime::spawner
