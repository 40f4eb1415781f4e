#include "actors/object_routes.hpp"
#include "actors/snapshots/questions.hpp"
#include "actors/snapshots/snapshot.hpp"
#include "actors/snapshots/snapshot_record.hpp"
#include "actors/snapshots/sweep.hpp"
#include "base/limits.hpp"
#include "tests/actors/fake_snapshot_archive.hpp"
#include "tests/actors/fixture.hpp"

#include <set>
#include <utility>

using namespace insula;
using namespace insula::actors;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

/// The other nodes, as the test wants them.
class fake_routes final : public object_routes {
public:
  void locate(const std::string& owner, bool make,
              std::function<void(result<std::string>)> then) override {
    if (silent)
      return unanswered.push_back(std::move(then));
    if (elsewhere.contains(owner))
      return then(elsewhere.at(owner));
    if (!make && unknown.contains(owner))
      return then(error{errc::not_found, "there is none"});
    ours.insert(owner);
    then(std::string{});
  }
  void doubt(const std::string& owner, const std::string& node) override {
    doubts.push_back(owner + " at " + node);
    if (moves)
      elsewhere.erase(owner);
  }
  void ask_object(const std::string& node, std::string question,
                  std::function<void(result<std::string>)> then) override {
    asked.emplace_back(node, std::move(question));
    then(answer);
  }
  void claim(const std::string& owner, std::function<void(result<void>)> then) override {
    claims.push_back(owner);
    elsewhere.erase(owner);
    ours.insert(owner);
    then({});
  }
  void bring(const std::string& owner, std::function<void(result<void>)> then) override {
    claim(owner, then);
  }

  std::map<std::string, std::string> elsewhere; ///< Owners, by their nodes.
  std::set<std::string> unknown, ours;
  std::vector<std::string> doubts, claims;
  std::vector<std::pair<std::string, std::string>> asked;
  result<std::string> answer = std::string{};
  bool moves = false;  ///< What is doubted is here by then.
  bool silent = false; ///< etcd does not answer.
  std::vector<std::function<void(result<std::string>)>> unanswered;
};

/// A node of a cluster with a place for copies.
struct node_of_cluster : small_node {
  fake_routes routes;
  fake_snapshot_archive files;
  node_directory_actor directory;

  explicit node_of_cluster(std::uint64_t cache_bytes = 1u << 30) {
    options->routes = &routes;
    options->ours = [this](const std::string& id) { return routes.ours.contains(id); };
    options->copies = std::make_shared<snapshots::disk_copies>(
      engine, files,
      snapshots::disk_copies::cache_settings{
        [this](const std::string& id) { return routes.ours.contains("snapshot:" + id); },
        cache_bytes, 0s});
    options->disk_helpers = std::make_shared<snapshots::disk_helpers>(engine);
    directory = make_directory(snapshot_kind(options));
  }
  sandbox_actor at_rest(const char* id) {
    return sys.ask<sandbox_actor>(directory, reach_atom::value, std::string{id}, request_context{})
      .value();
  }
  sandbox_actor running(const char* id) {
    return sys.ask<sandbox_actor>(directory, find_atom::value, std::string{id}, request_context{})
      .value();
  }
  snapshot_description take(const char* of) {
    return sys.ask<snapshot_description>(running(of), take_snapshot{}).value();
  }
  pending<snapshot_description> find(find_snapshot wanted) {
    return sys.ask<snapshot_description>(directory, std::move(wanted));
  }
  pending<std::string> ask_as_peer(const snapshots::question& what) {
    return sys.ask<std::string>(directory, peer_question{snapshots::text_of(what)});
  }
  pending<snapshot_description> start_from(const snapshot_description& is) {
    routes.elsewhere["snapshot:" + is.id] = "n2";
    routes.answer = snapshots::text_of(is);
    define_sandbox wanted;
    wanted.snapshot = is.id;
    sys.ask<sandbox_description>(at_rest("def"), std::move(wanted)).value();
    return sys.ask<snapshot_description>(at_rest("def"), take_snapshot{.hidden = true});
  }
  void sweep() {
    const auto sweep = snapshots::sweep(sys.get(), options, directory);
    sys.run();
  }
  bool has_bytes(const std::string& id) { return engine.snapshots->contains(id); }
};

snapshot_description of_another_node(const char* copy) {
  snapshot_description is{"far", "abc"};
  is.image = "host";
  is.root = "far";
  is.created_ms = is.last_used_ms = 1;
  is.copy = copy;
  return is;
}

} // namespace

TEST_CASE("what nodes ask each other of snapshots comes through as it was", "[actors][snapshots]") {
  snapshot_description is{"id1", "origin"};
  is.parent = "before";
  is.root = "first";
  is.run = 7;
  is.image = "debian";
  is.image_source = "registry/debian@sha256:1";
  is.image_digest = "sha256:2";
  is.bytes = 12'345;
  is.hidden = true;
  is.name = "a name\nof two lines";
  is.labels = {{"one", "1=1"}, {"two", ""}};
  is.created_ms = 1'000;
  is.last_used_ms = 2'000;
  is.keep_ms = 3'000;
  is.state = snapshot_state::deleted;
  is.copy = "day piece 1";
  is.no_copy = "why";
  is.pending = is.image_changed = is.away = true;
  is.sandboxes = 3;
  const auto read = snapshots::read_description(snapshots::text_of(is));
  REQUIRE(read);
  CHECK(snapshots::text_of(*read) == snapshots::text_of(is));
  CHECK(read->labels == is.labels);
  CHECK(read->copy == is.copy);
  CHECK(read->sandboxes == 3);
  CHECK(read->away);
  CHECK_FALSE(snapshots::read_description("nothing"));

  const auto found =
    snapshots::read_question(snapshots::text_of(find_snapshot{"x", {}, true, true}));
  REQUIRE(found);
  CHECK(snapshots::snapshot_of(*found) == "x");
  CHECK(std::get<find_snapshot>(*found).hidden);
  CHECK(std::get<find_snapshot>(*found).needs_copy);
  const auto held = snapshots::read_question(snapshots::text_of(hold_snapshot{"x", "box"}));
  CHECK(std::get<hold_snapshot>(*held).sandbox == "box");
  CHECK_FALSE(snapshots::read_question("asks 5\nsteal\nid 1\nx\n"));
  CHECK_FALSE(snapshots::read_question(""));
}

TEST_CASE("a snapshot is asked at the node that has its object", "[actors][snapshots]") {
  node_of_cluster node;
  const auto mine = node.take("abc");
  CHECK(node.find({mine.id}).value().origin == "abc");
  CHECK(node.routes.asked.empty());
  node.routes.unknown.insert("snapshot:none");
  CHECK(node.find({"none"}).reason().code == errc::not_found);

  node.routes.elsewhere["snapshot:far"] = "n2";
  node.routes.answer = snapshots::text_of(of_another_node("there"));
  CHECK(node.find({"far"}).value().copy == "there");
  REQUIRE(node.routes.asked.size() == 1);
  CHECK(node.routes.asked[0].first == "n2");
  SECTION("which may have moved here") {
    node.routes.answer = error{errc::stale_epoch, "not here"};
    node.routes.moves = true;
    CHECK(node.find({"far"}).reason().code == errc::not_found); // Here is no record of it.
    CHECK(node.routes.doubts == std::vector<std::string>{"snapshot:far at n2"});
  }
  SECTION("or nobody knows where") {
    node.routes.answer = error{errc::stale_epoch, "not here"};
    CHECK(node.find({"far"}).reason().code == errc::node_unreachable);
    CHECK(node.routes.asked.size() == 3);
  }
  SECTION("and another node's question is answered for what is here alone") {
    const auto told = node.ask_as_peer(find_snapshot{mine.id});
    CHECK(snapshots::read_description(told.value())->origin == "abc");
    CHECK(node.ask_as_peer(find_snapshot{"far"}).reason().code == errc::stale_epoch);
    CHECK(node.ask_as_peer(hold_snapshot{mine.id, "box"}).open() == false);
    CHECK(node.find({mine.id}).value().sandboxes == 1);
    CHECK(node.ask_as_peer(release_snapshot{mine.id, "box"}).value().empty());
    CHECK(node.find({mine.id}).value().sandboxes == 0);
    CHECK(node.sys.ask<std::string>(node.directory, peer_question{"?"}).reason().code ==
          errc::invalid_request);
  }
}

TEST_CASE("what a start lacks comes from the copy of another node", "[actors][snapshots]") {
  node_of_cluster node;
  auto is = of_another_node("there");
  SECTION("at once") {
    CHECK(node.start_from(is).value().origin == "def");
    REQUIRE(node.files.back.size() == 1);
    CHECK(node.files.back[0].what.from == "there");
    CHECK(node.has_bytes("far"));
  }
  SECTION("or later, once there is one") {
    is.copy.clear();
    const auto why = node.start_from(is).reason();
    CHECK(why.code == errc::store_failed);
    CHECK(why.retry_s > 0);
    const auto asked = snapshots::read_question(node.routes.asked.back().second);
    CHECK(std::get<find_snapshot>(*asked).needs_copy);
  }
  SECTION("or when its node is there again") {
    is.copy.clear();
    is.away = true;
    CHECK(node.start_from(is).reason().message.find("not there, and has no copy") !=
          std::string::npos);
  }
  SECTION("or never") {
    is.copy.clear();
    is.no_copy = "it is too large";
    CHECK(node.start_from(is).reason().code == errc::launch_failed);
  }
}

TEST_CASE("what is to have a copy first waits for the node that has its bytes",
          "[actors][snapshots]") {
  node_of_cluster node;
  node.options->acknowledges_copies = true;
  node.files.hold = true;
  const auto asked =
    node.sys.ask<snapshot_description>(node.running("abc"), take_snapshot{"waits"});
  CHECK(asked.open());
  // Its object goes on here, and its bytes are on a node that was lost.
  node.engine.snapshots->erase("waits");
  node.sys.ask<caf::ok_atom>(node.directory, evict_atom::value, std::string{"snapshot:waits"})
    .value();
  node.files.hold = false;
  const auto ring = [&] {
    const auto alarm = node.store.value("snapshot:waits", std::string{alarm_keys});
    node.sys
      .ask<caf::ok_atom>(node.directory, alarm_due{{kept_in::cluster, "snapshot:waits", {}}, alarm})
      .value();
  };
  node.sys.time.advance(2h);
  ring();
  CHECK(node.find({"waits"}).reason().retry_s > 0);
  SECTION("which comes back") {
    node.engine.snapshots->insert("waits");
    node.sys.time.advance(2h);
    ring();
    CHECK(node.find({"waits"}).value().copy.starts_with("place"));
  }
  SECTION("but not for ever") {
    node.sys.time.advance(24h * 40);
    ring();
    CHECK(node.find({"waits"}).reason().code == errc::not_found);
  }
}

TEST_CASE("a snapshot that nobody sees gets a copy when another node needs it",
          "[actors][snapshots]") {
  node_of_cluster node;
  const auto made =
    node.sys.ask<snapshot_description>(node.running("abc"), take_snapshot{.hidden = true}).value();
  define_sandbox wanted;
  wanted.snapshot = made.id;
  node.sys.ask<sandbox_description>(node.at_rest("def"), std::move(wanted)).value();
  CHECK(node.files.kept.empty());
  SECTION("because a sandbox there begins with it") {
    node.ask_as_peer(find_snapshot{made.id, {}, true, true}).value();
    CHECK(node.files.kept.size() == 1);
    CHECK(node.find({made.id, {}, true}).value().copy == "place1");
  }
  SECTION("because this node is drained") {
    const auto hand_over = [&] {
      return node.sys.ask<caf::ok_atom>(node.directory, hand_over_atom::value,
                                        "snapshot:" + made.id);
    };
    node.files.hold = true;
    CHECK(hand_over().reason().code == errc::limit_reached);
    node.files.finish_keep();
    node.sys.run();
    hand_over().value();
    CHECK(node.store.value("snapshot:" + made.id, "snapshot").ends_with("place1"));
  }
  SECTION("and its bytes may be nowhere") {
    node.engine.snapshots->erase(made.id);
    node.ask_as_peer(find_snapshot{made.id, {}, true, true}).value();
    CHECK(node.find({made.id, {}, true}).value().away);
    node.sys.ask<caf::ok_atom>(node.directory, hand_over_atom::value, "snapshot:" + made.id)
      .value();
  }
}

TEST_CASE("a node has the objects of what it alone has, and the rest is a cache",
          "[actors][snapshots]") {
  node_of_cluster node;
  node.files.failure = error{errc::store_failed, "the place is away"};
  const auto alone = node.take("abc");
  node.files.failure = std::nullopt;
  const auto copied = node.take("abc");
  for (const auto& each : {alone, copied}) {
    node.sys.ask<caf::ok_atom>(node.directory, evict_atom::value, "snapshot:" + each.id).value();
    node.routes.ours.erase("snapshot:" + each.id);
    node.routes.elsewhere["snapshot:" + each.id] = "n2";
  }
  node.engine.snapshots->insert("ofnobody");
  node.options->was_alone = true;
  node.sweep();
  CHECK(node.has_bytes("ofnobody")); // It may have a record of before.
  node.options->was_alone = false;
  node.sweep();
  CHECK(node.routes.claims == std::vector{"snapshot:" + alone.id});
  CHECK(node.find({alone.id}).value().copy == "place3");
  CHECK_FALSE(node.has_bytes("ofnobody"));
  CHECK(node.has_bytes(copied.id)); // There is room for it.
}

TEST_CASE("a snapshot that is taken while records cannot be read keeps its bytes",
          "[actors][snapshots]") {
  node_of_cluster node;
  node.store.read_error = error{errc::node_unreachable, "etcd does not answer"};
  node.engine.snapshots->insert("new");
  node.engine.snapshots->insert("ofnobody");
  const auto sweep = snapshots::sweep(node.sys.get(), node.options, node.directory);
  const auto noted = node.options->objects->note_snapshot("new"); // Its record comes later.
  node.sys.run();
  node.store.read_error = std::nullopt;
  node.sys.advance(2s);
  CHECK(node.has_bytes("new"));
  CHECK_FALSE(node.has_bytes("ofnobody"));
  caf::anon_send_exit(sweep, caf::exit_reason::user_shutdown);
}

TEST_CASE("of other nodes' snapshots those that were used last stay", "[actors][snapshots]") {
  node_of_cluster node{100};
  auto& copies = *node.options->copies;
  for (const auto* each : {"a", "b", "c", "d"})
    node.engine.snapshots->insert(each);
  node.routes.ours.insert("snapshot:d");
  copies.note_cached("d", 1'000); // It is this node's by now.
  copies.note_cached("a", 60);
  copies.note_cached("b", 40);
  CHECK(node.has_bytes("a"));
  copies.note_use("a");
  copies.note_cached("c", 30);
  node.sys.run();
  CHECK(node.has_bytes("a"));
  CHECK_FALSE(node.has_bytes("b"));
  CHECK(node.has_bytes("c"));
  CHECK(node.has_bytes("d"));
}

TEST_CASE("a cluster without a place for copies takes no snapshots of disks",
          "[actors][snapshots]") {
  small_node node;
  node.options->ours = [](const std::string&) { return true; };
  const auto directory = node.make_directory();
  const auto box = node.make_sandbox("abc");
  const auto asked = node.sys.ask<snapshot_description>(box, take_snapshot{});
  CHECK(asked.reason().code == errc::forbidden);
  CHECK(node.sys.ask<snapshot_description>(directory, find_snapshot{"x"}).reason().code ==
        errc::forbidden);
}

TEST_CASE("the record of a snapshot of which nobody was told goes before its bytes",
          "[actors][snapshots]") {
  node_of_cluster node;
  const auto box = node.running("abc");
  const error unknown{errc::io_failed, "etcd's answer makes no sense"};
  const auto take = [&] {
    return node.sys.ask<snapshot_description>(box, take_snapshot{.id = "once"});
  };
  const auto is_written = [&] { return !node.store.value("snapshot:once", "taken_ms").empty(); };
  node.store.told_error = unknown;
  SECTION("so that a repetition takes another one") {
    CHECK(take().reason().code == errc::io_failed);
    CHECK_FALSE(is_written());
    CHECK_FALSE(node.has_bytes("once"));
    CHECK(take().value().id == "once");
    CHECK(is_written());
    CHECK(node.has_bytes("once"));
  }
  SECTION("and both stay as long as that is not known") {
    node.store.hold_writes = true;
    const auto asked = take();
    node.store.write_error = unknown; // Of its removal.
    node.store.let_go();
    node.sys.run();
    CHECK(asked.reason().code == errc::io_failed);
    CHECK(is_written());
    CHECK(node.has_bytes("once"));
    CHECK(node.find({"once"}).reason().code == errc::node_unreachable);
    node.store.write_error = std::nullopt;
    node.sys.advance(limits::snapshot_rests_after);
    CHECK(take().value().id == "once");
    CHECK(node.has_bytes("once"));
  }
}

TEST_CASE("a sweep leaves what waits for its record since before", "[actors][snapshots]") {
  node_of_cluster node;
  const auto box = node.running("abc");
  node.routes.silent = true;
  const auto asked = node.sys.ask<snapshot_description>(box, take_snapshot{});
  REQUIRE(node.engine.snapshots->size() == 1);
  const auto id = *node.engine.snapshots->begin();
  node.sys.ask<caf::ok_atom>(node.directory, evict_atom::value).value();
  CHECK(asked.reason().code == errc::sandbox_not_running);
  node.routes.silent = false;
  node.sweep();
  CHECK(node.has_bytes(id));
  REQUIRE(node.routes.unanswered.size() == 1);
  node.routes.ours.insert("snapshot:" + id);
  node.routes.unanswered[0](std::string{});
  node.sys.run();
  CHECK(node.find({id}).value().origin == "abc");
}

TEST_CASE("what waits for a snapshot's record is answered when its sandbox leaves",
          "[actors][snapshots]") {
  node_of_cluster node;
  const auto box = node.running("abc");
  const auto taken = node.take("abc");
  node.routes.silent = true;
  SECTION("a repetition of a request") {
    const auto asked = node.sys.ask<snapshot_description>(box, take_snapshot{.id = "again"});
    CHECK(asked.open());
    node.sys.ask<caf::ok_atom>(node.directory, evict_atom::value).value();
    CHECK(asked.reason().code == errc::sandbox_not_running);
  }
  SECTION("a return to it") {
    const auto asked = node.sys.ask<sandbox_description>(box, roll_back{taken.id});
    CHECK(asked.open());
    node.sys.ask<caf::ok_atom>(node.directory, evict_atom::value).value();
    CHECK(asked.reason().code == errc::sandbox_not_running);
  }
  SECTION("a new sandbox that begins with it") {
    define_sandbox wanted;
    wanted.snapshot = taken.id;
    const auto asked = node.sys.ask<sandbox_description>(node.at_rest("def"), wanted);
    CHECK(asked.open());
    node.sys.ask<caf::ok_atom>(node.directory, evict_atom::value).value();
    CHECK(asked.reason().code == errc::sandbox_not_running);
  }
}

TEST_CASE("what is asked of a directory is answered when it ends", "[actors][snapshots]") {
  node_of_cluster node;
  const auto first = node.take("abc");
  node.store.hold_reads = true;
  node.routes.ours.insert("snapshot:other");
  const auto found = node.find({"other"});
  const auto asked = node.ask_as_peer(hold_snapshot{"other", "box"});
  const auto compared =
    node.sys.ask<snapshot_changes>(node.directory, compare_snapshots{"other", first.id});
  const auto listed = node.sys.ask<sandbox_actor>(node.directory, find_atom::value,
                                                  std::string{"def"}, request_context{});
  CHECK(found.open());
  CHECK(asked.open());
  CHECK(compared.open());
  CHECK(listed.open());
  caf::anon_send_exit(node.directory, caf::exit_reason::user_shutdown);
  node.sys.run();
  CHECK(found.reason().code == errc::sandbox_not_running);
  CHECK_FALSE(asked.open());
  CHECK_FALSE(compared.open());
  CHECK_FALSE(listed.open());
  node.store.let_go();
  node.sys.run();
}
