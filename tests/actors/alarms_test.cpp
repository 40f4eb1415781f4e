#include "actors/alarms.hpp"

#include "base/limits.hpp"
#include "tests/actors/counter.hpp"
#include "tests/actors/fixture.hpp"

#include <deque>
#include <set>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

/// The alarms of a node whose stores the test plays, and a directory that makes counters.
struct alarm_world {
  fake_store cluster;
  fake_store node;
  test_system sys;
  store_actor cluster_store = cluster.spawn(sys.get());
  store_actor node_store = node.spawn(sys.get());
  std::shared_ptr<const actors::keepers> keep;
  std::map<alarm_name, caf::actor> objects;
  std::vector<alarm_due> told; ///< What has been due, in order.
  bool silent = false;         ///< Nobody answers before answer_one().
  std::deque<caf::typed_response_promise<caf::ok_atom>> unanswered;
  caf::actor directory;
  storage::epoch lease = 1; ///< Of everybody; each life has a new one.
  bool owns = true;         ///< All of them.

  alarm_world() {
    directory = sys.get().spawn([this](caf::event_based_actor* self) -> caf::behavior {
      return {[this, self](alarm_due& due) -> caf::result<caf::ok_atom> {
                told.push_back(due);
                auto reply = self->make_response_promise<caf::ok_atom>();
                if (silent)
                  unanswered.push_back(reply);
                else
                  reply.delegate(object(due.whose.owner, due.whose.object, due.whose.where), due);
                return reply;
              },
              [this](caf::ok_atom) { // An answer is given by its actor, and nowhere else.
                auto reply = std::move(unanswered.front());
                unanswered.pop_front();
                reply.deliver(caf::ok_atom::value);
              }};
    });
    start();
  }
  ~alarm_world() {
    stop();
    caf::anon_send_exit(directory, caf::exit_reason::user_shutdown);
    unanswered.clear();
    cluster_store = nullptr;
    node_store = nullptr;
    sys.run();
  }

  void answer_one() {
    caf::anon_send(directory, caf::ok_atom::value);
    sys.run();
  }

  void start() {
    actors::keepers with{cluster_store, node_store, {}, &sys.time};
    actors::alarms_options how{with.cluster, with.node, &sys.time};
    how.ours = [this](const std::string&) { return owns; };
    with.alarms = actors::spawn_alarms(sys.get(), std::move(how));
    keep = std::make_shared<const actors::keepers>(with);
    caf::anon_send(with.alarms, wake_by_atom::value, directory);
    sys.run();
  }
  /// All actors but the directory end, as with the process.
  void stop() {
    for (auto& [name, each] : std::exchange(objects, {}))
      caf::anon_send_exit(each, caf::exit_reason::user_shutdown);
    if (keep)
      caf::anon_send_exit(keep->alarms, caf::exit_reason::user_shutdown);
    keep = nullptr;
    ++lease;
    sys.run();
  }

  caf::actor object(std::string owner = "abc", std::string prefix = {},
                    kept_in where = kept_in::cluster) {
    auto& one = objects[{where, owner, prefix}];
    if (!one)
      one = sys.get().spawn(counter, keep, lease, owner, prefix, where);
    return one;
  }
  /// As when ids come or go.
  void reread(bool all_are_ours) {
    owns = all_are_ours;
    caf::anon_send(keep->alarms, reread_atom::value);
    sys.run();
  }
  /// By another node, which has owned it with that epoch.
  void set_elsewhere(const std::string& owner, std::chrono::milliseconds delay,
                     storage::epoch epoch) {
    const auto alarm = alarm_record::in(delay, sys.time, std::to_string(epoch) + ".1");
    cluster.disk.commit({owner, epoch, {{"@alarm/", alarm.text()}}},
                        [](result<void> ok) { REQUIRE(ok); });
    objects.erase({kept_in::cluster, owner, ""}); // Its next activation reads it.
    lease = epoch + 1;
  }
  pending<caf::ok_atom> set(const caf::actor& of, std::chrono::milliseconds delay) {
    return sys.ask<caf::ok_atom>(of, set_atom::value, std::int64_t{delay.count()});
  }
  std::string rung(const std::string& owner = "abc") { return cluster.value(owner, "rung"); }
};

std::size_t alarms_in(fake_store& of) {
  return of.disk.find(actors::alarm_keys)->size();
}

} // namespace

TEST_CASE("an alarm is due once, when its time has come", "[actors][alarms]") {
  alarm_world w;
  w.set(w.object(), 90s).value();
  CHECK(alarms_in(w.cluster) == 1);
  w.sys.advance(89'999ms);
  CHECK(w.told.empty());
  w.sys.advance(1ms);
  CHECK(w.told.size() == 1);
  CHECK(w.rung() == "1");
  CHECK(alarms_in(w.cluster) == 0);
  w.sys.advance(1h);
  CHECK(w.told.size() == 1);
}

TEST_CASE("an alarm is stored before it is promised", "[actors][alarms][gate]") {
  alarm_world w;
  const auto it = w.object();
  w.cluster.hold_writes = true;
  const auto asked = w.set(it, 1s);
  CHECK(asked.open());
  w.sys.advance(2s);
  CHECK(w.told.empty()); // Nobody was promised one.
  w.cluster.let_go();
  w.sys.run();
  CHECK_NOTHROW(asked.value());
  CHECK(w.told.size() == 1); // Its time had come.

  w.cluster.write_error = error{errc::disk_full, "no room"};
  CHECK(w.set(it, 1s).reason().code == errc::disk_full);
  w.cluster.write_error.reset();
  w.sys.advance(1min);
  CHECK(w.told.size() == 1);
}

TEST_CASE("an alarm takes the place of the one before, and can be cancelled", "[actors][alarms]") {
  alarm_world w;
  const auto it = w.object();
  w.set(it, 10s).value();
  w.set(it, 30s).value();
  CHECK(alarms_in(w.cluster) == 1);
  w.sys.advance(20s);
  CHECK(w.told.empty());
  w.set(it, 5s).value(); // Sooner than the other would have been.
  w.sys.advance(5s);
  CHECK(w.told.size() == 1);
  w.set(it, 10s).value();
  w.sys.ask<caf::ok_atom>(it, cancel_atom::value).value();
  CHECK(alarms_in(w.cluster) == 0);
  w.sys.advance(1h);
  CHECK(w.told.size() == 1);
}

TEST_CASE("one that is replaced while its object is at work does not take the new one with it",
          "[actors][alarms]") {
  alarm_world w;
  const auto it = w.object();
  w.silent = true;
  w.set(it, 1s).value();
  w.sys.advance(1s);
  REQUIRE(w.told.size() == 1);
  w.set(it, 10s).value();
  w.silent = false;
  w.sys.ask<caf::ok_atom>(it, w.told[0]).value(); // Late: it is not the one that is set.
  CHECK(w.rung().empty());
  w.sys.advance(10s);
  CHECK(w.told.size() == 2);
  CHECK(w.rung() == "1");
}

TEST_CASE("alarms of a node that was down are caught up with, those of hibernating objects too",
          "[actors][alarms]") {
  alarm_world w;
  w.set(w.object("abc"), 10s).value();
  w.set(w.object("abd"), 1h).value();
  w.set(w.object("abc", "process/1/", kept_in::node), 20s).value();
  w.stop();
  w.sys.advance(30s);
  CHECK(w.told.empty());
  w.start();
  CHECK(w.told.size() == 2);
  CHECK(w.rung("abc") == "1");
  CHECK(w.node.value("abc", "process/1/rung") == "1");
  CHECK(w.rung("abd").empty());
  w.sys.advance(1h - 30s);
  CHECK(w.rung("abd") == "1");
  CHECK(alarms_in(w.cluster) + alarms_in(w.node) == 0);
}

TEST_CASE("an alarm whose object fails comes again, ever later, until it has done its work",
          "[actors][alarms]") {
  alarm_world w;
  const auto it = w.object();
  w.set(it, 1s).value();
  w.cluster.write_error = error{errc::disk_full, "no room"};
  w.sys.advance(1s);
  CHECK(w.told.size() == 1);
  w.sys.advance(limits::alarm_retry);
  CHECK(w.told.size() == 2);
  w.sys.advance(limits::alarm_retry);
  CHECK(w.told.size() == 2);
  w.sys.advance(limits::alarm_retry);
  CHECK(w.told.size() == 3);
  for (int i = 0; i < 100; ++i)
    w.sys.advance(1min);
  const auto tries = w.told.size();
  CHECK(tries > 90); // At least each minute,
  CHECK(tries < 115);
  w.cluster.write_error.reset();
  w.sys.advance(limits::longest_alarm_retry);
  CHECK(w.rung() == "1"); // and all is well when the disk is.
  w.sys.advance(1h);
  CHECK(w.told.size() == tries + 1);
}

TEST_CASE("an object that does not answer is told again", "[actors][alarms]") {
  alarm_world w;
  w.set(w.object(), 1s).value();
  w.silent = true;
  w.sys.advance(1s);
  REQUIRE(w.told.size() == 1);
  w.silent = false;
  w.sys.advance(limits::alarm_patience);
  w.sys.advance(limits::alarm_retry);
  CHECK(w.told.size() == 2);
  CHECK(w.rung() == "1");
}

TEST_CASE("a thousand alarms that are due at once take their turns", "[actors][alarms]") {
  alarm_world w;
  constexpr std::size_t count = 1'000;
  for (std::size_t i = 0; i < count; ++i) {
    std::string id = "obj";
    for (std::size_t rest = i, at = 0; at < 3; ++at, rest /= 26)
      id += static_cast<char>('a' + rest % 26);
    w.set(w.object(id), 1min).value();
  }
  w.silent = true;
  w.sys.advance(1min);
  CHECK(w.told.size() == limits::alarms_at_work);
  w.answer_one(); // One goes, the next one comes.
  CHECK(w.told.size() == limits::alarms_at_work + 1);
  w.silent = false; // From now on they do their work.
  while (!w.unanswered.empty())
    w.answer_one();
  std::set<std::string> owners;
  for (const auto& each : w.told)
    owners.insert(each.whose.owner);
  CHECK(owners.size() == count);
  CHECK(w.told.size() == count);
}

TEST_CASE("a jump of the wall clock moves no alarm while the machine is up", "[actors][alarms]") {
  alarm_world w;
  const auto jump = GENERATE(std::chrono::hours{-48}, std::chrono::hours{48});
  w.set(w.object(), 1h).value();
  w.sys.advance(30min);
  w.sys.time.jump(jump);
  w.sys.advance(29min);
  CHECK(w.told.empty());
  SECTION("with the server") {}
  SECTION("with a server that was restarted") {
    w.stop();
    w.start();
    CHECK(w.told.empty());
  }
  w.sys.advance(1min);
  CHECK(w.told.size() == 1);
}

TEST_CASE(
  "over a restart of the machine an alarm goes by the wall clock, and never waits longer than "
  "its own delay",
  "[actors][alarms]") {
  manual_clock time;
  const auto alarm = alarm_record::in(1h, time, "1.1");
  CHECK(alarm_record::parse(alarm.text()) == alarm);
  time.advance(20min);
  CHECK(alarm.left(time) == 40min);
  time.restart_machine();
  CHECK(alarm.left(time) == 40min);
  time.advance(10min);
  CHECK(alarm.left(time) == 30min);
  time.jump(2h);
  CHECK(alarm.left(time) < 0min);
  time.jump(-10h);
  CHECK(alarm.left(time) == 1h);
}

TEST_CASE("a record of an alarm that makes no sense is not one", "[actors][alarms]") {
  for (const std::string text :
       {"", "1 2", "1 2 3 boot", "1 2 3 boot tag more", "x 2 3 boot tag", "1 -2 3 boot tag"})
    CHECK_FALSE(alarm_record::parse(text));
  alarm_world w;
  w.stop();
  w.cluster.disk.commit({"abc", 1, {{"@alarm/", "nonsense"}}}, [](result<void>) {});
  w.set((w.start(), w.object("abd")), 1s).value();
  w.sys.advance(1s);
  CHECK(w.told.size() == 1); // The others ring.
}

TEST_CASE("a store that cannot be read when alarms begin is asked again", "[actors][alarms]") {
  alarm_world w;
  w.set(w.object(), 1s).value();
  w.stop();
  w.cluster.read_error = error{errc::store_failed, "no"};
  w.start();
  w.sys.advance(10s);
  CHECK(w.told.empty());
  w.cluster.read_error.reset();
  w.sys.advance(limits::longest_alarm_retry);
  CHECK(w.rung() == "1");
}

TEST_CASE("alarms go with their objects", "[actors][alarms]") {
  alarm_world w;
  w.set(w.object("abc"), 10s).value();
  w.set(w.object("abc", "session/one/"), 10s).value();
  w.set(w.object("abc", "session/other/"), 10s).value();
  w.sys.ask<caf::ok_atom>(w.object("abc"), clear_atom::value, std::string{"session/one/"}).value();
  CHECK(alarms_in(w.cluster) == 2);
  SECTION("of an owner") {
    w.sys.ask<caf::ok_atom>(w.object("abc"), destroy_atom::value).value();
    CHECK(alarms_in(w.cluster) == 0);
    w.sys.advance(1min);
    CHECK(w.told.empty());
  }
  SECTION("of one object") {
    w.sys.advance(10s);
    CHECK(w.told.size() == 2);
  }
}

// ---- In a cluster

TEST_CASE(
  "an id that comes back has the alarm that was set elsewhere, not that of its earlier stay",
  "[actors][alarms]") {
  alarm_world w;
  SECTION("which was later, and the loss was heard of") {
    w.set(w.object(), 1h).value();
    w.reread(false);
    w.set_elsewhere("abc", 10min, 5);
    w.reread(true);
    w.sys.advance(10min);
    CHECK(w.rung() == "1");
  }
  SECTION("which was later, and nobody has said that it was away") {
    w.set(w.object(), 1h).value();
    w.set_elsewhere("abc", 10min, 5);
    w.reread(true);
    w.sys.advance(10min);
    CHECK(w.rung() == "1");
  }
  SECTION("which was sooner") {
    w.set(w.object(), 10min).value();
    w.set_elsewhere("abc", 1h, 5);
    w.reread(true);
    w.sys.advance(10min);
    CHECK(w.told.empty());
    w.sys.advance(50min);
    CHECK(w.rung() == "1");
  }
  SECTION("which is at work at that moment") {
    w.silent = true;
    w.set(w.object(), 1s).value();
    w.sys.advance(1s);
    REQUIRE(w.told.size() == 1);
    w.set_elsewhere("abc", 10min, 5);
    w.reread(true);
    w.silent = false;
    w.answer_one();
    w.sys.advance(10min);
    CHECK(w.rung() == "1");
  }
  w.sys.advance(2h);
  CHECK(alarms_in(w.cluster) == 0);
}

TEST_CASE("what is stored late does not take the place of what has been set meanwhile",
          "[actors][alarms]") {
  alarm_world w;
  w.set_elsewhere("abc", 1h, 9);
  w.reread(true);
  w.set(w.object(), 10min).value();
  w.reread(true);
  w.sys.advance(10min);
  CHECK(w.rung() == "1");
}

TEST_CASE("a node that owns nothing yet when it starts has its alarms once it does",
          "[actors][alarms]") {
  alarm_world w;
  w.set(w.object("abc"), 10s).value();
  w.set(w.object("abc", "process/1/", kept_in::node), 20s).value();
  w.stop();
  w.owns = false;
  w.start();
  w.sys.advance(30s);
  CHECK(w.told.empty());
  w.reread(true);
  CHECK(w.told.size() == 2);
  CHECK(w.rung("abc") == "1");
  CHECK(w.node.value("abc", "process/1/rung") == "1");
}

TEST_CASE("a store that cannot be read is not asked more and more often", "[actors][alarms]") {
  alarm_world w;
  w.set(w.object(), 1min).value();
  w.stop();
  w.start();
  w.cluster.read_error = error{errc::store_failed, "no"};
  for (int i = 0; i < 100; ++i)
    w.reread(true);
  const auto before = w.cluster.finds;
  w.sys.advance(limits::longest_alarm_retry);
  CHECK(w.cluster.finds == before + 1);
}

// ---- With sandboxes

TEST_CASE("an alarm finds its sandbox though nothing of that is there, and starts nothing",
          "[actors][alarms][sandbox]") {
  small_node node;
  const auto directory = node.make_directory();
  node.store.disk.commit(
    {"abc", 1, {{"created_ms", "5"}, {"image", "host"}, {"@alarm/", "1 1 1 other-boot 1.1"}}},
    [](result<void> ok) { REQUIRE(ok); });
  node.leases.last = 1;
  const auto before = node.sys.get().registry().running();
  const alarm_due due{{kept_in::cluster, "abc", ""}, "1 1 1 other-boot 1.1"};
  SECTION("nobody knows it any more, so it is removed") {
    CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(directory, due).value());
    CHECK(node.store.value("abc", "@alarm/").empty());
  }
  SECTION("a disk that refuses is told to who rings") {
    node.store.write_error = error{errc::disk_full, "no room"};
    CHECK(node.sys.ask<caf::ok_atom>(directory, due).reason().code == errc::disk_full);
    CHECK_FALSE(node.store.value("abc", "@alarm/").empty());
  }
  SECTION("one that is not set is over") {
    auto other = due;
    other.record = "1 1 1 other-boot 1.2";
    CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(directory, other).value());
    CHECK(node.store.writes == 0);
  }
  SECTION("of an object inside") {
    auto inner = due;
    inner.whose.object = "session/one/";
    CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(directory, inner).value());
  }
  CHECK(node.engine.creations.empty());
  CHECK(node.leases.held.empty());
  CHECK(node.store.value("abc", "created_ms") == "5");
  node.sys.run();
  CHECK(node.sys.get().registry().running() <=
        before + 1); // The asker's; the sandbox sleeps again.
}

TEST_CASE("a request that comes while an alarm is attended to gets its sandbox, and the other way "
          "round",
          "[actors][alarms][sandbox]") {
  small_node node;
  const auto directory = node.make_directory();
  node.store.disk.commit({"abc", 1, {{"created_ms", "5"}, {"@alarm/", "1 1 1 other-boot 1.1"}}},
                         [](result<void> ok) { REQUIRE(ok); });
  node.leases.last = 1;
  node.store.hold_writes = true;
  const alarm_due due{{kept_in::cluster, "abc", ""}, "1 1 1 other-boot 1.1"};
  const auto find = [&] {
    return node.sys.ask<sandbox_actor>(directory, find_atom::value, std::string{"abc"},
                                       request_context{});
  };
  const auto rung = node.sys.ask<caf::ok_atom>(directory, due);
  const auto found = find();
  CHECK(rung.open());
  CHECK(found.open());
  node.store.let_go();
  node.sys.run();
  CHECK_NOTHROW(rung.value());
  CHECK_NOTHROW(found.value());
  CHECK(node.leases.held.size() == 1); // The sandbox runs, so it holds it.
  CHECK_NOTHROW(node.sys.ask<caf::ok_atom>(directory, due).value());
  CHECK(node.leases.held.size() == 1);
  node.sys.advance(25min);
  CHECK(node.leases.held.empty());
}
