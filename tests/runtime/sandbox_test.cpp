// Commands and ceilings, in real sandboxes.
#include "base/limits.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/events.hpp"
#include "tests/support/live_node.hpp"

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;
using namespace std::chrono_literals;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

namespace {

std::uint64_t own_memory_bytes() {
  std::ifstream statm{"/proc/self/statm"};
  std::uint64_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * 4096;
}

sandbox_limits limits_of_node() {
  return shared_node().spec().limits;
}

input_progress write(process& to, std::string bytes, bool closes = false) {
  const auto told = std::make_shared<events<input_progress>>();
  to.write_input({{}, std::move(bytes), closes, 60s},
                 [told](input_progress now) { told->tell(now); });
  return told->next();
}

} // namespace

TEST_CASE("a command reads what is written to its input", "[runtime][sandbox][input]") {
  live_sandbox box{shared_node()};
  auto spec = in_shell("readlink /proc/self/fd/0 | cut -d: -f1; read -r line; echo \"<$line>\"; "
                       "cat /dev/stdin; ls /proc/self/fd | wc -l");
  spec.input = true;
  auto command = box.start(std::move(spec));
  command.says("pipe\n");
  CHECK(write(command.process(), "one\n").taken == 4);
  command.says("<one>\n");
  const std::string much(300'000, 'x');
  CHECK(write(command.process(), much, true).taken == 4 + much.size());
  const auto all = command.finish();
  CHECK((all.out == "pipe\n<one>\n" + much + "4\n")); // Nobody keeps a pipe of its own open.
  CHECK(write(command.process(), "late").state == input_state::over);
  auto none = box.start("cat");
  CHECK(none.finish().exited(0));
  CHECK(write(none.process(), "text").state == input_state::over);
}

TEST_CASE("a sandbox has so many open inputs, and the next when one is closed",
          "[runtime][sandbox][input]") {
  auto ceilings = limits_of_node();
  ceilings.processes = 2 * limits::inputs_per_sandbox;
  live_sandbox box{shared_node(), ceilings};
  auto spec = in_shell("");
  spec.argv = {"cat"};
  spec.input = true;
  std::vector<live_command> all;
  for (std::size_t i = 0; i < limits::inputs_per_sandbox; ++i)
    all.push_back(box.start(spec));
  for (auto& each : all)
    REQUIRE(each.started());
  CHECK_FALSE(box.start(spec).started());
  CHECK(write(all.front().process(), "one", true).taken == 3);
  CHECK(all.front().says("one") == "one");
  CHECK(all.front().ended().status == 0);
  auto next = box.start(spec);
  REQUIRE(next.started());
  CHECK(write(next.process(), {}, true).state == input_state::taken);
  CHECK(next.ended().status == 0);
}

TEST_CASE("a command's exit code and signal come back as they are", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  CHECK(box.run("true").exited(0));
  CHECK(box.run("exit 7").exited(7));
  CHECK(box.run("exit 255").exited(255));
  CHECK(box.run("kill -TERM $$").killed_by(SIGTERM));
  CHECK(box.run("kill -KILL $$").killed_by(SIGKILL));
  CHECK_FALSE(box.run("kill -KILL $$").how.out_of_memory);
}

TEST_CASE("stdout and stderr come apart and byte by byte", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  const auto both = box.run("echo to out; echo to err >&2");
  CHECK(both.out == "to out\n");
  CHECK(both.err == "to err\n");
  std::string every;
  for (int i = 0; i < 256; ++i)
    every += static_cast<char>(i);
  const auto binary =
    box.run("python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256)))'");
  CHECK(binary.out == every);
  CHECK(box.run("cat").out.empty()); // There is nothing to read.
  CHECK(box.run("readlink /proc/self/fd/0").out == "/dev/null\n");
}

TEST_CASE("a signal reaches the whole group, and may be sent at once", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  auto group = box.start("sleep 1000 & sleep 1000 & echo up; wait");
  group.says("up");
  group.process().signal(SIGTERM);
  CHECK(group.finish().killed_by(SIGTERM)); // Its output ends only with the last of them.
  // Before it is known to run, or even to have been made.
  for (int i = 0; i < 100; ++i) {
    auto spec = in_shell("sleep 1000");
    live_command early = box.start(std::move(spec));
    early.process().signal(SIGKILL);
    CHECK(WTERMSIG(early.ended().status) == SIGKILL);
  }
}

TEST_CASE("a command that cannot be started fails with the reason", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  const auto reason = [&](auto change) {
    auto spec = in_shell("true");
    change(spec);
    const auto failed = box.start(std::move(spec)).finish().failed;
    return failed ? failed->message : "it started";
  };
  CHECK(reason([](auto& s) { s.cwd = "/nowhere"; }) ==
        "entering the working directory /nowhere: No such file or directory");
  CHECK(reason([](auto& s) { s.cwd = "/etc/passwd"; }) ==
        "entering the working directory /etc/passwd: Not a directory");
  CHECK(reason([](auto& s) { s.cwd = "/root"; }) ==
        "entering the working directory /root: Permission denied");
  CHECK(reason([](auto& s) { s.cwd = ""; }) ==
        "entering the working directory: No such file or directory");
  CHECK(reason([](auto& s) { s.argv[0] = "/bin/nothing"; }) ==
        "running the program /bin/nothing: No such file or directory");
  CHECK(reason([](auto& s) { s.argv[0] = "/etc/passwd"; }) ==
        "running the program /etc/passwd: Permission denied");
  CHECK(reason([](auto& s) { s.argv.push_back(std::string(140'000, 'x')); }) ==
        "running the program /bin/bash: Argument list too long");
  CHECK(reason([](auto& s) { s.argv.clear(); }) == "running the program: Invalid argument");
  CHECK(reason([](auto& s) {
          s.user = {70'000, 70'000};
        }) == "becoming the user: Invalid argument");
  CHECK(reason([](auto&) {}) == "it started");
}

TEST_CASE("a NUL inside an argument starts nothing that was not meant", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  // The gateway refuses it; here it shifts the strings, and the agent must not read beyond them.
  process_spec spec;
  spec.argv = {"/bin/echo", std::string{"a\0b", 3}};
  spec.env = {"X=1"};
  const auto got = box.start(spec).finish();
  CHECK((got.failed || got.out == "a b\n" || got.out == "a\n"));
}

TEST_CASE("a command has the environment it was given, and nothing else", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  process_spec spec;
  spec.argv = {"/usr/bin/env", "-0"};
  spec.env = {"A=1", "B=two words\nand lines", "EMPTY=", "UTF=\xc3\xa4"};
  using namespace std::string_literals;
  CHECK(box.start(spec).finish().out == "A=1\0B=two words\nand lines\0EMPTY=\0UTF=\xc3\xa4\0"s);
  spec.env.clear();
  CHECK(box.start(spec).finish().out.empty());
}

TEST_CASE("a command has the descriptors 0, 1 and 2 and no other", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  process_spec spec;
  spec.argv = {"/bin/ls", "/proc/self/fd"};
  CHECK(box.start(spec).finish().out == "0\n1\n2\n3\n"); // 3 is the directory that ls reads.
  // Also beside others, and after file operations have come and gone.
  auto other = box.start("echo up; sleep 1000");
  other.says("up");
  static_cast<void>((*box).open_file(file_operation::read, "/etc/passwd", {}));
  CHECK(box.start(spec).finish().out == "0\n1\n2\n3\n");
  spec.script = "content of the script";
  CHECK(box.start(spec).finish().out == "0\n1\n2\n3\n9\n");
  auto reads = in_shell("cat <&9");
  reads.script = std::string(3'000'000, 's');
  CHECK(box.start(reads).finish(true).out == reads.script);
}

TEST_CASE("a command starts with usual signals, no terminal, and a group of its own",
          "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  process_spec spec;
  spec.argv = {"/bin/cat", "/proc/self/status"};
  const auto status = box.start(spec).finish().out;
  const auto mask = [&](const std::string& name) {
    return std::stoull(status.substr(status.find(name) + name.size()), nullptr, 16);
  };
  CHECK(mask("SigBlk:\t") == 0);
  CHECK((mask("SigIgn:\t") & ~(3ull << 31)) == 0); // 32 and 33 are the C library's own.
  const auto rest = box.run("ps -o tty= -p $$; umask; ulimit -c; ulimit -n;"
                            "[ $(ps -o pgid= -p $$) = $$ ] && echo leads");
  CHECK(rest.out == "?\n0022\n0\n1024\nleads\n");
}

TEST_CASE("64 MiB reach a slow reader whole, and this process stays small", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  constexpr std::uint64_t all = 64ull << 20;
  auto command = box.start("head -c 67108864 /dev/zero | tr '\\0' 'y'; echo done >&2");
  REQUIRE(command.started());
  const auto before = own_memory_bytes();
  std::uint64_t most = 0, got = 0, offset = 0;
  for (bool more = true; more;) {
    const auto told = std::make_shared<events<log_chunk>>();
    command.process().read(offset, 256 * 1024, true,
                           [told](log_chunk chunk) { told->tell(std::move(chunk)); });
    const auto chunk = told->next();
    REQUIRE(chunk.lost_bytes == 0);
    REQUIRE_FALSE(chunk.reader_dropped);
    for (const auto& each : chunk.frames)
      if (each.stream == output_stream::out) {
        REQUIRE(each.bytes.find_first_not_of('y') == std::string::npos);
        got += each.bytes.size();
      }
    offset = chunk.next_offset;
    more = !chunk.ended;
    most = std::max(most, own_memory_bytes());
    // It is held up: nowhere near all of it has been written while a part of it is not read.
    if (got == 0)
      CHECK_FALSE(chunk.ended);
  }
  CHECK(got == all);
  if (!sanitized)
    CHECK(most < before + (24ull << 20));
}

TEST_CASE("a command is held up by a reader that stands still", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  auto command = box.start("echo first; head -c 20000000 /dev/zero; echo all >&2");
  command.says("first");
  const auto told = std::make_shared<events<log_chunk>>();
  command.process().read(0, 10, true, [told](log_chunk chunk) { told->tell(std::move(chunk)); });
  told->next();
  // It sleeps in a write, which the kernel shows to those who may look.
  CHECK(eventually([&] {
    return box.run("cat /proc/$(pgrep -x head)/wchan").out.find("pipe_write") != std::string::npos;
  }));
  const auto rest = command.finish(true);
  CHECK(rest.lost == 0);
  CHECK(rest.out.size() >= 20'000'000);
  CHECK(rest.err == "all\n");
}

TEST_CASE("without a reader the oldest output goes and the command does not wait",
          "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  auto command = box.start("head -c 30000000 /dev/zero; echo the end");
  CHECK(WEXITSTATUS(command.ended().status) == 0);
  const auto all = command.finish();
  CHECK(all.lost > 20'000'000);
  CHECK(all.out.size() > 3'000'000);
  CHECK(all.out.size() <= 4u << 20);
  CHECK(all.out.ends_with("the end\n"));
}

TEST_CASE("output that is cut is what was written by then", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  auto command = box.start("echo before; (trap '' PIPE HUP; sleep 1000; echo after) & exit 3");
  CHECK(WEXITSTATUS(command.ended().status) == 3);
  command.process().cut_output();
  const auto all = command.finish();
  CHECK(all.exited(3));
  CHECK(all.out == "before\n");
}

TEST_CASE("a command that needs more memory than there is dies alone", "[runtime][sandbox]") {
  auto limits = limits_of_node();
  limits.memory_bytes = 64u << 20;
  live_sandbox box{shared_node(), limits};
  auto other = box.start("echo up; sleep 1000");
  other.says("up");
  const std::string hungry = "exec python3 -c 'x = bytearray(400 << 20)'";
  const auto got = box.run(hungry);
  CHECK(got.killed_by(SIGKILL));
  CHECK(got.how.out_of_memory);
  // A shell around it says 137, and that counts as well.
  const auto in_shell = box.run("bash -c \"" + hungry + "\"; exit $?");
  CHECK(in_shell.exited(137));
  CHECK(in_shell.how.out_of_memory);
  // Being killed later for another reason is no lack of memory.
  const auto killed = box.run("kill -KILL $$");
  CHECK(killed.killed_by(SIGKILL));
  CHECK_FALSE(killed.how.out_of_memory);
  CHECK(box.run("echo still here").out == "still here\n");
  other.process().signal(SIGTERM);
  CHECK(other.finish().killed_by(SIGTERM));
}

TEST_CASE("a fork bomb stays in its sandbox, which can be used and ended", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  live_sandbox neighbour{shared_node()};
  auto bomb = box.start("bomb() { bomb | bomb & }; echo up; for i in 1 2 3 4; do bomb; done; "
                        "while :; do bomb; done 2>/dev/null");
  bomb.says("up");
  const auto tree = shared_node().cgroups();
  const auto bombs = [&] {
    std::size_t most = 0;
    for (const auto& each : tree.hierarchies())
      if (each.controller == "pids" || tree.mode() == "v2")
        for (const auto& dir : std::filesystem::directory_iterator{
               each.directory + "/insula-" + shared_node().key() + "/sandboxes"})
          if (std::ifstream current{dir.path() / "pids.current"};
              dir.path().filename() != "host" && current) {
            std::size_t now = 0;
            current >> now;
            most = std::max(most, now);
          }
    return most;
  };
  CHECK(eventually([&] { return bombs() >= 200; }, 30s));
  for (int i = 0; i < 5; ++i) {
    process_spec plain;
    plain.argv = {"/bin/echo", "works"};
    CHECK(box.start(plain).finish().out == "works\n");
    CHECK(neighbour.run("echo $(echo works)").out == "works\n");
    // One over the ceiling for each command that the agent lets in.
    CHECK(bombs() <= 256 + 8);
  }
  box.destroy();
  CHECK(neighbour.run("echo works").out == "works\n");
}

TEST_CASE("what a sandbox uses is known while it lives", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  const auto at_rest = (*box).usage();
  REQUIRE(at_rest);
  REQUIRE(at_rest->memory_bytes);
  REQUIRE(at_rest->cpu);
  CHECK(at_rest->processes == 0u); // What starts commands is none.
  auto busy =
    box.start("printf -v all '%*s' 33554432 ''; sleep 60 & echo there; while :; do :; done");
  busy.says("there");
  CHECK(eventually([&] { return (*box).usage()->cpu > at_rest->cpu; }, 30s));
  const auto now = (*box).usage();
  CHECK(*now->memory_bytes > *at_rest->memory_bytes + (16u << 20));
  CHECK(*now->processes >= 2);
  box.destroy();
  CHECK_FALSE((*box).usage());
}

TEST_CASE("a command gets the share of a CPU that it may have", "[runtime][sandbox]") {
  auto limits = limits_of_node();
  limits.cpu_percent = 20;
  live_sandbox box{shared_node(), limits};
  const auto got = box.run("timeout 2 bash -c 'while :; do :; done'; cat /proc/$$/stat >/dev/null; "
                           "times | tail -1");
  // "0m0.380s 0m0.020s": user and system time of the children.
  int minutes = 0;
  double user = 0, system = 0;
  REQUIRE(std::sscanf(got.out.c_str(), "%dm%lfs %*dm%lfs", &minutes, &user, &system) == 3);
  CHECK(minutes == 0);
  CHECK(user + system < 0.75);
}

TEST_CASE("a sandbox's disk has a ceiling, and what is removed is room again",
          "[runtime][sandbox]") {
  auto limits = limits_of_node();
  limits.disk_bytes = 64u << 20;
  live_sandbox box{shared_node(), limits};
  const auto fill = "head -c 200000000 /dev/urandom > big";
  const auto full = box.run(fill);
  CHECK_FALSE(full.exited(0));
  CHECK((full.err.find("Disk quota exceeded") != std::string::npos ||
         full.err.find("No space left") != std::string::npos));
  const auto size = box.run("stat -c %s big");
  CHECK(std::stoull(size.out) <= 64u << 20);
  CHECK(std::stoull(size.out) > 40u << 20);
  // Others have their own.
  live_sandbox neighbour{shared_node(), limits};
  CHECK(neighbour.run("head -c 30000000 /dev/urandom > mine").exited(0));
  REQUIRE(box.run("rm big").exited(0));
  CHECK(box.run("head -c 30000000 /dev/urandom > again").exited(0));
  // Over /usr as well: it is the same disk.
  CHECK_FALSE(box.run("head -c 200000000 /dev/urandom > /usr/big", {0, 0}).exited(0));
}

// A directory has a number of its file system's then. Otherwise overlayfs gives it another one each
// time the kernel has forgotten it, as it does when memory is short, and a walk takes it for
// another directory.
TEST_CASE("files and directories are on one device, those of the image too", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  const auto devices = [&](const char* paths) {
    std::istringstream lines{box.run(std::string{"stat -c %d "} + paths).out};
    return std::multiset<std::string>{std::istream_iterator<std::string>{lines}, {}};
  };
  REQUIRE(box.run("mkdir -p new/inner && touch new/file").exited(0));
  const auto own = devices("/ . new new/inner new/file /etc /etc/passwd");
  CHECK(own.size() == 7);
  CHECK(own.count(*own.begin()) == own.size());
  REQUIRE(box.run("mkdir /usr/new && touch /usr/new/file", {0, 0}).exited(0));
  const auto usr = devices("/usr /usr/bin /usr/bin/env /usr/new /usr/new/file");
  CHECK(usr.size() == 5);
  CHECK(usr.count(*usr.begin()) == usr.size());
}

TEST_CASE("what is kept of a sandbox's output counts as its disk", "[runtime][sandbox]") {
  auto limits = limits_of_node();
  limits.disk_bytes = 64u << 20;
  limits.log_bytes = 64u << 20;
  live_sandbox box{shared_node(), limits};
  const auto print = "head -c 40000000 /dev/zero";
  const auto fill = "head -c 200000000 /dev/urandom > big; stat -c %s big";
  {
    // First the output, then the files: they have what is left. The disk is charged for output when
    // the spawner comes to it: it has come to all that was asked before a sandbox that it has made.
    std::vector<live_command> printed;
    for (int i = 0; i < 8; ++i) {
      CHECK(printed.emplace_back(box.start("head -c 5000000 /dev/zero")).ended().status == 0);
      const live_sandbox behind{shared_node()};
    }
    const auto full = box.run(fill);
    CHECK((full.err.find("Disk quota exceeded") != std::string::npos ||
           full.err.find("No space left") != std::string::npos));
    CHECK(std::stoull(full.out) < (64u << 20) - 36'000'000);
    for (auto& each : printed) {
      const auto all = each.finish();
      CHECK(all.out.size() == 5'000'000);
      CHECK(all.lost == 0);
    }
    REQUIRE(box.run("rm big").exited(0));
  }
  // Nobody wants it any more: there is room again, for files.
  CHECK(eventually([&] { return box.run("head -c 50000000 /dev/urandom > big").exited(0); }));
  // Now the output has what is left, and what has come meanwhile.
  auto printed = box.start(print);
  CHECK(printed.ended().status == 0);
  const auto some = printed.finish();
  CHECK(some.out.size() + some.lost >= 40'000'000);
  CHECK(some.out.size() < 36'000'000);
  CHECK(some.out.size() > 100'000);
  // A reader that takes it all loses nothing.
  auto awaiting = in_shell(print);
  awaiting.awaits_reader = true;
  auto read = box.start(std::move(awaiting));
  const auto whole = read.finish(true);
  CHECK(whole.lost == 0);
  CHECK(whole.out.size() == 40'000'000);
}

TEST_CASE("a sandbox never gets more than half of the disk that all share", "[runtime][sandbox]") {
  auto limits = limits_of_node();
  limits.disk_bytes = 100ull << 30; // The node has 4 GiB for all.
  live_sandbox box{shared_node(), limits};
  CHECK(box.run("fallocate -l 1000M small").exited(0));
  const auto much = box.run("fallocate -l 2000M large");
  CHECK_FALSE(much.exited(0));
  CHECK(much.err.find("Disk quota exceeded") != std::string::npos);
  live_sandbox neighbour{shared_node()};
  CHECK(neighbour.run("head -c 30000000 /dev/urandom > mine").exited(0));
}

TEST_CASE("/dev/shm has a ceiling", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  const auto full = box.run("head -c 100000000 /dev/zero > /dev/shm/big; stat -c %s /dev/shm/big");
  CHECK(full.err.find("No space left") != std::string::npos);
  CHECK(full.out == "16777216\n");
  CHECK(box.run("rm /dev/shm/big; head -c 10000000 /dev/zero > /dev/shm/again").exited(0));
}

TEST_CASE("a sandbox that is destroyed while fifty commands run ends them all",
          "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  std::vector<live_command> all;
  for (int i = 0; i < 50; ++i)
    all.push_back(box.start("echo up; sleep 1000"));
  for (auto& each : all)
    each.says("up");
  box.destroy();
  for (auto& each : all) {
    const auto got = each.finish();
    CHECK((got.how.lost || got.killed_by(SIGKILL)));
  }
  CHECK(shared_node().agents().empty());
}

TEST_CASE("a sandbox can be destroyed twice, and starts nothing afterwards", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  const auto gone = std::make_shared<events<int>>();
  for (int i = 0; i < 3; ++i)
    (*box).destroy([gone, i] { gone->tell(i); });
  for (int i = 0; i < 3; ++i)
    CHECK(gone->next() == i);
  box.destroy();
  const auto refused = box.run("true");
  REQUIRE(refused.failed);
  CHECK(refused.failed->code == errc::sandbox_not_running);
  CHECK_FALSE((*box).open_file(file_operation::read, "/etc/passwd", {}));
}

TEST_CASE("when PID 1 is killed from outside its sandbox ends, and its commands are lost",
          "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  live_sandbox neighbour{shared_node()};
  auto command = box.start("echo up; exec sleep 4711");
  command.says("up");
  pid_t inside = 0; // It says that it is up before it is sleep.
  REQUIRE(eventually([&] { return (inside = find_process("sleep 4711")) > 0; }));
  REQUIRE(::kill(parent_of(inside), SIGKILL) == 0);
  box.wait_until_ended();
  const auto got = command.finish();
  CHECK(got.how.lost);
  CHECK_FALSE(lives(inside));
  CHECK(box.run("true").failed);
  CHECK(neighbour.run("echo works").out == "works\n");
}

TEST_CASE("a sandbox whose processes all kill everything goes on", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  box.run("kill -KILL -1");
  box.run("kill -KILL -1", {0, 0});
  box.run("kill -STOP 1; kill -KILL 1; kill -TERM 1", {0, 0});
  CHECK(box.run("echo works").out == "works\n");
}

TEST_CASE("a starter that is stopped is replaced", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  // It stands still before the next command comes: what it has just taken goes with it.
  REQUIRE(box.run("kill -STOP $(pgrep -f ^insula-start); sleep 0.2", {0, 0}).exited(0));
  CHECK(box.run("echo works").out == "works\n");
  CHECK(eventually([&] { return box.run("ps -eo stat= | grep -c T").out == "0\n"; }));
}

TEST_CASE("whoever stops and kills the starter all the time leaves nobody waiting",
          "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  // What pkill has found may be a command by the time that it is stopped: that has to go on.
  auto storm = box.start("echo up; while :; do pkill -STOP -f ^insula-start; "
                         "pkill -KILL -f ^insula-start; pkill -CONT -f 'echo here$'; done",
                         {0, 0});
  storm.says("up");
  std::vector<live_command> all;
  for (int i = 0; i < 100; ++i)
    all.push_back(box.start("echo here"));
  for (auto& each : all) {
    const auto got = each.finish();
    // What a starter had in its hands, it takes along; a child has its name until it is a command.
    CHECK((got.failed || got.killed_by(SIGKILL) || got.out == "here\n"));
  }
  storm.process().signal(SIGKILL);
  CHECK(storm.finish().killed_by(SIGKILL));
  CHECK(box.run("echo works").out == "works\n");
}

TEST_CASE("orphans are reaped, and nobody waits for them", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  REQUIRE(box.run("for i in {1..100}; do (setsid true &) ; done").exited(0));
  CHECK(eventually([&] { return box.run("ps -eo stat= | grep -c Z").out == "0\n"; }));
}

TEST_CASE("a hundred sandboxes at once are all of use", "[runtime][sandbox]") {
  auto& node = shared_node();
  const auto ready = std::make_shared<events<std::shared_ptr<sandbox>>>();
  for (int i = 0; i < 100; ++i) {
    auto spec = node.spec();
    spec.host_name = "sb-" + std::to_string(i);
    node.engine().create(spec, {[ready](auto box) { ready->tell(std::move(box)); },
                                [ready](const error&) { ready->tell(nullptr); }, [] {}});
  }
  std::vector<std::shared_ptr<sandbox>> all;
  for (int i = 0; i < 100; ++i) {
    all.push_back(ready->next(60s));
    REQUIRE(all.back());
  }
  process_spec name;
  name.argv = {"/bin/hostname"};
  std::set<std::string> names;
  for (const auto& each : all)
    names.insert(live_command{*each, name}.finish().out);
  CHECK(names.size() == 100);
  const auto gone = std::make_shared<events<int>>();
  for (const auto& each : all)
    each->destroy([gone] { gone->tell(1); });
  for (int i = 0; i < 100; ++i)
    gone->next(60s);
  CHECK(node.agents().empty());
}

TEST_CASE("a layer that does not exist fails by name, leaves nothing, and the slot is free",
          "[runtime][sandbox]") {
  live_node node{{.key = {}, .log_directory = {}, .first_slot = 0, .slots = 1}};
  const auto told = std::make_shared<events<std::string>>();
  std::filesystem::create_directories(node.state() + "/images/.tree-1/root");
  const auto create = [&](auto change) {
    auto spec = node.spec();
    change(spec);
    node.engine().create(spec, {[told](auto) { told->tell("ready"); },
                                [told](const error& why) { told->tell(why.message); }, [] {}});
    return told->next(30s);
  };
  for (int i = 0; i < 3; ++i) {
    CHECK(create([&](auto& s) { s.image.tree = ".tree-2"; }) ==
          "mapping the image's layers: No such file or directory");
    // A layer without a place for /usr.
    CHECK(create([&](auto& s) { s.image.tree = ".tree-1"; }) ==
          "mounting the overlay: No such file or directory");
    // A server that has been taken over is not lent the machine.
    for (const auto* foreign : {"/", "/etc", "/usr", "../logs", ".", "none"})
      CHECK(create([&](auto& s) { s.image.tree = foreign; }) ==
            "reading the request: Operation not permitted");
    CHECK(node.agents().empty());
    for (const auto& each : node.traces())
      CHECK(each.find("cgroup") == std::string::npos);
  }
  live_sandbox box{node};
  CHECK(box.run("echo works").out == "works\n");
}

TEST_CASE("commands from many threads at once all come back", "[runtime][sandbox]") {
  live_sandbox box{shared_node()};
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 12; ++i) {
        const auto word = std::to_string(t) + "-" + std::to_string(i);
        right += box.run("echo " + word).out == word + "\n";
      }
    });
  for (auto& each : threads)
    each.join();
  CHECK(right == 96);
}
