// Drives: sandboxes whose files are a directory of others, as their actors keep them.
#include "actors/drive_record.hpp"
#include "actors/record_keys.hpp"
#include "tests/actors/fixture.hpp"

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

struct node_with_drives : small_node {
  node_directory_actor directory;

  node_with_drives() {
    options->ladder = {};
    options->keeps_disks = true;
    directory = make_directory();
    define("drive");
  }

  sandbox_actor at_rest(const std::string& id) {
    return sys.ask<sandbox_actor>(directory, reach_atom::value, id, request_context{}).value();
  }
  void define(const std::string& id, std::vector<drive_mount> drives = {}) {
    define_sandbox wanted;
    wanted.drives = std::move(drives);
    sys.ask<sandbox_description>(at_rest(id), std::move(wanted)).value();
  }
  pending<caf::ok_atom> start(const std::string& id) {
    return sys.ask<caf::ok_atom>(at_rest(id), find_atom::value, request_context{});
  }
  std::optional<drive_use> user() {
    redefine_sandbox look;
    return sys.ask<sandbox_description>(at_rest("drive"), look).value().drive_user;
  }
  fake_sandbox& place_of(const std::string& id) {
    const auto at = std::find_if(engine.creations.rbegin(), engine.creations.rend(),
                                 [&](const auto& each) { return each.spec.name == id; });
    REQUIRE(at != engine.creations.rend());
    return *at->place;
  }
  void end(const std::string& id) {
    const auto at = std::find_if(engine.creations.rbegin(), engine.creations.rend(),
                                 [&](const auto& each) { return each.spec.name == id; });
    REQUIRE(at != engine.creations.rend());
    at->end();
    sys.run();
  }
};

drive_mount data(drive_mode mode = drive_mode::read_write) {
  return {"/data", "drive", mode, "cache"};
}

} // namespace

TEST_CASE("records of drives are read as they were written", "[actors][drives]") {
  const std::vector<drive_mount> all{{"/a b", "d1", drive_mode::read_write, "one"},
                                     {"/c", "d2", drive_mode::snapshot, "two"},
                                     {"/d", "d1", drive_mode::read_only, "one"}};
  const auto read = actors::read_drives(actors::text_of(all) + "later d3 x /e\nread-only d4\n");
  REQUIRE(read.size() == all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(read[i].path == all[i].path);
    CHECK(read[i].drive == all[i].drive);
    CHECK(read[i].mode == all[i].mode);
    CHECK(read[i].name == all[i].name);
  }
  const auto user = actors::read_drive_use(actors::text_of(drive_use{"abc", 7, "my-box"}));
  REQUIRE(user);
  CHECK(user->sandbox == "abc");
  CHECK(user->run == 7);
  CHECK(user->name == "my-box");
  CHECK_FALSE(actors::read_drive_use(""));
}

TEST_CASE("one sandbox at a time has a drive to write to", "[actors][drives]") {
  node_with_drives node;
  node.define("one", {data()});
  node.define("two", {data()});
  node.define("reader", {data(drive_mode::read_only)});
  CHECK_FALSE(node.user());
  node.start("one").value();
  REQUIRE(node.place_of("one").drives.size() == 1);
  const auto& attached = node.place_of("one").drives.front();
  CHECK(attached.path == "/data");
  CHECK(attached.of.get() == &node.place_of("drive"));
  CHECK_FALSE(attached.read_only);
  CHECK(attached.snapshot.empty());
  CHECK(node.user()->sandbox == "one");
  CHECK(actors::read_drive_use(node.store.value("drive", actors::drive_user_key))->sandbox ==
        "one");

  const auto refused = node.start("two").reason();
  CHECK(refused.code == errc::drive_in_use);
  CHECK(refused.message.find("'cache'") != std::string::npos);
  CHECK(node.place_of("two").destroys == 1);
  node.start("reader").value();
  CHECK(node.place_of("reader").drives.front().read_only);
  CHECK(node.user()->sandbox == "one"); // Not one that reads it alone.

  INFO("it is free with the end of the sandbox, and what was written is kept");
  node.end("one");
  CHECK(node.user()->sandbox == "reader");
  node.start("two").value();
  CHECK(node.user()->sandbox == "two");
  node.end("reader");
  node.end("two");
  CHECK_FALSE(node.user());
  CHECK(node.store.value("drive", actors::drive_user_key).empty());
}

TEST_CASE("a drive that is attached is in use, and stays at its node", "[actors][drives]") {
  node_with_drives node;
  node.options->ladder.stop_after = 1min;
  node.define("box", {data(drive_mode::read_only)});
  node.start("box").value();
  const auto kept = node.sys.ask<process_actor>(node.at_rest("box"), command("sleep"));
  node.sys.advance(10min);
  CHECK(node.place_of("drive").destroys == 0);
  CHECK(node.sys.ask<caf::ok_atom>(node.directory, hand_over_atom::value, std::string{"drive"})
          .reason()
          .code == errc::drive_in_use);
  CHECK(node.sys
          .ask<caf::ok_atom>(node.directory, delete_atom::value, std::string{"drive"},
                             request_context{})
          .reason()
          .code == errc::drive_in_use);
  CHECK(node.user()->sandbox == "box");
  node.end("box");
  node.sys.advance(10min);
  CHECK(node.place_of("drive").destroys == 1);
  node.sys
    .ask<caf::ok_atom>(node.directory, delete_atom::value, std::string{"drive"}, request_context{})
    .value();
}

TEST_CASE("a sandbox ends with its drive", "[actors][drives]") {
  node_with_drives node;
  node.define("box", {data()});
  node.start("box").value();
  node.end("drive");
  CHECK(node.place_of("box").destroys == 1);
  CHECK_FALSE(node.user());
}

TEST_CASE("a sandbox has a drive as it was when it started", "[actors][drives]") {
  node_with_drives node;
  node.define("box", {data(drive_mode::snapshot)});
  node.start("box").value();
  const auto& attached = node.place_of("box").drives.front();
  CHECK(attached.snapshot.starts_with("drive-"));
  CHECK(node.engine.snapshots->empty()); // It goes with the directory.
  CHECK_FALSE(node.user());
}

TEST_CASE("a change of the drives is for the next start, also under the next server",
          "[actors][drives]") {
  node_with_drives node;
  node.define("other");
  node.define("box", {data()});
  node.start("box").value();
  redefine_sandbox change;
  change.drives = {{"/else", "other", drive_mode::read_write, "more"}};
  node.sys.ask<sandbox_description>(node.at_rest("box"), change).value();

  // The next server finds it.
  const auto place = node.place_of("box").shared_from_this();
  const auto before = node.at_rest("box");
  caf::anon_send_exit(before, caf::exit_reason::user_shutdown);
  node.sys.run();
  CHECK_FALSE(node.user());
  node.engine.left["box"] = place;
  node.start("box").value();
  CHECK(node.user()->sandbox == "box");
  REQUIRE(place->drives.size() == 1);
  CHECK(place->drives.front().path == "/data");

  place->over = true;
  node.engine.adoptions.back().end();
  node.sys.run();
  CHECK_FALSE(node.user());
  node.start("box").value();
  REQUIRE(node.place_of("box").drives.size() == 1);
  CHECK(node.place_of("box").drives.front().path == "/else");
}

TEST_CASE("a start without one of its drives fails", "[actors][drives]") {
  node_with_drives node;
  node.define("box", {{"/other", "none", drive_mode::read_write, "lost"}});
  const auto refused = node.start("box").reason();
  CHECK(refused.code == errc::drive_gone);
  CHECK(refused.message == "Drive 'lost' not found.");
  redefine_sandbox without;
  without.drives.emplace();
  node.sys.ask<sandbox_description>(node.at_rest("box"), without).value();
  node.start("box").value();
  CHECK(node.place_of("box").drives.empty());
}
