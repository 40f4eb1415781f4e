// What a server in a sandbox answers, and what its client goes on to send, through the real server.
// The sandbox is played: a port of this machine, where each connection is told the same bytes.
#include "actors/pool_scheduler.hpp"
#include "actors/protocol/errors.hpp"
#include "base/io_pool.hpp"
#include "base/log.hpp"
#include "http/server.hpp"
#include "tests/fuzz/conversation.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <thread>

using namespace insula;
using namespace insula::fuzz;

namespace {

/// Says the same to everybody who connects, reads until a moment after, and closes.
class inner_server {
public:
  inner_server()
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where;
    auto* address = reinterpret_cast<sockaddr*>(&where);
    must(::bind(socket_, address, size) == 0 && ::listen(socket_, 64) == 0 &&
           ::getsockname(socket_, address, &size) == 0,
         "the played server listens");
    port_ = ntohs(where.sin_port);
    std::thread{[this] { serve(); }}.detach();
  }

  std::uint16_t port() const { return port_; }
  void says(std::string_view bytes) {
    const std::lock_guard hold{guard_};
    answer_ = bytes;
  }

private:
  [[noreturn]] void serve() {
    for (;;) {
      const int client = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0)
        continue;
      std::array<char, 64 * 1024> heard{};
      static_cast<void>(::recv(client, heard.data(), heard.size(), 0)); // The request's header.
      std::string answer;
      {
        const std::lock_guard hold{guard_};
        answer = answer_;
      }
      static_cast<void>(::send(client, answer.data(), answer.size(), MSG_NOSIGNAL));
      ::shutdown(client, SHUT_WR);
      const timeval moment{0, 20'000};
      ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof moment);
      while (::recv(client, heard.data(), heard.size(), 0) > 0) {
      }
      ::close(client);
    }
  }

  const int socket_;
  std::uint16_t port_ = 0;
  std::mutex guard_;
  std::string answer_; ///< Guarded by guard_.
};

caf::behavior sandbox() {
  return {[](const open_sockets_request& asked) {
    std::vector<unique_fd> made;
    made.emplace_back(
      ::socket(asked.ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    return sandbox_sockets{std::make_shared<std::vector<unique_fd>>(std::move(made)), nullptr};
  }};
}

directory_actor::behavior_type directory(directory_actor::pointer self) {
  const auto only = caf::actor_cast<sandbox_actor>(self->spawn(sandbox));
  return {
    [](find_atom, const std::string&, const request_context&) -> caf::result<sandbox_actor> {
      return to_caf({errc::launch_failed, "nothing is started here"});
    },
    [only](reach_atom, const std::string&, const request_context&) -> caf::result<sandbox_actor> {
      return only;
    },
    [](delete_atom, const std::string&, const request_context&) -> caf::result<caf::ok_atom> {
      return caf::ok_atom::value;
    },
    [](list_atom) { return std::vector<sandbox_status>{}; },
    [](describe_atom) { return std::vector<described_sandbox>{}; },
  };
}

/// Made once and never taken apart: the fuzzer ends the program where it stands.
class world {
public:
  world()
      : system_(running_on(pool_, config_))
      , server_(pool_, system_, options(), system_.spawn(directory), nullptr) {
    log::set_level(log::level::error);
    must(static_cast<bool>(server_.start()), "the server starts");
  }

  std::uint16_t port() const { return server_.port(); }

private:
  static caf::actor_system_config& running_on(io_pool& pool, caf::actor_system_config& config) {
    actors::run_actors_on(pool, config);
    return config;
  }
  static http::server_options options() {
    http::server_options chosen;
    chosen.port = 0;
    chosen.spool_directory = "/tmp";
    return chosen;
  }

  io_pool pool_{1};
  caf::actor_system_config config_;
  caf::actor_system system_;
  http::server server_;
};

constexpr std::array<std::string_view, 8> kinds{
  "GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n",
  "HEAD /{} HTTP/1.1\r\nHost: localhost\r\n\r\n",
  "GET /{} HTTP/1.0\r\n\r\n",
  "GET /{} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\nConnection: close\r\n\r\n",
  "GET /{} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
  "POST /{} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n",
  "POST /{} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
  "PUT /{} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto& inner = *new inner_server;
  static const auto& server = *new world;
  byte_source from{data, size};
  const auto kind = kinds[from.plain<std::uint8_t>() % kinds.size()];
  const auto more = from.until('\0');
  inner.says(from.rest());
  std::string asked{kind};
  asked.replace(asked.find("{}"), 2, "v1/sandbox/abc/port/" + std::to_string(inner.port()) + "/");
  const auto heard = converse(server.port(), asked + std::string{more});
  must(heard.empty() || heard.rfind("HTTP/1.1 ", 0) == 0, "what comes back is HTTP");
  const auto head = heard.substr(0, heard.find("\r\n\r\n"));
  must(head.find("\r\nSet-Cookie: ") == std::string::npos ||
         head.find("Path=/v1/") != std::string::npos,
       "a cookie holds for the prefix alone");
  return 0;
}
