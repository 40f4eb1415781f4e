// What is kept of a persistent sandbox: when its disk is kept, what its next start begins with, and
// how that takes over what an earlier version kept of its files.
#include "actors/snapshots/snapshot.hpp"
#include "tests/actors/fake_snapshot_archive.hpp"
#include "tests/actors/fixture.hpp"

#include <algorithm>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

struct files_node : small_node {
  fake_snapshot_archive files;
  node_directory_actor directory;
  sandbox_object_actor box;

  files_node() {
    options->files = &files;
    options->copies = std::make_shared<actors::snapshots::disk_copies>(
      engine, files, actors::snapshots::disk_copies::cache_settings{});
    options->keeps_disks = true;
    options->keep_interval = 1min;
    options->ladder = {};
    directory = make_directory(actors::snapshot_kind(options));
    box = make_sandbox();
  }

  /// The newest sandbox of a client: those that copy disks are the node's own.
  fake_engine::creation& newest() {
    return *std::find_if(engine.creations.rbegin(), engine.creations.rend(),
                         [](const auto& each) { return each.spec.host_name != "disks"; });
  }
  fake_sandbox& place() { return *newest().place; }
  fake_process& process() { return *place().processes.back(); }
  std::string began_with() { return newest().spec.disk_from; }
  /// What its next start begins with.
  std::string base() { return record("disk_from"); }
  bool has_bytes(const std::string& id) { return engine.snapshots->contains(id); }
  /// The sandbox whose disk was kept then.
  std::string origin_of_kept(std::size_t which) {
    const auto id = files.kept.at(which).what.sandbox.substr(std::string{"disk-"}.size());
    return store.value("snapshot:" + id, "origin");
  }
  /// An earlier version has kept its workspace.
  void has_kept_files(std::int64_t taken_ms = 1'600'000'000'000) {
    store.put("abc", {{"created_ms", "1500000000000"},
                      {"image", "host"},
                      {"persistent", "1500000000000"},
                      {"snapshot", std::to_string(taken_ms) + " old place"},
                      {"started_ms", "1500000000000"}});
  }

  pending<caf::ok_atom> ask_for(request_context context) {
    return sys.ask<caf::ok_atom>(box, find_atom::value, std::move(context));
  }
  void use(bool persistent = true) {
    request_context context;
    context.persistent = persistent;
    ask_for(context).value();
  }
  /// What a request is told of a recovery.
  std::optional<std::int64_t> told() {
    request_context context;
    context.recovered = std::make_shared<recovery_place>();
    ask_for(context).value();
    return context.recovered->tell();
  }
  std::string state() {
    return std::string{sys.ask<sandbox_status>(box, status_atom::value).value().state};
  }
  std::string record(const char* key) { return store.value("abc", key); }
  /// Its spawner has died.
  void lose() {
    newest().end();
    sys.run();
    REQUIRE(state() == "asleep");
  }
};

} // namespace

TEST_CASE("an ephemeral sandbox has no snapshots", "[actors][files]") {
  files_node node;
  node.use(false);
  node.sys.advance(10min);
  node.sys.ask<caf::ok_atom>(node.box, keep_files_atom::value).value();
  CHECK(node.files.kept.empty());
  CHECK(node.record("persistent").empty());
  node.lose();
  CHECK_FALSE(node.told());
  CHECK(node.files.back.empty());
  node.sys.ask<caf::ok_atom>(node.box, delete_atom::value, request_context{}).value();
  CHECK(node.files.forgotten.empty());
}

TEST_CASE("whoever asks for it is answered when it is durable that the sandbox is persistent",
          "[actors][files]") {
  files_node node;
  request_context wanted;
  wanted.persistent = true;
  SECTION("with its first request") {
    const auto first = node.ask_for(wanted);
    first.value();
    CHECK(node.record("persistent") == "1700000000000");
  }
  SECTION("while it runs") {
    node.use(false);
    node.store.hold_writes = true;
    const auto asked = node.ask_for(wanted);
    const auto another = node.ask_for(wanted);
    CHECK(asked.open());
    CHECK(another.open());
    node.use(false); // Nobody else waits for that.
    node.store.let_go();
    node.sys.run();
    asked.value();
    another.value();
    CHECK_FALSE(node.record("persistent").empty());
  }
  SECTION("when it cannot be written") {
    node.use(false);
    node.store.write_error = error{errc::disk_full, "full"};
    CHECK(node.ask_for(wanted).reason().code == errc::disk_full);
    node.store.write_error = std::nullopt;
    node.use();
    CHECK_FALSE(node.record("persistent").empty());
  }
  SECTION("without starting it") {
    node.sys.ask<caf::ok_atom>(node.box, mark_persistent{}).value();
    CHECK_FALSE(node.record("persistent").empty());
    CHECK(node.engine.creations.empty());
  }
  SECTION("with what starts nothing") {
    node.sys.ask<network_state>(node.box, get_network_request{wanted}).value();
    CHECK_FALSE(node.record("persistent").empty());
    CHECK(node.engine.creations.empty());
  }
  SECTION("on a node that keeps none") {
    node.options->keeps_disks = false;
    CHECK(node.ask_for(wanted).reason().code == errc::invalid_request);
  }
}

TEST_CASE("a sandbox that is used is kept on an interval, and one that is not is left alone",
          "[actors][files]") {
  files_node node;
  node.use();
  node.sys.advance(59s);
  CHECK(node.files.kept.empty());
  node.sys.advance(2s);
  REQUIRE(node.files.kept.size() == 1);
  const auto first = node.files.kept.front().what;
  const auto kept = node.base();
  CHECK(first.sandbox == "disk-" + kept);
  CHECK(first.waited_for);
  CHECK(first.earlier.empty());
  CHECK(node.place().files.empty()); // Nothing in it reads its disk.
  CHECK(node.has_bytes(kept));
  CHECK(node.files.forgotten.empty());

  node.sys.advance(1h);
  CHECK(node.files.kept.size() == 1);
  node.use(false);
  node.sys.advance(21s);
  REQUIRE(node.files.kept.size() == 2); // The last one was long ago.
  CHECK(node.files.kept.back().what.earlier == "place1");
  CHECK(node.base() != kept);
  CHECK_FALSE(node.has_bytes(kept));
  CHECK(node.files.forgotten == std::vector<std::string>{"disk-" + kept + " "});

  // A command that runs is use.
  const auto runs = node.sys.ask<process_actor>(node.box, command("sleep"));
  node.process().start();
  node.sys.run();
  CHECK_FALSE(runs.open());
  for (int i = 0; i < 3; ++i)
    node.sys.advance(61s);
  CHECK(node.files.kept.size() >= 5);
}

TEST_CASE("a node whose disks are in memory has them brought from their copies",
          "[actors][files]") {
  files_node node;
  node.engine.in_memory = true;
  node.use();
  node.sys.advance(61s);
  const auto kept = node.base();
  CHECK_FALSE(kept.empty());
  CHECK_FALSE(node.has_bytes(kept)); // Memory is not for what nobody may need.
  node.lose();
  CHECK(node.told());
  CHECK(node.began_with() == kept);
  REQUIRE(node.files.back.size() == 1);
  CHECK(node.files.back.front().what.from == "place1");
}

TEST_CASE("without an interval there are snapshots at the end alone", "[actors][files]") {
  files_node node;
  node.options->keep_interval = 0ms;
  node.use();
  node.sys.advance(1h);
  CHECK(node.files.kept.empty());
  node.sys.ask<caf::ok_atom>(node.box, keep_files_atom::value).value();
  CHECK(node.files.kept.size() == 1);
}

TEST_CASE("all sandboxes may be persistent", "[actors][files]") {
  files_node node;
  node.options->all_persistent = true;
  node.use(false);
  node.sys.advance(61s);
  CHECK(node.files.kept.size() == 1);
}

TEST_CASE("a sandbox begins with what was kept of it, and the first answer says so",
          "[actors][files]") {
  files_node node;
  node.use();
  node.sys.advance(61s);
  const auto kept = node.base();
  const auto taken_ms = node.files.kept.front().what.taken_ms;
  node.lose();
  SECTION("its node has it") {}
  SECTION("its node has lost it") {
    node.engine.snapshots->clear();
    node.files.hold = true;
    const auto asked = node.ask_for({});
    REQUIRE(node.files.back.size() == 1);
    CHECK(node.files.back.front().what.from == "place1");
    CHECK(asked.open());
    CHECK(node.state() == "starting");
    node.files.finish_back();
    node.sys.run();
    asked.value();
  }
  CHECK(node.told() == taken_ms);
  CHECK_FALSE(node.told());
  CHECK(node.began_with() == kept);
}

TEST_CASE("what an earlier version kept is put back before the first command", "[actors][files]") {
  files_node node;
  node.has_kept_files();
  node.files.hold = true;
  request_context first;
  first.recovered = std::make_shared<recovery_place>();
  const auto asked = node.ask_for(first);
  CHECK(asked.open());
  CHECK(node.state() == "starting");
  REQUIRE(node.files.back.size() == 1);
  CHECK(node.files.back.front().what.from == "old place");
  CHECK_FALSE(node.files.back.front().what.whole);
  CHECK(node.record("half_files") == "1");
  node.store.hold_writes = true;
  node.files.finish_back();
  node.sys.run();
  CHECK(node.place().files == std::vector<std::string>{"write tree /workspace"});
  CHECK(asked.open()); // That they are there is not durable yet.
  node.store.let_go();
  node.sys.run();
  asked.value();
  CHECK(node.record("half_files").empty());
  CHECK(node.state() == "running");
  CHECK(first.recovered->tell() == 1'600'000'000'000);
  CHECK_FALSE(first.recovered->tell());
  CHECK_FALSE(node.told());

  INFO("they are in the first snapshot of its disk, and go");
  node.store.hold_writes = node.files.hold = false;
  node.sys.ask<caf::ok_atom>(node.box, keep_files_atom::value).value();
  CHECK(node.record("snapshot").empty());
  CHECK_FALSE(node.base().empty());
  CHECK(node.files.forgotten == std::vector<std::string>{"abc "});
  node.lose();
  CHECK(node.told());
  CHECK(node.files.back.size() == 1);
}

TEST_CASE("if the first request goes without an answer the next one is told", "[actors][files]") {
  files_node node;
  node.use();
  node.sys.advance(61s);
  node.lose();
  request_context first;
  first.recovered = std::make_shared<recovery_place>();
  node.ask_for(first).value();
  CHECK(node.told() == node.files.kept.front().what.taken_ms);
  CHECK_FALSE(first.recovered->tell());
}

TEST_CASE("a sandbox whose files cannot be had does not start, and does once they can",
          "[actors][files]") {
  files_node node;
  node.has_kept_files();
  SECTION("because the place does not answer") {
    node.files.failure = error{errc::store_failed, "no answer"};
    const auto why = node.ask_for({}).reason();
    CHECK(why.code == errc::store_failed);
    CHECK(why.message.find("no answer") != std::string::npos);
    CHECK(node.state() == "asleep");
    CHECK(node.place().destroys == 1);
    CHECK(node.leases.held.empty());
    CHECK(node.ask_for({}).reason().code == errc::store_failed);
    node.files.failure = std::nullopt;
  }
  SECTION("because the node does not know of a place") {
    node.options->files = nullptr;
    CHECK(node.ask_for({}).reason().code == errc::store_failed);
    node.options->files = &node.files;
  }
  SECTION("because it cannot be written that they are there") {
    node.files.hold = true;
    const auto asked = node.ask_for({});
    node.store.write_error = error{errc::disk_full, "full"};
    node.files.finish_back();
    node.sys.run();
    CHECK(asked.reason().code == errc::store_failed);
    node.store.write_error = std::nullopt;
    node.files.hold = false;
  }
  CHECK(node.told());
  CHECK(node.state() == "running");
}

TEST_CASE("a sandbox that was lost before its first snapshot says that, too", "[actors][files]") {
  files_node node;
  node.use();
  const auto created_ms = node.sys.time.unix_ms();
  node.sys.advance(5s);
  node.lose();
  CHECK(node.told() == created_ms);
  CHECK(node.files.back.empty());
}

TEST_CASE("a server that ends while files are put back leaves no half of them", "[actors][files]") {
  files_node node;
  node.has_kept_files();
  node.files.hold = true;
  const auto asked = node.ask_for({});
  REQUIRE(node.record("half_files") == "1");
  // The next server finds it running.
  const auto left = std::make_shared<fake_sandbox>();
  node.engine.left["abc"] = left;
  caf::anon_send_exit(node.box, caf::exit_reason::user_shutdown);
  node.sys.run();
  node.files.hold = false;
  node.box = node.make_sandbox();
  caf::anon_send(node.box, adopt_atom::value);
  node.sys.run();
  CHECK(node.engine.adoptions.empty());
  CHECK(node.engine.disowned == std::vector<std::string>{"abc"});
  CHECK(node.told());
  CHECK(node.files.back.size() == 2);
}

TEST_CASE("an adopted sandbox has its files, and goes on being kept", "[actors][files]") {
  files_node node;
  node.use();
  node.sys.advance(61s);
  const auto left = std::make_shared<fake_sandbox>();
  left->snapshots = node.engine.snapshots;
  node.engine.left["abc"] = left;
  caf::anon_send_exit(node.box, caf::exit_reason::user_shutdown);
  node.sys.run();
  node.box = node.make_sandbox();
  caf::anon_send(node.box, adopt_atom::value);
  node.sys.run();
  CHECK(node.engine.adoptions.size() == 1);
  CHECK(node.files.back.empty());
  CHECK_FALSE(node.told());
  node.sys.advance(61s);
  CHECK(node.files.kept.size() == 2);
  CHECK(node.files.kept.back().what.earlier == "place1");
}

TEST_CASE("a sandbox that is stopped for being idle is kept first", "[actors][files]") {
  files_node node;
  node.options->ladder = {10min, 24h};
  node.use();
  node.sys.advance(11min);
  CHECK(node.state() == "frozen");
  CHECK(node.files.kept.size() == 1);
  node.sys.advance(23h);
  CHECK(node.files.kept.size() == 1);
  node.sys.advance(1h);
  REQUIRE(node.files.kept.size() == 2);
  CHECK(node.state() == "asleep");
  CHECK(node.place().destroys == 1);
  CHECK(node.told() == node.files.kept.back().what.taken_ms);
}

TEST_CASE("an idle sandbox stands still while its copy is made", "[actors][files]") {
  files_node node;
  node.options->ladder = {10min, 24h};
  node.options->keep_interval = 20min;
  node.use();
  node.files.hold = true;
  node.sys.advance(10min + 1s);
  REQUIRE(node.files.kept.size() == 1);
  CHECK(node.state() == "running");
  SECTION("for long") {
    node.sys.advance(limits::snapshot_retry + 1s);
    CHECK(node.state() == "frozen");
  }
  SECTION("and not if it is used meanwhile") {
    node.use();
    node.sys.advance(limits::snapshot_retry + 1s);
    CHECK(node.state() == "running");
    node.files.finish_keep();
    node.sys.run();
    CHECK(node.state() == "running");
    return;
  }
  node.files.finish_keep();
  node.sys.run();
  CHECK(node.state() == "frozen");
  CHECK_FALSE(node.base().empty());
}

TEST_CASE("use during the last snapshot keeps a sandbox running", "[actors][files]") {
  files_node node;
  node.options->ladder = {0ms, 10min};
  node.options->keep_interval = 0ms;
  node.use();
  node.files.hold = true;
  node.sys.advance(11min);
  REQUIRE(node.files.kept.size() == 1);
  CHECK(node.state() == "running");
  node.use();
  node.files.finish_keep();
  node.sys.run();
  CHECK(node.state() == "running");
  CHECK(node.place().destroys == 0);
  node.files.hold = false;
  node.sys.advance(11min);
  CHECK(node.state() == "asleep");
  CHECK(node.files.kept.size() == 2);
}

TEST_CASE("a sandbox whose last snapshot fails is not stopped, but stands still until it works",
          "[actors][files]") {
  files_node node;
  node.options->ladder = {10min, 1h};
  node.options->keep_interval = 0ms;
  node.use();
  node.sys.advance(11min);
  CHECK(node.state() == "frozen");
  node.files.failure = error{errc::store_failed, "no answer"};
  node.sys.advance(50min);
  CHECK(node.state() == "frozen");
  CHECK(node.place().destroys == 0);
  const auto tried = node.files.kept.size();
  CHECK(tried >= 1);
  node.sys.advance(1min);
  CHECK(node.files.kept.size() > tried);
  CHECK(node.state() == "frozen");
  node.files.failure = std::nullopt;
  node.sys.advance(1min);
  CHECK(node.state() == "asleep");
  CHECK(node.place().destroys == 1);
}

TEST_CASE("what a sandbox cannot have kept is tried less and less often", "[actors][files]") {
  files_node node;
  node.use();
  const auto tries_in = [&](std::chrono::minutes how_long) {
    const auto before = node.files.kept.size();
    for (auto left = how_long; left.count() > 0; --left)
      node.sys.advance(1min);
    return node.files.kept.size() - before;
  };
  node.options->keep_interval = 1s;
  node.files.failure = error{errc::limit_reached, "too large"};
  tries_in(30min);
  const auto late = tries_in(60min);
  CHECK(late >= 4);
  CHECK(late <= 7);
  SECTION("and as usual once it can be kept") {
    node.files.failure = std::nullopt;
    tries_in(11min);
    CHECK_FALSE(node.base().empty());
  }
  SECTION("but for whoever hands it over at once") {
    node.files.failure = std::nullopt;
    node.sys.ask<caf::ok_atom>(node.box, keep_files_atom::value).value();
  }
  // Not so if the place is away: that comes back.
  node.files.failure = error{errc::store_failed, "no answer"};
  node.use();
  tries_in(30min);
  CHECK(tries_in(10min) >= 9);
}

TEST_CASE("after a write that may have been made, what it names stays", "[actors][files]") {
  files_node node;
  node.use();
  node.sys.advance(61s);
  const auto first = node.base();
  node.files.hold = true;
  const auto asked = node.sys.ask<caf::ok_atom>(node.box, keep_files_atom::value);
  node.store.write_error_of = "abc";
  node.store.write_error = error{errc::node_unreachable, "perhaps"};
  node.files.finish_keep();
  node.sys.run();
  CHECK(asked.reason().code == errc::node_unreachable);
  CHECK(node.has_bytes(first));
  CHECK(node.engine.snapshots->size() == 2);
  node.store.write_error = std::nullopt;
  node.files.hold = false;
  node.sys.ask<caf::ok_atom>(node.box, keep_files_atom::value).value();
  CHECK(node.files.kept.back().what.earlier == "place1");
  CHECK_FALSE(node.has_bytes(first));
}

TEST_CASE("a snapshot that fails is tried again, not at once", "[actors][files]") {
  files_node node;
  node.use();
  node.files.failure = error{errc::store_failed, "no answer"};
  node.sys.advance(61s);
  CHECK(node.files.kept.size() == 1);
  CHECK(node.base().empty());
  node.sys.advance(5s);
  CHECK(node.files.kept.size() == 1);
  node.files.failure = std::nullopt;
  node.sys.advance(2min);
  CHECK(node.files.kept.size() == 2);
  CHECK_FALSE(node.base().empty());
}

TEST_CASE("who hands a sandbox over gets a snapshot of what is there by then", "[actors][files]") {
  files_node node;
  node.use();
  node.files.hold = true;
  node.sys.advance(61s);
  REQUIRE(node.files.kept.size() == 1); // Of an earlier moment.
  const auto asked = node.sys.ask<caf::ok_atom>(node.box, keep_files_atom::value);
  node.files.finish_keep();
  node.sys.run();
  CHECK(asked.open());
  REQUIRE(node.files.kept.size() == 2);
  SECTION("and is told when it is there") {
    node.files.finish_keep();
    node.sys.run();
    asked.value();
  }
  SECTION("and is told when it fails") {
    node.files.failure = error{errc::store_failed, "no answer"};
    node.files.finish_keep();
    node.sys.run();
    CHECK(asked.reason().code == errc::store_failed);
  }
  SECTION("and is told when it is deleted meanwhile") {
    const auto token = node.files.kept.back().what.token;
    node.sys.ask<caf::ok_atom>(node.box, delete_atom::value, request_context{}).value();
    CHECK(asked.reason().code == errc::sandbox_not_running);
    CHECK(token->cancelled());
    node.files.finish_keep();
    node.sys.run();
    CHECK(node.engine.snapshots->empty());
  }
}

TEST_CASE("a frozen sandbox is kept as it stands still", "[actors][files]") {
  files_node node;
  node.options->ladder = {10min, 0ms};
  node.options->keep_interval = 0ms;
  node.use();
  node.sys.advance(11min);
  CHECK(node.state() == "frozen");
  node.files.hold = true;
  const auto asked = node.sys.ask<caf::ok_atom>(node.box, keep_files_atom::value);
  CHECK(node.state() == "frozen");
  node.files.finish_keep();
  node.sys.run();
  asked.value();
  CHECK(node.state() == "frozen");
}

TEST_CASE("a paused sandbox is kept for a hand-over, and stays paused", "[actors][files]") {
  files_node node;
  node.use();
  node.sys.ask<sandbox_description>(node.box, pause_sandbox{true, {}}).value();
  CHECK(node.state() == "frozen");
  const auto before = node.files.kept.size();
  node.sys.advance(10min);
  CHECK(node.files.kept.size() == before);
  node.sys.ask<caf::ok_atom>(node.box, keep_files_atom::value).value();
  CHECK(node.files.kept.size() == before + 1);
  CHECK(node.state() == "frozen");
  CHECK(node.place().frozen);
}

TEST_CASE("a pause disturbs no snapshot, and the next one neither", "[actors][files]") {
  files_node node;
  node.use();
  node.files.hold = true;
  node.sys.advance(61s);
  REQUIRE(node.files.kept.size() == 1);
  node.place().hold_freeze = true;
  const auto pausing = node.sys.ask<sandbox_description>(node.box, pause_sandbox{true, {}});
  CHECK_FALSE(node.files.kept.back().what.token->cancelled());
  const auto asked = node.sys.ask<caf::ok_atom>(node.box, keep_files_atom::value);
  node.files.finish_keep();
  node.sys.run();
  REQUIRE(node.files.kept.size() == 2);
  node.files.finish_keep();
  node.sys.run();
  asked.value();
  node.place().finish_freeze(true);
  node.sys.run();
  pausing.value();
  node.sys.ask<sandbox_description>(node.box, pause_sandbox{false, {}}).value();
  CHECK(node.state() == "running");
}

// ---- Leaving its node

TEST_CASE("a sandbox that is handed over serves until its files are kept", "[actors][files]") {
  files_node node;
  node.use();
  node.files.hold = true;
  const auto leaving = node.sys.ask<caf::ok_atom>(node.box, hand_over_atom::value);
  REQUIRE(node.files.kept.size() == 1);
  CHECK(node.sys.ask<caf::ok_atom>(node.box, hand_over_atom::value).reason().code ==
        errc::limit_reached);
  SECTION("and nobody from then on, though what was done meanwhile is kept") {
    node.use();
    node.files.finish_keep();
    node.sys.run();
    REQUIRE(node.files.kept.size() == 2);
    const auto why = node.ask_for({}).reason();
    CHECK(why.code == errc::node_unreachable);
    CHECK(why.message.find("it goes on at another node") != std::string::npos);
    CHECK(node.sys.ask<process_actor>(node.box, command("echo")).reason().code ==
          errc::node_unreachable);
    node.files.finish_keep();
    node.sys.run();
    leaving.value();
    CHECK(node.place().destroys == 1);
  }
  SECTION("or is deleted") {
    const auto asked = node.sys.ask<caf::ok_atom>(node.box, delete_atom::value, request_context{});
    node.sys.run();
    asked.value();
    CHECK_FALSE(leaving.open());
    CHECK(node.place().destroys == 1);
  }
  SECTION("and goes when its files are kept") {
    node.files.finish_keep();
    node.sys.run();
    leaving.value();
    CHECK(node.state() == "asleep");
    CHECK(node.place().destroys == 1);
    CHECK_FALSE(node.leases.held.contains("abc"));
    CHECK(node.files.kept.size() == 1);
    CHECK_FALSE(node.base().empty());
  }
  SECTION("but as before if they cannot be kept") {
    node.files.failure = error{errc::store_failed, "no answer"};
    node.files.finish_keep();
    node.sys.run();
    CHECK(leaving.reason().code == errc::store_failed);
    CHECK(node.state() == "running");
    CHECK(node.place().destroys == 0);
    node.use();
    node.files.failure = std::nullopt;
    node.files.hold = false;
    // It is not asked again at once, or it would serve nobody for as long as that fails.
    CHECK(node.sys.ask<caf::ok_atom>(node.box, hand_over_atom::value).reason().code ==
          errc::limit_reached);
    node.use();
    node.sys.advance(limits::snapshot_retry);
    node.sys.ask<caf::ok_atom>(node.box, hand_over_atom::value).value();
    CHECK(node.place().destroys == 1);
  }
}

TEST_CASE("what ends while a sandbox is kept for its hand-over is kept as well",
          "[actors][files]") {
  files_node node;
  node.use();
  const auto runs = node.sys.ask<process_actor>(node.box, command("work"));
  node.process().start();
  node.sys.run();
  runs.value();
  node.files.hold = true;
  const auto leaving = node.sys.ask<caf::ok_atom>(node.box, hand_over_atom::value);
  REQUIRE(node.files.kept.size() == 1);
  SECTION("a command") {
    node.process().exit(0);
    node.process().complete_now();
    node.sys.run();
    node.files.finish_keep();
    node.sys.run();
    CHECK(leaving.open());
    CHECK(node.place().destroys == 0);
    REQUIRE(node.files.kept.size() == 2); // The first one may be of before its end.
    node.files.finish_keep();
  }
  SECTION("unless it does not end") {
    for (std::size_t i = 1; i <= 5; ++i) {
      REQUIRE(node.files.kept.size() == i);
      CHECK(node.place().destroys == 0);
      node.files.finish_keep();
      node.sys.run();
    }
    CHECK(node.files.kept.size() == 5);
  }
  node.sys.run();
  leaving.value();
  CHECK(node.state() == "asleep");
  CHECK(node.place().destroys == 1);
}

TEST_CASE("a deletion that is overtaken by an eviction is none", "[actors][files]") {
  files_node node;
  node.use();
  const auto recorded = node.record("persistent");
  node.store.hold_writes = true;
  node.store.held_error = error{errc::stale_epoch, "somebody else is"};
  const auto asked = node.sys.ask<caf::ok_atom>(node.box, delete_atom::value, request_context{});
  CHECK(asked.open());
  const auto evicted = node.sys.ask<caf::ok_atom>(node.box, evict_atom::value);
  CHECK(evicted.open());
  node.store.let_go();
  node.sys.run();
  CHECK(asked.reason().code == errc::node_unreachable); // Whoever asks again deletes it there.
  evicted.value();
  CHECK(node.record("persistent") == recorded);
  CHECK(node.files.forgotten.empty());
}

TEST_CASE("a snapshot of an owner that is owner no more is nothing", "[actors][files]") {
  files_node node;
  node.use();
  node.store.write_error = error{errc::stale_epoch, "somebody else is"};
  node.sys.advance(61s);
  CHECK(node.base().empty());
  CHECK(node.engine.snapshots->empty());
  CHECK(node.files.kept.empty());
}

TEST_CASE("a deleted sandbox's snapshots are forgotten after its record", "[actors][files]") {
  files_node node;
  node.use();
  node.sys.advance(61s);
  const auto kept = node.base();
  SECTION("while it runs") {}
  SECTION("while it does not") {
    node.lose();
  }
  node.store.hold_writes = true;
  const auto asked = node.sys.ask<caf::ok_atom>(node.box, delete_atom::value, request_context{});
  CHECK(node.files.forgotten.empty());
  node.store.let_go();
  node.sys.run();
  asked.value();
  CHECK(node.files.forgotten == std::vector<std::string>{"abc ", "disk-" + kept + " "});
  CHECK_FALSE(node.has_bytes(kept));
  node.box = node.make_sandbox();
  CHECK_FALSE(node.told());
  CHECK(node.files.back.empty());
}

TEST_CASE("a sandbox that is deleted while its files are put back goes at once",
          "[actors][files]") {
  files_node node;
  node.has_kept_files();
  node.files.hold = true;
  const auto asked = node.ask_for({});
  const auto token = node.files.back.back().what.token;
  node.sys.ask<caf::ok_atom>(node.box, delete_atom::value, request_context{}).value();
  CHECK(asked.reason().code == errc::sandbox_not_running);
  CHECK(token->cancelled());
  CHECK(node.place().destroys == 1);
  node.files.finish_back();
  node.sys.run();
}

TEST_CASE("the directory has all files kept", "[actors][files]") {
  files_node node;
  const auto directory = node.directory;
  CHECK(node.sys.ask<std::uint64_t>(directory, keep_files_atom::value).value() == 0);
  request_context persistent;
  persistent.persistent = true;
  for (const std::string id : {"a", "b", "c"})
    node.sys
      .ask<sandbox_actor>(directory, find_atom::value, id,
                          id == "c" ? request_context{} : persistent)
      .value();
  CHECK(node.sys.ask<std::uint64_t>(directory, keep_files_atom::value).value() == 0);
  CHECK(node.files.kept.size() == 2);
  node.files.failure = error{errc::store_failed, "no answer"};
  CHECK(node.sys.ask<std::uint64_t>(directory, keep_files_atom::value).value() == 2);
}

TEST_CASE("the directory has kept what is used while others are kept, a few times",
          "[actors][files]") {
  files_node node;
  const auto directory = node.directory;
  request_context persistent;
  persistent.persistent = true;
  const auto use = [&](const std::string& id) {
    node.sys.ask<sandbox_actor>(directory, find_atom::value, id, persistent).value();
  };
  use("a");
  use("b");
  node.files.hold = true;
  const auto asked = node.sys.ask<std::uint64_t>(directory, keep_files_atom::value);
  REQUIRE(node.files.kept.size() == 2);
  const auto first = node.origin_of_kept(0), second = node.origin_of_kept(1);
  node.files.finish_keep(0);
  node.sys.run();
  use(first); // Through a connection that is still open.
  CHECK(node.files.kept.size() == 2);
  node.files.finish_keep(1);
  node.sys.run();
  CHECK(asked.open());
  REQUIRE(node.files.kept.size() == 3);
  CHECK(node.origin_of_kept(2) == first);
  use(second);
  node.files.finish_keep();
  node.sys.run();
  REQUIRE(node.files.kept.size() == 4);
  CHECK(node.origin_of_kept(3) == second);
  use(first);
  node.files.finish_keep();
  node.sys.run();
  CHECK(asked.value() == 0); // Some time it ends.
  CHECK(node.files.kept.size() == 4);
}
