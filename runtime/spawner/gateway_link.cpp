#include "runtime/spawner/gateway_link.hpp"

#include "base/log.hpp"
#include "runtime/descriptors.hpp"
#include "runtime/program_file.hpp"
#include "runtime/spawner/own_program.hpp"
#include "runtime/spawner/protocol.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>

// The gateway's program, linked in.
extern "C" const unsigned char insula_gateway_begin[], insula_gateway_end[];

namespace insula::runtime::spawner {

namespace {

static_assert(own_program_fd == gateway::spawner_fd);

using namespace std::chrono_literals;

constexpr auto longest_pause = 5000ms;
/// One that has lived for so long has not failed at its start.
constexpr auto good_life = 30s;

} // namespace

bool gateway_link::start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return false;
  unique_fd ours{ends[0]};
  const unique_fd theirs{ends[1]};
  // All sandboxes of a node at once, each a small packet with its descriptors.
  constexpr int buffer = 64 << 20;
  ::setsockopt(ours.get(), SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer);
  const auto program = program_file("insula-gateway", insula_gateway_begin, insula_gateway_end);
  if (!program)
    return false;
  const auto child =
    start_own_program(program, theirs, {"insula-gateway", std::to_string(gateway_uid), node_});
  if (child < 0)
    return false;
  pid_ = child;
  socket_ = std::move(ours);
  started_ = clock::now();
  for (const auto& [slot, whom] : served_) { // Mounts after the sandboxes.
    send(gateway::op::add, slot, whom);
    send_name(slot, whom);
  }
  return true;
}

/// What it does not take, it does not read: it has hung, and the next one takes it.
bool gateway_link::send(gateway::request said, std::string_view text, const int* fds, int count) {
  iovec parts[] = {{&said, sizeof said}, {const_cast<char*>(text.data()), text.size()}};
  const bool sent =
    send_packet<static_cast<int>(gateway::max_fds)>(socket_.get(), parts, 2, fds, count) ==
    static_cast<ssize_t>(sizeof said + text.size());
  if (!sent && pid_ > 0) {
    log::error("gateway.stuck", {{"reason", std::strerror(errno)}});
    ::kill(pid_, SIGKILL);
  }
  return sent;
}

void gateway_link::send(gateway::op what, std::uint32_t slot, const served& whom) {
  if (pid_ < 0)
    return;
  std::array<int, gateway::max_fds> fds{};
  int count = 0;
  for (const auto& each : whom.sockets)
    if (each)
      fds[static_cast<std::size_t>(count++)] = each.get();
  send({what, slot, whom.of}, whom.reach, fds.data(), count);
}

void gateway_link::keep(std::uint32_t slot, served whom) {
  auto& kept = served_[slot];
  kept = std::move(whom);
  send(gateway::op::add, slot, kept);
}

void gateway_link::rename(std::uint32_t slot, std::string host_name) {
  const auto at = served_.find(slot);
  if (at == served_.end())
    return;
  at->second.host_name = std::move(host_name);
  send_name(slot, at->second);
}

void gateway_link::send_name(std::uint32_t slot, const served& whom) {
  if (pid_ > 0 && !whom.host_name.empty())
    send({gateway::op::name, slot}, whom.host_name, nullptr, 0);
}

void gateway_link::remove(std::uint32_t slot) {
  if (served_.erase(slot) == 0)
    return;
  send(gateway::op::remove, slot, {});
  for (auto& [number, each] : served_)
    if (each.of == slot) // Which may be another sandbox's soon.
      each.of = gateway::nobody;
}

bool gateway_link::set_broker(std::uint32_t slot, const unique_fd& way) {
  const int fd = way.get();
  return pid_ > 0 && send({gateway::op::broker, slot}, {}, &fd, way ? 1 : 0);
}

unique_fd gateway_link::serve() {
  int ends[2];
  if (pid_ < 0 || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return {};
  unique_fd ours{ends[0]};
  const unique_fd theirs{ends[1]};
  if (!send({gateway::op::serve, 0}, {}, &ends[1], 1))
    return {};
  return ours;
}

bool gateway_link::ended(pid_t child, int status) {
  if (child != pid_ || pid_ < 0)
    return false;
  pid_ = -1;
  socket_.reset();
  if (ending_)
    return true;
  pause_ = clock::now() - started_ > good_life ? 10ms : std::clamp(pause_ * 2, 10ms, longest_pause);
  due_ = clock::now() + pause_;
  log::error("gateway.ended",
             {{"status", status}, {"again_in_ms", pause_.count()}, {"served", served_.size()}});
  return true;
}

int gateway_link::until_restart() const {
  if (pid_ > 0 || ending_)
    return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(due_ - clock::now());
  return static_cast<int>(std::max(left, 0ms).count());
}

bool gateway_link::restart() {
  if (until_restart() != 0)
    return false;
  if (start())
    return true;
  log::error("gateway.not_started", {{"reason", std::strerror(errno)}});
  due_ = clock::now() + longest_pause;
  return false;
}

void gateway_link::end() {
  ending_ = true;
  if (pid_ > 0)
    ::kill(pid_, SIGKILL);
}

} // namespace insula::runtime::spawner
