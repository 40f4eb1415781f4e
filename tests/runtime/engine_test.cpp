// The engine between a spawner and agents that the test plays: nothing that they say or do not say
// may hurt it.
#include "base/io_pool.hpp"
#include "runtime/agent/shell_protocol.hpp"
#include "runtime/native_engine.hpp"
#include "tests/runtime/played_parts.hpp"
#include "tests/support/events.hpp"
#include "tests/support/played_gateway.hpp"
#include "tests/support/temp_dir.hpp"

#include <atomic>
#include <fcntl.h>
#include <future>
#include <random>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

using agent_event = runtime::agent::event;
using agent_op = runtime::agent::op;
using spawner_event = runtime::spawner::event;
using spawner_op = runtime::spawner::op;
using runtime::spawner::launch_step;

struct told {
  std::string what;
  std::shared_ptr<sandbox> ready;
  std::thread::id on;
  errc code = {}; ///< Of a failure.
};

struct node {
  /// `left`: of an earlier server.
  explicit node(std::uint32_t slots = 8, std::vector<held_sandbox> left = {})
      : node(plain_end::pair(), slots, std::move(left)) {}
  node(std::array<unique_fd, 2> ends, std::uint32_t slots, std::vector<held_sandbox> left,
       std::uint64_t memory_reserve = 0)
      : spawner(std::move(ends[1]))
      , engine(std::make_unique<native_engine>(
          pool, native_options{"played", dir.path().string(), 0, slots, {}, {}, memory_reserve},
          spawner_link{std::move(ends[0]), runtime::spawner::version, generation, std::move(left),
                       ::getpid(), gateway.take_way()})) {}

  sandbox_listener listener() const {
    return {[to = heard](std::shared_ptr<sandbox> it) {
              to->tell({"ready", std::move(it), std::this_thread::get_id()});
            },
            [to = heard](const error& why) {
              to->tell({"failed " + why.message, nullptr, std::this_thread::get_id(), why.code});
            },
            [to = heard] {
              to->tell({"ended", nullptr, std::this_thread::get_id()});
            }};
  }
  void create() { engine->create({"played", {"host", false}, {}}, listener()); }

  struct living {
    std::uint32_t slot;
    played_agent agent;
    std::shared_ptr<sandbox> box;
  };
  living make() {
    create();
    auto [slot, agent] = spawner.make();
    agent.say(agent_event::ready, 0, runtime::agent::version);
    auto ready = heard->next();
    REQUIRE(ready.what == "ready");
    return {slot, std::move(agent), std::move(ready.ready)};
  }

  static constexpr std::uint64_t generation = 2;
  const temp_dir dir;
  std::shared_ptr<events<told>> heard = std::make_shared<events<told>>();
  played_gateway gateway;
  played_spawner spawner;
  io_pool pool{1};
  std::unique_ptr<native_engine> engine;
};

process_listener listener_to(const std::shared_ptr<events<std::string>>& heard) {
  return {[heard] { heard->tell("started"); },
          [heard](const error& why) { heard->tell("failed " + why.message); },
          [heard](process_exit how) {
            heard->tell(how.lost ? "lost" : "ended " + std::to_string(how.status));
          },
          [heard] { heard->tell("complete"); }};
}

process_spec command() {
  process_spec spec;
  spec.argv = {"/bin/true", "argument"};
  spec.env = {"A=b"};
  spec.cwd = "/somewhere";
  return spec;
}

} // namespace

TEST_CASE("a command travels as the agent expects it", "[runtime][engine]") {
  node n;
  const auto it = n.make();
  const auto heard = std::make_shared<events<std::string>>();
  auto spec = command();
  spec.script = "echo from a script";
  const auto p = it.box->start(spec, listener_to(heard));
  auto asked = it.agent.next(agent_op::exec);
  CHECK(asked.head.argc == 2);
  CHECK(asked.head.envc == 1);
  CHECK(asked.head.uid == 1000);
  using namespace std::string_literals;
  CHECK(asked.text == "/somewhere\0/bin/true\0argument\0A=b\0"s);
  REQUIRE(asked.fds.size() == 4);
  char script[32];
  CHECK(::read(asked.fds[3].get(), script, sizeof script) == 18);
  it.agent.say(agent_event::started, asked.head.id, 2);
  CHECK(heard->next() == "started");
  p->signal(15);
  const auto signalled = it.agent.next(agent_op::signal);
  CHECK(signalled.head.id == asked.head.id);
  CHECK(signalled.head.value == 15);
  it.agent.say(agent_event::exited, asked.head.id, 256);
  CHECK(heard->next() == "ended 256");
  CHECK(n.spawner.next(spawner_op::hold).name == asked.head.id);
  asked.fds.clear();
  CHECK(heard->next() == "complete");
  // In this order: whoever comes between the two is told again.
  CHECK(n.spawner.next(spawner_op::release).name == asked.head.id);
  CHECK(it.agent.next(agent_op::forget).head.id == asked.head.id);
}

TEST_CASE("a command that was not started when its sandbox ended has failed", "[runtime][engine]") {
  node n;
  const auto it = n.make();
  const auto heard = std::make_shared<events<std::string>>();
  const auto never = it.box->start(command(), listener_to(heard));
  const auto running = std::make_shared<events<std::string>>();
  const auto p = it.box->start(command(), listener_to(running));
  it.agent.next(agent_op::exec);
  it.agent.say(agent_event::started, it.agent.next(agent_op::exec).head.id, 2);
  CHECK(running->next() == "started");
  n.spawner.say(spawner_event::ended, it.slot, 9);
  CHECK(n.heard->next().what == "ended");
  CHECK(heard->next().starts_with("failed "));
  CHECK(running->next() == "lost");
  CHECK(running->next() == "complete");
}

TEST_CASE("an agent that says anything at all hurts nothing but its own sandbox",
          "[runtime][engine][property]") {
  const auto seed = GENERATE(take(10, random(0u, 1'000'000u)));
  CAPTURE(seed);
  std::mt19937 rng{seed};
  node n;
  const auto bad = n.make();
  const auto good = n.make();
  const auto heard = std::make_shared<events<std::string>>();
  std::vector<std::shared_ptr<process>> processes;
  for (int i = 0; i < 5; ++i)
    processes.push_back(bad.box->start(command(), listener_to(heard)));
  for (int i = 0; i < 2'000; ++i) {
    runtime::agent::notice said{};
    said.what = static_cast<agent_event>(rng() % 8);
    said.id = rng() % 3 == 0 ? rng() : rng() % 7;
    said.value = static_cast<std::int32_t>(rng());
    said.step = rng() % 2 == 0 ? rng() : rng() % 12;
    const auto bytes = as_bytes(said);
    const auto size = rng() % 10 == 0 ? 1 + rng() % bytes.size() : bytes.size();
    REQUIRE(bad.agent.end.send(bytes.substr(0, size), std::vector<int>(rng() % 3, 0)));
    while (rng() % 2 == 0 && ::recv(bad.agent.end.fd(), &said, 1, MSG_DONTWAIT) > 0) {
    }
  }
  // Nothing is heard twice, or in a wrong order, and the neighbour works as ever.
  const auto well = std::make_shared<events<std::string>>();
  const auto p = good.box->start(command(), listener_to(well));
  const auto id = good.agent.next(agent_op::exec).head.id;
  good.agent.say(agent_event::started, id, 2);
  CHECK(well->next() == "started");
  good.agent.say(agent_event::exited, id, 0);
  CHECK(well->next() == "ended 0");
  CHECK(well->next() == "complete");
  CHECK(n.engine->ailments().empty());
  n.spawner.say(spawner_event::ended, bad.slot, 9);
  CHECK(n.heard->next().what == "ended");
  int begun = 0, over = 0;
  while (!heard->empty()) {
    const auto what = heard->next();
    begun += what == "started" || what.starts_with("failed ");
    over += what == "lost" || what.starts_with("ended ");
  }
  CHECK(begun == 5);
  CHECK(over <= 5);
}

TEST_CASE("an agent of another version is refused", "[runtime][engine]") {
  node n;
  n.create();
  auto [slot, agent] = n.spawner.make();
  agent.say(agent_event::ready, 0, 77);
  CHECK(n.spawner.next().what == spawner_op::destroy);
  n.spawner.say(spawner_event::destroyed, slot);
  CHECK(n.heard->next().what == "failed the agent speaks another version");
}

TEST_CASE("a node without memory begins only what serves the node", "[runtime][engine]") {
  constexpr std::uint64_t more_than_any_machine_has = 1ull << 60;
  node n{plain_end::pair(), 8, {}, more_than_any_machine_has};
  REQUIRE(n.engine->refuses_more());
  n.create();
  const auto refused = n.heard->next();
  CHECK(refused.code == errc::machine_full);
  sandbox_spec own{"own", {"host", false}, {}};
  own.of_the_node = true;
  n.engine->create(own, n.listener());
  n.spawner.make();
}

TEST_CASE("a launch that fails on its way names the step", "[runtime][engine]") {
  node n;
  n.create();
  SECTION("in the child") {
    auto [slot, agent] = n.spawner.make();
    agent.say(agent_event::launch_failed, 0, ENOSPC,
              static_cast<std::uint32_t>(launch_step::overlay));
    n.spawner.say(spawner_event::ended, slot, 256);
    CHECK(n.heard->next().what == "failed mounting the overlay: No space left on device");
  }
  SECTION("since the machine has no memory for another filter") {
    const auto error = GENERATE(524, ENOMEM);
    auto [slot, agent] = n.spawner.make();
    agent.say(agent_event::launch_failed, 0, error,
              static_cast<std::uint32_t>(launch_step::seccomp));
    n.spawner.say(spawner_event::ended, slot, 256);
    const auto said = n.heard->next();
    CHECK(said.code == errc::machine_full);
    CHECK(said.what == "failed loading the system call filter: the machine has no room for one "
                       "more (net.core.bpf_jit_limit)");
  }
  SECTION("since the filter is refused for another reason") {
    auto [slot, agent] = n.spawner.make();
    agent.say(agent_event::launch_failed, 0, EINVAL,
              static_cast<std::uint32_t>(launch_step::seccomp));
    n.spawner.say(spawner_event::ended, slot, 256);
    const auto said = n.heard->next();
    CHECK(said.code == errc::launch_failed);
    CHECK(said.what == "failed loading the system call filter: Invalid argument");
  }
  SECTION("in the spawner") {
    const auto wanted = n.spawner.next(spawner_op::create);
    n.spawner.say(spawner_event::create_failed, wanted.slot, EIO, launch_step::disk);
    CHECK(n.heard->next().what == "failed making the disk: Input/output error");
  }
  SECTION("without a word") {
    auto [slot, agent] = n.spawner.make();
    n.spawner.say(spawner_event::ended, slot, 256);
    CHECK(n.heard->next().what == "failed the sandbox ended before it was ready");
  }
  // The slot can be used again: as many more as there are.
  std::vector<node::living> all;
  for (int i = 0; i < 8; ++i)
    all.push_back(n.make());
  n.create();
  CHECK(n.heard->next().what.starts_with("failed every range of user ids"));
}

TEST_CASE("a slot is given back once, however its sandbox ends", "[runtime][engine]") {
  node n{1};
  for (int round = 0; round < 30; ++round) {
    const auto it = n.make();
    const auto gone = std::make_shared<events<int>>();
    const auto destroy = [&] { it.box->destroy([gone] { gone->tell(1); }); };
    // Its own end and the wish to end it, at once. The wish is answered if it came before its end
    // was heard of.
    std::thread ends{[&] { n.spawner.say(spawner_event::ended, it.slot, 9); }};
    destroy();
    ends.join();
    n.spawner.say(spawner_event::destroyed, it.slot);
    destroy();
    gone->next();
    gone->next();
    destroy();
    gone->next();
    while (!n.heard->empty())
      CHECK(n.heard->next().what == "ended");
    // There is one slot. A second sandbox would have to be given the same.
    const auto next = n.make();
    n.create();
    REQUIRE(n.heard->next().what.starts_with("failed every range"));
    next.box->destroy([gone] { gone->tell(1); });
    n.spawner.say(spawner_event::destroyed, next.slot);
    gone->next();
  }
}

TEST_CASE("an answer to an earlier destroy is not taken for the slot's next sandbox",
          "[runtime][engine]") {
  node n{1};
  const auto it = n.make();
  const auto gone = std::make_shared<events<int>>();
  // Twice, and meanwhile it ends by itself: the spawner has each of these to answer.
  for (int i = 0; i < 2; ++i)
    it.box->destroy([gone, i] { gone->tell(i); });
  CHECK(n.spawner.next(spawner_op::destroy).slot == it.slot);
  n.spawner.say(spawner_event::ended, it.slot, 9);
  n.create(); // Refused: the spawner is not done with the slot.
  CHECK(n.heard->next().what.starts_with("failed every range"));
  CHECK(gone->empty());
  n.spawner.say(spawner_event::destroyed, it.slot);
  CHECK(gone->next() == 0);
  CHECK(gone->next() == 1);
  n.create();
  const auto wanted = n.spawner.next(); // And not a second destroy.
  CHECK(wanted.what == spawner_op::create);
  n.spawner.say(spawner_event::destroyed, wanted.slot); // From nowhere.
  auto ends = plain_end::pair();
  n.spawner.say(spawner_event::created, wanted.slot, 0, {}, {ends[0].get()});
  const played_agent agent{std::move(ends[1])};
  agent.say(agent_event::ready, 0, runtime::agent::version);
  CHECK(n.heard->next().what == "ready");
}

TEST_CASE("callbacks come on the engine's own thread, whoever asks", "[runtime][engine]") {
  node n;
  const auto it = n.make();
  const auto gone = std::make_shared<events<std::thread::id>>();
  const auto destroy = [&] { it.box->destroy([gone] { gone->tell(std::this_thread::get_id()); }); };
  destroy();
  n.spawner.say(spawner_event::destroyed, it.slot);
  const auto io = gone->next();
  CHECK(io != std::this_thread::get_id());
  destroy(); // It is already gone.
  CHECK(gone->next() == io);
  n.spawner.end.close();
  const auto other = std::make_shared<events<std::string>>();
  n.create();
  const auto failed = n.heard->next();
  CHECK(failed.what.starts_with("failed "));
  CHECK(failed.on == io);
}

TEST_CASE("who claims a sandbox hears of it once both spawner and agent have answered",
          "[runtime][engine]") {
  node n;
  const auto it = n.make();
  const auto heard = std::make_shared<events<std::string>>();
  sandbox_limits limits;
  limits.processes = 77;
  it.box->claim({"somebody", limits},
                {[heard](const std::shared_ptr<sandbox>&) { heard->tell("ready"); },
                 [heard](const error& why) { heard->tell("failed " + why.message); },
                 [heard] { heard->tell("ended"); }});
  const auto wanted = n.spawner.next();
  REQUIRE(wanted.what == spawner_op::claim);
  CHECK(wanted.slot == it.slot);
  CHECK(wanted.host_name == std::string{"somebody"});
  CHECK(wanted.ceilings.processes == 77);
  const auto asked = it.agent.next(agent_op::ping);
  it.agent.say(agent_event::ready, 0, runtime::agent::version); // It has said that before.
  it.agent.say(agent_event::pong, asked.head.id + 1);           // Nobody has asked that.
  SECTION("both") {
    it.agent.say(agent_event::pong, asked.head.id);
    it.agent.say(agent_event::pong, asked.head.id);
    CHECK(heard->empty());
    n.spawner.say(spawner_event::claimed, it.slot);
    CHECK(heard->next() == "ready");
    n.spawner.say(spawner_event::claimed, it.slot); // Once is enough.
    n.spawner.say(spawner_event::ended, it.slot);
    CHECK(heard->next() == "ended");
    CHECK(n.heard->empty()); // Whoever had it made is told nothing any more.
  }
  SECTION("a spawner that cannot") {
    n.spawner.say(spawner_event::claimed, it.slot, EPERM, launch_step::limits);
    CHECK(n.spawner.next(spawner_op::destroy).slot == it.slot);
    CHECK(heard->empty());
    n.spawner.say(spawner_event::destroyed, it.slot);
    CHECK(heard->next() == "failed setting the limits: Operation not permitted");
  }
  SECTION("an agent that says nothing") {
    n.spawner.say(spawner_event::claimed, it.slot);
    CHECK(n.spawner.next(spawner_op::destroy).slot == it.slot);
    n.spawner.say(spawner_event::destroyed, it.slot);
    CHECK(heard->next() == "failed the warm sandbox did not answer in time");
  }
  SECTION("an end on the way") {
    n.spawner.say(spawner_event::ended, it.slot);
    CHECK(heard->next().starts_with("failed "));
  }
  CHECK(heard->empty());
}

TEST_CASE("when the spawner is gone everything is reported, and it is an ailment",
          "[runtime][engine]") {
  node n;
  const auto it = n.make();
  const auto heard = std::make_shared<events<std::string>>();
  const auto p = it.box->start(command(), listener_to(heard));
  it.agent.say(agent_event::started, it.agent.next(agent_op::exec).head.id, 2);
  CHECK(heard->next() == "started");
  n.create(); // Has had no answer yet.
  n.spawner.next(spawner_op::create);
  n.create(); // It is made, and its agent has said nothing.
  const auto [slot, silent] = n.spawner.make();
  CHECK(n.engine->ailments().empty());
  std::promise<void> alone;
  n.engine->when_alone([&] { alone.set_value(); });
  n.spawner.end.close();
  std::vector<std::string> said;
  for (int i = 0; i < 3; ++i) {
    const auto each = n.heard->next();
    said.push_back(each.what);
    if (each.what != "ended")
      CHECK(each.code == errc::node_unreachable);
  }
  std::sort(said.begin(), said.end());
  const std::string failed = "failed the spawner is gone, and this server ends";
  CHECK(said == std::vector<std::string>{"ended", failed, failed});
  CHECK(heard->next() == "lost");
  CHECK(alone.get_future().wait_for(10s) == std::future_status::ready);
  std::atomic<bool> told_again = false;
  n.engine->when_alone([&] { told_again = true; });
  CHECK(told_again); // A question that comes too late is answered at once.
  CHECK(n.engine->ailments().size() == 1);
  const auto refused = std::make_shared<events<std::string>>();
  const auto q = it.box->start(command(), listener_to(refused));
  CHECK(refused->next().starts_with("failed "));
  CHECK_FALSE(it.box->open_file(file_operation::read, "/x", {}));
}

TEST_CASE("a spawner that says nonsense hurts nothing", "[runtime][engine][property]") {
  const auto seed = GENERATE(take(10, random(0u, 1'000'000u)));
  CAPTURE(seed);
  std::mt19937 rng{seed};
  node n;
  auto it = n.make();
  for (int i = 0; i < 500; ++i) {
    runtime::spawner::notice said{};
    said.what = static_cast<spawner_event>(rng() % 9);
    said.slot = rng() % 2 == 0 ? 8 + rng() % 1'000'000 : 8;
    said.error = static_cast<std::int32_t>(rng());
    said.step = rng();
    REQUIRE(n.spawner.end.send(as_bytes(said), std::vector<int>(rng() % 2, 0)));
  }
  CHECK(n.heard->empty());
  const auto again = n.make();
  CHECK(again.slot != it.slot);
}

TEST_CASE("a command that is too large for the agent is refused in words", "[runtime][engine]") {
  node n;
  const auto it = n.make();
  const auto heard = std::make_shared<events<std::string>>();
  auto large = command();
  large.argv.push_back(std::string(runtime::agent::max_text_bytes, 'x'));
  auto many = command();
  many.argv.resize(runtime::agent::max_strings, "x");
  for (const auto& spec : {large, many}) {
    const auto p = it.box->start(spec, listener_to(heard));
    CHECK(heard->next() == "failed the command is too large");
  }
}

TEST_CASE("a process that nobody holds is let go of", "[runtime][engine]") {
  node n;
  const auto it = n.make();
  const auto heard = std::make_shared<events<std::string>>();
  auto p = it.box->start(command(), listener_to(heard));
  const auto held = n.spawner.next(spawner_op::hold);
  CHECK(held.slot == it.slot);
  p.reset();
  CHECK(n.spawner.next(spawner_op::release).name == held.name);
}

TEST_CASE("an engine that goes hangs up, whatever lived in it", "[runtime][engine]") {
  node n;
  {
    auto it = n.make();
    const auto heard = std::make_shared<events<std::string>>();
    const auto p = it.box->start(command(), listener_to(heard));
    it.agent.say(agent_event::started, it.agent.next(agent_op::exec).head.id, 2);
    CHECK(heard->next() == "started");
    n.create(); // And one that is on its way.
    while (n.spawner.next().what != spawner_op::create) {
    }
  }
  n.engine.reset();
  while (!n.spawner.end.next().bytes.empty()) {
  }
}

namespace {

struct played_shell {
  explicit played_shell(node::living& in)
      : shell(in.box->open_shell({}, {[to = heard] { to->tell("ready"); },
                                      [to = heard](const error&) { to->tell("failed"); },
                                      [to = heard](process_exit) { to->tell("ended"); }}))
      , asked(in.agent.next(agent_op::open_shell))
      , keeper(std::move(asked.fds.at(3))) {}

  void say(runtime::agent::shell_event what, std::uint64_t number = 0) const {
    const runtime::agent::shell_notice said{what, 0, number};
    REQUIRE(keeper.send(as_bytes(said)));
  }

  std::shared_ptr<events<std::string>> heard = std::make_shared<events<std::string>>();
  std::shared_ptr<runtime::shell> shell;
  played_agent::asked asked;
  plain_end keeper;
};

} // namespace

TEST_CASE("a command that a shell did not take before its end can be run by another",
          "[runtime][engine]") {
  node n;
  auto it = n.make();
  for (const bool started : {false, true}) {
    CAPTURE(started);
    const played_shell it_lives{it};
    it_lives.say(runtime::agent::shell_event::ready);
    CHECK(it_lives.heard->next() == "ready");
    const auto heard = std::make_shared<events<std::string>>();
    std::optional<errc> why;
    auto listener = listener_to(heard);
    listener.on_failed = [&why, heard](const error& what) {
      why = what.code;
      heard->tell("failed");
    };
    const auto running = it_lives.shell->run({"true", ""}, listener);
    CHECK(it.agent.next(agent_op::make_room).head.id == it_lives.asked.head.id);
    if (started) {
      it_lives.say(runtime::agent::shell_event::started, 1);
      CHECK(heard->next() == "started");
    }
    it.agent.say(agent_event::exited, it_lives.asked.head.id);
    it.agent.next(agent_op::forget);
    CHECK(it_lives.heard->next() == "ended");
    CHECK(heard->next() == (started ? "ended 9" : "failed"));
    if (!started)
      CHECK(why == errc::sandbox_not_running);
  }
}

TEST_CASE("where nothing can be frozen, that is said, and nothing has to be thawed",
          "[runtime][engine]") {
  node n;
  const auto it = n.make();
  const auto still = std::make_shared<events<bool>>();
  it.box->freeze([still](bool good) { still->tell(good); });
  CHECK_FALSE(still->next());
  CHECK(it.box->thaw());
}

TEST_CASE("what does not stand still in time goes on", "[runtime][engine]") {
  node n;
  n.create();
  const auto wanted = n.spawner.next(spawner_op::create);
  auto ends = plain_end::pair();
  const auto freezer = n.dir.path() / "freezer"; // Nobody looks into it.
  const unique_fd file{::open(freezer.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  n.spawner.say(spawner_event::created, wanted.slot, 0, {}, {ends[0].get(), file.get()});
  const played_agent agent{std::move(ends[1])};
  agent.say(agent_event::ready, 0, runtime::agent::version);
  const auto box = n.heard->next().ready;
  REQUIRE(box);
  const auto written = [&] {
    char text[16];
    const auto n_read = ::pread(file.get(), text, sizeof text, 0);
    return std::string(text, n_read > 0 ? static_cast<std::size_t>(n_read) : 0);
  };
  const auto still = std::make_shared<events<bool>>();
  box->freeze([still](bool good) { still->tell(good); });
  const auto asked = written();
  CHECK((asked == "1" || asked == "FROZEN"));
  CHECK_FALSE(still->next());
  const auto after = written();
  CHECK((after == "0" || after == "THAWED"));
  // Thawed before that time is over.
  box->freeze([still](bool good) { still->tell(good); });
  CHECK(box->thaw());
  CHECK_FALSE(still->next());
}

TEST_CASE("what goes on talking in a keeper's place holds nobody up", "[runtime][engine]") {
  node n;
  auto it = n.make();
  played_shell hostile{it};
  hostile.say(runtime::agent::shell_event::ready);
  CHECK(hostile.heard->next() == "ready");
  std::atomic<bool> enough{false};
  std::thread flood{[&] {
    const runtime::agent::shell_notice said{runtime::agent::shell_event::pong, 0, 0};
    while (!enough)
      hostile.keeper.send(as_bytes(said), {}, MSG_DONTWAIT);
  }};
  it.agent.say(agent_event::exited, hostile.asked.head.id);
  CHECK(hostile.heard->next() == "ended");
  enough = true;
  flood.join();
}

namespace {

/// A sandbox of an earlier server, and its agent.
std::pair<std::vector<held_sandbox>, played_agent> left_in(std::uint32_t slot) {
  auto ends = plain_end::pair();
  std::vector<held_sandbox> left;
  left.push_back({slot, "played", std::move(ends[0]), {}, {}});
  return {std::move(left), played_agent{std::move(ends[1])}};
}

} // namespace

TEST_CASE("what an agent answers to an earlier server does not complete an adoption",
          "[runtime][engine]") {
  auto [left, agent] = left_in(3);
  node n{8, std::move(left)};
  // On its way before anybody asks: to the servers before, and to none that ever was.
  constexpr int shift = 40;
  for (const auto id : {std::uint64_t{0}, std::uint64_t{1} << shift, ~std::uint64_t{0}})
    agent.say(agent_event::pong, id);
  sandbox_spec wanted;
  wanted.name = "played";
  n.engine->adopt(wanted, n.listener());
  agent.next(agent_op::report);
  const auto asked = agent.next(agent_op::ping);
  agent.say(agent_event::exited, 77); // Of nobody: once it is forgotten, all before was heard.
  CHECK(agent.next(agent_op::forget).head.id == 77);
  CHECK(n.heard->empty());
  agent.say(agent_event::pong, asked.head.id);
  CHECK(n.heard->next().what == "ready");
}

TEST_CASE("a slot that another configuration has used is not given away", "[runtime][engine]") {
  auto [left, agent] = left_in(100);
  node n{1, std::move(left)};
  events<bool> gone;
  n.engine->disown("played", [&] { gone.tell(true); });
  CHECK(n.spawner.next(spawner_op::destroy).slot == 100);
  n.spawner.say(spawner_event::destroyed, 100);
  gone.next();
  auto it = n.make();
  CHECK(it.slot == 0);
  n.create();
  CHECK(n.heard->next().what.starts_with("failed every range"));
}

TEST_CASE("a command that comes after the hand-over was not started, and that is said",
          "[runtime][engine]") {
  node n;
  auto it = n.make();
  n.engine->hand_over();
  events<errc> why;
  process_listener listener;
  listener.on_failed = [&](const error& refused) { why.tell(refused.code); };
  const auto process = it.box->start(command(), std::move(listener));
  CHECK(why.next() == errc::node_unreachable);
  CHECK(it.agent.end.next().bytes.empty()); // Nothing was asked of the agent.
}

TEST_CASE("all that changes a sandbox is asked for under the epoch of who holds it",
          "[runtime][engine]") {
  node n;
  sandbox_spec spec{"played", {"host", false}, {}};
  spec.epoch = 5;
  n.engine->create(spec, n.listener());
  const auto wanted = n.spawner.next(spawner_op::create);
  CHECK(wanted.epoch == 5);
  auto ends = plain_end::pair();
  n.spawner.say(spawner_event::created, wanted.slot, 0, {}, {ends[0].get()});
  const played_agent agent{std::move(ends[1])};
  agent.say(agent_event::ready, 0, runtime::agent::version);
  const auto box = n.heard->next().ready;
  REQUIRE(box);
  CHECK(n.gateway.epochs().back() == 5);

  const auto heard = std::make_shared<events<std::string>>();
  const auto p = box->start(command(), listener_to(heard));
  CHECK(n.spawner.next().epoch == 5); // To hold it.
  CHECK(agent.next(agent_op::exec).head.epoch == 5);
  p->signal(15);
  CHECK(agent.next(agent_op::signal).head.epoch == 5);
  REQUIRE(box->open_file(file_operation::read, "/file", {}));
  CHECK(agent.next(agent_op::read_file).head.epoch == 5);
  box->open_sockets({}, [](auto) {});
  CHECK(n.spawner.next(spawner_op::open_sockets).epoch == 5);
  box->mount({.path = "/bucket", .source = "b", .type = "fuse", .argv = {"x"}, .secret = ""},
             [](auto) {});
  CHECK(n.spawner.next(spawner_op::mount).epoch == 5);

  box->claim({"somebody", {}, "name", {}, 7}, n.listener());
  CHECK(n.spawner.next(spawner_op::claim).epoch == 7);
  CHECK(agent.next(agent_op::ping).head.epoch == 7);
  n.spawner.say(spawner_event::claimed, wanted.slot, ESTALE, launch_step::epoch);
  CHECK(n.spawner.next(spawner_op::destroy).epoch == 7);
  n.spawner.say(spawner_event::destroyed, wanted.slot);
  CHECK(n.heard->next().what == "failed the sandbox is held under a newer epoch by now");
}

TEST_CASE("who does not hold a sandbox any more is told so, and its slot is not free",
          "[runtime][engine]") {
  node n{1};
  const auto why = std::make_shared<events<errc>>();
  n.engine->create({"played", {"host", false}, {}},
                   {[](auto) {}, [why](const error& said) { why->tell(said.code); }, [] {}});
  const auto wanted = n.spawner.next(spawner_op::create);
  n.spawner.say(spawner_event::create_failed, wanted.slot, ESTALE, launch_step::epoch);
  CHECK(why->next() == errc::stale_epoch);

  const auto it = n.make();
  process_listener listener;
  listener.on_failed = [why](const error& said) { why->tell(said.code); };
  const auto p = it.box->start(command(), std::move(listener));
  it.agent.say(agent_event::failed, it.agent.next(agent_op::exec).head.id, ESTALE,
               static_cast<std::uint32_t>(runtime::agent::exec_step::epoch));
  CHECK(why->next() == errc::stale_epoch);

  const auto tell = [why](const auto& outcome) { why->tell(outcome.reason().code); };
  const auto refuse = [&](spawner_event what, std::uint64_t name, auto step) {
    runtime::spawner::notice said{};
    said.what = what;
    said.slot = it.slot;
    said.name = name;
    said.error = ESTALE;
    said.step = static_cast<std::uint32_t>(step);
    REQUIRE(n.spawner.end.send(as_bytes(said)));
  };
  it.box->open_sockets({}, tell);
  refuse(spawner_event::sockets, n.spawner.next(spawner_op::open_sockets).name, launch_step::epoch);
  CHECK(why->next() == errc::stale_epoch);
  it.box->mount({.path = "/bucket", .source = "b", .type = "fuse", .argv = {"x"}, .secret = ""},
                tell);
  refuse(spawner_event::mounted, n.spawner.next(spawner_op::mount).name,
         runtime::spawner::mount_step::epoch);
  CHECK(why->next() == errc::stale_epoch);
  n.gateway.error = ESTALE;
  it.box->set_network({}, {}, tell);
  CHECK(why->next() == errc::stale_epoch);

  events<bool> gone;
  it.box->destroy([&] { gone.tell(true); });
  refuse(spawner_event::destroyed, 0, launch_step::epoch);
  gone.next();
  n.create();
  CHECK(n.heard->next().what.starts_with("failed every range"));
}

TEST_CASE("what an earlier server has left is adopted under an epoch that is not older",
          "[runtime][engine]") {
  auto [left, agent] = left_in(3);
  left[0].epoch = 5;
  node n{8, std::move(left)};
  sandbox_spec wanted;
  wanted.name = "played";
  wanted.epoch = 4;
  n.engine->adopt(wanted, n.listener());
  CHECK(n.heard->next().what == "failed the sandbox is held under a newer epoch by now");
  SECTION("a newer one") {
    wanted.epoch = 6;
    n.engine->adopt(wanted, n.listener());
    CHECK(n.spawner.next(spawner_op::adopt).epoch == 6);
    CHECK(agent.next(agent_op::report).head.epoch == 6);
  }
  SECTION("or it is ended, in the name of whoever had it last") {
    n.engine->disown("played", [] {});
    CHECK(n.spawner.next(spawner_op::destroy).epoch == 5);
  }
}
