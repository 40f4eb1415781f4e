// What a client sends on one connection, to the real server on a socket of its own. Behind it there
// are no sandboxes, so heads and bodies are read to their end and then refused.
#include "actors/pool_scheduler.hpp"
#include "actors/protocol/errors.hpp"
#include "base/io_pool.hpp"
#include "base/log.hpp"
#include "http/server.hpp"
#include "tests/fuzz/bytes.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <arpa/inet.h>
#include <cerrno>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

using namespace insula;
using namespace insula::fuzz;

namespace {

directory_actor::behavior_type empty_directory() {
  return {
    [](find_atom, const std::string&, const request_context&) -> caf::result<sandbox_actor> {
      return to_caf({errc::launch_failed, "there are no sandboxes here"});
    },
    [](reach_atom, const std::string&, const request_context&) -> caf::result<sandbox_actor> {
      return to_caf({errc::launch_failed, "there are no sandboxes here"});
    },
    [](delete_atom, const std::string&, const request_context&) -> caf::result<caf::ok_atom> {
      return caf::ok_atom::value;
    },
    [](list_atom) { return std::vector<sandbox_status>{}; },
  };
}

/// Made once and never taken apart: the fuzzer ends the program where it stands.
class world {
public:
  world()
      : system_(running_on(pool_, config_))
      , server_(pool_, system_, options(), system_.spawn(empty_directory), nullptr) {
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

/// A connection to the server. The fuzzer's alarm can come in mid-connect, which goes on without us
/// then.
int connection_to(std::uint16_t port) {
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int failed = 0;
  if (::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    failed = errno;
  if (failed == EINTR) {
    pollfd made{client, POLLOUT, 0};
    wait_for(made, "an interrupted connection is made");
    socklen_t length = sizeof failed;
    ::getsockopt(client, SOL_SOCKET, SO_ERROR, &failed, &length);
  }
  must(failed == 0, "the server takes a connection");
  return client;
}

/// Says everything, then that there is no more, and listens until the other side has closed.
std::string converse(std::uint16_t port, std::string_view bytes) {
  const int client = connection_to(port);
  bool all_said = false;
  std::string heard;
  for (;;) {
    pollfd ready{client, static_cast<short>(all_said ? POLLIN : POLLIN | POLLOUT), 0};
    wait_for(ready, "a connection whose client has said all is closed");
    if ((ready.revents & POLLOUT) != 0 && !all_said) {
      const auto sent = ::send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      bytes.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(0, sent)));
      if (bytes.empty() || (sent < 0 && errno != EAGAIN && errno != EINTR)) {
        all_said = true;
        ::shutdown(client, SHUT_WR);
      }
    }
    if ((ready.revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
      char buffer[16'384];
      const auto got = ::recv(client, buffer, sizeof buffer, MSG_DONTWAIT);
      if (got > 0)
        heard.append(buffer, static_cast<std::size_t>(got));
      else if (got == 0 || (errno != EAGAIN && errno != EINTR))
        break;
    }
  }
  ::close(client);
  return heard;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto& server = *new world;
  const auto heard = converse(server.port(), text_of(data, size));
  must(heard.empty() || heard.rfind("HTTP/1.1 ", 0) == 0, "what comes back is HTTP");
  return 0;
}
