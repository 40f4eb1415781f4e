// A sandbox can be looked into, cleaned up and ended by its owner at any time; and each process
// that runs out of memory is told of.
#include "tests/e2e/node.hpp"
#include "tests/http/web_socket_client.hpp"
#include "tests/support/catch.hpp"

#include <string>
#include <utility>

using namespace insula::test;

namespace {

const std::string limits = "sandbox: {limits: {memory: 256MiB, disk: 64MiB, shm: 256MiB, "
                           "processes: 96}}";

std::string in(const std::string& session) {
  return "Session-Id: " + session + "\r\n";
}

/// What needs two more processes than a builtin.
const std::string pipeline = "echo $(echo works | cat)";

const std::string hog = "python3 -c 'x = bytearray(600 << 20)'";

struct owner : node {
  explicit owner(const std::string& yaml = limits)
      : node(yaml) {
    REQUIRE(in_session("old", "echo $(echo works | cat)").out == "works\n");
  }

  exec_outcome in_session(const std::string& session, const std::string& script) const {
    return exec_stream{port(), "a", exec_body({"eval", script}), in(session)}.rest();
  }
  http_answer execd(const std::string& method, const std::string& path,
                    const std::string& body = {}) const {
    return ask(method, "/sandboxes/a/proxy/44772" + path, body);
  }
  /// As root inside.
  http_answer root(const std::string& command) const {
    return execd("POST", "/command", R"({"command":)" + json_string(command) + R"(,"uid":0})");
  }
  http_answer file(const std::string& method, const std::string& path,
                   std::string_view bytes = {}) const {
    return ask(method, "/v1/sandbox/a/file" + path, bytes);
  }
  std::string at_terminal(const std::string& line) const {
    web_socket_client terminal{port(), "/v1/sandbox/a/pty?session=t" + std::to_string(++terminals)};
    if (terminal.head().status != 101)
      return terminal.head().body;
    while (terminal.next().bytes != R"({"type":"ready"})") {
    }
    terminal.type(line + "\n");
    auto said = terminal.until("works");
    terminal.type("exit\n");
    return said;
  }

  /// By its processes: one was refused.
  void wait_until_full() const {
    REQUIRE(eventually([this] {
      return sh("a", "for each in /sys/fs/cgroup/{,pids/}pids.events; do [[ -e $each ]] && "
                     "read -r _ count < $each; done; (( count > 0 ))")
               .exit_code == 0;
    }));
  }

  /// Everything with which an owner looks into a sandbox works. `writes`: new files have room.
  void check_usable(bool writes = true) const {
    const auto command = sh("a", pipeline);
    CHECK(command.out == "works\n");
    INFO(command.err + command.error + command.refusal);
    CHECK(command.exit_code == 0);
    const auto session = "s" + std::to_string(++sessions);
    for (const auto& each : {session, std::string{"old"}}) {
      CAPTURE(each);
      const auto got = in_session(each, pipeline);
      INFO(got.err + got.error + got.refusal);
      CHECK(got.out == "works\n");
    }
    CHECK(at_terminal("echo w$(echo orks | cat)").find("works") != std::string::npos);
    CHECK(execd("POST", "/command", R"({"command":)" + json_string(pipeline) + "}")
            .body.find("works") != std::string::npos);
    const auto written = file("PUT", "/workspace/looked-at", "a note");
    INFO(written.body);
    if (writes) {
      CHECK(written.status == 200);
      CHECK(file("GET", "/workspace/looked-at").body == "a note");
      CHECK(
        execd("GET", "/files/search?path=/workspace&pattern=looked-at").body.find("looked-at") !=
        std::string::npos);
      CHECK(execd("DELETE", "/files?path=/workspace/looked-at").status == 200);
    } else {
      CHECK(written.status == 502);
      CHECK(execd("GET", "/files/info?path=/workspace/kept").status == 200);
      CHECK(file("GET", "/workspace/kept").body == "kept");
    }
  }

  /// Ends it, and sees to it that nothing is left.
  void end() const {
    CHECK(remove("a") == 204);
    CHECK(eventually([this] { return processes().size() == own_processes; }));
  }

  mutable int sessions = 0, terminals = 0;
};

/// With the kernel's own calls at hand.
exec_outcome run_python(const owner& it, const std::string& script) {
  return it.exec("a", {"python3", "-c",
                       "import ctypes, os, sys\n"
                       "l = ctypes.CDLL(None, use_errno=True)\n"
                       "l.shmat.restype = ctypes.c_void_p\n" +
                         script});
}

const std::string fill_segments = "size, n = 4 << 20, 0\n"
                                  "while True:\n"
                                  "  made = l.shmget(0, size, 0o1666)\n"
                                  "  if made < 0: break\n"
                                  "  at = l.shmat(made, None, 0)\n"
                                  "  ctypes.memset(at, 1, size)\n"
                                  "  l.shmdt(ctypes.c_void_p(at))\n"
                                  "  n += size\n"
                                  "print(n >> 20, os.strerror(ctypes.get_errno()))\n";

} // namespace

TEST_CASE("shared memory, all kinds of it together, leaves half of the memory", "[owner]") {
  const owner it;
  const auto full = it.sh("a", "head -c 1G /dev/zero > /dev/shm/full; stat -c %s /dev/shm/full");
  CHECK(full.err.find("No space left on device") != std::string::npos);
  CHECK(full.out == std::to_string(96u << 20) + "\n");
  const auto segments = run_python(it, fill_segments);
  CHECK(segments.out == "32 No space left on device\n");
  // One that alone is larger than all may be.
  CHECK(run_python(it, "print(l.shmget(0, 64 << 20, 0o1666), ctypes.get_errno())\n").out ==
        "-1 22\n");
  it.check_usable();
  CHECK(it.sh("a", "rm /dev/shm/full; ipcs -m | awk '$2 ~ /^[0-9]+$/ {print $2}' | "
                   "xargs -n 1 ipcrm -m; ipcs -m | grep -c 666; ls /dev/shm | wc -l")
          .out == "0\n0\n");
  CHECK(run_python(it, fill_segments).out == "32 No space left on device\n");
  CHECK(it.sh("a", "head -c 90M /dev/zero > /dev/shm/again").exit_code == 0);
  CHECK(it.log().find("out_of_memory") == std::string::npos);
  it.end();
}

TEST_CASE("what System V and empty files keep has an end far below the memory", "[owner]") {
  const owner it;
  const auto messages =
    run_python(it, "class message(ctypes.Structure):\n"
                   "  _fields_ = [('kind', ctypes.c_long), ('text', ctypes.c_char * 8192)]\n"
                   "m, queues = message(1, b''), 0\n"
                   "for size in (0, 8192):\n"
                   "  while True:\n"
                   "    made = l.msgget(0, 0o1666)\n"
                   "    if made < 0: break\n"
                   "    queues += 1\n"
                   "    while l.msgsnd(made, ctypes.byref(m), size, 0o4000) == 0: pass\n"
                   "print(queues, os.strerror(ctypes.get_errno()))\n");
  CHECK(messages.out == "16 No space left on device\n");
  const auto semaphores = run_python(it, "n = 0\n"
                                         "while l.semget(0, 250, 0o1666) >= 0: n += 250\n"
                                         "print(n > 10000, os.strerror(ctypes.get_errno()))\n");
  CHECK(semaphores.out == "True No space left on device\n");
  const auto names = run_python(it, "n = 0\n"
                                    "try:\n"
                                    "  while True: os.symlink('x' * 120, f'/dev/shm/{n}'); n += 1\n"
                                    "except OSError as why: print(n > 10000, why.strerror)\n");
  CHECK(names.out == "True No space left on device\n");
  it.check_usable();
  CHECK(it.log().find("out_of_memory") == std::string::npos);
  it.end();
}

TEST_CASE("at the limit of processes the owner's next command, session and terminal run",
          "[owner]") {
  const owner it;
  const auto [what, script] = GENERATE(table<std::string, std::string>(
    {{"processes that sleep", "trap '' TERM; while sleep 1000 & [[ $! != $last ]]; do "
                              "last=$!; [[ -e up ]] || (( ++n < 90 )) || > up; "
                              "done 2> /dev/null; wait"},
     {"a fork bomb", "> up; bomb() { bomb | bomb & }; while :; do bomb; done "
                     "2> /dev/null"},
     {"processes that fork as fast as they can",
      "> up; exec python3 -c '\nimport os\nwhile True:\n  "
      "try: os.fork()\n  except OSError: pass'"},
     {"threads", "exec python3 -c '\nimport threading, time\ntry:\n  while "
                 "True: threading.Thread(target=time.sleep, "
                 "args=(1000,)).start()\nexcept RuntimeError:\n  open(\"up\", "
                 "\"w\")\n  time.sleep(1000)'"}}));
  CAPTURE(what);
  auto running = it.open("a", {"bash", "-c", script});
  REQUIRE(eventually([&] { return it.file("GET", "/workspace/up").status == 200; }));
  it.wait_until_full();
  // The commands' own limit is reached, and what the owner starts is beyond it.
  it.check_usable();
  it.check_usable();
  SECTION("which ends what runs there") {
    // By a builtin, which needs no process. It ends itself as well.
    CHECK(it.sh("a", "kill -KILL -1").events.size() > 0);
    // A bash that is refused processes for some fifteen seconds gives up by itself.
    const auto code = running.rest().exit_code;
    CHECK((code == 137 || code == 126));
    CHECK(eventually([&] { return it.sh("a", "pgrep -c 'sleep|python'").out == "0\n"; }));
    CHECK(it.sh("a", pipeline).out == "works\n");
  }
  SECTION("or its end") {}
  it.end();
}

namespace {

/// The group of a process is that of the commands, and not the reserve.
const std::string among_commands = "grep -q '/commands$' /proc/$each/cgroup";
const std::string all_among_commands =
  "for each in $(pgrep -x sleep); do " + among_commands + " || exit 1; done; pgrep -c -x sleep";

} // namespace

TEST_CASE("what is begun in the reserve is among the commands again once there is room",
          "[owner]") {
  const owner it;
  auto running = it.open("a", {"bash", "-c", "while tail -f /dev/null & do :; done 2> /dev/null"});
  it.wait_until_full();
  // By a command, by a session that was there, by one that was not, and at a terminal.
  const std::string begin = "sleep 1000 > /dev/null 2>&1 &";
  CHECK(it.sh("a", begin).exit_code == 0);
  CHECK(it.in_session("old", begin).exit_code == 0);
  CHECK(it.in_session("new", begin).exit_code == 0);
  CHECK(it.at_terminal("setsid " + begin + " echo w$(echo orks)").find("works") !=
        std::string::npos);
  CHECK(it.sh("a", all_among_commands).exit_code == 1);
  // First what may start some more.
  CHECK(it.sh("a", "pkill -KILL -f 'while [t]ail'; pkill -KILL -x tail").exit_code == 0);
  CHECK(running.rest().exit_code != 0);
  CHECK(eventually([&] { return it.sh("a", all_among_commands).out == "4\n"; }));
  CHECK(it.in_session("old", "each=$$; " + among_commands).exit_code == 0);
  CHECK(it.sh("a", "each=$$; " + among_commands).exit_code == 0);
  it.end();
}

TEST_CASE("a sandbox that is slow has its commands among the others", "[owner]") {
  const owner it{"sandbox: {limits: {memory: 256MiB, processes: 96, cpus: 0.2}}"};
  const auto where = "each=$$; " + among_commands;
  SECTION("by its own limit of the processor") {
    auto busy = it.open("a", {"bash", "-c",
                              "for n in {1..8}; do while :; do :; done & done; "
                              "echo up; wait"});
    REQUIRE(busy.next()->data == "up\n");
    for (int n = 0; n < 8; ++n)
      CHECK(it.sh("a", where).exit_code == 0);
    CHECK(it.in_session("old", where).exit_code == 0);
    CHECK(it.in_session("new", where).exit_code == 0);
  }
  SECTION("by a starter that is killed again and again") {
    for (int n = 0; n < 8; ++n) {
      it.root("pkill -KILL -f insula-start");
      CHECK(it.sh("a", where).exit_code != 1); // What the starter had just taken ends with it.
    }
  }
  SECTION("after a process that has run out of memory") {
    CHECK(it.sh("a", hog + "; exit 0").exit_code == 0);
    CHECK(it.sh("a", where).exit_code == 0);
    CHECK(it.in_session("old", where).exit_code == 0);
  }
  it.end();
}

TEST_CASE("many sandboxes start with few open files each", "[owner]") {
  const node it{"sandbox: {limits: {open_files: 64}}"};
  for (char each = 'a'; each < 'y'; ++each)
    CHECK(it.sh(std::string(1, each), "ulimit -n").out == "64\n");
}

TEST_CASE("a sandbox may have as many processes as the kernel counts", "[owner]") {
  const owner it{"sandbox: {limits: {processes: 4194304}}"};
  CHECK(it.sh("a", "cat /sys/fs/cgroup/pids.max").out == "4194304\n");
}

TEST_CASE("what has stopped all that it can stop has not stopped the owner", "[owner]") {
  const owner it;
  auto busy = it.open("a", {"bash", "-c", "echo up; sleep 1000; echo woken"});
  REQUIRE(busy.next()->data == "up\n");
  web_socket_client terminal{it.port(), "/v1/sandbox/a/pty?session=before"};
  REQUIRE(terminal.head().status == 101);
  while (terminal.next().bytes != R"({"type":"ready"})") {
  }
  SECTION("by a command") {
    CHECK(it.sh("a", "kill -STOP -1; echo done").out == "done\n");
  }
  SECTION("by a session's") {
    CHECK(it.in_session("old", "kill -STOP -1; echo done").out == "done\n");
  }
  SECTION("as root inside") {
    CHECK(it.root("kill -STOP -1; echo done").body.find("done") != std::string::npos);
  }
  SECTION("the session's shell itself") {
    const auto shell = it.in_session("old", "echo $$").out;
    CHECK(it.sh("a", "kill -STOP " + shell).exit_code == 0);
    CHECK(it.in_session("old", "kill -STOP $$; echo done").out == "done\n");
  }
  it.check_usable();
  terminal.type("echo w$(echo orks | cat)\n");
  CHECK(terminal.until("works").find("works") != std::string::npos);
  CHECK(it.sh("a", "kill -CONT -1; pkill -x sleep").exit_code == 0);
  CHECK(busy.rest().out == "woken\n");
  it.end();
}

TEST_CASE("what has killed all that it can kill has not ended the sandbox", "[owner]") {
  const owner it;
  SECTION("by a command") {
    CHECK(it.sh("a", "kill -KILL -1; echo done").out == "done\n");
  }
  SECTION("as root inside") {
    CHECK(it.root("kill -KILL -1; echo done").body.find("done") != std::string::npos);
  }
  it.check_usable();
  it.end();
}

TEST_CASE("on a full disk the owner looks, reads and makes room", "[owner]") {
  const owner it;
  REQUIRE(it.file("PUT", "/workspace/kept", "kept").status == 200);
  const auto [what, script] = GENERATE(table<std::string, std::string>(
    {{"bytes in /workspace", "head -c 1G /dev/urandom > full"},
     {"bytes in /tmp", "head -c 1G /dev/urandom > /tmp/full"},
     {"names", "exec python3 -c '\nimport os\nos.mkdir(\"full\")\nn = 0\nwhile True:\n  "
               "os.close(os.open(f\"full/{n:0200}\", os.O_CREAT))\n  n += 1'"}}));
  CAPTURE(what);
  CHECK(it.sh("a", script + "; sync -f .").err.find("Disk quota exceeded") != std::string::npos);
  it.sh("a",
        "n=0; while : > more$(( n++ )); do head -c 64K /dev/urandom >> more0; done; sync -f .");
  it.check_usable(false);
  CHECK(it.sh("a", "rm -rf full more* /tmp/full").exit_code == 0);
  CHECK(eventually([&] { return it.file("PUT", "/workspace/new", "new").status == 200; }));
  CHECK(it.file("GET", "/workspace/new").body == "new");
  it.end();
}

TEST_CASE("a workspace of very many files is looked at, cleaned up and ended", "[owner]") {
  const owner it{"sandbox: {limits: {memory: 256MiB, disk: 512MiB, processes: 96}}"};
  constexpr int count = 60'000;
  CHECK(it.sh("a", "exec python3 -c '\nimport os\nfor n in range(" + std::to_string(count) +
                     "): os.close(os.open(str(n), os.O_CREAT))'")
          .exit_code == 0);
  it.check_usable();
  CHECK(it.sh("a", "ls | wc -l").out == std::to_string(count) + "\n");
  CHECK(it.execd("GET", "/files/search?path=/workspace&pattern=5999*").status == 200);
  SECTION("by a command") {
    CHECK(it.sh("a", "find . -mindepth 1 -delete; ls | wc -l").out == "0\n");
  }
  SECTION("by its end") {}
  CHECK(it.log().find("out_of_memory") == std::string::npos);
  it.end();
}

TEST_CASE("every process that is killed for lack of memory is told of", "[owner]") {
  const owner it;
  const std::string one =
    "1 process of the sandbox was killed: out of memory (the sandbox's limit is 256MiB)\n";
  const auto ends_with = [](const std::string& text, const std::string& end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
  };
  SECTION("the command itself") {
    const auto got = it.sh("a", "exec " + hog);
    CHECK(got.exit_code == 137);
    CHECK(got.err == "Command killed: out of memory (the sandbox's limit is 256MiB)\n");
  }
  SECTION("a child, and the shell goes on") {
    const auto got = it.sh("a", hog + "; echo on");
    CHECK(got.exit_code == 0);
    CHECK(got.out == "on\n");
    CHECK(ends_with(got.err, one));
  }
  SECTION("the first of a pipe") {
    const auto got = it.sh("a", hog + " | cat");
    CHECK(got.exit_code == 0);
    CHECK(ends_with(got.err, one));
  }
  SECTION("several") {
    const auto got = it.sh("a", hog + "; " + hog + "; exit 3");
    CHECK(got.exit_code == 3);
    CHECK(ends_with(got.err, "2 processes of the sandbox were killed: out of memory (the sandbox's "
                             "limit is 256MiB)\n"));
  }
  SECTION("in a session, whose shell goes on") {
    const auto got = it.in_session("old", hog + "; echo on");
    CHECK(got.exit_code == 0);
    CHECK(got.out == "on\n");
    CHECK(ends_with(got.err, one));
    CHECK(it.in_session("old", "echo on").err.empty()); // Once.
  }
  SECTION("before the command's time was up") {
    const auto got = it.sh("a", hog + "; sleep 1000", ",\"timeout_ms\":5000");
    CHECK(got.exit_code == 124);
    CHECK(ends_with(got.err, one + "Command timed out after 5000ms\n"));
  }
  SECTION("in the background, while the stream is open") {
    const auto got = it.sh("a", hog + " 2> /dev/null &");
    CHECK(got.exit_code == 0);
    CHECK(got.err == one);
  }
  SECTION("in the background, when nobody waits: the next command tells") {
    CHECK(it.sh("a", "(until [[ -e go ]]; do sleep 0.01; done; " + hog +
                       "; : > gone) > /dev/null 2>&1 &")
            .err.empty());
    CHECK(it.file("PUT", "/workspace/go").status == 200);
    REQUIRE(eventually([&] { return it.file("GET", "/workspace/gone").status == 200; }));
    CHECK(it.sh("a", "echo next").err == one);
    CHECK(it.sh("a", "echo next").err.empty());
  }
  SECTION("by execd") {
    const auto ask = [&](const std::string& command) {
      return it.execd("POST", "/command", R"({"command":)" + json_string(command) + "}").body;
    };
    const auto on = ask(hog + "; echo on");
    CHECK(on.find("1 process of the sandbox was killed: out of memory") != std::string::npos);
    CHECK(on.find("execution_complete") != std::string::npos);
    CHECK(ask("exec " + hog).find("(the sandbox is out of memory)") != std::string::npos);
    CHECK(ask(hog + "; exit $?").find("exit status 137 (the sandbox is out of memory)") !=
          std::string::npos);
  }
  CHECK(it.log().find("out_of_memory sandbox=a") != std::string::npos);
}

TEST_CASE("while processes run out of memory again and again, the owner goes on", "[owner]") {
  const owner it;
  auto running = it.open("a", {"bash", "-c",
                               "for n in {1..8}; do while :; do " + hog +
                                 "; done & done > /dev/null 2>&1; echo up; wait"});
  REQUIRE(running.next()->data == "up\n");
  REQUIRE(eventually([&] { return it.sh("a", "true").err.find("killed") != std::string::npos; }));
  CHECK(it.sh("a", pipeline).out == "works\n");
  const auto session = it.in_session("new", pipeline);
  CHECK(session.out == "works\n");
  CHECK(it.at_terminal("echo w$(echo orks | cat)").find("works") != std::string::npos);
  CHECK(it.file("PUT", "/workspace/note", "a note").status == 200);
  CHECK(it.file("GET", "/workspace/note").body == "a note");
  it.end();
}
