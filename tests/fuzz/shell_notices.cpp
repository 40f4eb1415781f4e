// The server's end of a session's shell, whose keeper says what the input wants. One step after the
// other: a byte says what is done; for a packet, its bytes or a notice follow.
#include "base/io_pool.hpp"
#include "runtime/shell.hpp"
#include "tests/fuzz/bytes.hpp"

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <sys/socket.h>

using namespace insula;
using namespace insula::fuzz;
using namespace insula::runtime;

namespace {

constexpr std::size_t most_commands = 32;

/// What is told, from the shell's thread; waited for on ours.
struct diary {
  std::mutex mutex;
  std::condition_variable changed;
  int ready = 0, failed = 0, ended = 0, gone = 0;
  struct command {
    int started = 0, failed = 0, ended = 0;
  };
  std::deque<command> commands;

  void count(int& what) {
    const std::lock_guard hold{mutex};
    ++what;
    changed.notify_all();
  }
  template <class Condition>
  void wait(Condition there, const char* what) {
    std::unique_lock hold{mutex};
    must(changed.wait_for(hold, std::chrono::minutes{1}, there), what);
  }
};

} // namespace

late_output::keeper no_keeper() {
  return {[](int) { return std::uint64_t{1}; }, [](std::uint64_t) {}};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  byte_source from{data, size};
  int ends[2];
  must(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "there are sockets");
  unique_fd keeper{ends[1]};
  static io_pool pool{1};
  auto& io = pool.context(0);
  diary heard;
  const auto shell = std::make_shared<native_shell>(
    io, native_shell::options{"/tmp", std::chrono::seconds{1}, {}},
    shell_listener{[&] { heard.count(heard.ready); },
                   [&](const error&) { heard.count(heard.failed); },
                   [&](process_exit) { heard.count(heard.ended); }},
    native_shell::links{[] {},
                        [] {},
                        [] { return false; },
                        [](int, std::uint64_t) { return false; },
                        [] { return std::uint64_t{0}; },
                        [](const process_exit&, std::uint64_t) { return std::string{}; },
                        [] {},
                        [] { return native_shell::log_share{}; },
                        {},
                        {},
                        {},
                        std::make_shared<late_output>(io, no_keeper())});
  shell->attach(unique_fd{ends[0]}, 1);

  std::vector<std::shared_ptr<process>> commands;
  while (!from.empty()) {
    const auto step = from.plain<std::uint8_t>() % 4;
    if (step == 0) {
      const auto bytes = from.take(from.plain<std::uint8_t>());
      ::send(keeper.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    } else if (step == 1) {
      agent::shell_notice said{};
      said.what = static_cast<agent::shell_event>(from.plain<std::uint8_t>() % 8);
      said.number = from.plain<std::uint8_t>() % 8;
      said.value = from.plain<std::int32_t>();
      ::send(keeper.get(), &said, sizeof said, MSG_NOSIGNAL);
    } else if (step == 2 && commands.size() < most_commands) {
      auto& mine = heard.commands.emplace_back();
      commands.push_back(
        shell->run({"true", ""}, {[&] { heard.count(mine.started); },
                                  [&](const error&) { heard.count(mine.failed); },
                                  [&](process_exit) { heard.count(mine.ended); }, nullptr}));
    } else if (step == 3 && !commands.empty()) {
      commands.back()->signal(SIGTERM);
    }
    char bytes[512];
    while (::recv(keeper.get(), bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
  }

  // The end, as the agent tells it: whatever was said before, everything is answered.
  keeper.reset();
  boost::asio::post(io, [&, shell] {
    shell->gone(false);
    heard.count(heard.gone);
  });
  heard.wait([&] { return heard.gone == 1 && heard.failed + heard.ended >= 1; },
             "the shell's end is told");
  for (const auto& each : heard.commands)
    heard.wait([&] { return each.failed + each.ended >= 1; }, "every command's end is told");
  commands.clear();
  pool.settle();
  must(heard.ready + heard.failed == 1, "a shell is ready or has failed");
  must(heard.ended == heard.ready, "only what was ready ends");
  for (const auto& each : heard.commands)
    must(each.failed + each.ended == 1 && each.started == each.ended,
         "a command is told of once, and only what runs can end");
  return 0;
}
