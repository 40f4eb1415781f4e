// A real spawner and real agents, spoken to by somebody who does not keep to the protocol.
#include "tests/runtime/bare_node.hpp"

#include <random>
#include <span>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;

namespace {

using agent_event = runtime::agent::event;
using agent_op = runtime::agent::op;
using spawner_event = runtime::spawner::event;
using spawner_op = runtime::spawner::op;

} // namespace

TEST_CASE("an agent refuses what is malformed and works on", "[runtime][agent]") {
  bare_node n;
  const auto agent = n.make(3);
  const int null = 0;
  const auto send = [&](auto change, const std::string& text, std::vector<int> fds) {
    runtime::agent::request wanted{};
    wanted.what = agent_op::exec;
    wanted.id = 1;
    wanted.argc = 1;
    wanted.uid = wanted.gid = 1000;
    wanted.text_bytes = static_cast<std::uint32_t>(text.size());
    change(wanted);
    REQUIRE(agent.send(std::string{as_bytes(wanted)} + text, std::move(fds)));
  };
  using namespace std::string_literals;
  const auto text = "/\0/bin/true\0"s;
  const std::vector<int> stdio{null, null, null};
  const auto refused = [&](auto change, const std::string& with, const std::vector<int>& fds) {
    send(change, with, fds);
    const auto said = next_of(agent, agent_event::failed);
    return said.value == EINVAL;
  };
  CHECK(refused([](auto&) {}, text, {}));
  CHECK(refused([](auto&) {}, text, {null, null}));
  CHECK(refused([](auto& r) { r.argc = 0; }, text, stdio));
  CHECK(refused([](auto& r) { r.argc = 3; }, text, stdio));
  CHECK(refused([](auto& r) { r.argc = ~0u; }, text, stdio));
  CHECK(refused([](auto& r) { r.envc = ~0u; }, text, stdio));
  CHECK(refused([](auto& r) { r.argc = r.envc = 0x80000000u; }, text, stdio));
  CHECK(refused([](auto& r) { r.argc = runtime::agent::max_strings; }, text, stdio));
  CHECK(refused([](auto& r) { r.id = 0; }, text, stdio));
  CHECK(refused([](auto&) {}, "no end", stdio));
  CHECK(refused([](auto&) {}, "", stdio));
  // Not even worth an answer.
  REQUIRE(agent.send("x"));
  REQUIRE(agent.send(std::string(100, '\0')));
  send([](auto& r) { r.text_bytes += 1; }, text, stdio);
  send([](auto& r) { r.text_bytes = 0; }, text, stdio);
  send([](auto& r) { r.what = static_cast<agent_op>(77); }, text, stdio);
  send([](auto& r) { r.what = agent_op::signal, r.id = 12'345, r.value = 9; }, "", {});
  send([](auto& r) { r.what = agent_op::signal, r.id = 0, r.value = 9; }, "", {});
  send([](auto& r) { r.what = agent_op::forget, r.id = 0; }, "", {});
  send([](auto& r) { r.what = agent_op::forget, r.id = 12'345; }, "", {});
  send([](auto& r) { r.what = agent_op::report; }, "", {});
  send([](auto& r) { r.what = agent_op::read_file; }, "/etc/passwd\0"s, {});
  send([](auto& r) { r.what = agent_op::write_file; }, "", {null, null, null, null});
  send([](auto& r) { r.what = agent_op::read_file; }, std::string(100'000, '/'), {null});
  CHECK(works(agent));
}

TEST_CASE("an agent takes the ids of a sandbox and no others", "[runtime][agent]") {
  bare_node n;
  const auto agent = n.make(3);
  using namespace std::string_literals;
  struct pair {
    std::uint32_t uid, gid;
    bool good;
  };
  constexpr std::uint32_t none = ~0u;
  const auto [uid, gid, good] = GENERATE(values<pair>({{0, 0, true},
                                                       {1000, 1000, true},
                                                       {65'534, 65'534, true},
                                                       {65'535, 65'535, true},
                                                       {65'536, 1000, false},
                                                       {1000, 65'536, false},
                                                       {none, none, false},
                                                       {none, 1000, false},
                                                       {1000, none, false}}));
  CAPTURE(uid, gid);
  const unique_fd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  const auto wanted = [&, as = std::pair{uid, gid}](agent_op what, const std::string& text) {
    runtime::agent::request asked{};
    asked.what = what;
    asked.id = static_cast<std::uint64_t>(what);
    asked.value = what == agent_op::open_terminal ? 80 | 24 << 16 : 0;
    asked.argc = what == agent_op::list_ports ? 0 : what == agent_op::read_file ? 1 : 4;
    asked.uid = as.first;
    asked.gid = as.second;
    asked.text_bytes = static_cast<std::uint32_t>(text.size());
    return std::string{as_bytes(asked)} + text;
  };
  const auto ids = std::to_string(uid) + ":" + std::to_string(gid) + " ";
  const auto says_ids = "/\0/bin/sh\0-c\0echo $(id -u):$(id -g) $(id -G | wc -w)\0sh\0"s;
  for (const auto what : {agent_op::exec, agent_op::open_terminal, agent_op::open_shell}) {
    CAPTURE(static_cast<int>(what));
    int out[2], ends[2];
    REQUIRE(::pipe2(out, O_CLOEXEC) == 0);
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const unique_fd from{out[0]}, ours{ends[0]};
    unique_fd into{out[1]}, theirs{ends[1]};
    if (what == agent_op::open_terminal)
      REQUIRE(agent.send(wanted(what, says_ids), {theirs.get()}));
    else
      REQUIRE(agent.send(wanted(what, says_ids), {null.get(), into.get(), null.get()}));
    into.reset();
    theirs.reset();
    if (!good) {
      const auto said = next_of(agent, agent_event::failed);
      CHECK(said.id == static_cast<std::uint64_t>(what));
      CHECK(static_cast<runtime::agent::exec_step>(said.step) == runtime::agent::exec_step::user);
      CHECK(said.value == EINVAL);
    } else if (what == agent_op::exec) {
      std::string text;
      for (char byte; ::read(from.get(), &byte, 1) == 1;)
        text += byte;
      CHECK(text == ids + "1\n");
      CHECK(next_of(agent, agent_event::exited).value == 0);
    } else { // A keeper without its channel ends, but as that user.
      while (next_of(agent, agent_event::exited).id != static_cast<std::uint64_t>(what)) {
      }
    }
  }
  // A file's child says nothing where it may not be that user.
  for (const auto what : {agent_op::read_file, agent_op::list_ports}) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const unique_fd ours{ends[0]};
    unique_fd theirs{ends[1]};
    const auto text = what == agent_op::read_file ? "/etc/passwd\0"s : ""s;
    REQUIRE(agent.send(wanted(what, text), {theirs.get()}));
    theirs.reset();
    char head[16];
    const auto n_read = ::recv(ours.get(), head, sizeof head, 0);
    CHECK((n_read > 0) == good);
  }
  CHECK(works(agent));
}

TEST_CASE("an agent survives any bytes, and a flood of them", "[runtime][agent][property]") {
  bare_node n;
  const auto agent = n.make(4);
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 rng{seed};
  const unique_fd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  for (int i = 0; i < 3'000; ++i) {
    runtime::agent::request wanted{};
    for (auto& each : std::span{reinterpret_cast<char*>(&wanted), sizeof wanted})
      each = rng() % 2 == 0 ? static_cast<char>(rng()) : '\0';
    std::string text(rng() % 300, '\0');
    for (auto& each : text)
      each = rng() % 4 == 0 ? '\0' : static_cast<char>(rng());
    if (rng() % 4 != 0) {
      wanted.what = static_cast<agent_op>(1 + rng() % 7);
      wanted.text_bytes = static_cast<std::uint32_t>(text.size());
      wanted.uid = wanted.gid = 1000;
      wanted.argc = rng() % 4;
      wanted.envc = rng() % 4;
      wanted.id = rng() % 50;
    }
    wanted.epoch = 0; // Else nobody who is older would be listened to any more.
    while (::recv(agent.fd(), &wanted, 0, MSG_DONTWAIT | MSG_PEEK) >= 0) {
      char thrown_away[64];
      ::recv(agent.fd(), thrown_away, sizeof thrown_away, MSG_DONTWAIT);
    }
    REQUIRE(
      agent.send(std::string{as_bytes(wanted)} + text, std::vector<int>(rng() % 5, null.get())));
  }
  CHECK(works(agent));
}

TEST_CASE("an agent tells of every end, also to one who does not listen for long",
          "[runtime][agent]") {
  bare_node n;
  const auto agent = n.make(5);
  using namespace std::string_literals;
  const auto text = "/\0/bin/true\0"s;
  const unique_fd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  constexpr std::uint64_t count = 1'500;
  for (std::uint64_t id = 1; id <= count; ++id) {
    runtime::agent::request wanted{};
    wanted.what = agent_op::exec;
    wanted.id = id;
    wanted.argc = 1;
    wanted.uid = wanted.gid = 1000;
    wanted.text_bytes = static_cast<std::uint32_t>(text.size());
    REQUIRE(agent.send(std::string{as_bytes(wanted)} + text, {null.get(), null.get(), null.get()}));
  }
  std::vector<int> ends(count + 1);
  for (std::uint64_t heard = 0; heard < count;) {
    runtime::agent::notice said{};
    REQUIRE(from_bytes(agent.next().bytes, said));
    REQUIRE(said.id <= count);
    if (said.what == agent_event::exited || said.what == agent_event::failed) {
      ++heard;
      CHECK(++ends[said.id] == 1);
    }
  }
  CHECK(works(agent));
}

TEST_CASE("a new server is told again what it must know", "[runtime][agent]") {
  bare_node n;
  const auto agent = n.make(6);
  CHECK(works(agent));
  runtime::agent::request again{};
  again.what = agent_op::report;
  REQUIRE(agent.send(as_bytes(again)));
  CHECK(next_of(agent, agent_event::exited).value == 0);
}

TEST_CASE("a spawner refuses what it cannot do and works on", "[runtime][spawner]") {
  bare_node n;
  const auto agent = n.make(7);
  REQUIRE(n.spawner.send(as_bytes(n.request(spawner_op::create, 7))));
  const auto refused = n.answer().first;
  CHECK(refused.what == spawner_event::create_failed);
  CHECK(refused.error == EBUSY);
  REQUIRE(n.spawner.send(as_bytes(n.request(spawner_op::destroy, 8))));
  CHECK(n.answer().first.what == spawner_event::destroyed);
  n.spawner.send(as_bytes(n.request(spawner_op::hold, 99)), {0, 1});
  n.spawner.send(as_bytes(n.request(spawner_op::release, 99)));
  n.spawner.send(as_bytes(n.request(static_cast<spawner_op>(55), 7)));
  CHECK(works(agent));
  REQUIRE(n.spawner.send(as_bytes(n.request(spawner_op::destroy, 7))));
  CHECK(n.answer().first.what == spawner_event::destroyed);
}

TEST_CASE("a server that speaks nonsense is hung up on, and the spawner lives",
          "[runtime][spawner]") {
  bare_node n;
  const auto agent = n.make(9);
  auto bad = n.request(spawner_op::create, 1);
  SECTION("too short") {
    n.spawner.send("x");
  }
  SECTION("too long") {
    n.spawner.send(std::string(sizeof bad + 1, 'x'));
  }
  SECTION("a slot that there is not") {
    bad.slot = runtime::spawner::max_slots;
    n.spawner.send(as_bytes(bad));
  }
  SECTION("a name without an end") {
    std::memset(bad.tree, 'x', sizeof bad.tree);
    n.spawner.send(as_bytes(bad));
  }
  CHECK(n.spawner.next().bytes.empty());
  CHECK(lives(n.node.spawner()));
  CHECK(works(agent));
}
