// Whoever holds a sandbox's id by now is obeyed, and nobody who held it before.
#include "runtime/spawner/past_epochs.hpp"
#include "tests/runtime/bare_node.hpp"

#include <cerrno>
#include <string>
#include <vector>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;

namespace {

using runtime::spawner::launch_step;
using runtime::spawner::mount_step;
using spawner_event = runtime::spawner::event;
using spawner_op = runtime::spawner::op;

runtime::spawner::request asked(const bare_node& of, spawner_op what, std::uint32_t slot,
                                std::uint64_t epoch, const std::string& name = {}) {
  auto wanted = of.request(what, slot);
  wanted.epoch = epoch;
  wanted.count = 1;
  wanted.name = 77;
  name.copy(wanted.tag, sizeof wanted.tag - 1);
  return wanted;
}

/// What comes of it.
runtime::spawner::notice ask(const bare_node& of, const runtime::spawner::request& wanted) {
  REQUIRE(of.spawner.send(as_bytes(wanted)));
  return of.answer().first;
}

template <class Step>
bool is_late(const runtime::spawner::notice& said, spawner_event what, Step step) {
  return said.what == what && said.error == ESTALE && said.step == static_cast<std::uint32_t>(step);
}

void hold(const bare_node& of, std::uint32_t slot, std::uint64_t epoch, const std::string& label) {
  const unique_fd null{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  const auto wanted = asked(of, spawner_op::hold, slot, epoch);
  REQUIRE(of.spawner.send(std::string{as_bytes(wanted)} + label, {null.get()}));
}

/// All that the next server finds.
std::vector<held_sandbox> found_by_next(const bare_node& of) {
  auto link = connect_to_spawner({of.node.state(), of.node.key()});
  REQUIRE(link);
  return std::move(link->survivors);
}

runtime::agent::request command(std::uint64_t id, std::uint64_t epoch, std::string& text) {
  using namespace std::string_literals;
  text = "/\0/bin/true\0"s;
  runtime::agent::request wanted{};
  wanted.what = runtime::agent::op::exec;
  wanted.id = id;
  wanted.epoch = epoch;
  wanted.argc = 1;
  wanted.uid = wanted.gid = 1000;
  wanted.text_bytes = static_cast<std::uint32_t>(text.size());
  return wanted;
}

/// What comes of asking the engine for one of these names, or of adopting it.
struct answer {
  std::shared_ptr<events<std::shared_ptr<sandbox>>> ready =
    std::make_shared<events<std::shared_ptr<sandbox>>>();
  std::shared_ptr<events<errc>> failed = std::make_shared<events<errc>>();
  sandbox_listener listener() const {
    return {[to = ready](auto box) { to->tell(std::move(box)); },
            [to = failed](const error& why) { to->tell(why.code); }, [] {}};
  }
};

sandbox_spec under(const live_node& node, std::uint64_t epoch) {
  auto spec = node.spec();
  spec.epoch = epoch;
  return spec;
}

void destroy(sandbox& which) {
  const auto gone = std::make_shared<events<int>>();
  which.destroy([gone] { gone->tell(1); });
  gone->next();
}

} // namespace

TEST_CASE("a command to the spawner under an older epoch is refused, and has no effect",
          "[runtime][epoch]") {
  bare_node n;
  const auto agent = n.make(asked(n, spawner_op::create, 3, 5, "box"));
  hold(n, 3, 5, "kept");
  hold(n, 3, 4, "late");
  REQUIRE(n.spawner.send(as_bytes(asked(n, spawner_op::release, 3, 4))));
  CHECK(is_late(ask(n, asked(n, spawner_op::open_sockets, 3, 4)), spawner_event::sockets,
                launch_step::epoch));
  CHECK(
    is_late(ask(n, asked(n, spawner_op::mount, 3, 4)), spawner_event::mounted, mount_step::epoch));
  CHECK(is_late(ask(n, asked(n, spawner_op::unmount, 3, 4)), spawner_event::unmounted,
                mount_step::epoch));
  CHECK(is_late(ask(n, asked(n, spawner_op::claim, 3, 4, "box")), spawner_event::claimed,
                launch_step::epoch));
  CHECK(is_late(ask(n, asked(n, spawner_op::destroy, 3, 4)), spawner_event::destroyed,
                launch_step::epoch));
  CHECK(works(agent));
  CHECK(ask(n, asked(n, spawner_op::open_sockets, 3, 5)).error == 0);
  const auto left = found_by_next(n);
  REQUIRE(left.size() == 1);
  CHECK(left[0].epoch == 5);
  REQUIRE(left[0].held.size() == 1);
  CHECK(left[0].held[0].label == "kept");
}

TEST_CASE("a newer epoch is taken, and from then on the one before is late", "[runtime][epoch]") {
  bare_node n;
  const auto agent = n.make(asked(n, spawner_op::create, 3, 5, "box"));
  CHECK(ask(n, asked(n, spawner_op::open_sockets, 3, 9)).error == 0);
  CHECK(is_late(ask(n, asked(n, spawner_op::open_sockets, 3, 5)), spawner_event::sockets,
                launch_step::epoch));
  CHECK(is_late(ask(n, asked(n, spawner_op::destroy, 3, 8)), spawner_event::destroyed,
                launch_step::epoch));
  const auto ended = ask(n, asked(n, spawner_op::destroy, 3, 9));
  CHECK(ended.what == spawner_event::destroyed);
  CHECK(ended.step == 0);
}

TEST_CASE("who is late makes no sandbox of a name, whether it lives or has ended",
          "[runtime][epoch]") {
  bare_node n;
  const auto agent = n.make(asked(n, spawner_op::create, 3, 5, "box"));
  const auto late = asked(n, spawner_op::create, 4, 4, "box");
  CHECK(is_late(ask(n, late), spawner_event::create_failed, launch_step::epoch));
  REQUIRE(ask(n, asked(n, spawner_op::destroy, 3, 6)).what == spawner_event::destroyed);
  CHECK(is_late(ask(n, late), spawner_event::create_failed, launch_step::epoch));
  CHECK(is_late(ask(n, asked(n, spawner_op::create, 3, 5, "box")), spawner_event::create_failed,
                launch_step::epoch));
  // Epochs of different names say nothing of each other.
  const auto other = n.make(asked(n, spawner_op::create, 4, 1, "other"));
  const auto again = n.make(asked(n, spawner_op::create, 3, 7, "box"));
  CHECK(works(other));
  CHECK(works(again));
}

TEST_CASE("what is warm is nobody's until it is claimed, and not by who is late",
          "[runtime][epoch]") {
  bare_node n;
  const auto agent = n.make(5);
  const auto first = n.make(asked(n, spawner_op::create, 6, 9, "box"));
  CHECK(is_late(ask(n, asked(n, spawner_op::claim, 5, 8, "box")), spawner_event::claimed,
                launch_step::epoch));
  CHECK(ask(n, asked(n, spawner_op::claim, 5, 3, "other")).error == 0);
  CHECK(is_late(ask(n, asked(n, spawner_op::destroy, 5, 0)), spawner_event::destroyed,
                launch_step::epoch));
  CHECK(works(agent));
  CHECK(ask(n, asked(n, spawner_op::destroy, 5, 3)).step == 0);
}

TEST_CASE("an agent does nothing for who is late", "[runtime][epoch]") {
  bare_node n;
  const auto agent = n.make(3);
  CHECK(works(agent, 5));
  std::string text;
  const auto late = command(1, 4, text);
  const unique_fd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  REQUIRE(agent.send(std::string{as_bytes(late)} + text, {null.get(), null.get(), null.get()}));
  const auto refused = next_of(agent, runtime::agent::event::failed);
  CHECK(refused.id == 1);
  CHECK(refused.value == ESTALE);
  CHECK(refused.step == static_cast<std::uint32_t>(runtime::agent::exec_step::epoch));
  CHECK(works(agent, 5));
  CHECK(works(agent, 6));
}

TEST_CASE("the next server adopts under its own epoch, which is not older", "[runtime][epoch]") {
  live_node node;
  {
    const answer made;
    node.engine().create(under(node, 5), made.listener());
    const auto box = made.ready->next();
    REQUIRE(box);
    node.engine().hand_over();
  }
  node.drop_server();
  node.serve();
  const answer late, next;
  node.engine().adopt(under(node, 4), late.listener());
  CHECK(late.failed->next() == errc::stale_epoch);
  CHECK(node.engine().survives("test"));
  node.engine().adopt(under(node, 6), next.listener());
  const auto box = next.ready->next();
  live_command echo{*box, in_shell("echo works")};
  CHECK(echo.finish().out == "works\n");
  // Of one name, while it lives and after it.
  const answer another, again, newer;
  node.engine().create(under(node, 5), another.listener());
  CHECK(another.failed->next() == errc::stale_epoch);
  destroy(*box);
  node.engine().create(under(node, 5), again.listener());
  CHECK(again.failed->next() == errc::stale_epoch);
  node.engine().create(under(node, 7), newer.listener());
  destroy(*newer.ready->next());
}

TEST_CASE("who has been followed by another server's holder changes nothing any more",
          "[runtime][epoch]") {
  bare_node n;
  const auto agent = n.make(asked(n, spawner_op::create, 3, 5, "box"));
  auto link = connect_to_spawner({n.node.state(), n.node.key()});
  REQUIRE(link);
  const plain_end next{std::move(link->socket)};
  REQUIRE(next.send(as_bytes(asked(n, spawner_op::adopt, 3, 6))));
  REQUIRE(next.send(as_bytes(asked(n, spawner_op::destroy, 3, 5))));
  for (;;) { // The way to the gateway may come before.
    runtime::spawner::notice said{};
    REQUIRE(from_bytes(next.next().bytes, said));
    if (said.what != spawner_event::destroyed)
      continue;
    CHECK(is_late(said, spawner_event::destroyed, launch_step::epoch));
    break;
  }
  CHECK(works(agent));
}

TEST_CASE("of what has ended the oldest is forgotten first", "[runtime][epoch]") {
  runtime::spawner::past_epochs past;
  past.note("", 7);
  past.note("warm", 0);
  past.note("a", 7);
  past.note("a", 5);
  CHECK(past.of("a") == 7);
  CHECK(past.of("") == 0);
  for (std::size_t i = 1; i < runtime::spawner::past_epochs::most; ++i)
    past.note("b" + std::to_string(i), i);
  CHECK(past.of("a") == 7);
  past.note("c", 1);
  CHECK(past.of("a") == 0);
  CHECK(past.of("b1") == 1);
  CHECK(past.of("c") == 1);
}
