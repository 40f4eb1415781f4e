// A process that is killed at named steps between a write and its answer: what it has answered is
// there, and what it has promised to do is done.
#include "actors/alarms.hpp"
#include "base/failpoint.hpp"
#include "storage/sqlite_store.hpp"
#include "tests/actors/counter.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/store_calls.hpp"
#include "tests/support/temp_dir.hpp"

#include <sys/wait.h>
#include <unistd.h>

using namespace insula;
using namespace insula::storage;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

std::unique_ptr<sqlite_store> open(const temp_dir& dir, const char* name, survives what) {
  auto opened = sqlite_store::open((dir / name).string(), "", what);
  if (!opened)
    throw std::runtime_error(opened.reason().message);
  return std::move(*opened);
}

/// A real system on real stores, with one counter.
struct world {
  explicit world(const temp_dir& dir)
      : cluster(open(dir, "insula.db", survives::power_cut))
      , node(open(dir, "node.db", survives::process_end)) {
    const auto depths = std::make_shared<actors::mailbox_depths>();
    actors::keepers with{actors::spawn_store(system, cluster.get(), depths),
                         actors::spawn_store(system, node.get(), depths),
                         {},
                         &time};
    with.alarms = actors::spawn_alarms(system, {with.cluster, with.node, &time});
    keep = std::make_shared<const actors::keepers>(with);
  }
  caf::actor object(epoch lease, kept_in where) {
    return system.spawn(counter, keep, lease, "abc", "", where);
  }

  system_clock time;
  std::unique_ptr<sqlite_store> cluster, node;
  caf::actor_system_config settings;
  caf::actor_system system{settings};
  std::shared_ptr<const actors::keepers> keep;
};

/// Runs `what` in a process of its own, which the step kills, and gives back what it has told.
std::vector<std::int64_t>
killed_at(const std::string& step,
          const std::function<void(std::function<void(std::int64_t)>)>& what) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  unique_fd told{ends[0]}, tells{ends[1]};
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    told.reset();
    planned_failpoint.set(step);
    try {
      what([&](std::int64_t n) {
        if (::write(tells.get(), &n, sizeof(n)) != sizeof(n))
          ::_exit(3);
      });
    } catch (...) {
      ::_exit(2);
    }
    ::_exit(0);
  }
  tells.reset();
  std::vector<std::int64_t> all;
  for (std::int64_t n = 0; ::read(told.get(), &n, sizeof(n)) == sizeof(n);)
    all.push_back(n);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CAPTURE(step, status);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGKILL);
  return all;
}

std::int64_t kept_count(const temp_dir& dir, kept_in where) {
  const auto file = where == kept_in::cluster ? open(dir, "insula.db", survives::power_cut)
                                              : open(dir, "node.db", survives::process_end);
  const auto all = as_map(*file->read("abc"));
  return all.contains("count") ? std::stoll(all.at("count")) : 0;
}

} // namespace

TEST_CASE("killed between a write and its answer, an object has all that it has answered",
          "[actors][object][gate][crash]") {
  const auto where = GENERATE(kept_in::cluster, kept_in::node);
  const auto step = GENERATE(as<std::string>{}, "object.write#1", "object.write#7",
                             "object.durable#1", "object.durable#7");
  CAPTURE(step);
  const temp_dir dir;
  const auto told = killed_at(step, [&](const std::function<void(std::int64_t)>& tell) {
    world w{dir};
    caf::scoped_actor self{w.system};
    const auto it = w.object(1, where);
    for (int i = 0; i < 100; ++i)
      self->request(it, caf::infinite, add_atom::value, std::int64_t{1})
        .receive([&](std::int64_t sum) { tell(sum); }, [](const caf::error&) { ::_exit(4); });
  });
  const auto nth = std::stoll(step.substr(step.find('#') + 1));
  const auto kept = kept_count(dir, where);
  CHECK(static_cast<std::int64_t>(told.size()) == nth - 1);
  // Before the write there is nothing of it; after it there is all, though nobody has heard.
  CHECK(kept == (step.starts_with("object.write") ? nth - 1 : nth));
}

TEST_CASE("killed while it is deleted, an owner is there whole or not at all",
          "[actors][object][gate][crash]") {
  const auto step = GENERATE(as<std::string>{}, "object.destroy", "object.destroyed");
  CAPTURE(step);
  const temp_dir dir;
  const auto told = killed_at(step, [&](const std::function<void(std::int64_t)>& tell) {
    world w{dir};
    caf::scoped_actor self{w.system};
    const auto it = w.object(1, kept_in::cluster);
    for (int i = 0; i < 5; ++i)
      self->request(it, caf::infinite, add_atom::value, std::int64_t{1})
        .receive([](std::int64_t) {}, [](const caf::error&) { ::_exit(4); });
    self->request(it, caf::infinite, destroy_atom::value)
      .receive([&](caf::ok_atom) { tell(1); }, [](const caf::error&) { ::_exit(4); });
  });
  CHECK(told.empty());
  const auto file = open(dir, "insula.db", survives::power_cut);
  CHECK(file->read("abc")->size() == (step == "object.destroy" ? 6 : 0));
}

TEST_CASE("an alarm that was promised is kept over kill -9, whenever that comes",
          "[actors][alarms][crash]") {
  // Writes of the object: 1 sets the alarm; 2 says that it has rung and removes it.
  const auto step =
    GENERATE(as<std::string>{}, "object.durable#1", "object.write#2", "object.durable#2");
  CAPTURE(step);
  const temp_dir dir;
  killed_at(step, [&](const std::function<void(std::int64_t)>&) {
    world w{dir};
    caf::scoped_actor self{w.system};
    const auto it = w.object(1, kept_in::cluster);
    caf::anon_send(w.keep->alarms, wake_by_atom::value, it); // It is its own directory.
    self->request(it, caf::infinite, set_atom::value, std::int64_t{20})
      .receive([](caf::ok_atom) {}, [](const caf::error&) { ::_exit(4); });
    ::sleep(30); // The alarm kills it.
  });
  std::this_thread::sleep_for(25ms); // Its time has come meanwhile.
  world w{dir};
  const auto it = w.object(2, kept_in::cluster);
  caf::anon_send(w.keep->alarms, wake_by_atom::value, it);
  const auto rung = [&] {
    const auto all = as_map(*w.cluster->read("abc"));
    return all.contains("rung") ? all.at("rung") : std::string{};
  };
  const auto gives_up = std::chrono::steady_clock::now() + 10s;
  while (rung().empty() && std::chrono::steady_clock::now() < gives_up)
    std::this_thread::sleep_for(1ms);
  CHECK(rung() == "1");
  std::this_thread::sleep_for(50ms);
  CHECK(rung() == "1"); // Its work and its removal were one write.
  CHECK(w.cluster->find("@alarm/")->empty());
  caf::anon_send_exit(it, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(w.keep->alarms, caf::exit_reason::user_shutdown);
  w.keep = nullptr;
}
