// What is decided about kernel memory that nobody is charged for, on made-up readings; and the
// directories that a sandbox has in its own layer alone, in directories of the test's own.
#include "runtime/spawner/memory_judgement.hpp"
#include "runtime/spawner/memory_shares.hpp"
#include "runtime/spawner/own_places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <thread>
#include <time.h>
#include <unistd.h>

using namespace insula;
using namespace insula::runtime;
using namespace insula::runtime::spawner;
using namespace insula::test;

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t MiB = 1 << 20, GiB = 1 << 30, second = 1'000'000'000;

constexpr memory_rules rules{.reserve = 1 * GiB};

constexpr machine_memory machine(std::uint64_t available, std::uint64_t kernel) {
  return {16 * GiB, available, kernel};
}

sandbox_memory holds(std::uint64_t id, memory_kind kind, std::uint64_t bytes) {
  sandbox_memory made{id, {}};
  made.held[static_cast<std::size_t>(kind)] = bytes;
  return made;
}

} // namespace

TEST_CASE("what the kernel holds for itself is read from what it says of the memory",
          "[runtime][memory]") {
  const auto read = machine_meter::parse("MemTotal:       1000 kB\nMemFree:         100 kB\n"
                                         "MemAvailable:    400 kB\nBuffers:          10 kB\n"
                                         "Cached:          200 kB\nSwapCached:        5 kB\n"
                                         "AnonPages:       300 kB\nSlab:            350 kB\n"
                                         "SReclaimable:    150 kB\n");
  REQUIRE(read);
  CHECK(read->all == 1000 * 1024);
  CHECK(read->available == 400 * 1024);
  CHECK(read->kernel == 235 * 1024);
  CHECK(read->reclaimable == 150 * 1024);
  CHECK_FALSE(machine_meter::parse("MemTotal: 1000 kB\nMemFree: 1 kB\n"));
  CHECK_FALSE(machine_meter::parse(""));
  CHECK(machine_meter{}.read());
}

TEST_CASE("free pages that processors have at hand are counted", "[runtime][memory]") {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  CHECK(machine_meter::parse_pages_at_hand("Node 0, zone      DMA\n"
                                           "  pages free     2816\n"
                                           "  pagesets\n"
                                           "    cpu: 0\n"
                                           "              count:    7\n"
                                           "              high:     9\n"
                                           "    cpu: 1\n"
                                           "              count:    500\n") == 507 * page);
  CHECK(machine_meter::parse_pages_at_hand("") == 0);
  CHECK(machine_meter::parse_pages_at_hand(" count:") == 0);
  const machine_meter meter;
  CHECK(meter.pages_at_hand() > 0);
  CHECK(meter.pages_at_hand() < meter.read().value().all);
}

TEST_CASE("a machine keeps a twentieth of its memory, within bounds", "[runtime][memory]") {
  CHECK(usual_reserve(512 * MiB) == 64 * MiB); // A small machine keeps an eighth.
  CHECK(usual_reserve(1 * GiB) == 128 * MiB);
  CHECK(usual_reserve(4 * GiB) == 256 * MiB);
  CHECK(usual_reserve(16 * GiB) == 16 * GiB / 20);
  CHECK(usual_reserve(512 * GiB) == 2 * GiB);
}

namespace {

/// A watch at work: asks and looks as memory_watch does, and finds nobody.
struct played_watch {
  /// True: it has looked at each sandbox.
  bool turn(const machine_memory& now, std::uint64_t charged, std::uint64_t at_second,
            std::uint64_t held = 0) {
    if (!suspicion.wants_charges(now, at_second * second))
      return false;
    ++asked;
    if (!suspicion.wants_look(now, charged, at_second * second))
      return false;
    suspicion.looked(at_second * second, took, false, {holds(1, memory_kind::file_locks, held)});
    return true;
  }

  memory_suspicion suspicion{rules, machine(8 * GiB, 500 * MiB)};
  int asked = 0;
  std::uint64_t took = second / 10;
};

} // namespace

TEST_CASE("sandboxes are looked at when the kernel's memory has grown, and not again at once",
          "[runtime][memory]") {
  played_watch watch;
  CHECK_FALSE(watch.turn(machine(8 * GiB, 500 * MiB), 0, 1));
  CHECK_FALSE(watch.turn(machine(8 * GiB, 550 * MiB), 0, 2));
  const auto grown = machine(8 * GiB, 700 * MiB);
  REQUIRE(watch.turn(grown, 0, 3, 1 * GiB));
  CHECK_FALSE(watch.turn(machine(8 * GiB, 820 * MiB), 0, 4, 1 * GiB));
  SECTION("but at once, when it grows fast") {
    CHECK(watch.turn(machine(8 * GiB, 950 * MiB), 0, 4, 1 * GiB));
    CHECK(watch.turn(machine(8 * GiB, 1080 * MiB), 0, 5, 1 * GiB));
  }
  SECTION("and when looks take long, in a third of the time at most") {
    watch.took = second;
    REQUIRE(watch.turn(machine(8 * GiB, 950 * MiB), 0, 4, 1 * GiB));
    CHECK_FALSE(watch.turn(machine(8 * GiB, 1200 * MiB), 0, 5, 1 * GiB));
    CHECK(watch.turn(machine(8 * GiB, 1200 * MiB), 0, 6, 1 * GiB));
  }
  SECTION("but soon, when it goes on growing") {
    bool looked = false;
    for (std::uint64_t at = 5; at < 10; ++at)
      looked = looked || watch.turn(machine(8 * GiB, 900 * MiB), 0, at, 1 * GiB);
    CHECK(looked);
  }
  SECTION("what stays as it is makes no other look") {
    for (std::uint64_t at = 5; at < 100; ++at)
      CHECK_FALSE(watch.turn(grown, 0, at));
    CHECK(watch.asked >= 12); // But the groups are asked each eight seconds.
    CHECK(watch.asked <= 14);
  }
  SECTION("what has been given back counts again when it is taken again") {
    CHECK_FALSE(watch.turn(machine(8 * GiB, 300 * MiB), 0, 6));
    CHECK(watch.turn(machine(8 * GiB, 450 * MiB), 0, 20));
  }
}

TEST_CASE("a sandbox that may soon hold too much is looked at again after less growth",
          "[runtime][memory]") {
  played_watch watch;
  REQUIRE(watch.turn(machine(8 * GiB, 740 * MiB), 0, 3, 240 * MiB));
  const auto looks = [&](std::uint64_t kernel, std::uint64_t held) {
    int count = 0;
    for (std::uint64_t at = 4; at < 60; ++at)
      count += watch.turn(machine(8 * GiB, kernel), 0, at, held) ? 1 : 0;
    return count;
  };
  SECTION("as much as it lacks") {
    CHECK(looks(760 * MiB, 255 * MiB) == 1);
  }
  SECTION("but not after any") {
    CHECK(looks(750 * MiB, 250 * MiB) == 0);
  }
}

TEST_CASE("what an ended sandbox gives back does not hide what another one takes",
          "[runtime][memory]") {
  memory_suspicion suspicion{rules, machine(8 * GiB, 500 * MiB)};
  const auto now = machine(8 * GiB, 1200 * MiB);
  REQUIRE(suspicion.wants_charges(now, 3 * second));
  REQUIRE(suspicion.wants_look(now, 0, 3 * second));
  suspicion.looked(3 * second, 0, true, {holds(2, memory_kind::file_locks, 10 * MiB)});
  CHECK_FALSE(suspicion.wants_charges(now, 4 * second));
  CHECK(suspicion.wants_charges(now, 6 * second));
  CHECK(suspicion.wants_look(now, 0, 6 * second));
  SECTION("and once all is known, there is no other look") {
    suspicion.looked(6 * second, 0, false, {holds(2, memory_kind::file_locks, 700 * MiB)});
    CHECK_FALSE(suspicion.wants_charges(now, 7 * second));
    CHECK_FALSE(suspicion.wants_look(now, 0, 100 * second));
  }
}

TEST_CASE("what takes the place of charged memory is found out", "[runtime][memory]") {
  played_watch watch;
  REQUIRE_FALSE(watch.turn(machine(8 * GiB, 900 * MiB), 400 * MiB, 3));
  bool looked = false;
  for (std::uint64_t at = 4; at < 30; ++at)
    looked = looked || watch.turn(machine(8 * GiB, 900 * MiB), 0, at, 400 * MiB);
  CHECK(looked);
}

TEST_CASE("growth that waits for a look is not asked about in each turn", "[runtime][memory]") {
  memory_suspicion suspicion{rules, machine(8 * GiB, 500 * MiB)};
  int asked = 0, looked = 0;
  for (std::uint64_t turn = 1; turn <= 300; ++turn) { // Ten a second.
    const auto now = machine(8 * GiB, (700 + turn) * MiB);
    const auto time = turn * second / 10;
    if (!suspicion.wants_charges(now, time))
      continue;
    ++asked;
    if (suspicion.wants_look(now, 0, time)) {
      ++looked;
      suspicion.looked(time, second / 50, false,
                       {holds(1, memory_kind::file_locks, (200 + turn) * MiB)});
    }
  }
  CHECK(asked <= 16);
  CHECK(looked >= 4);
}

TEST_CASE("what a sandbox might hide explains nothing that others take", "[runtime][memory]") {
  memory_suspicion suspicion{rules, machine(8 * GiB, 500 * MiB)};
  const auto now = machine(8 * GiB, 1200 * MiB);
  REQUIRE(suspicion.wants_look(now, 0, 3 * second));
  sandbox_memory hider{1};
  hider.may_hide = 1000;
  suspicion.looked(3 * second, 0, true, {hider});
  CHECK(suspicion.wants_charges(now, 6 * second));
  CHECK(suspicion.wants_look(now, 0, 6 * second));
}

TEST_CASE("growth that groups are charged for is asked about ever more rarely, and looked at never",
          "[runtime][memory]") {
  played_watch watch;
  for (std::uint64_t at = 1; at <= 600; ++at) {
    const auto filled = at % 2 * 120 * MiB;
    CHECK_FALSE(watch.turn(machine(8 * GiB, 500 * MiB + filled), filled, at));
  }
  CHECK(watch.asked >= 60);
  CHECK(watch.asked <= 80);
}

TEST_CASE("looks that find nobody become rare, also while memory comes and goes",
          "[runtime][memory]") {
  played_watch watch;
  std::uint64_t looks = 0;
  for (std::uint64_t at = 1; at <= 600; ++at)
    looks += watch.turn(machine(8 * GiB, (500 + at % 3 * 100) * MiB), 0, at, 200 * MiB) ? 1 : 0;
  CHECK(looks >= 20);
  CHECK(looks <= 80);
}

TEST_CASE("a machine that is short is looked at ever more rarely while nobody is found",
          "[runtime][memory]") {
  played_watch watch;
  const auto low = machine(1 * GiB - 1, 500 * MiB);
  CHECK(watch.suspicion.is_short(low));
  CHECK_FALSE(watch.suspicion.is_short(machine(1 * GiB, 500 * MiB)));
  std::uint64_t looks = 0;
  for (std::uint64_t at = 1; at <= 600; ++at)
    looks += watch.turn(low, 0, at) ? 1 : 0;
  CHECK(looks >= 15);
  CHECK(looks <= 25);
  // Growth is looked at as soon as ever.
  CHECK(watch.turn(machine(1, 700 * MiB), 0, 603));
}

/// A measurement, run by hand on a quiet machine: `runtime_memory_test "[measure]"`. There
/// are ten turns a second, and a thousandth of a processor is 100,000 ns.
TEST_CASE("what a turn costs, however many sandboxes there are", "[.][measure]") {
  const machine_meter meter;
  const memory_suspicion suspicion{rules, machine(8 * GiB, 500 * MiB)};
  const auto used_ns = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1'000'000'000 + now.tv_nsec;
  };
  constexpr int turns = 1000;
  const auto before = used_ns();
  for (int i = 0; i < turns; ++i) {
    REQUIRE(meter.read());
    CHECK_FALSE(suspicion.wants_charges(machine(8 * GiB, 500 * MiB), 1 * second));
  }
  WARN("a turn: " << (used_ns() - before) / turns << " ns");
}

TEST_CASE("what groups are charged for is not missing", "[runtime][memory]") {
  memory_suspicion suspicion{rules, machine(8 * GiB, 500 * MiB)};
  std::uint64_t time = 0;
  const auto uncharged = [&](std::uint64_t kernel, std::uint64_t charged) {
    suspicion.wants_look(machine(8 * GiB, kernel), charged, time += second);
    return suspicion.uncharged();
  };
  CHECK(suspicion.uncharged() == 0);
  CHECK(uncharged(1500 * MiB, 1000 * MiB) == 0);
  CHECK(uncharged(1500 * MiB, 600 * MiB) == 400 * MiB);
  // Others on the machine have given some back.
  CHECK(uncharged(400 * MiB, 100 * MiB) == 0);
  CHECK(uncharged(500 * MiB, 100 * MiB) == 100 * MiB);
  CHECK(uncharged(100 * MiB, 900 * MiB) == 0);
}

TEST_CASE("what no sandbox can hold is expected of the machine after some looks",
          "[runtime][memory]") {
  memory_suspicion suspicion{rules, machine(8 * GiB, 500 * MiB)};
  std::uint64_t time = 0;
  const auto look = [&](bool found, std::uint64_t held) {
    suspicion.wants_look(machine(8 * GiB, 2500 * MiB), 0, time += 100 * second);
    const auto was = suspicion.uncharged();
    suspicion.looked(time, 0, found, {holds(1, memory_kind::file_locks, held)});
    return was;
  };
  CHECK(look(false, 100 * MiB) == 2000 * MiB);
  CHECK(look(false, 100 * MiB) == 1525 * MiB);
  for (int i = 0; i < 20; ++i)
    look(false, 100 * MiB);
  CHECK(look(false, 100 * MiB) < 110 * MiB);
  CHECK(look(false, 100 * MiB) >= 100 * MiB); // And what a sandbox may hold is not.
}

TEST_CASE("the one that holds most beyond what is allowed is to end", "[runtime][memory]") {
  const std::vector<sandbox_memory> all{holds(1, memory_kind::file_locks, 300 * MiB),
                                        holds(2, memory_kind::directory_names, 500 * MiB),
                                        holds(3, memory_kind::file_locks, 100 * MiB)};
  const auto found = judge(rules, false, 800 * MiB, all);
  REQUIRE(found);
  CHECK(found->id == 2);
  CHECK(found->kind == memory_kind::directory_names);
  CHECK(found->bytes == 500 * MiB);
  CHECK(reason_of(*found) == "Sandbox ended: it holds kernel memory outside of its limit (names of "
                             "open directories: 500 MiB)");
  CHECK(reason_of({1, memory_kind::file_locks, 2150 * MiB}) ==
        "Sandbox ended: it holds kernel memory outside of its limit (file locks: 2.1 GiB)");
}

TEST_CASE("kinds of one sandbox count together", "[runtime][memory]") {
  auto both = holds(7, memory_kind::file_locks, 200 * MiB);
  both.held[static_cast<std::size_t>(memory_kind::netlink_queues)] = 100 * MiB;
  const auto found = judge(rules, false, 300 * MiB, {both});
  REQUIRE(found);
  CHECK(found->kind == memory_kind::file_locks);
  CHECK(found->bytes == 300 * MiB);
}

TEST_CASE("one that is cleared shields no other", "[runtime][memory]") {
  std::vector<sandbox_memory> all{holds(1, memory_kind::file_locks, 900 * MiB),
                                  holds(2, memory_kind::file_locks, 500 * MiB)};
  CHECK(judge(rules, false, 800 * MiB, all)->id == 1);
  all[0].cleared = true;
  CHECK(judge(rules, false, 800 * MiB, all)->id == 2);
  all[1].cleared = true;
  CHECK_FALSE(judge(rules, false, 800 * MiB, all));
}

TEST_CASE("what is missing on a short machine is of the one that may hide most",
          "[runtime][memory]") {
  std::vector<sandbox_memory> all{holds(1, memory_kind::file_locks, 10 * MiB), sandbox_memory{2},
                                  sandbox_memory{3}};
  all[1].may_hide = 500;
  all[2].may_hide = 3;
  CHECK_FALSE(judge(rules, false, 800 * MiB, all)); // It is not in a hurry.
  const auto found = judge(rules, true, 800 * MiB, all);
  REQUIRE(found);
  CHECK(found->id == 2);
  CHECK(found->kind == memory_kind::hidden);
  CHECK(found->bytes == 790 * MiB);
  CHECK(possible(all) == 10 * MiB + 500 * most_hidden_by_each);
  SECTION("as far as that can be") {
    all[1].may_hide = 0;
    CHECK_FALSE(judge(rules, true, 800 * MiB, all)); // Three handles hold 48 MiB.
  }
  SECTION("what others are known to hold is not missing") {
    all[0] = holds(1, memory_kind::file_locks, 780 * MiB);
    CHECK(judge(rules, true, 800 * MiB, all)->id == 1);
    all[0].cleared = true;
    CHECK_FALSE(judge(rules, true, 800 * MiB, all));
  }
}

TEST_CASE("an innocent sandbox is left alone", "[runtime][memory]") {
  // A database with 100,000 locks, and 5,000 handles on a directory of 300 names.
  const std::vector<sandbox_memory> usual{
    holds(1, memory_kind::file_locks, 100'000 * 192),
    holds(2, memory_kind::directory_names, std::uint64_t{5'000} * 300 * 96)};
  CHECK_FALSE(judge(rules, false, 10 * GiB, usual));
  SECTION("whatever an estimate says, when the machine has not lost it") {
    CHECK_FALSE(judge(rules, false, 100 * MiB, {holds(1, memory_kind::file_locks, 900 * MiB)}));
    CHECK(judge(rules, false, 200 * MiB, {holds(1, memory_kind::file_locks, 900 * MiB)}));
  }
  SECTION("a machine that is short can afford less") {
    CHECK_FALSE(judge(rules, true, 10 * GiB, {usual[0]}));
    CHECK(judge(rules, true, 10 * GiB, usual)->id == 2);
  }
  CHECK_FALSE(judge(rules, true, 10 * GiB, {}));
}

namespace {

struct layers {
  layers() {
    for (const char* each : {"i", "i/tmp", "i/var", "i/var/tmp", "i/workspace", "i/home",
                             "i/home/me", "i/opt", "i/usr", "i/usr/tmp", "i/etc", "u"})
      fs::create_directory(top / each);
    for (const char* each : {"i/tmp", "i/var/tmp", "i/usr/tmp"})
      ::chmod((top / each).c_str(), 01777);
    for (const char* each : {"i/workspace", "i/home/me"})
      REQUIRE(::chown((top / each).c_str(), 1000, 1000) == 0);
    ::chmod((top / "i/home").c_str(), 0751);
  }
  bool make() {
    const unique_fd image{::open((top / "i").c_str(), O_PATH | O_CLOEXEC)};
    const unique_fd upper{::open((top / "u").c_str(), O_PATH | O_CLOEXEC)};
    return places.make(image.get(), upper.get());
  }
  bool opaque(const char* path) const {
    char mark = 0;
    return ::lgetxattr((top / "u" / path).c_str(), "user.overlay.opaque", &mark, 1) == 1 &&
           mark == 'y';
  }
  struct stat look(const char* path) const {
    struct stat info {};
    CHECK(::lstat((top / "u" / path).c_str(), &info) == 0);
    return info;
  }

  temp_dir top;
  own_places places;
};

} // namespace

TEST_CASE("directories that the user may write are the sandbox's alone",
          "[runtime][memory][root]") {
  layers at;
  std::ofstream{at.top / "i/workspace/given"} << "from the image";
  fs::create_directory(at.top / "i/workspace/deep");
  std::ofstream{at.top / "i/workspace/deep/run"} << "#!/bin/sh\n";
  ::chmod((at.top / "i/workspace/deep/run").c_str(), 04755);
  fs::create_symlink("given", at.top / "i/workspace/link");
  REQUIRE(::lchown((at.top / "i/workspace/link").c_str(), 1000, 1000) == 0);
  REQUIRE(at.make());
  for (const char* each : {"tmp", "var/tmp", "workspace", "home/me"})
    CHECK(at.opaque(each));
  for (const char* each : {"var", "home", "workspace/deep"})
    CHECK_FALSE(at.opaque(each));
  for (const char* each : {"opt", "etc", "usr"})
    CHECK_FALSE(fs::exists(at.top / "u" / each));
  CHECK(at.look("tmp").st_mode == (S_IFDIR | 01777));
  CHECK(at.look("home").st_mode == (S_IFDIR | 0751));
  CHECK(at.look("home").st_uid == 0);
  CHECK(at.look("home/me").st_uid == 1000);
  CHECK(at.look("workspace/deep/run").st_mode == (S_IFREG | 04755));
  CHECK(at.look("workspace/link").st_gid == 1000);
  CHECK(fs::read_symlink(at.top / "u/workspace/link") == "given");
  std::string text;
  std::getline(std::ifstream{at.top / "u/workspace/given"}, text);
  CHECK(text == "from the image");
  CHECK(at.places.merged().empty());
  CHECK_FALSE(at.places.merges_all());
}

TEST_CASE("a directory with more in it than is copied stays merged, and that is known",
          "[runtime][memory][root]") {
  layers at;
  SECTION("many files") {
    for (std::size_t i = 0; i <= own_places::max_entries; ++i)
      std::ofstream{at.top / "i/workspace" / std::to_string(i)};
  }
  SECTION("a large file") {
    std::ofstream{at.top / "i/workspace/large"} << std::string(own_places::max_bytes + 1, 'x');
  }
  SECTION("a file that is no file") {
    REQUIRE(::mkfifo((at.top / "i/workspace/fifo").c_str(), 0600) == 0);
  }
  SECTION("attributes") {
    static_cast<void>(std::ofstream{at.top / "i/workspace/given"});
    REQUIRE(::setxattr((at.top / "i/workspace/given").c_str(), "user.x", "y", 1, 0) == 0);
  }
  REQUIRE(at.make());
  CHECK_FALSE(fs::exists(at.top / "u/workspace"));
  CHECK(at.places.merged() == std::vector<std::string>{"/workspace"});
  CHECK(at.opaque("tmp"));
  CHECK(at.opaque("home/me"));
}

TEST_CASE("directories are made where the file system keeps no marks, and that is known",
          "[runtime][memory][root]") {
  layers at;
  bool made = false;
  std::thread{[&] { // With mounts of its own, which go with it.
    if (::unshare(CLONE_NEWNS) == 0 &&
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        ::mount("none", (at.top / "u").c_str(), "ramfs", 0, nullptr) == 0)
      made = at.make() && fs::is_directory(at.top / "u/var/tmp");
  }}
    .join();
  CHECK(made);
  CHECK(at.places.merges_all());
}

TEST_CASE("a link in an image leads nowhere when its directories are looked for",
          "[runtime][memory][root]") {
  layers at;
  fs::remove(at.top / "i/tmp");
  fs::create_symlink("/tmp", at.top / "i/tmp");
  fs::create_symlink("/", at.top / "i/opt/out");
  REQUIRE(at.make());
  CHECK_FALSE(fs::exists(fs::symlink_status(at.top / "u/tmp")));
  CHECK_FALSE(fs::exists(at.top / "u/opt"));
}

TEST_CASE("what no end of a process gives back is half of a sandbox's memory at most",
          "[runtime][memory]") {
  runtime::spawner::limits wanted{};
  wanted.disk_bytes = 10 * GiB;
  wanted.shm_bytes = 256 * MiB;
  for (const auto memory : {16 * MiB, 100 * MiB, 256 * MiB, 512 * MiB, 2 * GiB, 64 * GiB}) {
    CAPTURE(memory);
    wanted.memory_bytes = memory;
    const auto given = share_memory(wanted, false);
    CHECK(given.shm_bytes <= wanted.shm_bytes);
    CHECK(given.shm_bytes >= std::min(wanted.shm_bytes, memory * 3 / 8 - 4096));
    CHECK(given.shm_bytes + given.segments <= memory / 2);
    CHECK(given.segments >= memory / 8 - 4096); // However much /dev/shm is to have.
    CHECK(given.shm_bytes % 4096 == 0);
    CHECK(given.segments % 4096 == 0);
    CHECK(given.shm_files <= 65'536);
    CHECK(given.shm_files <= memory / 16'384);
    CHECK(given.queues >= 1);
    CHECK(given.queues <= memory / (16 * MiB));
    CHECK(given.semaphores >= 250);
    CHECK(given.semaphores <= memory / (32 * 64));
    CHECK(given.disk_bytes == wanted.disk_bytes);
    const auto in_memory = share_memory(wanted, true);
    CHECK(in_memory.shm_bytes + in_memory.segments <= memory / 4);
    CHECK(in_memory.disk_bytes == std::min(wanted.disk_bytes, memory / 2));
    wanted.disk_bytes = 0; // As much as there is.
    CHECK(share_memory(wanted, true).disk_bytes == memory / 2);
    wanted.disk_bytes = 10 * GiB;
  }
  wanted.memory_bytes = 0;
  const auto unlimited = share_memory(wanted, true);
  CHECK(unlimited.shm_bytes == 256 * MiB);
  CHECK(unlimited.disk_bytes == 10 * GiB);
  CHECK(unlimited.queues == 32'000);
}
