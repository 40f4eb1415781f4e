// The server's engine between a spawner and an agent that say what the input wants. Packets one
// after the other: a byte says who speaks and whether a descriptor comes along, one how long the
// packet is; then the packet.
#include "base/io_pool.hpp"
#include "runtime/agent/protocol.hpp"
#include "runtime/native_engine.hpp"
#include "runtime/packet_socket.hpp"
#include "runtime/spawner/protocol.hpp"
#include "tests/fuzz/bytes.hpp"
#include "tests/support/played_gateway.hpp"

#include <chrono>
#include <condition_variable>
#include <fcntl.h>
#include <mutex>
#include <sys/socket.h>
#include <unistd.h>

using namespace insula;
using namespace insula::fuzz;
using namespace insula::runtime;

namespace {

/// Counts what the engine tells, from its thread; waited for on ours.
class diary {
public:
  void count(int& what) {
    const std::lock_guard hold{mutex_};
    ++what;
    changed_.notify_all();
  }
  template <class Condition>
  void wait(Condition there, const char* what) {
    std::unique_lock hold{mutex_};
    must(changed_.wait_for(hold, std::chrono::minutes{1}, there), what);
  }

  int ready = 0, failed = 0, ended = 0, destroyed = 0;
  struct {
    int started = 0, failed = 0, ended = 0, complete = 0;
  } commands[2];

private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

struct packet_pair {
  packet_pair() {
    int ends[2];
    must(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "there are sockets");
    theirs.reset(ends[0]);
    ours.reset(ends[1]);
  }
  unique_fd theirs, ours;
};

/// False: the server has hung up.
bool send(int socket, std::string_view bytes, int fd = -1) {
  iovec data{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    auto* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(part), &fd, sizeof fd);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) >= 0;
}

/// Throws away what the server says, so that it never finds the socket full; returns the last
/// request that was a whole one.
template <class Request>
Request next(int socket) {
  Request said{};
  pollfd ready{socket, POLLIN, 0};
  wait_for(ready, "the server asks");
  must(::recv(socket, &said, sizeof said, 0) == sizeof said, "the server asks in whole requests");
  return said;
}

void drain(int socket) {
  char bytes[512];
  while (::recv(socket, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
  }
}

void say(int spawner, spawner::event what, std::uint32_t slot, int fd = -1) {
  spawner::notice said{};
  said.what = what;
  said.slot = slot;
  send(spawner, as_bytes(said), fd);
}

process_listener listener_to(diary& heard, std::size_t number) {
  auto& mine = heard.commands[number];
  return {[&] { heard.count(mine.started); }, [&](const error&) { heard.count(mine.failed); },
          [&](process_exit) { heard.count(mine.ended); }, [&] { heard.count(mine.complete); }};
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  byte_source from{data, size};
  packet_pair spawner, inside;
  diary heard;
  std::shared_ptr<sandbox> box;
  insula::test::played_gateway gateway;
  static io_pool pool{1};
  native_engine engine{
    pool,
    {"fuzz", "/tmp", 0, 1},
    spawner_link{
      std::move(spawner.theirs), runtime::spawner::version, 1, {}, ::getpid(), gateway.take_way()}};
  engine.create({"fuzz", {"host", false}, {}}, {[&](std::shared_ptr<sandbox> it) {
                                                  box = std::move(it);
                                                  heard.count(heard.ready);
                                                },
                                                [&](const error&) { heard.count(heard.failed); },
                                                [&] { heard.count(heard.ended); }});
  next<runtime::spawner::request>(spawner.ours.get());
  say(spawner.ours.get(), runtime::spawner::event::created, 0, inside.theirs.get());
  inside.theirs.reset();
  runtime::agent::notice hello{};
  hello.what = runtime::agent::event::ready;
  hello.value = runtime::agent::version;
  send(inside.ours.get(), as_bytes(hello));
  heard.wait([&] { return heard.ready == 1; }, "a sandbox becomes ready");

  // Two commands, known to the agent as 1 and 2.
  std::shared_ptr<process> commands[2];
  for (std::size_t i = 0; i < 2; ++i)
    commands[i] = box->start({{"/bin/true"}, {}, "/", "", {}}, listener_to(heard, i));

  while (!from.empty()) {
    const auto who = from.plain<std::uint8_t>();
    const auto bytes = from.take(from.plain<std::uint8_t>());
    const auto& speaker = (who & 1) != 0 ? spawner.ours : inside.ours;
    send(speaker.get(), bytes, (who & 2) != 0 ? speaker.get() : -1);
    drain(inside.ours.get());
    drain(spawner.ours.get());
  }

  // The end, as the spawner tells it: whatever was said before, everything is answered.
  box->destroy([&] { heard.count(heard.destroyed); });
  say(spawner.ours.get(), runtime::spawner::event::destroyed, 0);
  inside.ours.reset();
  spawner.ours.reset();
  heard.wait([&] { return heard.destroyed == 1; }, "a sandbox can always be destroyed");
  for (const auto& each : heard.commands)
    heard.wait([&] { return each.failed + each.ended >= 1; }, "every command's end is told");
  for (const auto& each : heard.commands) {
    must(each.failed + each.ended == 1 && each.started <= 1, "an end is told once");
    must(each.ended == 0 || each.started == 1, "only what runs can end");
  }
  must(heard.ready == 1 && heard.failed == 0 && heard.ended <= 1, "a sandbox is told of once");
  for (auto& each : commands)
    each.reset();
  box.reset();
  return 0;
}
