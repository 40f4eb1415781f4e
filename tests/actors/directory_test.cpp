#include "tests/actors/fixture.hpp"

using namespace insula;
using namespace insula::test;

TEST_CASE("one id has one activation, whoever asks and however often", "[actors][directory]") {
  small_node node;
  const auto directory = node.make_directory();
  const auto first =
    node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abc"}, request_context{})
      .value();
  const auto second =
    node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abc"}, request_context{})
      .value();
  const auto other =
    node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abd"}, request_context{})
      .value();
  CHECK(first == second);
  CHECK_FALSE(first == other);
  CHECK(node.engine.creations.size() == 2);
}

TEST_CASE("a failure to start is the finder's answer, and the id goes on working",
          "[actors][directory]") {
  small_node node;
  node.engine.ready_at_once = false;
  const auto directory = node.make_directory();
  const auto asked =
    node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abc"}, request_context{});
  node.engine.creations[0].fail("no");
  node.sys.run();
  CHECK(asked.reason().code == errc::launch_failed);
  node.engine.ready_at_once = true;
  CHECK_NOTHROW(
    node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abc"}, request_context{})
      .value());
}

TEST_CASE("whoever comes while an id is being deleted gets a new sandbox afterwards",
          "[actors][directory]") {
  small_node node;
  const auto directory = node.make_directory();
  const auto before =
    node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abc"}, request_context{})
      .value();
  node.place().hold_destroy = true;
  const auto gone = node.sys.ask<caf::ok_atom>(directory, delete_atom::value, std::string{"abc"},
                                               request_context{});
  const auto late =
    node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abc"}, request_context{});
  CHECK(gone.open());
  CHECK(late.open());
  node.engine.creations[0].place->finish_destroy();
  node.sys.run();
  CHECK_NOTHROW(gone.value());
  CHECK_FALSE(late.value() == before);
  CHECK(node.engine.creations.size() == 2);
}

TEST_CASE("deleting an id that was never used succeeds and starts nothing", "[actors][directory]") {
  small_node node;
  const auto directory = node.make_directory();
  CHECK_NOTHROW(
    node.sys.ask<caf::ok_atom>(directory, delete_atom::value, std::string{"abc"}, request_context{})
      .value());
  CHECK(node.engine.creations.empty());
}

TEST_CASE("an activation that was lost is replaced", "[actors][directory]") {
  small_node node;
  const auto directory = node.make_directory();
  const auto first =
    node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abc"}, request_context{})
      .value();
  caf::anon_send_exit(first, caf::exit_reason::kill);
  node.sys.run();
  const auto second =
    node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abc"}, request_context{})
      .value();
  CHECK_FALSE(first == second);
}

TEST_CASE("a malformed id is nobody's", "[actors][directory]") {
  small_node node;
  const auto directory = node.make_directory();
  CHECK(
    node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"../x"}, request_context{})
      .reason()
      .code == errc::invalid_request);
}

TEST_CASE("an id that has nothing running takes no memory, and comes back when it is asked for",
          "[actors][directory]") {
  small_node node;
  const auto directory = node.make_directory();
  const auto find = [&] {
    return node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abc"},
                                       request_context{});
  };
  const auto before = node.sys.get().registry().running();
  const auto first = find().value();
  CHECK(node.sys.get().registry().running() > before);
  node.sys.advance(std::chrono::minutes{11}); // Idle: it is stopped, and its actor ends.
  CHECK(node.sys.ask<bool>(first, probe_request{}).reason().code == errc::sandbox_not_running);
  const auto second = find().value();
  CHECK_FALSE(first == second);
  CHECK(node.store.value("abc", "created_ms") == "1700000000000");
}

TEST_CASE("ids that could not be started leave no actor behind", "[actors][directory]") {
  small_node node;
  node.options->instances = std::make_shared<actors::instance_count>(0u);
  const auto directory = node.make_directory();
  for (const char* id : {"abc", "abd", "abe"})
    CHECK(
      node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{id}, request_context{})
        .reason()
        .code == errc::capacity_exceeded);
  const auto one = node.sys.get().registry().running();
  for (int i = 0; i < 20; ++i)
    CHECK(node.sys
            .ask<sandbox_actor>(directory, find_atom::value,
                                "x" + std::string(1, static_cast<char>('a' + i)), request_context{})
            .reason()
            .code == errc::capacity_exceeded);
  CHECK(node.sys.get().registry().running() == one);
}
