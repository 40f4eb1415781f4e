#include "actors/snapshots/snapshot.hpp"
#include "actors/snapshots/sweep.hpp"
#include "base/limits.hpp"
#include "tests/actors/fake_snapshot_archive.hpp"
#include "tests/actors/fixture.hpp"

#include <algorithm>
#include <utility>

using namespace insula;
using namespace insula::actors;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

/// A node whose directory knows sandboxes and snapshots.
struct node_with_snapshots : small_node {
  node_directory_actor directory = make_directory(snapshot_kind(options));

  sandbox_actor running(const char* id) {
    return sys.ask<sandbox_actor>(directory, find_atom::value, std::string{id}, request_context{})
      .value();
  }
  sandbox_actor at_rest(const char* id) {
    return sys.ask<sandbox_actor>(directory, reach_atom::value, std::string{id}, request_context{})
      .value();
  }
  snapshot_description take(const sandbox_actor& of, take_snapshot wanted = {}) {
    return sys.ask<snapshot_description>(of, std::move(wanted)).value();
  }
  pending<snapshot_description> find(const std::string& id) {
    return sys.ask<snapshot_description>(directory, find_snapshot{id});
  }
  pending<snapshot_description> remove(const std::string& id) {
    return sys.ask<snapshot_description>(directory, delete_snapshot{id});
  }
  void remove_sandbox(const char* id) {
    sys.ask<caf::ok_atom>(directory, delete_atom::value, std::string{id}, request_context{})
      .value();
  }
  pending<sandbox_description> define(const char* id, const std::string& from) {
    define_sandbox wanted;
    wanted.snapshot = from;
    return sys.ask<sandbox_description>(at_rest(id), std::move(wanted));
  }
  std::vector<std::string> list(list_snapshots wanted) {
    if (wanted.limit == 1)
      wanted.limit = 100;
    std::vector<std::string> ids;
    for (const auto& each : sys.ask<snapshot_page>(directory, std::move(wanted)).value().snapshots)
      ids.push_back(each.id);
    return ids;
  }
  bool has_bytes(const std::string& id) { return engine.snapshots->contains(id); }
  std::string began_with() { return engine.creations.back().spec.disk_from; }
  /// Rings the alarm of a snapshot, as the node's alarms do.
  void ring(const std::string& id) {
    const auto owner = "snapshot:" + id;
    const auto alarm = store.value(owner, std::string{alarm_keys});
    REQUIRE_FALSE(alarm.empty());
    sys.ask<caf::ok_atom>(directory, alarm_due{{kept_in::cluster, owner, {}}, alarm}).value();
  }
  void take_time(std::chrono::nanoseconds by) { sys.time.advance(by); }
};

take_snapshot called(std::string name) {
  take_snapshot wanted;
  wanted.name = std::move(name);
  return wanted;
}

} // namespace

TEST_CASE("a snapshot is an object with a record of its own", "[actors][snapshots]") {
  node_with_snapshots node;
  const auto box = node.running("abc");
  auto wanted = called("before");
  wanted.labels = {{"a", "1"}, {"b", "x=y"}};
  const auto made = node.take(box, wanted);
  CHECK(made.origin == "abc");
  CHECK(made.name == "before");
  CHECK(made.labels == wanted.labels);
  CHECK(made.image == "host");
  CHECK(made.parent.empty());
  CHECK(made.root == made.id);
  CHECK(made.bytes == 4096);
  CHECK(made.state == snapshot_state::created);
  CHECK(node.has_bytes(made.id));

  // It outlives its object and its origin.
  node.sys.advance(limits::snapshot_rests_after + 1s);
  node.remove_sandbox("abc");
  const auto found = node.find(made.id).value();
  CHECK(found.name == "before");
  CHECK(found.labels == wanted.labels);
  CHECK(node.has_bytes(made.id));
  CHECK(node.find("aaaa").reason().code == errc::not_found);
  CHECK(node.find("A/b").reason().code == errc::not_found);
}

TEST_CASE("each snapshot comes from the one before, and lists have them in order",
          "[actors][snapshots]") {
  node_with_snapshots node;
  const auto box = node.running("abc");
  const auto first = node.take(box);
  node.take_time(5ms);
  const auto second = node.take(box);
  node.take_time(5ms);
  const auto other = node.take(node.running("def"));
  CHECK(second.parent == first.id);
  CHECK(second.root == first.id);
  CHECK(other.parent.empty());

  CHECK(node.list({}) == std::vector{other.id, second.id, first.id});
  list_snapshots of{.origin = "abc"};
  CHECK(node.list(of) == std::vector{second.id, first.id});
  CHECK(node.list({.root = first.id}) == std::vector{first.id, second.id});

  const auto page = node.sys.ask<snapshot_page>(node.directory, list_snapshots{.limit = 2}).value();
  REQUIRE(page.snapshots.size() == 2);
  CHECK(node.list({.after = page.next, .limit = 2}) == std::vector{first.id});
  CHECK(node.sys.ask<snapshot_page>(node.directory, list_snapshots{.after = "x"}).reason().code ==
        errc::invalid_request);

  // One that is deleted stays in its tree alone.
  CHECK(node.remove(first.id).value().state == snapshot_state::deleted);
  CHECK_FALSE(node.has_bytes(first.id));
  CHECK(node.list(of) == std::vector{second.id});
  CHECK(node.list({.root = first.id}) == std::vector{first.id, second.id});
  CHECK(node.find(first.id).value().state == snapshot_state::deleted);
  CHECK(node.remove(first.id).reason().code == errc::not_found);
}

TEST_CASE("a sandbox begins with a snapshot, and the bytes stay for as long as it does",
          "[actors][snapshots]") {
  node_with_snapshots node;
  const auto made = node.take(node.running("abc"));
  CHECK(node.define("def", made.id).value().snapshot == made.id);
  const auto other = node.running("def");
  CHECK(node.began_with() == made.id);
  CHECK(node.find(made.id).value().sandboxes == 1);
  // What it takes comes from there.
  const auto next = node.take(other);
  CHECK(next.parent == made.id);
  CHECK(next.root == made.id);
  CHECK(next.origin == "def");

  CHECK(node.remove(made.id).value().state == snapshot_state::deleted);
  CHECK(node.has_bytes(made.id));
  CHECK(node.define("ghi", made.id).reason().code == errc::not_found);
  CHECK(node.store.value("ghi", "disk_from").empty());
  SECTION("until it is deleted") {
    node.remove_sandbox("def");
    node.sys.run();
    CHECK_FALSE(node.has_bytes(made.id));
  }
  SECTION("also when a server ended before it could say that it was") {
    node.store.disk.commit({"def", 100, {}, {""}}, [](result<void>) {});
    node.ring(made.id); // It is so lately that the record may not be there yet.
    CHECK(node.has_bytes(made.id));
    node.take_time(limits::snapshot_hold_settles + 1s);
    node.ring(made.id);
    CHECK_FALSE(node.has_bytes(made.id));
  }
  SECTION("and not because it is looked whether it does") {
    node.take_time(limits::snapshot_hold_settles + 1s);
    node.ring(made.id);
    CHECK(node.has_bytes(made.id));
  }
}

TEST_CASE("a sandbox that cannot be defined holds no snapshot", "[actors][snapshots]") {
  node_with_snapshots node;
  const auto made = node.take(node.running("abc"));
  node.running("def");
  CHECK(node.define("def", made.id).reason().code == errc::already_exists);
  node.sys.run();
  CHECK(node.find(made.id).value().sandboxes == 0);
  CHECK(node.define("ghi", "nothere").reason().code == errc::not_found);
  define_sandbox two;
  two.snapshot = made.id;
  two.image = "host";
  CHECK(node.sys.ask<sandbox_description>(node.at_rest("ghi"), two).reason().code ==
        errc::invalid_request);
}

TEST_CASE("a snapshot that could not be kept leaves nothing", "[actors][snapshots]") {
  node_with_snapshots node;
  const auto box = node.running("abc");
  SECTION("since the engine refuses") {
    node.place().snapshot_error = error{errc::disk_full, "no room"};
    CHECK(node.sys.ask<snapshot_description>(box, take_snapshot{}).reason().code ==
          errc::disk_full);
  }
  SECTION("since the store refuses") {
    node.place().hold_snapshot = true;
    const auto asked = node.sys.ask<snapshot_description>(box, take_snapshot{});
    CHECK(asked.open());
    node.store.write_error = error{errc::disk_full, "no room"};
    node.place().finish_snapshots();
    node.sys.run();
    CHECK(asked.reason().code == errc::disk_full);
  }
  SECTION("of a sandbox that nobody has made") {
    CHECK(node.sys.ask<snapshot_description>(node.at_rest("def"), take_snapshot{}).reason().code ==
          errc::not_found);
  }
  SECTION("with words that are too long") {
    CHECK(
      node.sys
        .ask<snapshot_description>(box, called(std::string(limits::snapshot_name_bytes + 1, 'n')))
        .reason()
        .code == errc::invalid_request);
    take_snapshot wanted;
    wanted.labels = {{"", "x"}};
    CHECK(node.sys.ask<snapshot_description>(box, wanted).reason().code == errc::invalid_request);
  }
  CHECK(node.engine.snapshots->empty());
  CHECK(node.list({}).empty());
}

TEST_CASE("of one sandbox only so many are taken at once", "[actors][snapshots]") {
  node_with_snapshots node;
  const auto box = node.running("abc");
  node.place().hold_snapshot = true;
  std::vector<pending<snapshot_description>> all;
  for (std::size_t i = 0; i < limits::snapshots_at_once; ++i)
    all.push_back(node.sys.ask<snapshot_description>(box, take_snapshot{}));
  CHECK(node.sys.ask<snapshot_description>(box, take_snapshot{}).reason().code ==
        errc::limit_reached);
  node.place().finish_snapshots();
  node.sys.run();
  for (const auto& each : all)
    CHECK(each.value().origin == "abc");
}

TEST_CASE("a request for a snapshot that comes again is answered with the first's",
          "[actors][snapshots]") {
  node_with_snapshots node;
  const auto box = node.running("abc");
  take_snapshot wanted;
  wanted.id = "same";
  node.place().hold_snapshot = true;
  const auto first = node.sys.ask<snapshot_description>(box, wanted);
  const auto second = node.sys.ask<snapshot_description>(box, wanted);
  node.place().finish_snapshots();
  node.sys.run();
  CHECK(first.value().id == "same");
  CHECK(second.value().created_ms == first.value().created_ms);
  node.take_time(1s);
  CHECK(node.take(box, wanted).created_ms == first.value().created_ms);
  CHECK(node.list({}).size() == 1);
}

TEST_CASE("a snapshot goes when its time is up, which each use begins anew",
          "[actors][snapshots]") {
  node_with_snapshots node;
  take_snapshot wanted;
  wanted.keep_ms = 60'000;
  const auto made = node.take(node.running("abc"), wanted);
  CHECK(expires_ms(made) == made.created_ms + 60'000);
  node.take_time(50s);
  node.define("def", made.id).value();
  node.take_time(20s);
  node.ring(made.id);
  CHECK(node.find(made.id).value().state == snapshot_state::created);
  node.take_time(41s);
  node.ring(made.id);
  CHECK(node.find(made.id).value().state == snapshot_state::deleted);
  CHECK(node.has_bytes(made.id)); // It is in use.
  node.remove_sandbox("def");
  node.sys.run();
  CHECK_FALSE(node.has_bytes(made.id));
}

TEST_CASE("of an origin only so many newest ones are kept", "[actors][snapshots]") {
  node_with_snapshots node;
  const auto box = node.running("abc");
  std::vector<std::string> ids;
  for (int i = 0; i < 5; ++i) {
    take_snapshot wanted;
    wanted.keep_last = i == 4 ? 2 : 0;
    ids.push_back(node.take(box, wanted).id);
    node.take_time(1ms);
    node.sys.run();
  }
  CHECK(node.list({.origin = "abc"}) == std::vector{ids[4], ids[3]});
  CHECK(node.engine.snapshots->size() == 2);
}

TEST_CASE("what was deleted is forgotten, unless others came from it", "[actors][snapshots]") {
  node_with_snapshots node;
  const auto box = node.running("abc");
  const auto first = node.take(box);
  node.take_time(1ms);
  const auto second = node.take(box);
  node.remove(first.id).value();
  node.ring(first.id);
  CHECK(node.find(first.id).value().state == snapshot_state::deleted);
  node.remove(second.id).value();
  node.ring(second.id);
  CHECK(node.find(second.id).reason().code == errc::not_found);
  node.ring(first.id);
  CHECK(node.find(first.id).reason().code == errc::not_found);
  CHECK(node.store.disk.read("snapshot:" + first.id)->empty());
}

TEST_CASE("a snapshot for forks is in no list, and leaves nothing", "[actors][snapshots]") {
  node_with_snapshots node;
  const auto box = node.running("abc");
  const auto before = node.take(box);
  take_snapshot wanted;
  wanted.hidden = true;
  wanted.keep_ms = limits::fork_snapshot_kept.count();
  const auto made = node.take(box, wanted);
  CHECK(node.list({}) == std::vector{before.id});
  CHECK(node.find(made.id).reason().code == errc::not_found);
  node.define("def", made.id).value();
  CHECK(node.remove(made.id).value().state == snapshot_state::deleted);
  const auto other = node.running("def");
  CHECK(node.began_with() == made.id);
  // To those who look, its disk comes from the one before.
  CHECK(node.take(other).parent == before.id);
  node.remove_sandbox("def");
  node.sys.run();
  CHECK_FALSE(node.has_bytes(made.id));
  CHECK(node.store.disk.read("snapshot:" + made.id)->empty());
}

TEST_CASE("a sandbox goes back to one of its snapshots in place", "[actors][snapshots]") {
  node_with_snapshots node;
  const auto box = node.running("abc");
  const auto first = node.take(box);
  const auto starts = node.engine.creations.size();
  SECTION("while it runs: all that runs in it ends") {
    const auto told = node.sys.ask<sandbox_description>(box, roll_back{first.id});
    CHECK(told.value().snapshot == first.id);
    CHECK(told.value().state == "running");
    CHECK(node.engine.creations.size() == starts + 1);
    CHECK(node.began_with() == first.id);
    CHECK(node.find(first.id).value().sandboxes == 1);
    CHECK(node.store.value("abc", "rolled_back").empty());
    // The next one comes from there, and an older one can be gone back to.
    node.take_time(1ms);
    const auto second = node.take(box);
    CHECK(second.parent == first.id);
    node.sys.ask<sandbox_description>(box, roll_back{second.id}).value();
    node.sys.run();
    CHECK(node.find(first.id).value().sandboxes == 0);
    CHECK(node.find(second.id).value().sandboxes == 1);
  }
  SECTION("not to that of another one") {
    const auto other = node.take(node.running("def"));
    CHECK(node.sys.ask<sandbox_description>(box, roll_back{other.id}).reason().code ==
          errc::invalid_request);
    node.sys.run();
    CHECK(node.find(other.id).value().sandboxes == 0);
    CHECK(node.sys.ask<sandbox_description>(box, roll_back{"nothere"}).reason().code ==
          errc::not_found);
  }
  SECTION("not while it is paused") {
    node.sys.ask<sandbox_description>(box, pause_sandbox{}).value();
    CHECK(node.sys.ask<sandbox_description>(box, roll_back{first.id}).reason().code ==
          errc::invalid_request);
    // A snapshot of it is taken as it stands.
    node.take_time(1ms);
    CHECK(node.take(box).parent == first.id);
    CHECK(node.engine.creations.size() == starts);
  }
}

TEST_CASE("what is kept of a persistent sandbox does not undo a rollback", "[actors][snapshots]") {
  node_with_snapshots node;
  node.options->keeps_disks = node.options->all_persistent = true;
  const auto box = node.make_sandbox("abc");
  node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value();
  const auto first = node.take(box);
  const auto place = node.engine.creations.back().place; // Of the start that is rolled back.
  place->hold_snapshot = true;
  const auto kept = node.sys.ask<caf::ok_atom>(box, keep_files_atom::value);
  CHECK(kept.open());
  CHECK(node.sys.ask<sandbox_description>(box, roll_back{first.id}).value().snapshot == first.id);
  place->finish_snapshots();
  node.sys.run();
  CHECK_FALSE(kept.open());
  CHECK(node.store.value("abc", "disk_from") == first.id);
  CHECK(node.engine.snapshots->size() == 1); // What was kept is nobody's.

  // The next one is what the next start begins with, and lets go of what was before.
  node.sys.ask<caf::ok_atom>(box, keep_files_atom::value).value();
  const auto base = node.store.value("abc", "disk_from");
  CHECK(base != first.id);
  CHECK(node.has_bytes(base));
  CHECK(node.find(first.id).value().sandboxes == 0);
  node.sys.ask<caf::ok_atom>(box, keep_files_atom::value).value();
  CHECK_FALSE(node.has_bytes(base));
  CHECK(node.list({}) == std::vector{first.id});
}

TEST_CASE("a rollback that meets a start ends with the snapshot's disk", "[actors][snapshots]") {
  node_with_snapshots node;
  const auto box = node.make_sandbox("abc");
  node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value();
  const auto first = node.take(box);
  node.engine.creations.back().end();
  node.sys.run();
  node.store.hold_writes = true;
  const auto back = node.sys.ask<sandbox_description>(box, roll_back{first.id});
  const auto found = node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{});
  CHECK(back.open());
  node.store.let_go();
  node.sys.run();
  CHECK(back.value().state == "running");
  CHECK_FALSE(found.open());
  CHECK(node.began_with() == first.id);
  CHECK(node.store.value("abc", "rolled_back").empty());
}

TEST_CASE("a snapshot of a sandbox that is deleted meanwhile is not one", "[actors][snapshots]") {
  node_with_snapshots node;
  const auto box = node.running("abc");
  const auto place = node.engine.creations.back().place;
  place->hold_snapshot = true;
  const auto asked = node.sys.ask<snapshot_description>(box, take_snapshot{});
  node.remove_sandbox("abc");
  place->finish_snapshots();
  node.sys.run();
  CHECK_FALSE(asked.open());
  CHECK(node.engine.snapshots->empty());
  CHECK(node.list({}).empty());
}

TEST_CASE("at its start a node makes records and bytes fit", "[actors][snapshots]") {
  node_with_snapshots node;
  const auto box = node.running("abc");
  const auto kept = node.take(box), lost = node.take(box);
  node.engine.snapshots->erase(lost.id);
  node.engine.snapshots->insert("ofnobody");
  const auto sweep = snapshots::sweep(node.sys.get(), node.options, node.directory);
  node.sys.run();
  CHECK(node.has_bytes(kept.id));
  CHECK_FALSE(node.has_bytes("ofnobody"));
  CHECK(node.find(kept.id).value().state == snapshot_state::created);
  CHECK(node.find(lost.id).value().state == snapshot_state::failed);
  CHECK(node.define("def", lost.id).reason().code == errc::not_found);
  SECTION("and once the bytes are there again, they can be used") {
    node.engine.snapshots->insert(lost.id);
    const auto again = snapshots::sweep(node.sys.get(), node.options, node.directory);
    node.sys.run();
    CHECK(node.define("def", lost.id).value().snapshot == lost.id);
  }
  CHECK(node.remove(lost.id).value().state == snapshot_state::deleted);
}

namespace {

/// Copies go to a place that the test plays.
struct node_with_copies : node_with_snapshots {
  fake_snapshot_archive files;

  node_with_copies() {
    options->copies = std::make_shared<snapshots::disk_copies>(
      engine, files, snapshots::disk_copies::cache_settings{});
    options->disk_helpers = std::make_shared<snapshots::disk_helpers>(engine);
  }
  pending<snapshot_description> start(const char* id) {
    return sys.ask<snapshot_description>(at_rest(id), take_snapshot{.hidden = true});
  }
  void sweep() {
    const auto sweep = snapshots::sweep(sys.get(), options, directory);
    sys.run();
  }
  std::size_t helpers() const {
    return static_cast<std::size_t>(
      std::count_if(engine.creations.begin(), engine.creations.end(), [](const auto& each) {
        return each.spec.host_name == "disks" && each.place->destroys == 0;
      }));
  }
};

} // namespace

TEST_CASE("a snapshot has a copy away from its node, and comes back from there",
          "[actors][snapshots]") {
  node_with_copies node;
  auto& files = node.files;
  const auto box = node.running("abc");
  const auto first = node.take(box);
  REQUIRE(files.kept.size() == 1);
  CHECK(files.kept[0].what.sandbox == "disk-" + first.id);
  CHECK(files.kept[0].what.earlier.empty());
  CHECK(node.engine.creations.back().place->files ==
        std::vector<std::string>{"read disk " + first.id});
  CHECK(node.engine.creations.back().spec.name.empty());
  CHECK(node.find(first.id).value().copy == "place1");

  INFO("what it shares with its parent's is not written again");
  const auto second = node.take(box);
  REQUIRE(files.kept.size() == 2);
  CHECK(files.kept[1].what.earlier == "place1");
  CHECK(node.find(second.id).value().copy == "place2");

  INFO("lost by the node");
  node.engine.snapshots->clear();
  node.sweep();
  CHECK(node.find(second.id).value().state == snapshot_state::created);
  CHECK(node.define("def", second.id).value().snapshot == second.id);
  CHECK(files.back.empty()); // It comes when it is used.
  SECTION("it comes back when a sandbox begins with it") {
    CHECK(node.start("def").value().origin == "def");
    REQUIRE(files.back.size() == 1);
    CHECK(files.back[0].what.from == "place2");
    CHECK(files.back[0].what.whole);
    CHECK(node.has_bytes(second.id));
    CHECK_FALSE(node.has_bytes(first.id));
    CHECK(files.kept.size() == 2);
  }
  SECTION("it is deleted, and a sandbox stands on it") {
    node.remove(second.id).value();
    CHECK(node.start("def").value().origin == "def");
    CHECK(node.has_bytes(second.id));
  }
  SECTION("what is compared comes back as well") {
    const auto changes =
      node.sys.ask<snapshot_changes>(node.directory, compare_snapshots{second.id});
    CHECK(changes.value().older == first.id);
    CHECK(files.back.size() == 2);
    CHECK(node.has_bytes(first.id));
  }
  SECTION("two wait for one, and for a while only") {
    CHECK(node.define("ghi", second.id).value().snapshot == second.id);
    files.hold = true;
    auto one = node.start("def"), other = node.start("ghi");
    CHECK(files.back.size() == 1);
    node.sys.advance(limits::brought_patience + 1s);
    CHECK(one.reason().retry_s == limits::brought_again_s);
    CHECK(other.reason().code == errc::store_failed);
    auto again = node.start("def");
    CHECK(again.open());
    files.finish_back();
    node.sys.run();
    CHECK(again.value().origin == "def");
    CHECK(files.back.size() == 1);
  }
  SECTION("its sandbox is deleted while it comes back") {
    node.remove(second.id).value();
    files.hold = true;
    auto asked = node.start("def");
    REQUIRE(files.back.size() == 1);
    CHECK_FALSE(files.back[0].what.token->cancelled());
    node.remove_sandbox("def");
    CHECK(files.back[0].what.token->cancelled());
    CHECK_FALSE(asked.open());
    files.finish_back();
    node.sys.run();
    CHECK_FALSE(node.has_bytes(second.id));
  }
  SECTION("it comes too late for anybody, and does not stay") {
    files.hold = true;
    auto asked = node.start("def");
    node.sys.advance(limits::brought_patience + 1s);
    CHECK(asked.reason().code == errc::store_failed);
    node.remove_sandbox("def");
    node.remove(second.id).value();
    CHECK(files.back[0].what.token->cancelled());
    files.finish_back();
    node.sys.run();
    CHECK_FALSE(node.has_bytes(second.id));
  }
  SECTION("it cannot be had for a while, and nothing is lost by that") {
    files.failure = error{errc::store_failed, "nobody is there"};
    CHECK(node.start("def").reason().code == errc::store_failed);
    CHECK_FALSE(node.has_bytes(second.id));
    files.failure = std::nullopt;
    CHECK(node.start("def").value().origin == "def");
  }
  SECTION("one that is deleted is forgotten there") {
    node.remove_sandbox("def");
    CHECK(node.remove(second.id).value().state == snapshot_state::deleted);
    CHECK(files.forgotten == std::vector<std::string>{"disk-" + second.id + " "});
    CHECK(node.find(second.id).value().copy.empty());
  }
  CHECK(node.helpers() == 0);
}

TEST_CASE("a snapshot of which the node has nothing has lost its bytes, and says so",
          "[actors][snapshots]") {
  node_with_snapshots node;
  const auto made = node.take(node.running("abc"));
  node.define("def", made.id).value();
  node.engine.snapshots->clear();
  const auto asked = node.sys.ask<snapshot_description>(node.at_rest("def"), take_snapshot{});
  CHECK(asked.reason().code == errc::launch_failed);
  CHECK(asked.reason().message == "what snapshot " + made.id + " had is lost");
}

TEST_CASE("a snapshot that is taken while a node starts is not lost", "[actors][snapshots]") {
  node_with_snapshots node;
  node.options->objects->begin_sweep();
  const auto made = node.take(node.running("abc"));
  node.engine.snapshots->clear(); // As in a list that was made before it.
  const auto sweep = snapshots::sweep(node.sys.get(), node.options, node.directory);
  node.sys.run();
  CHECK(node.find(made.id).value().state == snapshot_state::created);
}

TEST_CASE("a snapshot that is being taken stays where its record is about to be written",
          "[actors][snapshots]") {
  node_with_snapshots node;
  const auto sandbox = node.running("abc");
  node.place().hold_snapshot = true;
  take_snapshot wanted;
  wanted.id = "early";
  const auto taking = node.sys.ask<snapshot_description>(sandbox, std::move(wanted));
  const auto leaves = [&] {
    return node.sys.ask<caf::ok_atom>(node.directory, hand_over_atom::value,
                                      std::string{"snapshot:early"});
  };
  CHECK(leaves().reason().code == errc::limit_reached);
  node.place().finish_snapshots();
  node.sys.run();
  CHECK(taking.value().id == "early");
  leaves().value();
}

TEST_CASE("a copy that cannot be made is made later, also by the next server",
          "[actors][snapshots]") {
  node_with_copies node;
  auto& files = node.files;
  files.failure = error{errc::store_failed, "nobody is there"};
  const auto box = node.running("abc");
  const auto made = node.take(box);
  CHECK(files.kept.size() == 1);
  CHECK(node.find(made.id).value().copy.empty());
  SECTION("by this one") {
    node.sys.advance(limits::snapshot_retry + 1s);
    CHECK(files.kept.size() == 2);
    files.failure = std::nullopt;
    node.sys.advance(2 * limits::snapshot_retry + 1s);
    CHECK(files.kept.size() == 3);
    CHECK(node.find(made.id).value().copy == "place3");
    node.sys.advance(limits::snapshot_longest_retry);
    CHECK(files.kept.size() == 3);
  }
  SECTION("unless it is deleted first") {
    node.remove(made.id).value();
    node.sys.advance(limits::snapshot_longest_retry);
    CHECK(files.kept.size() == 1);
    CHECK(files.forgotten.empty());
  }
  SECTION("by the next one") {
    node.sys.ask<caf::ok_atom>(node.directory, evict_atom::value).value();
    files.failure = std::nullopt;
    node.sweep();
    node.sys.advance(limits::snapshot_longest_retry);
    CHECK_FALSE(node.find(made.id).value().copy.empty());
  }
}

TEST_CASE("a disk that has too much for a copy says so, and is not copied again and again",
          "[actors][snapshots]") {
  node_with_copies node;
  const bool is_known = GENERATE(true, false);
  CAPTURE(is_known);
  node.files.failure = error{is_known ? errc::limit_reached : errc::io_failed, "it is too large"};
  const auto made = node.take(node.running("abc"));
  for (int i = 0; i < 8; ++i)
    node.sys.advance(limits::snapshot_longest_retry);
  CHECK(node.files.kept.size() == (is_known ? 1 : 5));
  CHECK(node.find(made.id).value().no_copy == "it is too large");
  node.files.failure = std::nullopt; // A newer version can.
  node.sys.ask<caf::ok_atom>(node.directory, evict_atom::value).value();
  node.sweep();
  CHECK(node.find(made.id).value().no_copy.empty());
}

TEST_CASE("a parent that is deleted in mid-copy has the copy made without it",
          "[actors][snapshots]") {
  node_with_copies node;
  auto& files = node.files;
  const auto box = node.running("abc");
  const auto parent = node.take(box);
  files.hold = true;
  const auto made = node.take(box);
  REQUIRE(files.kept.size() == 2);
  CHECK(files.kept[1].what.earlier == "place1");
  node.remove(parent.id).value();
  files.finish_keep();
  node.sys.run();
  REQUIRE(files.kept.size() == 3);
  CHECK(files.kept[2].what.earlier.empty());
  CHECK(node.find(made.id).value().copy.empty());
  files.finish_keep();
  node.sys.run();
  CHECK(node.find(made.id).value().copy == "place3");
  CHECK(files.forgotten.back() == "disk-" + made.id + " place3");
}

TEST_CASE("where a copy is what is acknowledged, a snapshot waits for it, or fails",
          "[actors][snapshots]") {
  node_with_copies node;
  auto& files = node.files;
  node.options->acknowledges_copies = true;
  files.hold = true;
  const auto box = node.running("abc");
  take_snapshot wanted{.id = "snap", .keep_last = 1};
  auto asked = node.sys.ask<snapshot_description>(box, wanted);
  CHECK(asked.open());
  REQUIRE(files.kept.size() == 1);
  CHECK(node.list({}).empty());
  CHECK(node.find("snap").reason().retry_s > 0);
  CHECK(node.define("def", "snap").reason().retry_s > 0);
  node.ring("snap"); // It is set for the next server.
  CHECK(files.kept.size() == 1);
  SECTION("a repetition waits with it") {
    auto again = node.sys.ask<snapshot_description>(box, wanted);
    CHECK(again.open());
    files.finish_keep();
    node.sys.run();
    CHECK(again.value().id == "snap");
    CHECK(asked.value().id == "snap");
    CHECK(files.kept.size() == 1);
    CHECK(node.list({}) == std::vector<std::string>{"snap"});
  }
  SECTION("the server ends first, and the next one makes it") {
    files.failure = error{errc::sandbox_not_running, "the node is going down"};
    files.finish_keep();
    node.sys.run();
    CHECK(asked.reason().code == errc::sandbox_not_running);
    CHECK(node.has_bytes("snap"));
    CHECK(node.find("snap").reason().retry_s > 0);
    files.failure = std::nullopt;
    files.hold = false;
    node.ring("snap");
    CHECK(node.find("snap").value().copy == "place2");
    CHECK(node.list({}) == std::vector<std::string>{"snap"});
  }
  SECTION("one that fails takes no other's place") {
    files.finish_keep();
    node.sys.run();
    wanted.id = "next";
    auto next = node.sys.ask<snapshot_description>(box, wanted);
    files.failure = error{errc::store_failed, "nobody is there"};
    files.finish_keep();
    node.sys.run();
    CHECK(next.reason().code == errc::store_failed);
    CHECK(node.list({}) == std::vector<std::string>{"snap"});
    CHECK(node.list({.root = "snap"}) == std::vector<std::string>{"snap"});
    CHECK_FALSE(node.has_bytes("next"));
    CHECK(node.find("next").reason().code == errc::not_found);
  }
  SECTION("it is there") {
    files.finish_keep();
    node.sys.run();
    CHECK(asked.value().copy == "place1");
  }
  SECTION("it cannot be made") {
    files.failure = error{errc::store_failed, "nobody is there"};
    files.finish_keep();
    node.sys.run();
    CHECK(asked.reason().code == errc::store_failed);
    CHECK(node.engine.snapshots->empty());
    CHECK(node.list({}).empty());
  }
  SECTION("one for forks has none") {
    take_snapshot hidden;
    hidden.hidden = true;
    CHECK(node.take(box, hidden).copy.empty());
    CHECK(files.kept.size() == 1);
    files.finish_keep();
  }
}

TEST_CASE("disks are compared in a sandbox of the node's own, a few at a time",
          "[actors][snapshots]") {
  node_with_snapshots node;
  node.options->disk_helpers = std::make_shared<snapshots::disk_helpers>(node.engine);
  const auto box = node.running("abc");
  const auto first = node.take(box), second = node.take(box);
  const auto compare = [&](const std::string& id, const std::string& older = {}) {
    return node.sys.ask<snapshot_changes>(node.directory, compare_snapshots{id, older});
  };
  CHECK(compare(second.id).value().older == first.id);
  CHECK(compare(first.id).value().older.empty());
  CHECK(compare(first.id, second.id).value().older == second.id);
  CHECK(node.engine.creations.back().spec.name.empty());
  CHECK(node.engine.creations.back().spec.disk_from.empty());
  CHECK(compare("aaaa").reason().code == errc::not_found);
  CHECK(compare(first.id, "aaaa").reason().code == errc::not_found);

  INFO("the next one begins when one is over, and none is lost");
  node.engine.ready_at_once = false;
  std::vector<pending<snapshot_changes>> asked;
  const auto before = node.engine.creations.size();
  for (std::size_t i = 0; i < limits::disk_helpers + limits::waiting_for_disk_helper + 1; ++i)
    asked.push_back(compare(second.id));
  CHECK(node.engine.creations.size() == before + limits::disk_helpers);
  CHECK(asked.back().reason().code == errc::limit_reached);
  node.engine.creations[before].fail("no");
  node.sys.run();
  CHECK(asked.front().reason().code == errc::launch_failed);
  node.engine.ready_at_once = true;
  for (std::size_t i = before + 1; i <= before + limits::disk_helpers; ++i)
    node.engine.creations[i].ready();
  node.sys.run();
  asked.pop_back();
  for (std::size_t i = 1; i < asked.size(); ++i)
    CHECK(asked[i].value().older == first.id);

  INFO("one that is deleted while it is compared is not there");
  node.engine.ready_at_once = false;
  auto late = compare(second.id);
  node.remove(GENERATE_REF(first.id, second.id)).value();
  node.engine.creations.back().fail("no");
  node.sys.run();
  CHECK(late.reason().code == errc::not_found);
}

TEST_CASE("snapshots are counted by what becomes of them, and by those that were there",
          "[actors][snapshots]") {
  node_with_snapshots node;
  const auto counts = [&] { return node.options->figures->disks.count(); };
  using many = std::array<std::uint64_t, snapshots::counted_states>;
  const auto box = node.running("abc");
  const auto first = node.take(box), second = node.take(box);
  CHECK(counts().many == many{2, 0, 0, 0});
  CHECK(counts().bytes == 8192);
  node.define("def", second.id).value();
  node.remove(second.id).value();
  CHECK(counts().many == many{1, 0, 1, 0});
  node.remove(first.id).value();
  node.remove_sandbox("def");
  CHECK(counts().many == many{0, 0, 0, 0});
  CHECK(counts().bytes == 0);

  INFO("a start counts what earlier servers have left, in any order with what happens meanwhile");
  snapshots::census all;
  all.begin_sweep();
  all.put("new", snapshots::counted_as::created, 1);
  all.remove("gone");
  all.learn("gone", snapshots::counted_as::created, 10);
  all.learn("new", snapshots::counted_as::failed, 10);
  all.learn("old", snapshots::counted_as::hidden, 100);
  all.end_sweep();
  CHECK(all.count().many == many{1, 1, 0, 0});
  CHECK(all.count().bytes == 101);
}

TEST_CASE("a snapshot says when its image is not what it was", "[actors][snapshots]") {
  node_with_snapshots node;
  node.options->images->put("host", {{"host", true}, {}, "/bin/bash", "sha256:1"});
  const auto made = node.take(node.running("abc"));
  CHECK(made.image_digest == "sha256:1");
  CHECK_FALSE(node.find(made.id).value().image_changed);
  node.options->images->put("host", {{"host", true}, {}, "/bin/bash", "sha256:2"});
  CHECK(node.find(made.id).value().image_changed);
  CHECK(node.find(made.id).value().image_digest == "sha256:1");
  const auto later = node.take(node.running("abc")); // It still lies over what it started from.
  CHECK(later.image_digest == "sha256:1");

  INFO("over what is not there any more nothing is compared");
  node.options->disk_helpers = std::make_shared<snapshots::disk_helpers>(node.engine);
  const auto compare = [&](const std::string& id, const std::string& older) {
    return node.sys.ask<snapshot_changes>(node.directory, compare_snapshots{id, older});
  };
  CHECK(compare(later.id, made.id).reason().code == errc::image_refused);
  const auto other = node.take(node.running("def"));
  CHECK(other.image_digest == "sha256:2");
  CHECK(compare(other.id, made.id).reason().code == errc::invalid_request);
  CHECK(compare(other.id, {}).value().older.empty());
}

// ---- From run to run

namespace {

/// Sandboxes of one group, whose runs leave their disks.
struct node_with_runs : node_with_snapshots {
  node_with_runs() {
    options->groups = [](const api_metadata&) { return grouped_sandbox{"p", "name"}; };
    options->run_disks = [this](const api_metadata&) { return kept; };
  }
  run_report begin(const char* id) {
    begin_run wanted{600'000};
    wanted.resumes = true;
    return sys.ask<run_report>(at_rest(id), wanted).value();
  }
  pending<run_report> try_to_begin(const char* id) {
    begin_run wanted{600'000};
    wanted.resumes = true;
    return sys.ask<run_report>(at_rest(id), wanted);
  }
  /// The snapshot that the run leaves.
  std::string stop(const char* id, std::uint64_t run) {
    auto left = sys.ask<run_report>(at_rest(id), stop_run{run}).value().run.snapshot;
    take_time(1ms);
    sys.run();
    return left;
  }
  std::string cycle(const char* id) { return stop(id, begin(id).run.number); }
  snapshot_state state_of(const std::string& id) { return find(id).value().state; }

  snapshot_retention kept{true, 0, 1, 0};
};

} // namespace

TEST_CASE("what a run leaves makes room for itself, and spares what a sandbox stands on",
          "[actors][snapshots][runs]") {
  node_with_runs node;
  node.define("abc", "").value();
  const auto first = node.cycle("abc");
  const auto second = node.cycle("abc");
  CHECK(node.state_of(first) == snapshot_state::deleted);
  CHECK_FALSE(node.has_bytes(first));
  CHECK(node.list({.origin = "abc"}) == std::vector{second});

  node.define("def", second).value();
  const auto third = node.cycle("abc");
  CHECK(node.state_of(second) == snapshot_state::created);
  node.remove_sandbox("def");
  const auto fourth = node.cycle("abc");
  CHECK(node.state_of(second) == snapshot_state::deleted);
  CHECK(node.state_of(third) == snapshot_state::deleted);

  INFO("what is not deleted gets the usual time");
  node.kept.evicted_keep_ms = 60'000;
  const auto fifth = node.cycle("abc");
  CHECK(node.state_of(fourth) == snapshot_state::created);
  CHECK(node.find(fourth).value().keep_ms == 60'000);
  node.take_time(61s);
  node.ring(fourth);
  CHECK(node.state_of(fourth) == snapshot_state::deleted);

  INFO("those of an earlier sandbox of that name are its own");
  node.kept.evicted_keep_ms = 0;
  node.remove_sandbox("abc");
  node.take_time(1s);
  node.define("abc", "").value();
  node.cycle("abc");
  node.cycle("abc");
  CHECK(node.state_of(fifth) == snapshot_state::created);
}

TEST_CASE("a sandbox whose runs are over keeps no bytes of what was deleted",
          "[actors][snapshots][runs]") {
  node_with_runs node;
  node.define("abc", "").value();
  const auto left = node.cycle("abc");
  CHECK(node.remove(left).value().state == snapshot_state::deleted);
  node.take_time(limits::snapshot_hold_settles + 1min);
  node.ring(left);
  node.sys.run();
  CHECK_FALSE(node.has_bytes(left));
  CHECK(node.try_to_begin("abc").reason().code == errc::snapshot_gone);

  INFO("while a run is alive it does");
  node.define("def", "").value();
  const auto base = node.cycle("def");
  const auto run = node.begin("def").run;
  CHECK(run.began_with == base);
  CHECK(node.remove(base).value().state == snapshot_state::deleted);
  node.take_time(limits::snapshot_hold_settles + 1min);
  node.ring(base);
  CHECK(node.has_bytes(base));
  const auto next = node.stop("def", run.number);
  CHECK_FALSE(node.has_bytes(base));
  CHECK(node.find(next).value().parent == base);
}

TEST_CASE("the snapshots of a group are in lists both ways, and those of one parent",
          "[actors][snapshots][runs]") {
  node_with_runs node;
  node.kept.keep_last = 0;
  node.define("abc", "").value();
  node.define("def", "").value();
  const auto one = node.cycle("abc");
  const auto two = node.cycle("abc");
  const auto other = node.cycle("def");
  CHECK(node.list({.group = "p"}) == std::vector{other, two, one});
  CHECK(node.list({.group = "p", .turned = true}) == std::vector{one, two, other});
  CHECK(node.list({.origin = "abc", .turned = true}) == std::vector{one, two});
  CHECK(node.list({.group = "q"}).empty());
  CHECK(node.list({.parent = one}) == std::vector{two});
  const list_snapshots first{.limit = 2, .group = "p"};
  const auto page = node.sys.ask<snapshot_page>(node.directory, first).value();
  CHECK(node.list({.after = page.next, .limit = 5, .group = "p"}) == std::vector{one});
  node.remove(two).value();
  CHECK(node.list({.group = "p"}) == std::vector{other, one});
  CHECK(node.list({.parent = one}) == std::vector{two});
  CHECK(node.find(two).value().group == "p");
}
