#include "runtime/spawner/brokers.hpp"

#include "base/log.hpp"
#include "runtime/descriptors.hpp"
#include "runtime/program_file.hpp"
#include "runtime/spawner/own_program.hpp"
#include "runtime/spawner/protocol.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

// The broker's program, linked in.
extern "C" const unsigned char insula_broker_begin[], insula_broker_end[];

namespace insula::runtime::spawner {

namespace {

static_assert(own_program_fd == broker::spawner_fd);

/// What a broker may have: some 100 KiB for each of the connections that the gateway lets a sandbox
/// have, its rules, and one processor.
constexpr cgroup_limits broker_limits{384ull << 20, 100, 4};
constexpr int cgroup_pause_ms = 5;

cgroup_id group_of_broker(std::uint32_t slot) {
  return {slot, "broker"};
}

bool enter(const std::vector<unique_fd>& procs, pid_t who) {
  const auto number = std::to_string(who);
  return std::all_of(procs.begin(), procs.end(), [&](const auto& each) {
    return ::write(each.get(), number.data(), number.size()) == static_cast<ssize_t>(number.size());
  });
}

/// Both ends, of which the second is for the broker.
std::array<unique_fd, 2> new_way(int kind) {
  int ends[2] = {-1, -1};
  ::socketpair(AF_UNIX, kind | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends);
  return {unique_fd{ends[0]}, unique_fd{ends[1]}};
}

} // namespace

bool brokers::start(std::uint32_t slot, one& made) {
  if (!program_)
    program_ = program_file("insula-broker", insula_broker_begin, insula_broker_end);
  auto ends = new_way(SOCK_SEQPACKET);
  if (!program_ || !ends[0])
    return false;
  if (const auto ok = cgroups_.create(group_of_broker(slot), broker_limits); !ok) {
    log::error("broker.no_cgroup", {{"slot", slot}, {"reason", ok.reason().message}});
    errno = EIO;
    return false;
  }
  const auto procs = cgroups_.open_procs(group_of_broker(slot));
  const auto child =
    procs ? start_own_program(program_, ends[1],
                              {"insula-broker", std::to_string(broker_user(slot)), node_})
          : -1;
  if (child < 0) {
    const int why = procs ? errno : EIO;
    cgroups_.remove(group_of_broker(slot));
    errno = why;
    return false;
  }
  made.pid = child;
  made.socket = std::move(ends[0]);
  // Nothing of the sandbox's reaches it before it is in there.
  const int why = enter(*procs, child) ? 0 : errno;
  if (why == 0 && give_gateway(slot, made))
    return true;
  made.asked_to_end = true;
  kill(made);
  errno = why != 0 ? why : EIO;
  return false;
}

bool brokers::give_gateway(std::uint32_t slot, one& whose) {
  auto ends = new_way(SOCK_SEQPACKET);
  // Without a gateway it waits for the next one.
  return ends[0] &&
         (!gateway_.set_broker(slot, ends[0]) || tell(whose, broker::order::gateway, ends[1]));
}

/// What it does not take, it does not read: it has hung.
bool brokers::tell(one& whom, broker::order what, const unique_fd& way) {
  broker::spawner_packet head{what};
  iovec part{&head, sizeof head};
  const int fd = way.get();
  if (send_packet<1>(whom.socket.get(), &part, 1, &fd, 1) == sizeof head)
    return true;
  log::error("broker.stuck", {{"reason", std::strerror(errno)}});
  kill(whom);
  return false;
}

void brokers::kill(one& which) const {
  if (which.pid > 0)
    ::kill(which.pid, SIGKILL);
}

unique_fd brokers::serve(std::uint32_t slot) {
  auto at = all_.find(slot);
  if (at != all_.end() && (at->second.pid < 0 || at->second.asked_to_end)) {
    errno = EAGAIN;
    if (!none_of(slot))
      return {};
    at = all_.end();
  }
  if (at == all_.end()) {
    one made;
    const bool started = start(slot, made);
    const int why = errno;
    if (made.pid > 0)
      at = all_.insert_or_assign(slot, std::move(made)).first;
    errno = why;
    if (!started)
      return {};
  }
  auto ends = new_way(SOCK_STREAM);
  if (!ends[0] || !tell(at->second, broker::order::serve, ends[1]))
    return {};
  return std::move(ends[0]);
}

void brokers::end(std::uint32_t slot) {
  const auto at = all_.find(slot);
  if (at == all_.end())
    return;
  at->second.asked_to_end = true;
  gateway_.set_broker(slot, {});
  kill(at->second);
}

bool brokers::ended(pid_t child, int status, std::optional<std::uint32_t>& told) {
  const auto at =
    std::find_if(all_.begin(), all_.end(), [&](auto& each) { return each.second.pid == child; });
  if (at == all_.end())
    return false;
  auto& mine = at->second;
  mine.pid = -1;
  mine.socket.reset();
  if (!mine.asked_to_end) {
    log::error("broker.ended", {{"slot", at->first}, {"status", status}});
    told = at->first;
  }
  mine.asked_to_end = true;
  none_of(at->first);
  return true;
}

void brokers::gateway_changed() {
  for (auto& [slot, each] : all_)
    if (each.pid > 0 && !each.asked_to_end)
      give_gateway(slot, each);
}

bool brokers::none_of(std::uint32_t slot) {
  const auto at = all_.find(slot);
  if (at == all_.end())
    return true;
  // The kernel takes a moment to see that a cgroup is empty.
  if (at->second.pid > 0 || !cgroups_.remove(group_of_broker(slot)))
    return false;
  all_.erase(at);
  return true;
}

void brokers::look() {
  for (auto at = all_.begin(); at != all_.end();) {
    const auto slot = (at++)->first;
    if (all_.at(slot).pid < 0)
      none_of(slot);
  }
}

int brokers::until_look() const {
  const bool any =
    std::any_of(all_.begin(), all_.end(), [](const auto& each) { return each.second.pid < 0; });
  return any ? cgroup_pause_ms : -1;
}

} // namespace insula::runtime::spawner
