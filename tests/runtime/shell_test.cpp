// Shells in real sandboxes, kept by the real keeper.
#include "base/limits.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/live_node.hpp"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sys/wait.h>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

shell_spec usual() {
  shell_spec spec;
  spec.env = {"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/sandbox", "LC_ALL=C.UTF-8",
              "LANG=C.UTF-8"};
  spec.cwd = "/workspace";
  return spec;
}

class live_shell {
public:
  explicit live_shell(live_sandbox& in, shell_spec spec = usual()) {
    shell_ = (*in).open_shell(std::move(spec),
                              {[to = heard_] { to->ready.tell({}); },
                               [to = heard_](error why) { to->ready.tell(std::move(why)); },
                               [to = heard_](process_exit how) { to->ended.tell(how); }});
    failed = heard_->ready.next(40s);
  }

  live_command start(std::string script, std::string cwd = {}) {
    return {*shell_, {std::move(script), std::move(cwd)}};
  }
  outcome run(std::string script, std::string cwd = {}) {
    return start(std::move(script), std::move(cwd)).finish(true);
  }
  process_exit ended() { return heard_->ended.next(40s); }
  bool alive() const { return heard_->ended.empty(); }
  result<shell_surroundings> look_around() {
    const auto told = std::make_shared<events<result<shell_surroundings>>>();
    shell_->look_around([told](result<shell_surroundings> what) { told->tell(std::move(what)); });
    return told->next(40s);
  }
  shell& operator*() { return *shell_; }
  void let_go() { shell_.reset(); }

  std::optional<error> failed;

private:
  struct heard {
    events<std::optional<error>> ready;
    events<process_exit> ended;
  };
  std::shared_ptr<heard> heard_ = std::make_shared<heard>();
  std::shared_ptr<shell> shell_;
};

/// A node on which whoever comes back at all is waited for, however busy the machine is.
live_node& patient_node() {
  static live_node node{[] {
    native_options options;
    options.shells = {30s, 30s, 60s};
    return options;
  }()};
  return node;
}

/// A command of its own that is interrupted, and killed if it takes long.
outcome timed_out(live_shell& in, const std::string& script, const std::string& once_it_says,
                  bool by_force = false, const std::string& where = {}) {
  auto command = in.start(script, where);
  if (!once_it_says.empty())
    command.says(once_it_says);
  command.process().signal(SIGTERM);
  if (by_force)
    command.process().signal(SIGKILL);
  return command.finish();
}

} // namespace

TEST_CASE("what a command does to its shell is there for the next one", "[runtime][shell]") {
  live_sandbox box{shared_node()};
  live_shell shell{box};
  REQUIRE_FALSE(shell.failed);
  CHECK(shell.run("pwd; echo $#").out == "/workspace\n0\n");
  CHECK(shell
          .run("cd /tmp; a=1; export B=2; f() { echo f $1; }; alias g='echo g'; set -f; umask "
               "077; set -- x 'y z'; arr=(1 '2 3')")
          .exited(0));
  CHECK(shell
          .run("pwd; echo $a $B; f 7; g; echo *; umask; echo \"$2\"; echo ${arr[1]}; env | grep "
               "^B=")
          .out == "/tmp\n1 2\nf 7\ng\n*\n0077\ny z\n2 3\nB=2\n");
  CHECK(shell.run("PS1=mine; HISTSIZE=7").exited(0));
  CHECK(shell.run("echo $PS1 $HISTSIZE").out == "mine 7\n");
  CHECK(shell.run("echo $LANG $LC_ALL; shopt -q login_shell || echo plain").out ==
        "C.UTF-8 C.UTF-8\nplain\n");
}

TEST_CASE("a command in a shell ends with its own status and output", "[runtime][shell]") {
  live_sandbox box{shared_node()};
  live_shell shell{box};
  for (const int code : {0, 1, 2, 7, 126, 127, 128, 137, 255})
    CHECK(shell.run("(exit " + std::to_string(code) + ")").exited(code));
  CHECK(shell.run("return 5").exited(5));
  const auto both = shell.run("echo out; echo err >&2");
  CHECK(both.out == "out\n");
  CHECK(both.err == "err\n");
  CHECK(shell.run("cat").exited(0)); // Nothing is there to be read.
  const auto missing = shell.run("no_such_program");
  CHECK(missing.exited(127));
  CHECK(missing.err == "bash: no_such_program: command not found\n");
  CHECK(shell.run("printf '\\0\\1\\377\\n\\r'").out == std::string("\0\1\377\n\r", 5));
  const auto large = shell.run("head -c 5000000 /dev/zero | tr '\\0' x; echo; echo end >&2");
  CHECK(large.out == std::string(5'000'000, 'x') + "\n");
  CHECK(large.err == "end\n");
  CHECK(large.lost == 0);
  CHECK(shell.run("sleep 2; echo undisturbed").out == "undisturbed\n");
  CHECK(shell.run("").exited(0));
  CHECK(shell.run("   # nothing\n\n").exited(0));
}

TEST_CASE("what is no whole command fails by itself, and the next one is not part of it",
          "[runtime][shell]") {
  live_sandbox box{shared_node()};
  live_shell shell{box};
  for (const std::string text :
       {"if", "echo 'x", "echo \"x", "echo $(", "for i in", "{ echo", ")", "echo ${", "case x in",
        "f() {", "&&", "echo `x", "while :; do", "((", "[["}) {
    CAPTURE(text);
    const auto got = shell.run(text);
    CHECK(got.exited(2));
    CHECK_FALSE(got.err.empty());
    REQUIRE(shell.run("echo whole").out == "whole\n");
  }
  CHECK(shell.run("cat <<E\nhello").out == "hello\n");
  CHECK(shell.run("echo whole").out == "whole\n");
  CHECK(shell.run("break; continue").exited(0));
  CHECK(shell.run("echo " + std::string(1 << 20, 'x') + " | wc -c").out == "1048577\n");
}

TEST_CASE("a shell cannot be led astray by what a command does to it", "[runtime][shell]") {
  live_sandbox box{shared_node()};
  live_shell shell{box};
  for (const std::string trick :
       {"exec 1>&-",
        "exec >/dev/null 2>&1",
        "exec 0<&-",
        "exec 199>&-",
        "exec 10>&- 11>&- 12>&- 13>&-",
        "exec 10>kept 11>&10 12>&10 13>&10",
        "exec 10</etc/passwd",
        "alias builtin='echo no' printf=false .=false cd=false command=false; shopt -s "
        "expand_aliases",
        "printf() { :; }; .() { :; }; source() { :; }; cd() { :; }; command() { :; }; unset() { :; "
        "}",
        "IFS=0123456789/",
        "set -u",
        "set -x",
        "set -v",
        "set -C",
        "set -f",
        "set -k",
        "set -H",
        "set -m",
        "set -o posix",
        "unset PATH",
        "PATH=/nowhere",
        "PROMPT_COMMAND='echo prompted'",
        "PS1='$(echo prompted)'; PS4=x",
        "readonly PS1 PATH IFS PROMPT_COMMAND",
        "trap 'echo no' DEBUG",
        "trap 'echo no' ERR RETURN",
        "trap '' INT TERM HUP PIPE CHLD",
        "unset PWD OLDPWD",
        "shopt -s extdebug failglob nullglob; shopt -u promptvars",
        "set -o history",
        "TIMEFORMAT=x; LANG=xx; LC_ALL=yy",
        "BASH_ENV=x"}) {
    live_shell tricked{box};
    CAPTURE(trick);
    CHECK(tricked.run(trick).exited(0));
    const auto after = tricked.run("\\builtin echo out; \\builtin echo err >&2; \\builtin true");
    CHECK(after.exited(0));
    CHECK(after.out.find("out\n") != std::string::npos);
    CHECK(after.err.find("err\n") != std::string::npos);
    CHECK(tricked.run("", "/tmp").exited(0));
    CHECK(tricked.alive());
    tricked.let_go();
  }
  CHECK(shell.run("echo untouched").out == "untouched\n");
}

TEST_CASE("a function in the way of builtins is put aside, and the shell lives on",
          "[runtime][shell]") {
  live_sandbox box{shared_node()};
  live_shell shell{box};
  CHECK(shell.run("kept=1").exited(0));
  CHECK(shell.run("builtin() { :; }; unset() { :; }; shopt -s expand_aliases").exited(0));
  CHECK(shell.run("echo $kept").out == "1\n");
  CHECK(shell.run("echo $POSIXLY_CORRECT; [[ -o posix ]]").exited(1));
  // Without what the shell says its status with there is no way back. A restricted shell opens no
  // file for output.
  for (const std::string trick : {"enable -n builtin", "enable -n printf", "set -r"}) {
    live_shell lost{box};
    CHECK(lost.run(trick).killed_by(SIGKILL));
    CHECK(lost.ended().status == SIGKILL);
  }
  live_shell narrow{box};
  CHECK(narrow.run("ulimit -n 20").exited(0));
  CHECK(narrow.run("echo in").out == "in\n");
  CHECK(narrow.run("ulimit -n 2").exited(0));
  narrow.run("echo x");
}

TEST_CASE("a shell's descriptors are its commands', and outlive them", "[runtime][shell]") {
  live_sandbox box{shared_node()};
  live_shell shell{box};
  CHECK(shell.run("exec 3>three 10>ten 99>more 200>lock; flock 200; echo 1 >&10").exited(0));
  CHECK(shell.run("echo 2 >&10; cat ten").out == "1\n2\n");
  CHECK(box.run("flock -n lock true").exited(1));
  CHECK(shell.run("exec 200>&-").exited(0));
  CHECK(box.run("flock -n lock true").exited(0));
  CHECK(shell.run("cd /proc/self/fd; echo 1[0-2]*").out == "10\n");
}

TEST_CASE("a directory for one command leaves the shell where it was", "[runtime][shell]") {
  live_sandbox box{shared_node()};
  live_shell shell{box};
  REQUIRE(
    shell.run("mkdir -p real \"o'd d\"; ln -s real link; cd link; cd /workspace/link").exited(0));
  CHECK(shell.run("pwd", "/tmp").out == "/tmp\n");
  CHECK(shell.run("pwd; echo $OLDPWD").out == "/workspace/link\n/workspace/link\n");
  CHECK(shell.run("cd /usr; false", "/tmp").exited(1));
  CHECK(shell.run("pwd").out == "/workspace/link\n");
  CHECK(shell.run("pwd; x=kept", "/workspace/o'd d").out == "/workspace/o'd d\n");
  CHECK(shell.run("echo $x; pwd; cd - >/dev/null; pwd").out ==
        "kept\n/workspace/link\n/workspace/link\n");
  for (const std::string place : {"/nowhere/at'all", "/etc/passwd", "/root"}) {
    const auto got = shell.run("echo no", place);
    CHECK(got.exited(1));
    CHECK(got.out.empty());
    CHECK(got.err == "Failed to change directory to '" + place + "'\n");
  }
  CHECK(shell.run("pwd").out == "/workspace/link\n");
  CHECK(shell.run("exit 3", "/tmp").exited(3));
}

TEST_CASE("a shell ends with what ends it, and its last command with the same",
          "[runtime][shell]") {
  live_sandbox box{shared_node()};
  const auto ends = [&](const std::string& script) {
    live_shell shell{box};
    auto got = shell.run(script);
    CHECK(shell.ended().status == got.how.status);
    return got;
  };
  const auto plain = ends("echo bye; exit 7");
  CHECK(plain.exited(7));
  CHECK(plain.out == "bye\n");
  CHECK(ends("set -e; false").exited(1));
  CHECK(ends("kill -9 $$").killed_by(SIGKILL));
  CHECK(ends("exec sh -c 'echo replaced; exit 4'").exited(4));
  CHECK(ends("exec sleep 0").exited(0));
  CHECK_FALSE(ends("for i in /proc/$$/fd/*; do eval \"exec ${i##*/}>&-\"; done").failed);
  CHECK(ends("trap 'echo last words' EXIT; exit 9").exited(9));
  live_shell gone{box};
  CHECK(gone.run("exit 0").exited(0));
  gone.ended();
  const auto refused = gone.run("echo no");
  REQUIRE(refused.failed);
  CHECK(refused.failed->code == errc::sandbox_not_running);
}

TEST_CASE("a command that is interrupted leaves its shell as it was", "[runtime][shell]") {
  live_sandbox box{patient_node()};
  live_shell shell{box};
  REQUIRE(
    shell.run("kept=1; cd /tmp; sleep 1000 & early=$!; setsid sleep 1001 & away=$!").exited(0));
  CHECK(timed_out(shell, "sh -c 'echo in; exec sleep 1002'; echo unreached", "in\n").out == "in\n");
  CHECK(timed_out(shell, "echo in; while :; do :; done", "in\n").out == "in\n");
  CHECK(
    timed_out(shell, "yes | sh -c 'echo in; exec cat >/dev/null'; echo unreached", "in\n").out ==
    "in\n");
  // The one that ends last does not do so by SIGINT.
  CHECK(timed_out(shell,
                  "sh -c 'trap \"\" INT; exec yes' | sh -c 'echo in; exec cat >/dev/null'; echo "
                  "unreached",
                  "in\n")
          .out == "in\n");
  CHECK(
    timed_out(shell,
              "f() { (exit 4); return; }; sh -c 'trap \"exit 3\" INT; echo in; while :; do sleep "
              "0.01; done'; echo unreached",
              "in\n")
      .out == "in\n");
  CHECK(shell.run("f").exited(4)); // No trap is being run any more.
  CHECK(timed_out(shell, "echo in; sleep 1003 & wait; echo unreached", "in\n").out == "in\n");
  CHECK(timed_out(shell, "(trap '' INT TERM; echo in; sleep 1004; sleep 1005)", "in\n", true).out ==
        "in\n");
  CHECK(
    timed_out(shell, "echo in; (trap '' INT; exec sleep 1002); while :; do :; done", "in\n").out ==
    "in\n");
  for (int i = 0; i < 50; ++i)
    timed_out(shell, "true", "");
  CHECK(shell.alive());
  CHECK(shell.run("echo $kept; pwd; kill -0 $early && kill -0 $away && echo spared").out ==
        "1\n/tmp\nspared\n");
  CHECK(shell.run("pgrep -f 'sleep 100[2-6]'").exited(1));
}

TEST_CASE("what does not listen to SIGINT is told by SIGTERM, and has time for it",
          "[runtime][shell]") {
  live_sandbox box{patient_node()};
  live_shell shell{box};
  const std::string deaf =
    "sh -c 'trap \"\" INT; trap \"echo bye >> told; exit\" TERM; echo in; while "
    ":; do sleep 0.01; done'";
  CHECK(timed_out(shell, deaf, "in\n").out == "in\n");
  CHECK(shell.run("cat told; rm told").out == "bye\n");
  // In the background nobody hears SIGINT.
  CHECK(timed_out(shell, deaf + " & sleep 1000", "in\n").out == "in\n");
  CHECK(shell.run("cat told; rm told").out == "bye\n");
  // What listens to neither is killed in the end, and costs nothing else.
  CHECK(timed_out(shell, "(trap '' INT TERM; exec sleep 1001) & echo in; sleep 1000", "in\n").out ==
        "in\n");
  CHECK(shell.run("pgrep -f 'sleep 100[01]'").exited(1));
  CHECK(shell.alive());
}

TEST_CASE("a shell is back where it was, however often its command is interrupted",
          "[runtime][shell]") {
  live_sandbox box{patient_node()};
  live_shell shell{box};
  REQUIRE(shell.run("cd /usr; cd /var").exited(0));
  for (int i = 0; i < 40; ++i) {
    auto command = shell.start("echo in; sleep 1000", "/tmp");
    command.says("in\n");
    for (int n = 0; n <= i % 4; ++n)
      command.process().signal(SIGTERM);
    CHECK_FALSE(command.finish().failed);
    CHECK(shell.run("pwd; echo $OLDPWD").out == "/var\n/usr\n");
  }
  CHECK(shell.alive());
}

TEST_CASE("a shell that does not let itself be interrupted is ended", "[runtime][shell]") {
  live_sandbox box{shared_node()};
  live_shell shell{box};
  const auto got = timed_out(shell, "trap '' INT TERM; echo in; while :; do :; done", "in\n", true);
  CHECK(got.killed_by(SIGKILL));
  CHECK(shell.ended().status == SIGKILL);
}

TEST_CASE("what a command leaves running writes to nowhere, and neither ends nor waits",
          "[runtime][shell]") {
  live_sandbox box{shared_node()};
  live_shell shell{box};
  const auto first = shell.run(
    "(while [ ! -e go ]; do sleep 0.01; done; head -c 1000000 /dev/zero; echo late; echo late >&2; "
    "echo $? > wrote) & echo at once");
  CHECK(first.exited(0));
  CHECK(first.out == "at once\n");
  const auto second = shell.run("touch go; while [ ! -e wrote ]; do sleep 0.01; done; cat wrote");
  CHECK(second.out == "0\n");
  CHECK(second.err.empty());
  // More of them than are kept, of all shells: the oldest may break, and no shell notices.
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator{"/proc/self/fd"}, {});
  };
  const auto before = open_files();
  const auto many = limits::late_pipes_per_sandbox / 4 + 4; // Each leaves two.
  live_shell other{box};
  for (std::size_t i = 0; i < many; ++i) {
    REQUIRE(shell.run("sleep 1000 &").exited(0));
    REQUIRE(other.run("sleep 1000 &").exited(0));
  }
  CHECK(shell.run("jobs -r | wc -l").out == std::to_string(many) + "\n");
  CHECK(open_files() <= before + static_cast<std::ptrdiff_t>(limits::late_pipes_per_sandbox) + 32);
}

TEST_CASE("a shell's end takes all with it that it has started", "[runtime][shell]") {
  live_sandbox box{shared_node()};
  live_shell shell{box};
  REQUIRE(shell
            .run("sleep 1111 & setsid sleep 1112 & nohup sh -c 'sleep 1113; :' >/dev/null 2>&1 & "
                 "(setsid sh -c '(sleep 1114 &)' &)")
            .exited(0));
  auto other = box.start("sleep 1115");
  REQUIRE(other.started());
  auto running = shell.start("echo in; sleep 1116");
  running.says("in\n");
  (*shell).end();
  shell.ended();
  CHECK(running.finish().how.lost);
  CHECK(eventually([&] { return box.run("pgrep -f '^sleep 111[0-46-9]'").exited(1); }));
  CHECK(box.run("pgrep -f '^sleep 1115'").exited(0));
  CHECK(eventually([&] { return box.run("pgrep -x insula-shell").exited(1); }));
  (*shell).end();
}

TEST_CASE("a shell that ends by itself leaves only what has begun a session of its own",
          "[runtime][shell]") {
  live_sandbox box{shared_node()};
  live_shell shell{box};
  REQUIRE(shell.run("sleep 1121 & (sleep 1122 &); nohup sleep 1123 >/dev/null 2>&1 &").exited(0));
  REQUIRE(shell.run("setsid sleep 1124 & echo there").out == "there\n");
  REQUIRE(eventually([&] { return box.run("pgrep -f '^sleep 1124'").exited(0); }));
  CHECK(shell.run("exit 3").exited(3));
  shell.ended();
  CHECK(eventually([&] { return box.run("pgrep -f '^sleep 112[123]'").exited(1); }));
  CHECK(box.run("pgrep -f '^sleep 1124'").exited(0));
}

TEST_CASE("a shell says where it is and what it exports", "[runtime][shell]") {
  live_sandbox box{shared_node()};
  live_shell shell{box};
  REQUIRE(shell.run("mkdir -p $'a\\nb'; cd $'a\\nb'; export X=$'1\\n2'; y=3; env() { :; }; PWD=/no")
            .exited(0));
  const auto found = shell.look_around();
  REQUIRE(found);
  CHECK(found->cwd == "/workspace/a\nb");
  const std::set<std::string> env{found->env.begin(), found->env.end()};
  CHECK(env.count("X=1\n2") == 1);
  CHECK(env.count("y=3") == 0);
  CHECK(env.count("HOME=/home/sandbox") == 1);
  CHECK(shell.run("echo $y").out == "3\n");
}

TEST_CASE("a shell that does not say where it is in time is none the worse", "[runtime][shell]") {
  native_options options;
  options.shells.look = 300ms;
  live_node hasty{options};
  live_sandbox box{hasty};
  live_shell shell{box};
  REQUIRE(shell.run("kept=1; command() { sleep 1000; }").exited(0));
  for (int i = 0; i < 3; ++i) {
    const auto late = shell.look_around();
    REQUIRE_FALSE(late);
    CHECK(late.reason().code == errc::deadline_exceeded);
    CHECK(shell.run("echo $kept").out == "1\n"); // Has its turn when the look is gone.
  }
  // Neither signal reaches it for a while.
  REQUIRE(shell.run("command() { (trap '' INT TERM; exec sleep 1.5); }").exited(0));
  REQUIRE_FALSE(shell.look_around());
  auto next = shell.start("echo $kept");
  CHECK(next.finish().out == "1\n");
  REQUIRE_FALSE(shell.look_around());
  CHECK(timed_out(shell, "sleep 1000", "").out.empty()); // One that is interrupted while it waits.
  REQUIRE_FALSE(shell.look_around());
  auto last = shell.start("echo no");
  (*shell).end();
  CHECK(last.finish().how.lost);
}

TEST_CASE("a shell starts at home when its directory is not there, and not at all without bash",
          "[runtime][shell]") {
  live_sandbox box{shared_node()};
  auto spec = usual();
  spec.cwd = "/not/there";
  spec.env.emplace_back("MINE=a b\nc");
  live_shell shell{box, spec};
  REQUIRE_FALSE(shell.failed);
  CHECK(shell.run("pwd; echo \"$MINE\"").out == "/home/sandbox\na b\nc\n");
  spec.program = "/bin/no-bash";
  const live_shell without{box, spec};
  REQUIRE(without.failed);
  CHECK(without.failed->code == errc::launch_failed);
  spec.program = "/bin/false";
  const live_shell other{box, spec};
  REQUIRE(other.failed);
  CHECK(other.failed->code == errc::launch_failed);
  spec.env.assign(5000, "A=1");
  const live_shell much{box, spec};
  REQUIRE(much.failed);
}

TEST_CASE("a keeper that is killed or stopped keeps nobody waiting", "[runtime][shell]") {
  live_sandbox box{shared_node()};
  {
    live_shell shell{box};
    auto running = shell.start("echo in; sleep 1000");
    running.says("in\n");
    REQUIRE(box.run("pkill -KILL -x insula-shell").exited(0));
    CHECK(running.finish().killed_by(SIGKILL));
    shell.ended();
    CHECK(eventually([&] { return box.run("pgrep -f '^bash --norc|sleep 1000'").exited(1); }));
  }
  {
    live_shell shell{box};
    auto running = shell.start("echo in; sleep 1000");
    running.says("in\n");
    REQUIRE(box.run("pkill -STOP -x insula-shell").exited(0));
    running.process().signal(SIGTERM); // It goes on, and hears of it.
    CHECK_FALSE(running.finish().failed);
    CHECK(shell.run("echo on").out == "on\n");
  }
  {
    live_shell shell{box};
    REQUIRE(shell.run("setsid sleep 1000 & (setsid sleep 1000 &); sleep 1000 &").exited(0));
    REQUIRE(box.run("pkill -STOP -x insula-shell").exited(0));
    (*shell).end();
    shell.ended();
  }
  CHECK(eventually([&] { return box.run("pgrep -f '^sleep 1000|^insula-shell'").exited(1); }));
}

TEST_CASE("shells leave nothing behind, and end with their sandbox", "[runtime][shell]") {
  live_sandbox box{shared_node()};
  const auto files = [] {
    return std::distance(std::filesystem::directory_iterator{"/proc/self/fd"}, {});
  };
  const auto round = [&] {
    live_shell shell{box};
    shell.run("sleep 1000 & echo x");
    (*shell).end();
    shell.ended();
  };
  round();
  const auto before = files();
  for (int i = 0; i < 50; ++i)
    round();
  CHECK(eventually([&] { return files() <= before; }, 30s));
  CHECK(eventually([&] { return box.run("pgrep 'sleep|insula-shell'").exited(1); }));
  live_shell last{box};
  auto running = last.start("echo in; sleep 1000");
  running.says("in\n");
  box.destroy();
  CHECK(running.finish().how.lost);
  CHECK(last.ended().lost);
}

TEST_CASE("a terminal that is killed takes its whole session with it", "[runtime][shell]") {
  live_sandbox box{shared_node()};
  const auto ended = std::make_shared<events<process_exit>>();
  auto spec = in_shell("set -m; sleep 1131 & (sleep 1132 &); nohup sleep 1133 & sleep 1134");
  const auto tty = (*box).open_terminal(
    spec, {}, {nullptr, nullptr, [ended](process_exit how) { ended->tell(how); }, nullptr});
  REQUIRE(eventually([&] { return box.run("pgrep -c '^sleep'").out == "4\n"; }));
  tty->signal(SIGKILL);
  CHECK(ended->next(40s).status == SIGKILL);
  CHECK(eventually([&] { return box.run("pgrep '^sleep'").exited(1); }));
}
