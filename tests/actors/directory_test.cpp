#include "base/limits.hpp"
#include "tests/actors/fixture.hpp"

#include <algorithm>
#include <set>

using namespace insula;
using namespace insula::test;

namespace {

/// The sandboxes of a page by their ids.
std::vector<sandbox_status> all_active(activation_page page) {
  std::sort(page.sandboxes.begin(), page.sandboxes.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  return page.sandboxes;
}

/// An object of another kind, and what it has heard.
struct plain_object {
  using pointer = owned_object_actor::pointer;

  std::vector<std::string> made; ///< The ids of its activations.
  std::string heard;

  actors::object_kinds as(const std::string& kind) {
    return {{kind, [this](caf::actor_system& system, const std::string& id) {
               made.push_back(id);
               return system.spawn([this](pointer self) { return behaviour(self); });
             }}};
  }

private:
  owned_object_actor::behavior_type behaviour(pointer self) {
    const auto say = [this](const char* what) {
      heard += what;
      return caf::ok_atom::value;
    };
    return {
      [=](const alarm_due&) {
        self->quit(); // As one that hibernates.
        return say("alarm ");
      },
      [=](adopt_atom) { say("adopt "); },
      [=](evict_atom) {
        self->quit();
        return say("evict ");
      },
      [=](hand_over_atom) {
        self->quit();
        return say("hand over ");
      },
      [=](keep_files_atom) { return say("keep "); },
      [=](keep_used_files_atom) { return say("keep used "); },
    };
  }
};

} // namespace

TEST_CASE("an object's name says its kind", "[actors][directory]") {
  CHECK(object_name::parse("abc") == object_name{"", "abc"});
  CHECK(object_name::parse("run:abc.1_A-9") == object_name{"run", "abc.1_A-9"});
  CHECK(object_name{"run", "abc"}.owner() == "run:abc");
  CHECK(object_name{"", "abc"}.owner() == "abc");
  for (const auto* wrong :
       {"", ":", "run:", ":abc", "Run:abc", "run:a/b", "run:a b", "run:a:b", "ABC", "a/b"})
    CHECK_FALSE(object_name::parse(wrong));
  CHECK(object_name::parse("run:" + std::string(124, 'a')));
  CHECK_FALSE(object_name::parse("run:" + std::string(125, 'a')));
}

TEST_CASE("an object of another kind has one activation as well", "[actors][directory]") {
  small_node node;
  plain_object objects;
  const auto directory = node.make_directory(objects.as("run"));
  const auto reach = [&](const object_name& name) {
    return node.sys.ask<owned_object_actor>(directory, reach_atom::value, name);
  };
  const auto first = reach({"run", "one"}).value();
  CHECK(reach({"run", "one"}).value() == first);
  CHECK_FALSE(reach({"run", "two"}).value() == first);
  CHECK(objects.made == std::vector<std::string>{"one", "two"});

  for (const auto& wrong : {object_name{"drive", "one"}, {"", "abc"}, {"run", "a:b"}, {"run", ""}})
    CHECK(reach(wrong).reason().code == errc::invalid_request);
  CHECK(node.sys.ask<activation_page>(directory, list_activations{0, 1}).value().total == 0);

  // Its alarm activates it.
  node.sys.ask<caf::ok_atom>(directory, alarm_due{{kept_in::cluster, "run:three", {}}, "now"})
    .value();
  CHECK(objects.heard == "alarm ");
  CHECK(objects.made.back() == "three");
  CHECK(
    node.sys.ask<caf::ok_atom>(directory, alarm_due{{kept_in::cluster, "drive:three", {}}, "now"})
      .reason()
      .code == errc::invalid_request);
  reach({"run", "three"}).value(); // It has ended by itself: this is another one.
  CHECK(objects.made.size() == 4);

  objects.heard.clear();
  node.sys.ask<caf::ok_atom>(directory, hand_over_atom::value, std::string{"run:two"}).value();
  node.sys.ask<caf::ok_atom>(directory, hand_over_atom::value, std::string{"run:nowhere"}).value();
  CHECK(objects.heard == "hand over ");
  CHECK(node.sys.ask<std::uint64_t>(directory, keep_files_atom::value).value() == 0);
  objects.heard.clear();
  node.sys.ask<caf::ok_atom>(directory, evict_atom::value).value();
  CHECK(objects.heard == "evict evict "); // Of "one" and "three".
  CHECK_FALSE(reach({"run", "one"}).value() == first);
}

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

namespace {

/// A start of "abc" that has failed while its record is on its way to the store.
void fail_while_writing(small_node& node, const directory_actor& directory) {
  node.engine.ready_at_once = false;
  node.store.hold_writes = node.store.held_is_on_its_way = true;
  const auto found =
    node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abc"}, request_context{});
  node.engine.creations[0].fail("no");
  node.sys.run();
  CHECK(found.reason().code == errc::launch_failed);
}

} // namespace

TEST_CASE("deleting after a start that failed removes what that start is still writing",
          "[actors][directory][gate]") {
  small_node node;
  const auto directory = node.make_directory();
  fail_while_writing(node, directory);
  CHECK(node.leases.held.contains("abc")); // Nobody else is to look at it before that is over.
  const auto gone = node.sys.ask<caf::ok_atom>(directory, delete_atom::value, std::string{"abc"},
                                               request_context{});
  CHECK(gone.open());
  node.store.let_go();
  node.sys.run();
  CHECK_NOTHROW(gone.value());
  CHECK(node.store.disk.read("abc")->empty());
  CHECK(node.leases.held.empty());
}

TEST_CASE("a sandbox hibernates once what it has written is settled, and not before",
          "[actors][directory][gate]") {
  small_node node;
  SECTION("it is durable") {}
  SECTION("it is refused") {
    node.store.held_error = error{errc::disk_full, "the disk is full"};
  }
  const auto directory = node.make_directory();
  const auto idle = node.sys.get().registry().running();
  fail_while_writing(node, directory);
  CHECK(node.sys.get().registry().running() > idle);
  CHECK(node.leases.held.size() == 1);
  const bool refused = node.store.held_error.has_value();
  node.store.let_go();
  node.sys.run();
  CHECK(node.sys.get().registry().running() == idle);
  CHECK(node.leases.held.empty());
  CHECK(node.store.disk.read("abc")->empty() == refused);
}

TEST_CASE("a sandbox is handed over once what it has written is durable",
          "[actors][directory][gate]") {
  small_node node;
  const auto directory = node.make_directory();
  fail_while_writing(node, directory);
  const auto left =
    node.sys.ask<caf::ok_atom>(directory, hand_over_atom::value, std::string{"abc"});
  CHECK(left.open());
  CHECK(node.leases.held.size() == 1);
  node.store.let_go();
  node.sys.run();
  CHECK_NOTHROW(left.value());
  CHECK(node.leases.held.empty());
  CHECK(node.store.value("abc", "created_ms") == "1700000000000");
}

TEST_CASE("the list has every activation, with what it uses", "[actors][directory]") {
  small_node node;
  const auto directory = node.make_directory();
  const auto list = [&] {
    return all_active(node.sys.ask<activation_page>(directory, list_activations{0, 256}).value());
  };
  CHECK(list().empty());
  for (const char* id : {"abd", "abc"})
    node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{id}, request_context{})
      .value();
  node.place().used = {.memory_bytes = 4096, .cpu = std::chrono::microseconds{7}, .processes = 3};
  const auto rows = list();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].id == "abc");
  CHECK(rows[0].state == "running");
  CHECK(rows[0].created_ms == 1'700'000'000'000);
  CHECK(rows[0].memory_bytes == 4096u);
  CHECK(rows[0].cpu_us == 7u);
  CHECK(rows[0].processes == 3u);
  CHECK(rows[0].current);
  CHECK(rows[1].id == "abd");
  CHECK_FALSE(rows[1].memory_bytes);        // The engine does not know.
  CHECK(node.engine.creations.size() == 2); // Asking has started nothing.
}

TEST_CASE("a sandbox that is being deleted is on the list until it has gone",
          "[actors][directory]") {
  small_node node;
  const auto directory = node.make_directory();
  const auto list = [&] {
    return all_active(node.sys.ask<activation_page>(directory, list_activations{0, 256}).value());
  };
  node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abc"}, request_context{})
    .value();
  node.place().hold_destroy = true;
  const auto gone = node.sys.ask<caf::ok_atom>(directory, delete_atom::value, std::string{"abc"},
                                               request_context{});
  REQUIRE(list().size() == 1);
  CHECK(list()[0].state == "deleting");
  node.place().finish_destroy();
  node.sys.run();
  CHECK_NOTHROW(gone.value());
  CHECK(list().empty());
}

TEST_CASE("a sandbox that does not answer holds the list up once, and is told as it was",
          "[actors][directory]") {
  small_node node;
  const auto directory = node.make_directory();
  const auto ask_list = [&] {
    return node.sys.ask<activation_page>(directory, list_activations{0, 256});
  };
  node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abc"}, request_context{})
    .value();
  node.store.hold_reads = true; // The next one waits for the store, and hears nothing meanwhile.
  const auto stuck =
    node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abd"}, request_context{});
  const auto first = ask_list();
  const auto second = ask_list(); // Both get the same.
  CHECK(first.open());
  CHECK(second.open());
  node.sys.advance(limits::list_patience);
  for (const auto& each : {all_active(first.value()), all_active(second.value())}) {
    REQUIRE(each.size() == 2);
    CHECK(each[0].id == "abc");
    CHECK(each[0].current);
    CHECK(each[1].id == "abd");
    CHECK_FALSE(each[1].current);
  }
  CHECK(ask_list().value().sandboxes.size() == 2); // It is asked once, and waited for once.
  CHECK(stuck.open());
  node.store.let_go();
  node.sys.run();
  CHECK_NOTHROW(stuck.value());
  CHECK(all_active(ask_list().value())[1].current);
}

TEST_CASE("the list of those that are active comes by pages, the last activated first",
          "[actors][directory]") {
  small_node node;
  const auto directory = node.make_directory();
  const auto find = [&](const std::string& id) {
    node.sys.ask<sandbox_actor>(directory, find_atom::value, id, request_context{}).value();
  };
  const auto page = [&](std::uint64_t after, std::uint32_t limit) {
    return node.sys.ask<activation_page>(directory, list_activations{after, limit}).value();
  };
  const auto ids = [](const activation_page& of) {
    std::string all;
    for (const auto& each : of.sandboxes)
      all += each.id + (each.state == "running" ? " " : "? ");
    return all;
  };
  for (const auto* id : {"aa", "bb", "cc", "dd", "ee"})
    find(id);
  const auto first = page(0, 2);
  CHECK(ids(first) == "ee dd ");
  CHECK(first.total == 5);
  // What comes and goes between two pages moves no other one.
  find("ff");
  node.sys.ask<caf::ok_atom>(directory, delete_atom::value, "dd", request_context{}).value();
  const auto second = page(first.next, 2);
  CHECK(ids(second) == "cc bb ");
  const auto third = page(second.next, 2);
  CHECK(ids(third) == "aa ");
  CHECK(third.next == 0);
  CHECK(ids(page(0, 5)) == "ff ee cc bb aa ");
  CHECK(page(0, 5).next == 0);
  CHECK(page(1, 5).sandboxes.empty()); // Behind the last one.
}

TEST_CASE("a page of the list waits for nobody who is on another one", "[actors][directory]") {
  small_node node;
  const auto directory = node.make_directory();
  node.store.hold_reads = true;
  const auto stuck =
    node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abd"}, request_context{});
  node.store.hold_reads = false;
  node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abc"}, request_context{})
    .value();
  const auto first = node.sys.ask<activation_page>(directory, list_activations{0, 1}).value();
  REQUIRE(first.sandboxes.size() == 1);
  CHECK(first.sandboxes[0].id == "abc");
  const auto second = node.sys.ask<activation_page>(directory, list_activations{first.next, 1});
  CHECK(second.open());
  node.sys.advance(limits::list_patience);
  CHECK_FALSE(second.value().sandboxes.at(0).current);
  node.store.let_go();
  node.sys.run();
}

TEST_CASE("who waits for the list when the directory goes is told", "[actors][directory]") {
  small_node node;
  const auto directory = node.make_directory();
  node.store.hold_reads = true;
  const auto stuck =
    node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abc"}, request_context{});
  const auto list = node.sys.ask<activation_page>(directory, list_activations{0, 256});
  CHECK(list.open());
  caf::anon_send_exit(directory, caf::exit_reason::user_shutdown);
  node.sys.run();
  CHECK(list.reason().code == errc::sandbox_not_running);
  node.store.let_go();
}

TEST_CASE("two thousand sandboxes are listed", "[actors][directory]") {
  small_node node;
  node.options->instances = std::make_shared<actors::instance_count>(2000u);
  const auto directory = node.make_directory();
  for (int i = 0; i < 2000; ++i) {
    std::string id = "abcd";
    for (int rest = i, at = 0; at < 4; ++at, rest /= 26)
      id[static_cast<std::size_t>(at)] = static_cast<char>('a' + rest % 26);
    node.sys.ask<sandbox_actor>(directory, find_atom::value, id, request_context{}).value();
  }
  std::vector<sandbox_status> rows;
  std::set<std::string> ids;
  list_activations wanted{0, 256};
  do {
    const auto page = node.sys.ask<activation_page>(directory, wanted).value();
    CHECK(page.total == 2000);
    CHECK(page.sandboxes.size() <= 256);
    for (const auto& each : page.sandboxes) {
      rows.push_back(each);
      ids.insert(each.id);
    }
    wanted.after = page.next;
  } while (wanted.after != 0);
  CHECK(ids.size() == 2000); // Each once.
  CHECK(rows.size() == 2000);
  CHECK(std::all_of(rows.begin(), rows.end(),
                    [](auto& each) { return each.current && each.state == "running"; }));
}
