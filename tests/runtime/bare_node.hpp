#pragma once

#include "runtime/spawner_client.hpp"
#include "tests/runtime/played_parts.hpp"
#include "tests/support/live_node.hpp"

#include <fcntl.h>

namespace insula::test {

/// The server's end of a spawner of its own.
struct bare_node {
  bare_node()
      : spawner(connected()) {}

  unique_fd connected() {
    node.drop_server();
    auto socket = runtime::connect_to_spawner({node.state(), node.key(), "auto", 1ull << 30});
    REQUIRE(socket);
    return std::move(socket->socket);
  }
  runtime::spawner::request request(runtime::spawner::op what, std::uint32_t slot) const {
    runtime::spawner::request wanted{};
    wanted.what = what;
    wanted.slot = slot;
    const auto spec = node.spec();
    if (what == runtime::spawner::op::create) {
      spec.image.tree.copy(wanted.tree, sizeof wanted.tree - 1);
      if (spec.image.machines_usr)
        wanted.flags = runtime::spawner::create_with_machines_usr;
    }
    wanted.ceilings.memory_bytes = 256u << 20;
    wanted.ceilings.processes = 64;
    return wanted;
  }
  std::pair<runtime::spawner::notice, std::vector<unique_fd>> answer() const {
    auto got = spawner.next();
    runtime::spawner::notice said{};
    REQUIRE(runtime::from_bytes(got.bytes, said));
    return {said, std::move(got.fds)};
  }
  /// Somebody's: the next server finds it.
  plain_end make(std::uint32_t slot) const {
    auto wanted = request(runtime::spawner::op::create, slot);
    ("box-" + std::to_string(slot)).copy(wanted.tag, sizeof wanted.tag - 1);
    return make(wanted);
  }
  plain_end make(const runtime::spawner::request& wanted) const {
    REQUIRE(spawner.send(runtime::as_bytes(wanted)));
    auto [said, fds] = answer();
    REQUIRE(said.what == runtime::spawner::event::created);
    REQUIRE(fds.size() == (node.cgroups().can_freeze() ? 2u : 1u));
    plain_end agent{std::move(fds[0])};
    runtime::agent::notice first{};
    REQUIRE(runtime::from_bytes(agent.next().bytes, first));
    REQUIRE(first.what == runtime::agent::event::ready);
    return agent;
  }

  live_node node;
  plain_end spawner;
};

inline runtime::agent::notice next_of(const plain_end& agent, runtime::agent::event what) {
  for (;;) {
    runtime::agent::notice said{};
    REQUIRE(runtime::from_bytes(agent.next().bytes, said));
    if (said.what == what)
      return said;
  }
}

/// It runs a command, whoever it obeys under `epoch`.
inline bool works(const plain_end& agent, std::uint64_t epoch = 0) {
  runtime::agent::request ping{};
  ping.what = runtime::agent::op::ping;
  ping.id = 1'000'000;
  ping.epoch = epoch;
  REQUIRE(agent.send(runtime::as_bytes(ping)));
  while (next_of(agent, runtime::agent::event::pong).id != ping.id) {
  }
  runtime::agent::request wanted{};
  wanted.what = runtime::agent::op::exec;
  static std::uint64_t id = 1'000'000;
  wanted.id = ++id;
  wanted.epoch = epoch;
  wanted.argc = 1;
  wanted.uid = wanted.gid = 1000;
  using namespace std::string_literals;
  const auto text = "/\0/bin/true\0"s;
  wanted.text_bytes = static_cast<std::uint32_t>(text.size());
  const unique_fd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  REQUIRE(agent.send(std::string{runtime::as_bytes(wanted)} + text,
                     {null.get(), null.get(), null.get()}));
  for (;;)
    if (const auto said = next_of(agent, runtime::agent::event::exited); said.id == wanted.id)
      return said.value == 0;
}

} // namespace insula::test
