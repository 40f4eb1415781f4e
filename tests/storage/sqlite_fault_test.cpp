// Disks that fail and machines that stop: nothing acknowledged is lost, nothing is half there.
#include "storage/sqlite_store.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/faulty_vfs.hpp"
#include "tests/support/older_store.hpp"
#include "tests/support/store_calls.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

using namespace insula;
using namespace insula::storage;
using namespace insula::test;

namespace {

/// What one owner has, and at which epoch it was written last.
struct owned {
  epoch newest = 0;
  contents kept;

  owned with(const write_batch& batch) const {
    owned next = *this;
    next.newest = batch.written_at;
    for (const auto& [key, value] : batch.changes) {
      next.kept.erase(key);
      if (value)
        next.kept[key] = *value;
    }
    return next;
  }
};

/// A machine with a faulty disk, a store on it, and what a correct store would hold.
class machine {
public:
  explicit machine(unsigned seed, survives what = survives::power_cut)
      : disk(seed)
      , what_(what)
      , rng_(seed) {
    restart();
  }

  /// Opens the store, by force of repairing the disk when it does not let us.
  void restart() {
    auto opened = sqlite_store::open(path_, disk.name(), what_);
    if (!opened) {
      REQUIRE(disk.struck() > 0);
      disk.boot();
      opened = sqlite_store::open(path_, disk.name(), what_);
    }
    if (!opened)
      FAIL(opened.reason().message);
    store_ = std::move(*opened);
  }

  /// Without a model: for tests that look for themselves.
  void restart_as_is() {
    store_.reset();
    disk.boot();
    restart();
  }

  /// The machine or only the process stops, and comes back.
  void crash(bool power) {
    power ? disk.power_cut() : disk.kill();
    store_.reset();
    disk.boot();
    if (rng_() % 4 == 0)
      disk.fail(random_fault(), static_cast<int>(rng_() % 10));
    restart();
    disk.boot();
    for (const auto* owner : {"a", "b", "c", "d", "gate"})
      settle(owner);
    attempts_.clear();
  }

  /// A few batches that wait together, with `kind` striking somewhere in them.
  void write_together(fault kind, int after, int times) {
    const auto first = random_batch("gate");
    busy_store busy{*store_, first};
    note(first, *busy.outcome);
    disk.heal(); // Until here also the moving of a long log may have been struck.
    if (disk.off())
      return;
    check();
    std::vector<write_batch> batches;
    for (const auto* owner : {"a", "b", "c", "d"})
      if (rng_() % 3 != 0)
        batches.push_back(random_batch(owner));
    disk.fail(kind, after, times);
    std::vector<std::future<result<void>>> outcomes;
    for (const auto& batch : batches)
      outcomes.push_back(commit_async(*store_, batch));
    busy.release();
    for (std::size_t i = 0; i < batches.size(); ++i)
      note(batches[i], outcomes[i].get());
  }

  /// While it runs, the store shows what it acknowledged and nothing else.
  void check() {
    for (const auto& [owner, expected] : model_) {
      const auto read = store_->read(owner);
      if (!read)
        FAIL(read.reason().message);
      REQUIRE(as_map(*read) == expected.kept);
    }
  }

  fault random_fault() {
    constexpr fault all[] = {fault::none,        fault::short_write, fault::full,
                             fault::write_error, fault::sync_error,  fault::read_error,
                             fault::power_loss};
    return all[rng_() % std::size(all)];
  }

  store& now() { return *store_; }

private:
  /// Two keys that say the same, for halves to show; now and then something large, or a removal.
  write_batch random_batch(const std::string& owner) {
    const auto mark = std::to_string(++marks_);
    const auto size = rng_() % 8 == 0 ? rng_() % 600'000 : rng_() % 3'000;
    write_batch batch{owner, model_[owner].newest + rng_() % 2, {}};
    batch.written_at += batch.written_at == 0 ? 1 : 0;
    if (rng_() % 16 == 0 && model_[owner].newest > 1)
      batch.written_at = model_[owner].newest - 1;
    batch.changes = {{"first", mark},
                     {"k" + std::to_string(rng_() % 4), std::nullopt},
                     {"k" + std::to_string(rng_() % 4), mark + std::string(size, '.')},
                     {"last", mark}};
    return batch;
  }

  void note(const write_batch& batch, const result<void>& outcome) {
    auto& owner = model_[batch.owner];
    if (outcome) {
      REQUIRE(batch.written_at >= owner.newest);
      owner = owner.with(batch);
      attempts_.clear(); // Written over: in the log there is room for one future only.
    } else if (outcome.reason().code == errc::stale_epoch) {
      REQUIRE(batch.written_at < owner.newest);
    } else {
      REQUIRE(
        (outcome.reason().code == errc::store_failed || outcome.reason().code == errc::disk_full));
      REQUIRE(disk.struck() > 0);
      attempts_[batch.owner].push_back(owner.with(batch));
    }
  }

  /// After a crash an owner is as acknowledged, or as one whole batch that failed would have it.
  void settle(const std::string& owner) {
    const auto read = store_->read(owner);
    if (!read)
      FAIL(read.reason().message);
    const auto found = as_map(*read);
    auto& expected = model_[owner];
    if (found == expected.kept)
      return;
    const auto& tried = attempts_[owner];
    const auto turned_up =
      std::find_if(tried.begin(), tried.end(), [&](auto& one) { return one.kept == found; });
    REQUIRE(turned_up != tried.end());
    expected = *turned_up;
  }

public:
  faulty_vfs disk;

private:
  survives what_;
  temp_dir dir_;
  std::string path_ = (dir_ / "insula.db").string();
  std::mt19937 rng_;
  int marks_ = 0;
  std::map<std::string, owned> model_;
  std::map<std::string, std::vector<owned>> attempts_; ///< Failed since the last success.
  std::unique_ptr<store> store_;
};

} // namespace

TEST_CASE("each kind of fault is told to who waits, and is over when the disk is well",
          "[storage][sqlite][fault]") {
  const auto kind =
    GENERATE(fault::short_write, fault::full, fault::write_error, fault::sync_error);
  CAPTURE(static_cast<int>(kind));
  machine m{1};
  auto& s = m.now();
  REQUIRE(commit_now(s, {"a", 1, {{"x", "1"}}}));
  m.disk.fail(kind, 0, 1'000);
  const auto refused = commit_now(s, {"a", 2, {{"x", "2"}, {"y", "2"}}});
  REQUIRE_FALSE(refused);
  const bool full = kind == fault::short_write || kind == fault::full;
  CHECK(refused.reason().code == (full ? errc::disk_full : errc::store_failed));
  CHECK(as_map(*s.read("a")) == contents{{"x", "1"}});
  m.disk.heal();
  CHECK(
    commit_now(s, {"a", 1, {{"x", "3"}}})); // The epoch of the failed batch did not stay either.
  CHECK(as_map(*s.read("a")) == contents{{"x", "3"}});
}

TEST_CASE("a fault that strikes one batch spares those it waited with",
          "[storage][sqlite][fault]") {
  machine m{1};
  auto& s = m.now();
  busy_store busy{s, {"gate", 1, {{"x", ""}}}};
  m.disk.fail(fault::sync_error, 0, 1); // Of the group; then each is tried alone.
  auto first = commit_async(s, {"a", 1, {{"x", "1"}}});
  auto second = commit_async(s, {"b", 1, {{"x", "1"}}});
  busy.release();
  CHECK(first.get());
  CHECK(second.get());
  CHECK(m.disk.struck() == 1);
}

TEST_CASE("reading fails as long as the disk does", "[storage][sqlite][fault]") {
  machine m{1};
  REQUIRE(commit_now(m.now(), {"a", 1, {{"x", std::string(500'000, 'v')}}}));
  m.disk.fail(fault::read_error, 0, 1'000);
  const auto read = m.now().read("a");
  REQUIRE_FALSE(read);
  CHECK(read.reason().code == errc::store_failed);
  m.disk.heal();
  CHECK(m.now().read("a")->size() == 1);
}

TEST_CASE("what a failed sync left behind is safe before anything rests on it",
          "[storage][sqlite][fault]") {
  // The disk forgets what it could not sync, but shows it; the process dies and finds it there.
  // Writes that follow it must not be lost with it when the machine stops.
  const auto seed = GENERATE(range(0u, 20u));
  CAPTURE(seed);
  machine m{seed};
  REQUIRE(commit_now(m.now(), {"a", 1, {{"x", "1"}}}));
  m.disk.fail(fault::sync_error, 0, 1'000);
  REQUIRE_FALSE(commit_now(m.now(), {"b", 1, {{"x", std::string(20'000, 'v')}}}));
  m.disk.kill();
  m.restart_as_is();
  REQUIRE(commit_now(m.now(), {"c", 1, {{"x", "1"}}}));
  m.disk.power_cut();
  m.restart_as_is();
  CHECK(as_map(*m.now().read("a")) == contents{{"x", "1"}});
  CHECK(as_map(*m.now().read("c")) == contents{{"x", "1"}});
}

TEST_CASE("nothing acknowledged is lost and nothing is half there, whatever the disk does",
          "[storage][sqlite][fault][property]") {
  const auto seed = GENERATE(take(60, random(0u, 1'000'000u)));
  CAPTURE(seed);
  std::mt19937 rng{seed};
  machine m{seed};
  for (int step = 0; step < 30; ++step) {
    CAPTURE(step);
    m.write_together(m.random_fault(), static_cast<int>(rng() % 12),
                     rng() % 4 == 0 ? 1'000 : 1 + static_cast<int>(rng() % 3));
    if (rng() % 4 == 0 || m.disk.off())
      m.crash(rng() % 2 == 0);
  }
  m.crash(true);
}

TEST_CASE(
  "a store that need not survive a power cut loses its newest writes there, whole ones, and "
  "none to the end of its process",
  "[storage][sqlite][fault][property]") {
  const auto seed = GENERATE(take(40, random(0u, 1'000'000u)));
  CAPTURE(seed);
  std::mt19937 rng{seed};
  machine m{seed, survives::process_end};
  int first = 0; ///< What is there at least, after a power cut.
  for (int life = 0; life < 6; ++life) {
    const int last = first + 1 + static_cast<int>(rng() % 400);
    for (int n = first + 1; n <= last; ++n) {
      const auto text = std::to_string(n);
      REQUIRE(commit_now(
        m.now(), {"a",
                  static_cast<epoch>(n),
                  {{"first", text}, {"pad", std::string(rng() % 9'000, 'p')}, {"last", text}}}));
    }
    const bool power = rng() % 2 == 0;
    power ? m.disk.power_cut() : m.disk.kill();
    m.restart_as_is();
    const auto kept = as_map(*m.now().read("a"));
    const int found = kept.empty() ? 0 : std::stoi(kept.at("last"));
    if (!power)
      REQUIRE(found == last);
    REQUIRE(found <= last);
    REQUIRE((kept.empty() || kept.at("first") == kept.at("last")));
    first = found;
  }
}

TEST_CASE("a file that is being made is there whole or not at all", "[storage][sqlite][fault]") {
  const temp_dir dir;
  const auto path = (dir / "insula.db").string();
  std::ofstream{path + ".new"} << "half of one, by a process that was killed";
  std::ofstream{path + "-wal"} << "the log of a file that was moved away";
  const auto made = sqlite_store::open(path);
  REQUIRE(made);
  CHECK((*made)->owners()->empty());
  CHECK_FALSE(std::filesystem::exists(path + ".new"));
}

TEST_CASE("a store is brought up to marks whole or not at all, wherever it is cut off",
          "[storage][sqlite][fault][scan]") {
  const auto kind = GENERATE(fault::power_loss, fault::full, fault::short_write, fault::write_error,
                             fault::sync_error);
  const auto what = GENERATE(survives::power_cut, survives::process_end);
  std::vector<older_row> rows;
  for (int i = 0; i < 100; ++i) {
    rows.push_back({"o" + std::to_string(i), "@alarm/", std::string(200, 'a')});
    rows.push_back({"o" + std::to_string(i), "x", std::to_string(i)});
  }
  int cut_off = 0;
  for (int after = 0;; ++after) {
    CAPTURE(static_cast<int>(kind), after);
    REQUIRE(after < 200);
    const temp_dir dir;
    const auto path = (dir / "insula.db").string();
    write_older_store(path, rows);
    faulty_vfs disk{static_cast<unsigned>(after)};
    disk.fail(kind, after);
    const bool opened = static_cast<bool>(sqlite_store::open(path, disk.name(), what));
    const bool struck = disk.struck() > 0 || disk.off();
    if (kind == fault::power_loss && disk.off())
      disk.power_cut();
    disk.boot();
    cut_off += opened ? 0 : 1;
    const auto again = sqlite_store::open(path, disk.name(), what);
    if (!again)
      FAIL(again.reason().message);
    CHECK((*again)->find("x")->size() == 100);
    CHECK((*again)->find("@alarm/")->size() == 100);
    CHECK(*(*again)->count("@alarm/") == 100);
    CHECK(commit_now(**again, {"o1", 6, {}}).reason().code == errc::stale_epoch);
    if (!struck)
      break;
  }
  CHECK(cut_off > 0);
}
