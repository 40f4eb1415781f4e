// What a sandbox may reach, as its actor keeps it, and who connects to what is in it.
#include "tests/actors/fixture.hpp"

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

egress_policy only(const std::string& target) {
  egress_policy policy = egress_policy::deny_all();
  policy.rules = {{true, target}};
  return policy;
}

struct networked_node : small_node {
  sandbox_object_actor box = make_sandbox();

  auto set(const egress_policy& policy) {
    return sys.ask<network_state>(box, set_network_request{policy});
  }
  auto get() { return sys.ask<network_state>(box, get_network_request{}); }
  void start() { sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value(); }
};

} // namespace

TEST_CASE("a sandbox starts with the node's policy, or with its own", "[actors][network]") {
  networked_node node;
  node.options->network = only("a.example");
  node.start();
  CHECK(node.engine.creations[0].spec.network == only("a.example"));
  const auto state = node.get().value();
  CHECK(state.policy == only("a.example"));
  CHECK(state.running);

  node.box = node.make_sandbox("def");
  const auto set = node.set(only("b.example")).value();
  CHECK_FALSE(set.running);
  CHECK(node.engine.creations.size() == 1); // Nothing was started for it.
  CHECK(node.store.value("def", "network") == to_text(only("b.example")));
  CHECK(node.store.value("def", "created_ms").empty());
  node.start();
  CHECK(node.engine.creations[1].spec.network == only("b.example"));
  CHECK(node.place().policies.empty());
}

TEST_CASE("the policy of a running sandbox is durable before it holds, and holds before the answer",
          "[actors][network]") {
  networked_node node;
  node.start();
  node.store.hold_writes = true;
  const auto set = node.set(only("a.example"));
  CHECK(set.open());
  CHECK(node.place().policies.empty());
  node.store.let_go();
  node.sys.run();
  CHECK(set.value().running);
  CHECK(node.place().policies == std::vector{only("a.example")});
}

TEST_CASE("a policy that was set while its sandbox starts holds before the first command",
          "[actors][network]") {
  networked_node node;
  node.engine.ready_at_once = false;
  const auto asked = node.sys.ask<process_actor>(node.box, command("true"));
  REQUIRE(node.engine.creations.size() == 1);
  CHECK(node.engine.creations[0].spec.network == egress_policy::allow_all());
  CHECK_NOTHROW(node.set(egress_policy::deny_all()).value());
  CHECK(node.place().policies.empty());
  SECTION("which then runs") {
    node.engine.creations[0].ready();
    node.sys.run();
    CHECK(node.place().policies == std::vector{egress_policy::deny_all()});
    REQUIRE(node.place().processes.size() == 1);
    node.process().start();
    node.sys.run();
    CHECK_NOTHROW(asked.value());
  }
  SECTION("which does not run if it cannot hold") {
    node.place().network_error = error{errc::io_failed, "silence"};
    node.engine.creations[0].ready();
    node.sys.run();
    CHECK(node.place().processes.empty());
    CHECK(node.place().destroys == 1);
    CHECK(asked.reason().code == errc::launch_failed);
  }
}

TEST_CASE("changes of rules are made one after the other, and none is lost", "[actors][network]") {
  networked_node node;
  CHECK_NOTHROW(node.set(only("a.example")).value());
  node.store.hold_writes = true;
  const auto first = node.sys.ask<network_state>(
    node.box, change_network_request{{{true, "b.example"}, {false, "b.example"}}, {}});
  const auto second = node.sys.ask<network_state>(
    node.box, change_network_request{{{false, "a.example"}}, {"nobody.example"}});
  const auto third =
    node.sys.ask<network_state>(node.box, change_network_request{{}, {"b.example"}});
  node.store.let_go();
  node.sys.run();
  using rules = std::vector<egress_rule>;
  CHECK(first.value().policy.rules == rules{{true, "b.example"}, {true, "a.example"}});
  CHECK(second.value().policy.rules == rules{{false, "a.example"}, {true, "b.example"}});
  CHECK(third.value().policy.rules == rules{{false, "a.example"}});
  CHECK_FALSE(third.value().policy.allow_rest);
  CHECK(node.get().value().policy == third.value().policy);
}

TEST_CASE("a policy is remembered over the end of its sandbox and of its actor, not its deletion",
          "[actors][network]") {
  networked_node node;
  CHECK_NOTHROW(node.set(only("a.example")).value());
  node.box = node.make_sandbox();
  CHECK(node.get().value().policy == only("a.example"));
  node.start();
  CHECK(node.engine.creations[0].spec.network == only("a.example"));
  node.engine.creations[0].end();
  node.sys.run();
  CHECK(node.get().value().policy == only("a.example"));
  CHECK_FALSE(node.get().value().running);
  CHECK_NOTHROW(
    node.sys.ask<caf::ok_atom>(node.box, delete_atom::value, request_context{}).value());
  CHECK(node.store.value("abc", "network").empty());
  node.box = node.make_sandbox();
  CHECK(node.get().value().policy == egress_policy::allow_all());
}

TEST_CASE("one that was adopted keeps to its policy", "[actors][network][adoption]") {
  networked_node node;
  CHECK_NOTHROW(node.set(only("a.example")).value());
  node.store.disk.commit({"abc", 1, {{"created_ms", "5"}, {"started_ms", "5"}}, {}},
                         [](const result<void>&) {});
  node.engine.left["abc"] = std::make_shared<fake_sandbox>();
  node.box = node.make_sandbox();
  node.start();
  REQUIRE(node.engine.adoptions.size() == 1);
  CHECK(node.engine.adoptions[0].spec.network == only("a.example"));
}

TEST_CASE("what does not work out is told, and what was durable stays", "[actors][network]") {
  networked_node node;
  SECTION("too many rules") {
    egress_policy much;
    for (std::size_t i = 0; i <= max_egress_rules; ++i)
      much.rules.push_back({true, "a" + std::to_string(i)});
    CHECK(node.set(much).reason().code == errc::limit_reached);
    CHECK(node.store.writes == 0);
  }
  SECTION("a disk that refuses") {
    node.store.write_error = error{errc::disk_full, "full"};
    CHECK(node.set(only("a.example")).reason().code == errc::disk_full);
    node.store.write_error = std::nullopt;
    CHECK(node.get().value().policy == egress_policy::allow_all());
  }
  SECTION("a gateway that does not answer") {
    node.start();
    node.place().network_error = error{errc::io_failed, "silence"};
    CHECK(node.set(only("a.example")).reason().code == errc::io_failed);
    CHECK(node.store.value("abc", "network") == to_text(only("a.example")));
    CHECK(node.get().reason().code == errc::io_failed);
  }
  SECTION("a record that cannot be read") {
    node.store.read_error = error{errc::store_failed, "broken"};
    CHECK(node.get().reason().code == errc::store_failed);
    CHECK(node.set(only("a.example")).reason().code == errc::store_failed);
  }
  SECTION("a policy that another version has written allows nothing") {
    node.store.disk.commit({"abc", 1, {{"network", "from the future"}}, {}},
                           [](const result<void>&) {});
    CHECK(node.get().value().policy == egress_policy::deny_all());
  }
}

TEST_CASE("sockets and ports are those of a sandbox that runs", "[actors][network]") {
  networked_node node;
  const auto sockets = [&](std::uint32_t count) {
    return node.sys.ask<sandbox_sockets>(node.box, open_sockets_request{true, count});
  };
  const auto ports = [&] {
    return node.sys.ask<std::vector<listening_port>>(node.box, list_ports_request{});
  };
  CHECK(sockets(1).reason().code == errc::sandbox_not_running);
  CHECK(ports().reason().code == errc::sandbox_not_running);
  CHECK(node.engine.creations.empty());
  node.start();
  CHECK(sockets(0).reason().code == errc::invalid_request);
  CHECK(sockets(17).reason().code == errc::invalid_request);
  node.place().ports = {{"::", 80, 7, "web"}};
  CHECK(ports().value().at(0).process == "web");

  SECTION("one that stands still goes on, and is in use as long as somebody has them") {
    node.options->ladder = {1min, 24h};
    node.start();
    node.sys.advance(2min);
    REQUIRE(node.place().frozen);
    auto made = std::make_optional(sockets(3).value());
    CHECK(made->sockets->size() == 3);
    CHECK_FALSE(node.place().frozen);
    CHECK(node.place().sockets.at(0).ipv6);
    node.sys.advance(10min);
    CHECK_FALSE(node.place().frozen);
    made.reset();
    node.sys.run();
    node.sys.advance(10min);
    CHECK(node.place().frozen);
  }
  SECTION("a spawner that cannot") {
    node.place().network_error = error{errc::io_failed, "no descriptors"};
    CHECK(sockets(1).reason().code == errc::io_failed);
  }
}

TEST_CASE("what is only looked at is not started, and goes to sleep again", "[actors][network]") {
  small_node node;
  const auto directory = node.make_directory();
  auto box = node.sys.ask<sandbox_actor>(directory, reach_atom::value, "abc", request_context{});
  CHECK(node.engine.creations.empty());
  auto state = node.sys.ask<network_state>(box.value(), get_network_request{});
  CHECK_FALSE(state.value().running);
  CHECK(node.leases.held.empty());
  CHECK(
    node.sys.ask<activation_page>(directory, list_activations{0, 256}).value().sandboxes.empty());
  CHECK(node.sys.ask<sandbox_actor>(directory, reach_atom::value, "ABC", request_context{})
          .reason()
          .code == errc::invalid_request);
}
