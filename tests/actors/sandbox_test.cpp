#include "tests/actors/fixture.hpp"

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

TEST_CASE("the first request starts the sandbox, and fifteen at once start one",
          "[actors][sandbox]") {
  small_node node;
  node.engine.ready_at_once = false;
  const auto box = node.make_sandbox();
  std::vector<pending<caf::ok_atom>> asked;
  for (int i = 0; i < 15; ++i)
    asked.push_back(node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}));
  REQUIRE(node.engine.creations.size() == 1);
  for (const auto& each : asked)
    CHECK(each.open());
  node.engine.creations[0].ready();
  node.sys.run();
  for (const auto& each : asked)
    CHECK_NOTHROW(each.value());
  CHECK(node.engine.creations.size() == 1);
}

TEST_CASE("nobody learns of a sandbox before its record is durable", "[actors][sandbox][gate]") {
  small_node node;
  node.store.hold_writes = true;
  const auto box = node.make_sandbox();
  const auto asked = node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{});
  REQUIRE(node.engine.creations.size() == 1); // Made meanwhile: the two go side by side.
  CHECK(asked.open());
  node.store.let_go();
  node.sys.run();
  CHECK_NOTHROW(asked.value());
  CHECK(node.store.value("abc", "created_ms") == "1700000000000");
  CHECK(node.store.value("abc", "image") == "host");
}

TEST_CASE("a sandbox whose record cannot be written is removed, and the next request tries again",
          "[actors][sandbox][gate]") {
  small_node node;
  node.store.write_error = error{errc::io_failed, "disk full"};
  const auto box = node.make_sandbox();
  const auto refused = node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{});
  CHECK(refused.reason().code == errc::io_failed);
  CHECK(node.place().destroys == 1);
  CHECK(node.leases.held.empty());
  node.store.write_error.reset();
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value());
}

TEST_CASE("a sandbox that has run before is made once the record of its new start is durable",
          "[actors][sandbox][gate]") {
  small_node node;
  node.sys.ask<caf::ok_atom>(node.make_sandbox(), find_atom::value, request_context{}).value();
  const auto box = node.make_sandbox(); // As after the loss of all: nothing has survived.
  const auto find = [&] {
    return node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{});
  };
  const auto settle = [&] {
    node.store.let_go();
    node.sys.run();
    node.store.held_error.reset();
  };
  node.store.hold_writes = true;
  SECTION("then it is") {
    const auto asked = find();
    CHECK(node.engine.creations.size() == 1);
    CHECK(asked.open());
    settle();
    CHECK_NOTHROW(asked.value());
    CHECK(node.engine.creations.size() == 2);
  }
  SECTION("else it is not, and the next request tries again") {
    node.options->instances = std::make_shared<actors::instance_count>(1);
    node.store.held_error = error{errc::disk_full, "no room"};
    const auto asked = find();
    settle();
    CHECK(asked.reason().code == errc::disk_full);
    CHECK(node.engine.creations.size() == 1);
    CHECK_NOTHROW(find().value());
    CHECK(node.engine.creations.size() == 2);
  }
  SECTION("nor if it is deleted before, whatever the disk says") {
    if (GENERATE(false, true))
      node.store.held_error = error{errc::disk_full, "no room"};
    const auto asked = find();
    const auto gone = node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{});
    CHECK(gone.open());
    settle();
    CHECK_NOTHROW(gone.value());
    CHECK(asked.reason().code == errc::sandbox_not_running);
    CHECK(node.engine.creations.size() == 1);
    CHECK(node.store.disk.owners()->empty());
  }
}

TEST_CASE("a sandbox that is still being made when its record is refused counts until it is gone",
          "[actors][sandbox][gate]") {
  small_node node;
  node.options->instances = std::make_shared<actors::instance_count>(1);
  node.engine.ready_at_once = false;
  node.store.write_error = error{errc::disk_full, "no room"};
  const auto directory = node.make_directory();
  const auto find = [&](const std::string& id) {
    return node.sys.ask<sandbox_actor>(directory, find_atom::value, id, request_context{});
  };
  CHECK(find("abc").reason().code == errc::disk_full);
  CHECK(find("other").reason().code == errc::capacity_exceeded);
  const auto place = node.engine.creations.at(0).place;
  place->hold_destroy = true;
  SECTION("it comes to life, and is ended") {
    node.engine.creations[0].ready();
    node.sys.run();
    CHECK(place->destroys == 1);
    CHECK(find("other").reason().code == errc::capacity_exceeded);
    place->finish_destroy();
  }
  SECTION("it does not") {
    node.engine.creations[0].fail("no");
    node.sys.run();
  }
  node.store.write_error.reset();
  node.engine.ready_at_once = true;
  CHECK_NOTHROW(find("other").value());
}

TEST_CASE("what is heard of a terminal when the sandbox' store is gone already changes nothing",
          "[actors][sandbox][gate]") {
  small_node node;
  const auto box = node.make_sandbox();
  node.sys.get().spawn([&](caf::event_based_actor* self) { // It opens it, and leaves at once.
    self->request(box, caf::infinite, open_terminal_request{})
      .then([](const terminal_actor&, std::uint64_t, std::uint64_t) {});
  });
  node.sys.run();
  const auto terminal = node.place().processes.back();
  terminal->start();
  node.sys.run();
  node.sys.advance(1min);
  REQUIRE(node.local.disk.read("abc", "idle_since")->size() == 1);
  node.store.hold_writes = true;
  node.place().processes.clear(); // Nobody hears of its end before the sandbox is gone.
  const auto gone = node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{});
  terminal->lose();
  node.sys.run();
  CHECK(gone.open());
  node.store.let_go();
  node.sys.run();
  CHECK_NOTHROW(gone.value());
  CHECK(node.local.disk.owners()->empty());
}

TEST_CASE("a sandbox that is made again keeps the time of its first making", "[actors][sandbox]") {
  small_node node;
  const auto box = node.make_sandbox();
  node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value();
  node.sys.advance(1h);
  const auto other =
    node.make_sandbox(); // As after a restart: an activation that remembers nothing.
  node.sys.ask<caf::ok_atom>(other, find_atom::value, request_context{}).value();
  CHECK(node.store.value("abc", "created_ms") == "1700000000000");
  CHECK(node.store.value("abc", "started_ms") == std::to_string(1'700'000'000'000 + 3'600'000));
}

TEST_CASE("a start that fails answers everybody who waits, and gives back its place and its lease",
          "[actors][sandbox]") {
  small_node node;
  node.options->instances = std::make_shared<actors::instance_count>(1);
  node.engine.ready_at_once = false;
  const auto box = node.make_sandbox();
  const auto first = node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{});
  const auto second = node.sys.ask<process_actor>(box, command("true"));
  const auto alive = node.sys.ask<bool>(box, probe_request{});
  node.engine.creations[0].fail("making the namespaces: No space left on device");
  node.sys.run();
  CHECK(first.reason().code == errc::launch_failed);
  CHECK(second.reason().message == "making the namespaces: No space left on device");
  CHECK_FALSE(alive.value());
  CHECK(node.leases.held.empty());
  node.engine.ready_at_once = true;
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value());
}

TEST_CASE("the operator's limit is hard, and a deleted sandbox makes room", "[actors][sandbox]") {
  small_node node;
  node.options->instances = std::make_shared<actors::instance_count>(1);
  const auto first = node.make_sandbox("first");
  const auto second = node.make_sandbox("second");
  node.sys.ask<caf::ok_atom>(first, find_atom::value, request_context{}).value();
  const auto refused = node.sys.ask<caf::ok_atom>(second, find_atom::value, request_context{});
  CHECK(refused.reason().code == errc::capacity_exceeded);
  CHECK(refused.reason().message == "1/1");
  node.sys.ask<caf::ok_atom>(first, delete_atom::value, request_context{}).value();
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(second, find_atom::value, request_context{}).value());
}

TEST_CASE("a command runs under bash, as the sandbox's user, with its environment",
          "[actors][sandbox]") {
  small_node node;
  const auto box = node.make_sandbox();
  auto request = command("echo hi");
  request.env = {{"A", "1"}, {"HOME", "/tmp"}};
  const auto asked = node.sys.ask<process_actor>(box, request);
  CHECK(asked.open()); // Until it runs.
  const auto& spec = node.process().spec;
  CHECK(spec.argv == std::vector<std::string>{"/bin/bash", "-c", "echo hi"});
  CHECK(spec.env == std::vector<std::string>{"A=1", "HOME=/tmp", "PATH=/usr/bin:/bin"});
  CHECK(spec.cwd == "/workspace");
  CHECK(spec.script.empty());
  CHECK(spec.user.uid == 1000);
  node.process().start();
  node.sys.run();
  CHECK(asked.value());
}

TEST_CASE("a line that is too long for an argument is read from a descriptor",
          "[actors][sandbox]") {
  small_node node;
  const auto box = node.make_sandbox();
  const std::string line(200'000, 'x');
  const auto asked = node.sys.ask<process_actor>(box, command(line));
  CHECK(node.process().spec.script == line);
  CHECK(node.process().spec.argv.size() == 3);
  CHECK(node.process().spec.argv[2].size() < 100);
  node.process().fail(errc::launch_failed, "running the program: No such file or directory");
  node.sys.run();
  CHECK(asked.reason().code == errc::launch_failed);
}

TEST_CASE("a probe is true when true ran, and false when it could not", "[actors][sandbox]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto well = node.sys.ask<bool>(box, probe_request{});
  node.process().start();
  node.process().exit(0);
  node.process().complete_now();
  node.sys.run();
  CHECK(well.value());
  const auto ill = node.sys.ask<bool>(box, probe_request{});
  node.process().fail(errc::launch_failed, "making a process: Resource temporarily unavailable");
  node.sys.run();
  CHECK_FALSE(ill.value());
}

TEST_CASE("files are opened in the sandbox, and a refusal comes back", "[actors][sandbox]") {
  small_node node;
  const auto box = node.make_sandbox();
  CHECK(node.sys.ask<file_channel>(box, read_file_request{"/workspace/a"}).value().socket);
  CHECK(node.sys.ask<file_channel>(box, write_file_request{"/workspace/b"}).value().socket);
  CHECK(node.sys.ask<file_channel>(box, read_tree_request{"/workspace", {"./x"}}).value().socket);
  CHECK(node.sys.ask<file_channel>(box, write_tree_request{"/workspace"}).value().socket);
  CHECK(node.place().files == std::vector<std::string>{"read /workspace/a", "write /workspace/b",
                                                       "read tree /workspace without ./x",
                                                       "write tree /workspace"});
  node.place().refuse_files = true;
  CHECK(node.sys.ask<file_channel>(box, read_file_request{"/x"}).reason().code ==
        errc::sandbox_not_running);
}

TEST_CASE("deleting ends the commands, removes the record and ends the actor",
          "[actors][sandbox]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto started = node.sys.ask<process_actor>(box, command("sleep 100"));
  node.process().start();
  node.sys.run();
  const auto command_actor = started.value();
  const auto reading = node.sys.ask<output_chunk>(command_actor, read_output{0, 1024, true});
  CHECK(reading.open());
  const auto gone = node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{});
  CHECK_NOTHROW(gone.value());
  CHECK(reading.reason().code == errc::sandbox_not_running);
  CHECK(node.store.disk.owners()->empty());
  CHECK(node.leases.held.empty());
  CHECK(node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).reason().code ==
        errc::sandbox_not_running);
}

TEST_CASE(
  "what comes while a sandbox is being deleted is refused, and a second delete shares the first",
  "[actors][sandbox]") {
  small_node node;
  const auto box = node.make_sandbox();
  node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value();
  node.place().hold_destroy = true;
  const auto first = node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{});
  const auto second = node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{});
  CHECK(node.sys.ask<process_actor>(box, command("true")).reason().code ==
        errc::sandbox_not_running);
  CHECK(first.open());
  node.place().finish_destroy();
  node.sys.run();
  CHECK_NOTHROW(first.value());
  CHECK_NOTHROW(second.value());
}

TEST_CASE("a sandbox that is deleted while it starts is removed once it has come to life",
          "[actors][sandbox]") {
  small_node node;
  node.engine.ready_at_once = false;
  const auto box = node.make_sandbox();
  const auto waiting = node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{});
  const auto gone = node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{});
  CHECK(waiting.reason().code == errc::sandbox_not_running);
  CHECK(gone.open());
  node.engine.creations[0].ready();
  node.sys.run();
  CHECK_NOTHROW(gone.value());
  CHECK(node.place().destroys == 1);
  CHECK(node.store.disk.owners()->empty());
}

TEST_CASE("deleting what never was writes nothing", "[actors][sandbox]") {
  small_node node;
  const auto box = node.make_sandbox();
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{}).value());
  CHECK(node.engine.creations.empty());
  CHECK(node.store.writes == 0);
}

TEST_CASE("a record without a sandbox is deleted by its id", "[actors][sandbox]") {
  small_node node;
  node.store.disk.commit({"abc", 1, {{"created_ms", "5"}}},
                         [](result<void> outcome) { REQUIRE(outcome); });
  node.leases.last = 1;
  const auto box = node.make_sandbox();
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{}).value());
  CHECK(node.store.disk.owners()->empty());
  CHECK(node.engine.creations.empty());
}

TEST_CASE("a sandbox that ends by itself is made anew by the next request", "[actors][sandbox]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto started = node.sys.ask<process_actor>(box, command("sleep 100"));
  node.process().start();
  node.sys.run();
  node.engine.creations[0].end();
  node.sys.run();
  CHECK(node.sys.ask<output_chunk>(started.value(), read_output{}).reason().code ==
        errc::sandbox_not_running);
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value());
  CHECK(node.engine.creations.size() == 2);
}

TEST_CASE(
  "a request that comes when a sandbox is over, of which nobody has told yet, gets the next",
  "[actors][sandbox]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto find = [&] {
    return node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{});
  };
  find().value();
  node.place().over = true;
  const auto asked = find();
  SECTION("once that is told") {
    CHECK(asked.open());
    node.engine.creations[0].end();
    node.sys.run();
    CHECK_NOTHROW(asked.value());
    CHECK(node.engine.creations.size() == 2);
  }
  SECTION("unless it is deleted first") {
    node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{}).value();
    CHECK(asked.reason().code == errc::sandbox_not_running);
    CHECK(node.engine.creations.size() == 1);
  }
}

TEST_CASE("a sandbox in which nothing happens is stopped, and comes back when it is needed",
          "[actors][sandbox]") {
  small_node node;
  const auto box = node.make_sandbox();
  node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value();
  node.sys.advance(6min);
  node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value();
  node.sys.advance(6min);
  CHECK(node.place().destroys == 0); // It was used six minutes ago.
  node.sys.advance(5min);
  CHECK(node.place().destroys == 1);
  CHECK(node.leases.held.empty());
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value());
  CHECK(node.engine.creations.size() == 2);
}

TEST_CASE("a running command keeps its sandbox awake", "[actors][sandbox]") {
  small_node node;
  const auto box = node.make_sandbox();
  const auto started = node.sys.ask<process_actor>(box, command("sleep 10000"));
  node.process().start();
  node.sys.run();
  for (int i = 0; i < 5; ++i)
    node.sys.advance(11min);
  CHECK(node.place().destroys == 0);
  node.process().exit(0);
  node.process().complete_now();
  node.sys.run();
  node.sys.advance(25min);
  CHECK(node.place().destroys == 1);
}

TEST_CASE("a request that meets a sandbox on its way to sleep gets a fresh one",
          "[actors][sandbox]") {
  small_node node;
  const auto box = node.make_sandbox();
  node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value();
  node.place().hold_destroy = true;
  node.sys.advance(11min);
  const auto late = node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{});
  CHECK(late.open());
  node.engine.creations[0].place->finish_destroy();
  node.sys.run();
  CHECK_NOTHROW(late.value());
  CHECK(node.engine.creations.size() == 2);
}

TEST_CASE("a lease that somebody else holds starts nothing", "[actors][sandbox]") {
  small_node node;
  node.leases.refusal = error{errc::limit_reached, "another node owns it"};
  const auto box = node.make_sandbox();
  CHECK(node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).reason().message ==
        "another node owns it");
  CHECK(node.engine.creations.empty());
}

TEST_CASE("deleting a sandbox whose record could not be written is answered all the same",
          "[actors][sandbox][gate]") {
  small_node node;
  node.engine.ready_at_once = false;
  node.store.hold_writes = true;
  const auto box = node.make_sandbox();
  const auto waiting = node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{});
  const auto gone = node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{});
  node.store.disk.commit({"abc", 99, {}},
                         [](result<void>) {}); // A later owner: the held write was not refused yet.
  node.store.let_go();
  node.sys.run();
  CHECK(gone.open());
  node.engine.creations[0].ready();
  node.sys.run();
  CHECK_NOTHROW(gone.value());
  CHECK(waiting.reason().code == errc::sandbox_not_running);
  CHECK(node.leases.held.empty());
}

TEST_CASE("a failed write while deleting does not lose the deletion", "[actors][sandbox][gate]") {
  small_node node;
  node.engine.ready_at_once = false;
  node.store.write_error = error{errc::io_failed, "disk full"};
  node.store.hold_writes = true;
  const auto box = node.make_sandbox();
  const auto asked = node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{});
  CHECK(asked.reason().code == errc::io_failed);
  node.store.write_error.reset();
  node.store.hold_writes = false;
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{}).value());
  CHECK(node.leases.held.empty());
}

TEST_CASE("a file that is being carried keeps its sandbox awake", "[actors][sandbox]") {
  small_node node;
  const auto box = node.make_sandbox();
  auto channel = node.sys.ask<file_channel>(box, read_file_request{"/workspace/large"}).value();
  node.sys.advance(25min);
  CHECK(node.place().destroys == 0);
  channel = {};
  node.sys.run();
  node.sys.advance(25min);
  CHECK(node.place().destroys == 1);
}

TEST_CASE("no more commands run at once than the sandbox may have processes", "[actors][sandbox]") {
  small_node node;
  node.options->limits.processes = 2;
  const auto box = node.make_sandbox();
  const auto first = node.sys.ask<process_actor>(box, command("sleep 1"));
  const auto second = node.sys.ask<process_actor>(box, command("sleep 1"));
  CHECK(node.sys.ask<process_actor>(box, command("sleep 1")).reason().code == errc::limit_reached);
  CHECK_FALSE(node.sys.ask<bool>(box, probe_request{}).value());
  CHECK(node.place().processes.size() == 2);
}

TEST_CASE("the engine is asked under the epoch of the lease, which is larger after a deletion",
          "[actors][sandbox]") {
  small_node node;
  node.leases.last = 6;
  for (const storage::epoch expected : {7u, 8u}) {
    const auto box = node.make_sandbox();
    node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value();
    CHECK(node.leases.held.at("abc") == expected);
    CHECK(node.engine.creations.back().spec.epoch == expected);
    node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{}).value();
  }
}

TEST_CASE("who does not hold the sandbox any more is told so by the engine, and the next request "
          "asks for the lease anew",
          "[actors][sandbox]") {
  small_node node;
  node.engine.ready_at_once = false;
  const auto box = node.make_sandbox();
  const auto late = node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{});
  node.engine.creations[0].fail("it is held under a newer epoch", errc::stale_epoch);
  node.sys.run();
  CHECK(late.reason().code == errc::stale_epoch);
  CHECK(node.leases.held.empty());
  node.engine.ready_at_once = true;
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value());
  CHECK(node.engine.creations.back().spec.epoch > node.engine.creations[0].spec.epoch);
}
