#pragma once

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
#include <cerrno>
#include <mutex>
#include <string>
#include <thread>

/// A node with one sandbox, `abc`, whose ports are this machine's.
namespace insula::fuzz {

/// Answers each request of a connection, until there has been none for a moment, and closes.
class inner_server {
public:
  /// What is said to a request, of which there is the header. `told`: as of says(). Empty: nothing
  /// more, and it closes at once.
  using answer_fn = std::string (*)(std::string_view head, const std::string& told);

  /// `closes`: there is one answer on a connection.
  explicit inner_server(answer_fn answer, bool closes = false)
      : answer_(answer)
      , closes_(closes)
      , socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
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
    told_ = bytes;
  }

private:
  [[noreturn]] void serve() {
    for (;;) {
      const int client = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0)
        continue;
      const timeval moment{0, 20'000};
      ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof moment);
      converse_with(client);
      ::shutdown(client, SHUT_WR);
      std::array<char, 64 * 1024> heard{};
      while (::recv(client, heard.data(), heard.size(), 0) > 0) {
      }
      ::close(client);
    }
  }

  void converse_with(int client) {
    std::string heard;
    do {
      if (!hear(client, heard, "\r\n\r\n"))
        return;
      const auto head = heard.substr(0, heard.find("\r\n\r\n") + 4);
      heard.erase(0, head.size());
      std::string answer;
      {
        const std::lock_guard hold{guard_};
        answer = answer_(head, told_);
      }
      if (!closes_ && head.find("\r\nTransfer-Encoding: ") != std::string::npos) {
        hear(client, heard, "0\r\n\r\n");
        heard.erase(0, heard.find("0\r\n\r\n") + 5);
      } else if (!closes_ && head.find("\r\nContent-Length: 5\r\n") != std::string::npos) {
        while (heard.size() < 5 && more(client, heard)) {
        }
        heard.erase(0, 5);
      }
      if (::send(client, answer.data(), answer.size(), MSG_NOSIGNAL) <= 0)
        return;
    } while (!closes_);
  }

  static bool hear(int client, std::string& heard, std::string_view mark) {
    while (heard.find(mark) == std::string::npos)
      if (!more(client, heard))
        return false;
    return true;
  }

  static bool more(int client, std::string& heard) {
    std::array<char, 16 * 1024> some{};
    const auto got = ::recv(client, some.data(), some.size(), 0);
    if (got > 0)
      heard.append(some.data(), static_cast<std::size_t>(got));
    return got > 0 || (got < 0 && errno == EINTR);
  }

  const answer_fn answer_;
  const bool closes_;
  const int socket_;
  std::uint16_t port_ = 0;
  std::mutex guard_;
  std::string told_; ///< Guarded by guard_.
};

inline caf::behavior sandbox() {
  return {[](const open_sockets_request& asked) {
    std::vector<unique_fd> made;
    made.emplace_back(
      ::socket(asked.ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    return sandbox_sockets{std::make_shared<std::vector<unique_fd>>(std::move(made)), nullptr};
  }};
}

inline directory_actor::behavior_type directory(directory_actor::pointer self) {
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
    [](const list_activations&) { return activation_page{}; },
    [](const list_sandboxes&) { return sandbox_page{}; },
    [](const list_group&) { return group_page{}; },
    [](const define_snapshot& asked) -> caf::result<snapshot_description> { return asked.is; },
    [](const find_snapshot&) -> caf::result<snapshot_description> {
      return to_caf({errc::not_found, "there are no snapshots here"});
    },
    [](const hold_snapshot&) -> caf::result<snapshot_description> {
      return to_caf({errc::not_found, "there are no snapshots here"});
    },
    [](const release_snapshot&) { return caf::ok_atom::value; },
    [](const delete_snapshot&) -> caf::result<snapshot_description> {
      return to_caf({errc::not_found, "there are no snapshots here"});
    },
    [](const compare_snapshots&) { return snapshot_changes{}; },
    [](const list_snapshots&) { return snapshot_page{}; },
  };
}

/// Made once and never taken apart: the fuzzer ends the program where it stands.
class preview_world {
public:
  preview_world()
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

} // namespace insula::fuzz
