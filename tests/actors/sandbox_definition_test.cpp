#include "tests/actors/fixture.hpp"

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

define_sandbox definition(std::optional<std::int64_t> expires_ms = {}) {
  define_sandbox wanted;
  wanted.metadata["mine"] = "{\"mine\":1}";
  wanted.env = {{"A", "b"}, {"LINES", "one\ntwo"}};
  wanted.expires_ms = expires_ms;
  wanted.network = egress_policy::deny_all();
  return wanted;
}

sandbox_description look(small_node& node, const sandbox_object_actor& box) {
  return node.sys.ask<sandbox_description>(box, redefine_sandbox{}).value();
}

alarm_due due(small_node& node) {
  return {{kept_in::cluster, "abc", ""}, node.store.value("abc", std::string{actors::alarm_keys})};
}

bool has(const std::vector<std::string>& env, const std::string& line) {
  return std::find(env.begin(), env.end(), line) != env.end();
}

} // namespace

TEST_CASE("what a sandbox is made with is there before it starts, and holds in it",
          "[actors][definition]") {
  small_node node;
  const auto box = node.make_sandbox();
  CHECK_FALSE(look(node, box).exists);
  const auto made = node.sys.ask<sandbox_description>(box, definition()).value();
  CHECK(made.exists);
  CHECK(made.metadata.at("mine") == "{\"mine\":1}");
  CHECK(made.created_ms == node.sys.time.unix_ms());
  CHECK_FALSE(made.expires_ms);
  CHECK(node.engine.creations.empty());
  CHECK(node.sys.ask<sandbox_description>(box, definition()).reason().code == errc::already_exists);
  const auto asked = node.sys.ask<process_actor>(box, command("echo hi"));
  CHECK(node.engine.creations.back().spec.network == egress_policy::deny_all());
  const auto& env = node.process().spec.env;
  CHECK(has(env, "A=b"));
  CHECK(has(env, "LINES=one\ntwo"));
  // What a command is given counts for more.
  auto other = command("echo hi");
  other.env = {{"A", "c"}};
  const auto second = node.sys.ask<process_actor>(box, other);
  CHECK(has(node.process().spec.env, "A=c"));
}

TEST_CASE("what a sandbox may use is what it was made with, if its node gives as much",
          "[actors][definition]") {
  small_node node;
  node.options->limits.memory_bytes = 512u << 20;
  node.options->limits.cpu_percent = 0;
  const auto box = node.make_sandbox();
  auto wanted = definition();
  wanted.memory_bytes = GENERATE(0u, 64u << 20, 1u << 30);
  wanted.cpu_percent = 50;
  CHECK(node.sys.ask<sandbox_description>(box, wanted).value().exists);
  const auto asked = node.sys.ask<process_actor>(box, command("echo hi"));
  const auto& limits = node.engine.creations.back().spec.limits;
  CHECK(limits.memory_bytes == (wanted.memory_bytes == 64u << 20 ? 64u << 20 : 512u << 20));
  CHECK(limits.cpu_percent == 50);
  const auto told = node.sys.ask<sandbox_status>(box, status_atom::value).value();
  CHECK(told.memory_limit_bytes == limits.memory_bytes);
  CHECK(told.cpu_limit_percent == 50);
}

TEST_CASE("a sandbox that a command has begun meanwhile is not defined", "[actors][definition]") {
  small_node node;
  const auto box = node.make_sandbox();
  node.leases.hold = true;
  const auto defined = node.sys.ask<sandbox_description>(box, definition());
  const auto asked = node.sys.ask<process_actor>(box, command("echo hi"));
  node.leases.let_go();
  node.sys.run();
  CHECK(defined.reason().code == errc::already_exists);
  CHECK(node.engine.creations.size() == 1);
  node.process().start();
  node.sys.run();
  CHECK_NOTHROW(asked.value());
  CHECK_FALSE(node.engine.creations.back().spec.network == egress_policy::deny_all());
  CHECK(node.store.value("abc", "metadata/mine")
          .empty()); // It is the command's, and has no definition.
}

TEST_CASE("an image that is not there makes no sandbox", "[actors][definition]") {
  small_node node;
  const auto box = node.make_sandbox();
  auto wanted = definition();
  wanted.image = "nowhere";
  CHECK(node.sys.ask<sandbox_description>(box, wanted).reason().code == errc::image_refused);
  CHECK_FALSE(look(node, box).exists);
}

TEST_CASE("a sandbox whose time is over is deleted", "[actors][definition]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto ends = node.sys.time.unix_ms() + 60'000;
  REQUIRE_NOTHROW(node.sys.ask<sandbox_description>(box, definition(ends)).value());
  CHECK(look(node, box).expires_ms == ends);
  SECTION("and not before") {
    redefine_sandbox later;
    later.expires_ms = ends + 60'000;
    const auto first = due(node);
    REQUIRE_NOTHROW(node.sys.ask<sandbox_description>(box, later).value());
    node.sys.advance(61s);
    CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, first).value());
    CHECK(look(node, box).exists);
    CHECK(look(node, box).expires_ms == ends + 60'000);
  }
  SECTION("also when other things of it change") {
    redefine_sandbox change;
    change.metadata = {"mine", "other", "not it"};
    CHECK(node.sys.ask<sandbox_description>(box, change).value().metadata.at("mine") ==
          "{\"mine\":1}");
    change.metadata->only_if = "{\"mine\":1}";
    const auto now = node.sys.ask<sandbox_description>(box, change).value();
    CHECK(now.metadata.at("mine") == "other");
    CHECK(now.expires_ms == ends);
    CHECK_FALSE(due(node).record.empty());
  }
  SECTION("and an alarm that comes too early is set again") {
    CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, due(node)).value());
    CHECK(look(node, box).exists);
    CHECK_FALSE(due(node).record.empty());
    node.sys.advance(61s);
    CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, due(node)).value());
    CHECK(node.store.value("abc", "created_ms").empty());
  }
  SECTION("while it sleeps") {
    node.sys.advance(61s);
    CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, due(node)).value());
    CHECK(node.store.value("abc", "created_ms").empty());
  }
  SECTION("and all that runs in it") {
    const auto asked = node.sys.ask<process_actor>(box, command("sleep 1000"));
    node.sys.advance(61s);
    CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, due(node)).value());
    CHECK(node.place().destroys == 1);
  }
}

TEST_CASE("all that there are is told, whether they run or not", "[actors][definition]") {
  small_node node;
  const auto directory = node.make_directory();
  const auto all = [&] {
    std::string text;
    for (const auto& each :
         node.sys.ask<sandbox_page>(directory, list_sandboxes{{}, 256}).value().sandboxes)
      text += each.id + " " + (each.is.metadata.empty() ? "" : each.is.metadata.at("mine")) + ";";
    return text;
  };
  CHECK(all().empty());
  const auto box =
    node.sys.ask<sandbox_actor>(directory, reach_atom::value, "bbb", request_context{}).value();
  REQUIRE_NOTHROW(node.sys.ask<sandbox_description>(box, definition()).value());
  REQUIRE_NOTHROW(
    node.sys.ask<sandbox_actor>(directory, find_atom::value, "aaa", request_context{}).value());
  CHECK(all() == "aaa ;bbb {\"mine\":1};");
  REQUIRE_NOTHROW(
    node.sys.ask<caf::ok_atom>(directory, delete_atom::value, "bbb", request_context{}).value());
  CHECK(all() == "aaa ;");
}

TEST_CASE("nobody is told of a sandbox that may not come to be", "[actors][definition]") {
  small_node node;
  const auto box = node.make_sandbox();
  node.store.hold_writes = true;
  node.store.held_error = error{errc::store_failed, "no"};
  const auto first = node.sys.ask<sandbox_description>(box, definition());
  const auto second = node.sys.ask<sandbox_description>(box, definition());
  const auto looked = node.sys.ask<sandbox_description>(box, redefine_sandbox{});
  CHECK(first.open());
  CHECK(second.open());
  CHECK(looked.open());
  node.store.let_go();
  node.sys.run();
  CHECK(first.reason().code == errc::store_failed);
  CHECK(second.reason().code == errc::store_failed);
  CHECK(looked.reason().code == errc::store_failed);
  CHECK_FALSE(look(node, box).exists);
}

TEST_CASE("whoever waits for the store when a node loses a sandbox is told",
          "[actors][definition]") {
  small_node node;
  const auto box = node.make_sandbox();
  node.sys.ask<sandbox_description>(box, definition()).value();
  node.store.hold_writes = true;
  redefine_sandbox change;
  change.metadata = {"mine", "other"};
  const auto asked = node.sys.ask<sandbox_description>(box, change);
  CHECK(asked.open());
  node.sys.ask<caf::ok_atom>(box, evict_atom::value).value();
  CHECK(asked.reason().code == errc::node_unreachable);
  node.store.let_go();
  node.sys.run();
}

TEST_CASE("a sandbox that is deleted while its lease is on its way gives that back",
          "[actors][definition]") {
  small_node node;
  const auto box = node.make_sandbox();
  node.leases.hold = true;
  const auto asked = node.sys.ask<sandbox_description>(box, definition());
  const auto deleted = node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{});
  CHECK(asked.open());
  CHECK(deleted.open());
  SECTION("it comes") {
    node.leases.let_go();
    node.sys.run();
    CHECK(asked.value().exists); // First it was made.
    deleted.value();
    CHECK(node.store.value("abc", "metadata/mine").empty());
  }
  SECTION("it does not come") {
    node.leases.refusal = error{errc::node_unreachable, "no"};
    node.leases.let_go();
    node.sys.run();
    CHECK(asked.reason().code == errc::node_unreachable);
    deleted.value();
  }
  CHECK(node.leases.held.empty());
}
