// Each attack in a real sandbox of a real server: the limit holds as seen from the machine, the
// victim is told, the neighbour goes on, the server stays as it is, and DELETE ends it all.
#include "tests/abuse/battlefield.hpp"
#include "tests/support/catch.hpp"

#include <filesystem>

using namespace insula::test;

TEST_CASE("a fork bomb stays within the limit of processes", "[abuse]") {
  battlefield field;
  auto bomb = field.attack("fork_bomb");
  CHECK(bomb.why == "EAGAIN");
  CHECK(eventually([&] { return field.processes() >= processes_limit; }));
  for (int i = 0; i < 20; ++i) {
    CHECK(field.processes() <= processes_limit + slack);
    CHECK(field.server.sh("neighbour", "echo $(echo here)").out == "here\n");
  }
  CHECK(field.server.exec("victim", {"echo", "works"}).out == "works\n");
  field.end();
}

TEST_CASE("a hundred thousand threads stay within the limit of processes", "[abuse]") {
  battlefield field;
  auto threads = field.attack("threads 100000");
  CHECK(threads.why == "EAGAIN");
  CHECK(threads.count < processes_limit);
  CHECK(threads.count > processes_limit / 2);
  CHECK(field.processes() <= processes_limit + slack);
  field.end();
}

TEST_CASE("orphans are buried as fast as they come, and leave no zombies", "[abuse]") {
  battlefield field;
  auto storm = field.attack("zombies");
  CHECK(storm.why == "EAGAIN");
  CHECK(field.processes() <= processes_limit + slack);
  CHECK(field.server.sh("victim", field.by + "pkill -KILL -x attack").exit_code == 0);
  CHECK(
    eventually([&] { return field.server.sh("victim", "ps -eo stat= | grep -c Z").out == "0\n"; }));
  field.end();
}

TEST_CASE("who runs out of memory is told so: exit 137 and the reason", "[abuse]") {
  battlefield field;
  const auto told = std::string{"Command killed: out of memory (the sandbox's limit is 128MiB)\n"};
  const auto hog = field.server.exec("victim", {"./attack", "memory"});
  CHECK(hog.exit_code == 137);
  CHECK(hog.err == told);
  const auto in_shell = field.server.sh("victim", "./attack memory; exit $?");
  CHECK(in_shell.exit_code == 137);
  CHECK(in_shell.err.ends_with(told));
  CHECK(field.server.log().find("command.out_of_memory sandbox=victim limit_bytes=134217728") !=
        std::string::npos);
  // Not who was killed for another reason, nor whose child it was.
  const auto killed = field.server.sh("victim", "kill -KILL $$");
  CHECK(killed.exit_code == 137);
  CHECK(killed.err.empty());
  CHECK(field.server.sh("victim", "./attack memory; echo after").out == "after\n");
  field.end();
}

TEST_CASE("who takes the machine's memory by file locks is ended and told so", "[abuse]") {
  battlefield field;
  // 100,000 are a large database's.
  auto innocent = field.server.open("neighbour", {"./attack", "locks", "100000"});
  const auto all = innocent.next();
  REQUIRE(all);
  CHECK(all->data.find("100000 0") != std::string::npos);
  const auto told = field.server.exec("victim", {"./attack", "locks", "2400000"});
  CHECK(told.exit_code == 137);
  CHECK(told.err.starts_with("Sandbox ended: it holds kernel memory outside of its limit (file "
                             "locks: "));
  CHECK(told.err.ends_with(" MiB)\n"));
  CHECK(field.server.log().find("error sandbox.ended_by_node sandbox=victim reason=") !=
        std::string::npos);
  CHECK(field.server.sh("victim", "ls").out.empty()); // The next one is empty.
  CHECK(field.server.sh("neighbour", "pgrep -c attack").out == "1\n");
  field.end();
}

TEST_CASE("of many hogs enough are killed, and each is told", "[abuse]") {
  battlefield field;
  const auto all = at_once(8, [&](std::size_t) {
    return field.server.exec("victim", {"./attack", "memory"});
  });
  for (const auto& each : all) {
    CHECK(each.exit_code == 137);
    CHECK(each.err.find("out of memory") != std::string::npos);
  }
  auto hogs = field.attack("hogs 20 16");
  CHECK(hogs.count >= 8); // Of 320 MiB that they want, 128 are there.
  CHECK(field.memory_bytes() <= memory_limit);
  field.end();
}

TEST_CASE("a full disk is the sandbox's own", "[abuse]") {
  battlefield field;
  const auto before = field.disk_bytes();
  auto fill = field.attack("bytes .");
  CHECK((fill.why == "EDQUOT" || fill.why == "ENOSPC"));
  CHECK(fill.count <= static_cast<long>(disk_limit >> 20));
  CHECK(fill.count > static_cast<long>(disk_limit >> 21));
  CHECK(field.server.sh("neighbour", "head -c 20000000 /dev/urandom > mine").exit_code == 0);
  // It writes and removes for ever; the machine never holds more than is allowed, and the
  // neighbour's.
  for (int i = 0; i < 10; ++i)
    CHECK(field.disk_bytes() < before + 2 * disk_limit + (64u << 20));
  field.end();
  CHECK(eventually([&] { return field.disk_bytes() < before + (64u << 20); }, 60s));
}

TEST_CASE("empty files count as disk, too", "[abuse][any_user]") {
  battlefield field;
  const auto before = field.disk_bytes();
  auto fill = field.attack("inodes .", 100s);
  CHECK((fill.why == "EDQUOT" || fill.why == "ENOSPC"));
  CHECK(fill.count > 10'000);
  CHECK(fill.count < 1'000'000);
  CHECK(field.disk_bytes() < before + disk_limit + (64u << 20));
  CHECK(field.server.sh("neighbour", "for i in {1..100}; do : > $i; done").exit_code == 0);
  field.end();
}

TEST_CASE("shared memory has a ceiling of bytes and one of files", "[abuse]") {
  battlefield field;
  auto bytes = field.attack("bytes /dev/shm");
  CHECK(bytes.why == "ENOSPC");
  CHECK(bytes.count == static_cast<long>(shm_limit >> 20));
  CHECK(field.shm_bytes() <= shm_limit);
  CHECK(field.server.sh("neighbour", "head -c 10000000 /dev/zero > /dev/shm/mine").exit_code == 0);
  field.end();
  auto files = field.attack("inodes /dev/shm");
  CHECK(files.why == "ENOSPC");
  CHECK(files.count > 8'000); // A sixteenth of the memory, at 1 KiB each.
  CHECK(files.count < 8'192);
  CHECK(field.server.sh("neighbour", ": > /dev/shm/another").exit_code == 0);
  field.end();
}

TEST_CASE("open files end at each process's limit, and with the sandbox's memory", "[abuse]") {
  battlefield field;
  CHECK(field.attack("descriptors files").why == "EMFILE");
  field.end();
  // So many that the kernel's own memory for them is the limit.
  const auto many = field.attack("descriptors unix 30");
  CHECK(many.count > 0);
  CHECK(field.memory_bytes() <= memory_limit);
  field.end();
}

TEST_CASE("what the kernel counts per user is counted for each sandbox apart", "[abuse]") {
  battlefield field;
  const auto watchers = field.attack("descriptors inotify");
  CHECK(watchers.why == "EMFILE");
  // As many again: the first have not used up the machine's.
  auto again = field.server.open("neighbour", {"./attack", "descriptors", "inotify"});
  const auto same = again.next();
  REQUIRE(same);
  CHECK(same->data == std::to_string(watchers.count) + " EMFILE\n");
  again.connection().close();
  field.end();
  const auto sent = field.attack("descriptors rights");
  CHECK(sent.why == "ETOOMANYREFS");
  const auto there = field.server.open("neighbour", {"./attack", "descriptors", "rights"}).next();
  REQUIRE(there);
  CHECK(there->data.find("ETOOMANYREFS") != std::string::npos);
  field.end();
}

TEST_CASE("terminals end at the sandbox's own limit", "[abuse]") {
  battlefield field;
  auto terminals = field.attack("terminals");
  CHECK(terminals.why == "ENOSPC");
  CHECK(terminals.count == 64);
  auto others = field.server.open("neighbour", {"./attack", "terminals"});
  const auto same = others.next();
  REQUIRE(same);
  CHECK(same->data == "64 ENOSPC\n");
  others.connection().close();
  field.end();
}

TEST_CASE("ten gigabytes of output without a reader keep the log at its ceiling",
          "[abuse][any_user]") {
  battlefield field;
  field.attack("flood 10").stream->connection().abandon();
  std::uint64_t most = 0;
  REQUIRE(eventually(
    [&] {
      most = std::max(most, field.log_bytes());
      return field.server.sh("victim", "pgrep -x attack").out.empty();
    },
    150s));
  CHECK(most > log_limit / 2);
  CHECK(most <= 2 * log_limit);
  CHECK(eventually([&] { return field.log_bytes() < (1u << 20); }));
  field.end();
}

TEST_CASE("ten gigabytes of output wait for a reader that stands still", "[abuse][any_user]") {
  battlefield field;
  auto flood = field.attack("flood 10");
  REQUIRE(eventually([&] {
    return field.server.sh("victim", field.by + "cat /proc/$(pgrep -x attack)/wchan")
             .out.find("pipe") != std::string::npos;
  }));
  CHECK(field.log_bytes() <= 2 * log_limit);
  CHECK(field.server.exec("victim", {"echo", "works"}).out == "works\n");
  field.end();
}

TEST_CASE("with every sandbox's processors burning, every sandbox answers", "[abuse]") {
  battlefield field;
  auto burning = field.attack("burn 8");
  auto here = field.server.open("neighbour", {"./attack", "burn", "8"});
  REQUIRE(here.next());
  for (int i = 0; i < 10; ++i)
    CHECK(field.server.sh("neighbour", "echo $(echo here)").out == "here\n");
  CHECK(field.server.exec("victim", {"echo", "works"}).out == "works\n");
  here.connection().close();
  field.end();
}

TEST_CASE("a tree that is deep and has long names goes with its sandbox", "[abuse]") {
  battlefield field;
  const auto made = field.attack("depth 2000");
  CHECK(made.count == 2000);
  CHECK(field.server.sh("victim", "touch $(printf %0255d 0)").exit_code == 0);
  field.end();
}

TEST_CASE("nothing that a process does keeps it from going with its sandbox", "[abuse]") {
  battlefield field;
  auto stubborn = field.server.open(
    "victim", {"bash", "-c",
               "trap '' TERM INT HUP; mkfifo pipe; cat pipe & setsid sleep 10000 & "
               "(echo -500 > /proc/self/oom_score_adj) 2>/dev/null || "
               "cat /proc/self/oom_score_adj; while :; do sleep 1000; done"});
  const auto score = stubborn.next();
  REQUIRE(score);
  CHECK(score->data == "500\n");
  CHECK(field.processes() >= 3);
  field.end();
  CHECK_FALSE(stubborn.rest().exit_code);
}

TEST_CASE("who stops every process in a sandbox stops no request for ever", "[abuse]") {
  battlefield field;
  CHECK(field.attack("stop").why == "0");
  // The child that writes is stopped as soon as it is the sandbox's user, or while it writes.
  const std::string much(32u << 20, 'x');
  int status = 0;
  {
    const std::jthread writes{[&] {
      status = field.server.ask("PUT", "/v1/sandbox/victim/file/workspace/new", much).status;
    }};
    CHECK(field.server.exec("neighbour", {"echo", "here"}).out == "here\n");
    field.end();
  }
  CHECK((status == 502 || status == 200)); // 200: it was quicker.
}
