// Terminals, in real sandboxes.
#include "base/limits.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/live_node.hpp"

#include <csignal>
#include <filesystem>
#include <regex>
#include <sys/wait.h>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

constexpr auto long_enough = 60s;

process_spec interactive(std::vector<std::string> argv) {
  process_spec spec;
  spec.argv = std::move(argv);
  spec.env = {"PATH=/usr/bin:/bin", "HOME=/home/sandbox", "TERM=xterm-256color", "PS1=> "};
  spec.cwd = "/workspace";
  return spec;
}

process_spec bash() {
  return interactive({"/bin/bash", "--norc", "--noediting"});
}

/// One terminal, with what its listener is told.
class live_terminal {
public:
  live_terminal(runtime::sandbox& in, process_spec spec, terminal_size size = {})
      : told_(std::make_shared<told>()) {
    process_listener listener;
    listener.on_started = [to = told_] { to->started.tell(std::nullopt); };
    listener.on_failed = [to = told_](error why) { to->started.tell(std::move(why)); };
    listener.on_ended = [to = told_](process_exit how) { to->ended.tell(how); };
    listener.on_complete = [to = told_] { to->complete.tell(true); };
    terminal_ = in.open_terminal(std::move(spec), size, std::move(listener));
  }

  std::optional<error> failure() { return told_->started.next(long_enough); }
  process_exit ended() { return told_->ended.next(long_enough); }
  void complete() { told_->complete.next(long_enough); }

  /// Until it has been taken.
  bool type(std::string bytes) {
    auto taken = std::make_shared<events<bool>>();
    terminal_->write(std::move(bytes), [taken](bool all) { taken->tell(all); });
    return taken->next(long_enough);
  }
  log_chunk read(std::uint64_t from, std::size_t most = 64 * 1024) {
    auto chunk = std::make_shared<events<log_chunk>>();
    terminal_->read(from, most, false, [chunk](log_chunk got) { chunk->tell(std::move(got)); });
    return chunk->next(long_enough);
  }
  /// What has been printed since the last time, up to `text`, or to the end.
  std::string until(const std::string& text) {
    std::string printed;
    while (printed.find(text) == std::string::npos) {
      const auto chunk = read(offset_);
      offset_ = chunk.next_offset;
      for (const auto& each : chunk.frames)
        printed += each.bytes;
      if (chunk.ended)
        break;
    }
    return printed;
  }
  log_extent extent() {
    auto extents = std::make_shared<events<log_extent>>();
    terminal_->measure([extents](log_extent what) { extents->tell(what); });
    return extents->next(long_enough);
  }
  runtime::terminal& operator*() { return *terminal_; }
  void let_go() { terminal_.reset(); }

private:
  struct told {
    events<std::optional<error>> started;
    events<process_exit> ended;
    events<bool> complete;
  };
  std::shared_ptr<told> told_;
  std::shared_ptr<runtime::terminal> terminal_;
  std::uint64_t offset_ = 0;
};

} // namespace

TEST_CASE("a terminal is the controlling one of a session of its own", "[runtime][terminal]") {
  live_sandbox box{shared_node()};
  live_terminal tty{*box, bash(), {100, 40}};
  REQUIRE_FALSE(tty.failure());
  CHECK(
    tty.type("tty; stty size; ps -o tty=,stat= -p $$; stty -a | grep -o ' iutf8'; echo 'en'd.\n"));
  const auto printed = tty.until("end.\r\n");
  CHECK(printed.find("/dev/pts/0\r\n40 100\r\n") != std::string::npos);
  // `N` and `<` are of a test that runs with another priority.
  CHECK(std::regex_search(printed, std::regex{"pts/0    S[N<]?s"}));
  CHECK(printed.find(" iutf8\r\n") != std::string::npos);
  CHECK(printed.find("no job control") == std::string::npos);
  live_terminal second{*box, bash()};
  REQUIRE_FALSE(second.failure());
  second.type("tty; stty size; ls -l /dev/pts/1; exit\n");
  const auto other = second.until("nothing");
  CHECK(other.find("/dev/pts/1\r\n24 80\r\n") != std::string::npos);
  CHECK(other.find("crw--w---- 1 sandbox") != std::string::npos);
  CHECK(second.ended().status == 0);
}

TEST_CASE("keys and sizes become signals for the foreground job", "[runtime][terminal]") {
  live_sandbox box{shared_node()};
  live_terminal tty{*box, bash()};
  REQUIRE_FALSE(tty.failure());
  tty.type("bash -c 'echo up; exec sleep 1000'\n");
  tty.until("up\r\n");
  tty.type("\x03");
  tty.until("> ");
  tty.type("echo \"code $?.\"\n");
  CHECK(tty.until(".\r\n").find("code 130.") != std::string::npos);
  tty.type("bash -c 'echo again; exec sleep 1000'\n");
  tty.until("again\r\n");
  tty.type("\x1a");
  CHECK(tty.until("Stopped").find("[1]+") != std::string::npos);
  tty.type("kill -9 %1; wait 2>/dev/null; trap 'stty size' WINCH; echo 'se't.\n");
  tty.until("set.\r\n");
  (*tty).resize({132, 50});
  tty.type("\n"); // A shell that waits for a line runs its traps behind it.
  tty.until("50 132\r\n");
  tty.type("\x04"); // The end of what is typed.
  CHECK(WIFEXITED(tty.ended().status));
}

TEST_CASE("what a shell printed last is there, and its end waits for nobody else",
          "[runtime][terminal]") {
  live_sandbox box{shared_node()};
  for (int round = 0; round < 20; ++round) {
    live_terminal tty{
      *box, interactive({"/bin/bash", "-c", "sleep 1000 & seq 1000; echo the last line; exit 7"})};
    REQUIRE_FALSE(tty.failure());
    CHECK(tty.until("nothing").ends_with("1000\r\nthe last line\r\n"));
    CHECK(WEXITSTATUS(tty.ended().status) == 7);
    tty.complete();
    CHECK_FALSE(tty.type("too late")); // Said to who waits.
  }
  live_terminal killed{*box, bash()};
  REQUIRE_FALSE(killed.failure());
  killed.type("kill -9 $$\n");
  CHECK(WTERMSIG(killed.ended().status) == SIGKILL);
}

TEST_CASE("a megabyte that is pasted arrives whole", "[runtime][terminal]") {
  live_sandbox box{shared_node()};
  live_terminal tty{
    *box, interactive({"/bin/bash", "-c", "stty raw -echo; echo up; head -c 1000000 | md5sum"})};
  REQUIRE_FALSE(tty.failure());
  tty.until("up");
  std::string paste;
  for (int i = 0; paste.size() < 1'000'000; ++i)
    paste += "line " + std::to_string(i) + "\n";
  paste.resize(1'000'000);
  CHECK(tty.type(paste));
  // What it should be, made inside once more.
  const auto same = box.run("seq -f 'line %.0f' 0 200000 | head -c 1000000 | md5sum").out;
  CHECK(tty.until("-").find(same.substr(0, 32)) != std::string::npos);
  CHECK(tty.ended().status == 0);
}

TEST_CASE("what nobody reads stays with who typed it", "[runtime][terminal]") {
  live_sandbox box{shared_node()};
  live_terminal tty{*box,
                    interactive({"/bin/bash", "-c", "stty raw -echo; echo up; exec sleep 1000"})};
  REQUIRE_FALSE(tty.failure());
  tty.until("up");
  auto taken = std::make_shared<events<bool>>();
  (*tty).write(std::string(200'000, 'x'), [taken](bool all) { taken->tell(all); });
  tty.extent(); // Behind it, on the same thread.
  CHECK(taken->empty());
  (*tty).signal(SIGKILL);
  tty.ended();
  CHECK_FALSE(taken->next(long_enough));
}

TEST_CASE("a terminal that nobody reads goes on, and keeps the newest of its output",
          "[runtime][terminal]") {
  live_sandbox box{shared_node()};
  live_terminal tty{*box, interactive({"/bin/bash", "-c", "stty raw; yes | head -c 10000000"})};
  REQUIRE_FALSE(tty.failure());
  CHECK(tty.ended().status == 0);
  const auto extent = tty.extent();
  CHECK(extent.end == 10'000'000);
  CHECK(extent.end - extent.begin == limits::terminal_log_bytes);
  const auto late = tty.read(0, 1000);
  CHECK(late.lost_bytes == extent.begin);
  CHECK(late.frames.at(0).bytes.size() == 1000);
  CHECK_FALSE(late.ended);
  CHECK(tty.read(extent.begin, limits::terminal_log_bytes).frames.at(0).bytes.size() ==
        limits::terminal_log_bytes);
  CHECK(tty.read(extent.end).ended);
}

TEST_CASE("a shell may let go of its terminal and come back to it", "[runtime][terminal]") {
  live_sandbox box{shared_node()};
  live_terminal tty{
    *box, interactive({"/bin/bash", "-c",
                       "exec <&- >&- 2>&-; touch gone; until [ -e go ]; do sleep 0.01; done; exec "
                       "</dev/tty >/dev/tty; echo back; read x; echo \"got $x.\""})};
  REQUIRE_FALSE(tty.failure());
  box.run("until [ -e /workspace/gone ]; do sleep 0.01; done");
  // What is typed meanwhile waits, here or in the kernel.
  auto taken = std::make_shared<events<bool>>();
  (*tty).write("this\n", [taken](bool all) { taken->tell(all); });
  box.run("touch /workspace/go");
  CHECK(taken->next(long_enough));
  CHECK(tty.until(".\r\n").find("got this.") != std::string::npos);
  CHECK(tty.ended().status == 0);
}

TEST_CASE("what cannot be started behind a terminal says why", "[runtime][terminal]") {
  live_sandbox box{shared_node()};
  live_terminal none{*box, interactive({"/nowhere/bash"})};
  const auto why = none.failure();
  REQUIRE(why);
  CHECK(why->code == errc::launch_failed);
  CHECK(why->message == "running the program /nowhere/bash: No such file or directory");
  // The launcher's devpts has room for 64.
  std::vector<std::unique_ptr<live_terminal>> all;
  std::optional<error> full;
  while (!full && all.size() < 100) {
    all.push_back(std::make_unique<live_terminal>(*box, interactive({"/bin/cat"})));
    full = all.back()->failure();
  }
  REQUIRE(full);
  CHECK(full->message == "opening a terminal: No space left on device");
  CHECK(all.size() == 65);
}

TEST_CASE("a terminal for a directory that is gone begins at home", "[runtime][terminal]") {
  live_sandbox box{shared_node()};
  auto elsewhere = interactive({"/bin/pwd"});
  elsewhere.cwd = "/nowhere";
  live_terminal tty{*box, elsewhere};
  REQUIRE_FALSE(tty.failure());
  CHECK(tty.until("\n") == "/home/sandbox\r\n");
}

TEST_CASE("a terminal ends with its sandbox", "[runtime][terminal]") {
  live_sandbox box{shared_node()};
  live_terminal tty{*box, bash()};
  REQUIRE_FALSE(tty.failure());
  tty.until("> ");
  box.destroy();
  CHECK(tty.ended().lost);
  tty.complete();
  const auto last = tty.read(tty.extent().end);
  REQUIRE(last.ended);
  CHECK(last.ended->lost);
}

TEST_CASE("a thousand terminals leave nothing behind", "[runtime][terminal]") {
  live_sandbox box{shared_node()};
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator{"/proc/self/fd"}, {});
  };
  box.run("true");
  const auto before = descriptors();
  for (int i = 0; i < 1000; ++i) {
    live_terminal tty{*box, interactive({"/bin/true"})};
    REQUIRE_FALSE(tty.failure());
    tty.complete();
  }
  CHECK(eventually([&] { return descriptors() <= before; }, long_enough));
  // The process that has made the last command's process may still be closing its copy.
  CHECK(eventually([&] { return box.run("ls /dev/pts").out == "ptmx\n"; }, long_enough));
}

TEST_CASE("the output of a terminal waits for a reader that it has alone", "[runtime][terminal]") {
  live_sandbox box{shared_node()};
  constexpr std::uint64_t all = 8'000'000;
  auto spec = interactive(
    {"/bin/bash", "-c", "stty raw -echo; head -c 8000000 /dev/zero | tr '\\0' x; exit 3"});
  spec.waits_for_reader = true;
  live_terminal tty{*box, spec};
  REQUIRE_FALSE(tty.failure());
  // It goes on until it stands still.
  log_extent now;
  for (int same = 0; same < 50;) {
    const auto next = tty.extent();
    same = next.end == now.end && next.end > limits::terminal_ahead_bytes ? same + 1 : 0;
    now = next;
  }
  CHECK(now.begin == 0);
  CHECK(now.end <= limits::terminal_log_bytes);
  SECTION("which gets all of it") {
    std::uint64_t at = 0;
    for (bool ended = false; !ended;) {
      const auto chunk = tty.read(at);
      CHECK(chunk.lost_bytes == 0);
      at = chunk.next_offset;
      ended = chunk.ended.has_value();
    }
    CHECK(at == all);
    CHECK(WEXITSTATUS(tty.ended().status) == 3);
  }
  SECTION("until that reader has gone") {
    (*tty).forget(0);
    CHECK(WEXITSTATUS(tty.ended().status) == 3);
    CHECK(tty.extent().end == all);
  }
}

TEST_CASE("a terminal that needs its directory does not start without it", "[runtime][terminal]") {
  live_sandbox box{shared_node()};
  auto spec = bash();
  spec.cwd = "/no/such/directory";
  spec.needs_cwd = true;
  live_terminal tty{*box, spec};
  const auto why = tty.failure();
  REQUIRE(why);
  CHECK(why->code == errc::launch_failed);
  CHECK(why->message.find("entering the working directory") == 0);
  spec.needs_cwd = false;
  live_terminal at_home{*box, spec};
  CHECK_FALSE(at_home.failure());
}
