#include "tests/actors/fixture.hpp"
#include "tests/support/metrics_text.hpp"

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

metrics_page page_of(const small_node& node) {
  metrics::text text;
  node.options->figures->write(text);
  return metrics_page{text.str()};
}

double in_state(const small_node& node, const char* state) {
  return page_of(node).value("insula_sandboxes", {{"state", state}});
}

double phases_counted(const small_node& node, const char* phase) {
  return page_of(node).value("insula_sandbox_create_phase_seconds_count", {{"phase", phase}});
}

double commands_counted(const small_node& node, const char* phase) {
  return page_of(node).value("insula_exec_phase_seconds_count", {{"phase", phase}});
}

} // namespace

TEST_CASE("the state of every sandbox is counted, and why its life ended", "[actors][figures]") {
  small_node node;
  node.engine.ready_at_once = false;
  const auto box = node.make_sandbox();
  node.sys.run();
  CHECK(in_state(node, "asleep") == 1);
  const auto asked = node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{});
  CHECK(in_state(node, "asleep") == 0);
  CHECK(in_state(node, "starting") == 1);
  node.engine.creations.back().ready();
  node.sys.run();
  CHECK_NOTHROW(asked.value());
  CHECK(in_state(node, "starting") == 0);
  CHECK(in_state(node, "running") == 1);

  node.engine.ready_at_once = true;
  node.sys.advance(11min); // Idle.
  CHECK(in_state(node, "asleep") == 1);
  node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value();
  node.engine.creations.back().end();
  node.sys.run();
  CHECK(in_state(node, "asleep") == 1);
  node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value();
  node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{}).value();
  const auto page = page_of(node);
  for (const char* state : {"asleep", "starting", "running", "frozen", "stopping", "deleting"})
    CHECK(page.value("insula_sandboxes", {{"state", state}}) == 0);
  for (const char* reason : {"idle", "died", "deleted"})
    CHECK(page.value("insula_sandboxes_ended_total", {{"reason", reason}}) == 1);
  CHECK(page.value("insula_sandboxes_started_total") == 3);
}

TEST_CASE("a start's parts are counted and told to the request that made it", "[actors][figures]") {
  small_node node;
  node.engine.ready_at_once = false;
  const auto box = node.make_sandbox();
  const auto times = std::make_shared<request_times>(request_times::clock::now());
  const auto other = std::make_shared<request_times>(request_times::clock::now());
  const auto first =
    node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{"r1", times});
  const auto second =
    node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{"r2", other});
  node.place().took.cgroup = 7ms;
  node.place().took.mounts = 9ms;
  node.engine.creations.back().ready();
  node.sys.run();
  CHECK_NOTHROW(first.value());
  CHECK_NOTHROW(second.value());

  const auto page = page_of(node);
  for (const char* phase : {"lease", "record", "slot", "cgroup", "disk", "namespaces", "layers",
                            "mounts", "agent", "ready"})
    CHECK(phases_counted(node, phase) == 1);
  CHECK(phases_counted(node, "first_byte") == 0);
  CHECK(page.value("insula_sandbox_create_phase_seconds_sum", {{"phase", "mounts"}}) == 0.009);
  CHECK(times->started_it());
  CHECK(times->took(start_phase::cgroup) == 7ms);
  CHECK(times->took(request_times::stage::sandbox) > 0ns);
  CHECK_FALSE(other->started_it()); // It has waited for what another had begun.
  CHECK(other->took(request_times::stage::sandbox) > 0ns);
}

TEST_CASE("starts that come to nothing are counted by their reason", "[actors][figures]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto fails = [&](const char* reason) {
    CHECK(node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).reason().message !=
          "");
    return page_of(node).value("insula_sandboxes_not_started_total", {{"reason", reason}});
  };
  node.leases.refusal = error{errc::io_failed, "no"};
  CHECK(fails("lease") == 1);
  node.leases.refusal.reset();
  node.store.write_error = error{errc::io_failed, "full"};
  CHECK(fails("record") == 1);
  node.store.write_error.reset();
  node.options->instances = std::make_shared<actors::instance_count>(0u);
  CHECK(fails("capacity") == 1);
  node.options->instances = std::make_shared<actors::instance_count>(1u);
  node.engine.ready_at_once = false;
  const auto asked = node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{});
  node.engine.creations.back().fail("no");
  node.sys.run();
  CHECK(asked.reason().code == errc::launch_failed);
  CHECK(page_of(node).value("insula_sandboxes_not_started_total", {{"reason", "launch"}}) == 1);
  const auto again = node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{});
  node.engine.creations.back().fail("no room", errc::machine_full);
  node.sys.run();
  CHECK(again.reason().code == errc::machine_full);
  CHECK(again.reason().message == "no room");
  CHECK(page_of(node).value("insula_sandboxes_not_started_total", {{"reason", "machine"}}) == 1);
  CHECK(page_of(node).value("insula_sandboxes_not_started_total", {{"reason", "launch"}}) == 1);
  const auto tried = node.engine.creations.size();
  node.engine.refuses = error{errc::machine_full, "no memory"};
  CHECK(fails("machine") == 2);
  CHECK(node.engine.creations.size() == tried);
  CHECK(page_of(node).value("insula_sandboxes_not_started_total", {{"reason", "capacity"}}) == 1);
  CHECK(page_of(node).value("insula_sandboxes_started_total") == 0);
}

TEST_CASE("commands are counted from their start to their end", "[actors][figures]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto run = [&] {
    const auto started = node.sys.ask<process_actor>(box, command("make"));
    node.process().start();
    node.sys.run();
    return started.value();
  };
  auto first = run();
  auto second = run();
  CHECK(page_of(node).value("insula_commands_running") == 2);
  CHECK(commands_counted(node, "start") == 2);
  node.process().print(output_stream::out, "text");
  node.sys.ask<output_chunk>(second, read_output{0, 1024, true}).value();
  CHECK(commands_counted(node, "first_output") == 1);
  CHECK(phases_counted(node, "first_byte") == 0); // It is not the sandbox's first command.
  auto& older = *node.place().processes.front();
  older.print(output_stream::out, "text");
  node.sys.ask<output_chunk>(first, read_output{0, 1024, true}).value();
  CHECK(phases_counted(node, "first_byte") == 1);
  older.exit(0);
  older.complete_now();
  node.process().lose();
  node.sys.run();
  CHECK(page_of(node).value("insula_commands_running") == 0);
  CHECK(commands_counted(node, "exit") == 2);

  const auto refused = node.sys.ask<process_actor>(box, command("nothing"));
  node.process().fail(errc::launch_failed, "no");
  node.sys.run();
  CHECK(refused.reason().code == errc::launch_failed);
  CHECK(page_of(node).value("insula_commands_not_started_total") == 1);
  first = nullptr;
  second = nullptr;
}

TEST_CASE("a mailbox's depth is what has come and has not been handled", "[actors][figures]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto idle = node.make_sandbox("abd");
  node.sys.run();
  const auto depth = [&](const char* family) {
    return page_of(node).value(family, {{"actor", "sandbox"}});
  };
  CHECK(depth("insula_mailbox_messages") == 0);
  for (int i = 0; i < 5; ++i)
    caf::anon_send(box, find_atom::value, request_context{});
  caf::anon_send(idle, find_atom::value, request_context{});
  CHECK(depth("insula_mailbox_messages") == 6);
  CHECK(depth("insula_mailbox_messages_largest") == 5);
  node.sys.run();
  CHECK(depth("insula_mailbox_messages") == 0);
  CHECK(depth("insula_mailbox_messages_largest") == 0);
}
