#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

using namespace insula::test;

namespace {

std::string could_not_start(const std::string& reason) {
  return R"({"error":"Command execution failed","code":"exec_error","reason":")" + reason + "\"}";
}

using words = std::vector<std::string>;

/// Is all of it UTF-8? Shortest forms are not insisted on.
bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const std::size_t length = first < 0x80       ? 1
                               : first >> 5 == 6  ? 2
                               : first >> 4 == 14 ? 3
                               : first >> 3 == 30 ? 4
                                                  : 0;
    if (length == 0 || i + length > text.size())
      return false;
    for (std::size_t k = 1; k < length; ++k)
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80)
        return false;
    i += length;
  }
  return true;
}

} // namespace

TEST_CASE("a short command's stream is the contract's byte for byte", "[exec]") {
  const node it;
  const auto got = it.ask("POST", "/v1/sandbox/a/exec", exec_body({"echo", "a"}));
  CHECK(got.status == 200);
  CHECK(got.complete);
  CHECK(got.fields.at("content-type") == "text/event-stream");
  CHECK(got.fields.at("cache-control") == "no-cache");
  CHECK(got.fields.at("transfer-encoding") == "chunked");
  CHECK(got.fields.count("access-control-allow-origin") == 0);
  CHECK(got.body == "event: stdout\ndata: YQo=\n\nevent: exit\ndata: {\"exit_code\":0}\n\n");
}

TEST_CASE("a command's end is told as a shell reports it", "[exec]") {
  const node it;
  const auto code_of = [&](const std::string& script) {
    const auto got = it.sh("a", script);
    CHECK(got.complete);
    CHECK(got.out.empty());
    return got.exit_code.value_or(-1);
  };
  CHECK(code_of("exit 0") == 0);
  CHECK(code_of("exit 7") == 7);
  CHECK(code_of("exit 255") == 255);
  CHECK(code_of("kill -TERM $$") == 143);
  CHECK(code_of("kill -9 $$") == 137);
  CHECK(code_of("kill -SEGV $$") == 139);
  CHECK(code_of("kill -USR1 $$") == 138);
  CHECK(it.exec("a", {"exit", "42"}).exit_code == 42);

  const auto missing = it.exec("a", {"xyz"});
  CHECK(missing.exit_code == 127);
  CHECK(missing.err == "/bin/bash: line 1: xyz: command not found\n");
  CHECK(it.exec("a", {""}).exit_code == 127);
  CHECK(it.exec("a", {"/etc/passwd"}).exit_code == 126);

  const auto both = it.sh("a", "echo to out; echo to err >&2; exit 3");
  CHECK(both.out == "to out\n");
  CHECK(both.err == "to err\n");
  CHECK(both.exit_code == 3);
  CHECK(both.events.back().name == "exit");
}

TEST_CASE("cwd is resolved as text and must stay in the workspace", "[exec]") {
  const node it;
  REQUIRE(it.sh("a", "mkdir -p src/deep closed; chmod 0 closed; ln -s /tmp link; echo x > file")
            .exit_code == 0);
  const auto in = [&](const std::string& cwd) {
    return it.exec("a", {"pwd"}, ",\"cwd\":" + json_string(cwd));
  };
  for (const auto& [cwd, is] : std::vector<std::pair<std::string, std::string>>{
         {"", "/workspace"},
         {".", "/workspace"},
         {"src", "/workspace/src"},
         {"src//deep/./", "/workspace/src/deep"},
         {"src/../src", "/workspace/src"},
         {"/workspace", "/workspace"},
         {"/workspace/../workspace/src", "/workspace/src"},
         {"/../workspace", "/workspace"}}) {
    CAPTURE(cwd);
    CHECK(in(cwd).out == is + "\n");
  }
  for (const std::string cwd :
       {"..", "/", "/tmp", "/workspacefoo", "src/../..", "/workspace/..", "../../etc"}) {
    CAPTURE(cwd);
    const auto got = in(cwd);
    CHECK(got.status == 403);
    CHECK(
      got.refusal ==
      R"({"error":"cwd must resolve to a location within /workspace","code":"invalid_request"})");
  }
  for (const auto& [cwd, why] :
       std::vector<std::pair<std::string, std::string>>{{"missing", "No such file or directory"},
                                                        {"file", "Not a directory"},
                                                        {"closed", "Permission denied"},
                                                        {"file/x", "Not a directory"}}) {
    CAPTURE(cwd);
    const auto got = in(cwd);
    CHECK(got.status == 200);
    CHECK(got.events == std::vector<exec_event>{
                          {"error", could_not_start("entering the working directory /workspace/" +
                                                    cwd + ": " + why)}});
    CHECK(got.complete);
  }
  CHECK(it.exec("a", {"readlink", "/proc/self/cwd"}, R"(,"cwd":"link")").out == "/tmp\n");
  CHECK(it.exec("a", {"pwd"}).out == "/workspace\n");
  CHECK(it.exec("a", {"pwd"}, ",\"cwd\":7").out == "/workspace\n");
}

TEST_CASE("argv reaches bash as the contract quotes it", "[exec]") {
  const node it;
  const auto run = [&](const words& argv) { return it.exec("a", argv); };
  CHECK(run({"cd", "/tmp"}).exit_code == 0);
  CHECK(run({"export", "A=1"}).exit_code == 0);
  CHECK(run({"A=1"}).exit_code == 0);
  CHECK(("\n" + run({"A=1", "env"}).out).find("\nA=1\n") != std::string::npos);
  const auto keyword = run({"if"});
  CHECK(keyword.exit_code == 2);
  CHECK(keyword.err.find("syntax error") != std::string::npos);
  CHECK(run({"time", "sleep", "0"}).err.find("real") != std::string::npos);
  CHECK(run({"sh", "-lc", "echo $HOME"}).out == "/home/sandbox\n");
  REQUIRE(it.sh("a", "touch b.txt c.txt").exit_code == 0);
  for (const std::string literal : {"*.txt",
                                    "~",
                                    "a_b",
                                    "$HOME",
                                    "`id`",
                                    "$(id)",
                                    "!!",
                                    "a b",
                                    "a\"b",
                                    "a'b",
                                    "a\\b",
                                    "\\n",
                                    "a\nb",
                                    "\ta",
                                    "a\rb",
                                    ";",
                                    "&",
                                    "|",
                                    "<",
                                    ">",
                                    "#",
                                    "(",
                                    "{a,b}x_",
                                    "[a-z]*",
                                    "",
                                    "ü€😀",
                                    "--",
                                    "-n x",
                                    "\x01\x02\x1b[0m\x7f"}) {
    CAPTURE(literal);
    CHECK(run({"printf", "%s|", literal}).out == literal + "|");
  }
  std::string all;
  for (int byte = 1; byte < 128; ++byte)
    all += static_cast<char>(byte);
  CHECK(run({"printf", "%s", all}).out == all);
  // These stay as they are, so bash sees them: brace expansion needs braces, which are quoted; =
  // and ~ do not meet.
  CHECK(run({"echo", "@%+=:,./-"}).out == "@%+=:,./-\n");
  CHECK(it.ask("POST", "/v1/sandbox/a/exec", R"({"argv":["exit",42]})")
          .body.find("{\"exit_code\":42}") != std::string::npos);
}

TEST_CASE("an argument with NUL is an error event and nothing else", "[exec]") {
  const node it;
  const auto got = it.exec("a", {"echo", std::string{"a\0b", 3}});
  CHECK(got.status == 200);
  CHECK(got.complete);
  CHECK(got.events ==
        std::vector<exec_event>{{"error", could_not_start("argv[1] has a NUL character")}});
}

TEST_CASE("a command line may be longer than the kernel's argument", "[exec]") {
  const node it;
  for (const std::size_t size :
       {100'000u, 122'870u, 122'880u, 131'060u, 131'072u, 200'000u, 1'000'000u}) {
    CAPTURE(size);
    std::string text;
    for (std::size_t i = 0; text.size() < size; ++i)
      text += std::to_string(i) + (i % 7 == 0 ? "'\n" : i % 5 == 0 ? "\\ü" : " ");
    const auto got = it.exec("a", {"printf", "%s", text});
    CHECK(got.exit_code == 0);
    CHECK(got.err.empty());
    CHECK((got.out == text));
  }
  words many{"printf", "%s\n"};
  std::string expected;
  for (int i = 0; i < 20'000; ++i) {
    many.push_back("element " + std::to_string(i));
    expected += many.back() + "\n";
  }
  CHECK((it.exec("a", many).out == expected));

  // What is different about a long line is not to be seen in it.
  const std::string padding(200'000, ' ');
  const std::string look = "ls /proc/self/fd; cat | wc -c; echo $#; echo $0; exit 9 #";
  const auto brief = it.exec("a", {"eval", look}), lengthy = it.exec("a", {"eval", look + padding});
  CHECK(lengthy.out == brief.out);
  CHECK(lengthy.exit_code == 9);
  CHECK(it.exec("a", {"eval", "kill -9 $$ #" + padding}).exit_code == 137);
  const auto wrong = it.exec("a", {"eval", "if" + padding});
  CHECK(wrong.exit_code == it.exec("a", {"eval", "if"}).exit_code);
}

TEST_CASE("a shell's script may be longer than the kernel's argument", "[exec]") {
  const node it;
  const std::string padding = "\n#" + std::string(300'000, 'x') + "'\n";
  const std::string body = "cat | wc -c; ls /proc/self/fd | wc -l; echo $0 $# \"$*\"; [[ -n $A ]] "
                           "&& echo $A; cat <<'e'\n'quoted' \\ $x\ne\nexit 9";
  const auto brief = it.exec("a", {"bash", "-c", body, "name", "b c"});
  const auto lengthy = it.exec("a", {"bash", "-c", padding + body, "name", "b c"});
  CHECK(brief.exit_code == 9);
  CHECK(lengthy.exit_code == 9);
  CHECK(lengthy.out == brief.out);
  CHECK(lengthy.err.empty());
  // Other ways to the same shell, and a script as large as a body may be.
  CHECK(it.exec("a", {"sh", "-ec", "false\n" + padding}).exit_code == 1);
  CHECK(it.exec("a", {"/bin/bash", "-lc", padding + "shopt -q login_shell"}).exit_code == 0);
  CHECK(it.exec("a", {"env", "A=1", "timeout", "20", "bash", "-c", padding + "echo $A"}).out ==
        "1\n");
  CHECK(it.exec("a", {"bash", "-c", "exit 6 #" + std::string(15u << 20, 'x')}).exit_code == 6);
  const auto killed = it.exec("a", {"bash", "-c", "kill -9 $$" + padding});
  CHECK(killed.exit_code == 137);
  CHECK(killed.err.size() < 1000);
  CHECK(it.exec("a", {"echo", "bash", "-c", padding}).out == "bash -c " + padding + "\n");
  // What is no script is told as on any machine.
  const auto refused = it.exec("a", {"python3", "-c", padding});
  CHECK(refused.exit_code == 126);
  CHECK(refused.err.find("Argument list too long") != std::string::npos);
}

TEST_CASE("output is passed on byte by byte, whatever it is", "[exec]") {
  const node it;
  CHECK(it.sh("a", R"(printf '\377\376a\200\n')").out == "\xff\xfe"
                                                         "a\x80\n");
  std::string all;
  for (int byte = 0; byte < 256; ++byte)
    all += static_cast<char>(byte);
  CHECK((it.sh("a", R"sh(for i in {0..255}; do printf "\\x$(printf %x $i)"; done)sh").out == all));
  CHECK(it.sh("a", R"(printf 'a\303')").out == "a\xc3"); // Held back, and flushed at the end.
  CHECK(it.sh("a", R"(printf '\342\202' >&2)").err == "\xe2\x82");
}

TEST_CASE("text that is printed slowly in odd pieces decodes event by event", "[exec]") {
  const node it;
  // Each byte on its own, and only after the one before has been read: strace would show one write
  // per byte.
  auto stream = it.open("a", {"bash", "-c", R"(text='aü€😀z€'; LC_ALL=C
    for ((i = 0; i < ${#text}; ++i)); do printf %s "${text:i:1}"; sleep 0.02; done)"});
  std::string all;
  std::size_t events = 0;
  while (auto event = stream.next())
    if (event->name == "stdout") {
      CAPTURE(event->data);
      CHECK(is_utf8(event->data));
      all += event->data;
      ++events;
    }
  CHECK(all == "aü€😀z€");
  CHECK(events >= 3);
}

TEST_CASE("a child in the background holds the stream as long as it holds the output", "[exec]") {
  const node it;
  REQUIRE(it.sh("a", "mkfifo go").exit_code == 0);
  auto stream = it.open("a", {"bash", "-c", "(read x < go; echo late) & echo early"});
  CHECK(stream.next() == exec_event{"stdout", "early\n"});
  CHECK(it.sh("a", "echo > go").exit_code == 0);
  CHECK(stream.next() == exec_event{"stdout", "late\n"});
  CHECK(stream.next() == exec_event{"exit", R"({"exit_code":0})"});
  CHECK_FALSE(stream.next());

  // With its output elsewhere it is not waited for, and lives on.
  const auto left = it.sh("a", "(read x < go; echo done > result) > /dev/null 2>&1 & echo $!");
  CHECK(left.exit_code == 0);
  const auto pid = left.out.substr(0, left.out.find('\n'));
  CHECK(it.sh("a", "kill -0 " + pid).exit_code == 0);
  CHECK(
    it.sh("a", "echo > go; while kill -0 " + pid + " 2>/dev/null; do :; done; cat result").out ==
    "done\n");
}

TEST_CASE("a stream ends with the shell if that is asked for, and what is left goes on", "[exec]") {
  const node it;
  const auto run = [&](const std::string& script, std::string_view field,
                       std::string_view more = {}) {
    return exec_stream{it.port(), "a", exec_body({"bash", "-c", script}, more), field}.rest();
  };
  const std::string asked = "Insula-End-With-Shell: true\r\n";
  const std::string server =
    "while sleep 0.05; do echo x; echo y >> beats; done & echo $! > pid; exit 3";
  const auto got = run(server, asked);
  CHECK(got.exit_code == 3);
  CHECK(got.complete);
  const auto beats = [&] { return it.sh("a", "wc -l < beats").out; };
  const auto before = beats();
  CHECK(
    eventually([&] { return beats() != before; })); // Nobody reads what it prints, and it goes on.
  CHECK(it.sh("a", "kill $(cat pid)").exit_code == 0);
  // With a time limit, which is over with the command.
  const auto limited = run("sleep 1000 & echo $!", asked, R"(,"timeout_ms":300)");
  CHECK(limited.exit_code == 0);
  CHECK(it.sh("a", "sleep 1000", R"(,"timeout_ms":300)").exit_code == 124); // As long once more.
  CHECK(it.sh("a", "kill " + limited.out).exit_code == 0);
  // As by the contract, and what makes no sense.
  for (const std::string field : {"", "Insula-End-With-Shell: false\r\n"})
    CHECK(run("sleep 1000 & echo up", field, R"(,"timeout_ms":300)").exit_code == 124);
  const auto wrong = run("true", "Insula-End-With-Shell: yes\r\n");
  CHECK(wrong.status == 400);
  CHECK(wrong.refusal.find("expected true or false") != std::string::npos);
}

TEST_CASE("a command finds an empty stdin and the environment of its user", "[exec]") {
  const node it;
  const auto out = [&](const std::string& script) { return it.sh("a", script).out; };
  CHECK(out("readlink /proc/self/fd/0") == "/dev/null\n");
  CHECK(out("cat | wc -c") == "0\n");
  CHECK(out("read x; echo $?") == "1\n");
  CHECK(out("id -un; id -gn") == "sandbox\nsandbox\n");
  CHECK(out("test $(id -u) -ne 0 && echo not root") == "not root\n");
  CHECK(out("echo $HOME; cd; pwd; echo $USER") == "/home/sandbox\n/home/sandbox\nsandbox\n");
  CHECK(out("echo $PATH") == "/home/sandbox/.local/bin:/home/sandbox/.cargo/bin:/home/sandbox/go/"
                             "bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n");
  CHECK(out("umask; touch f; mkdir d; stat -c %a f d") == "0022\n644\n755\n");
  CHECK(out("stat -c %U /workspace; ls /root 2>&1 >/dev/null | grep -c denied") == "sandbox\n1\n");
  CHECK(out("readlink /etc/mtab; test -w /tmp && echo tmp") == "/proc/mounts\ntmp\n");
  CHECK(out("env | grep -ci -e insula -e api_key").starts_with("0"));
  CHECK(out("ps -o pgid= -o sid= -p $$ | awk '{print $1 == $2}'") == "1\n");
  // A fresh shell every time, but the same files and processes.
  CHECK(out("export V=1; cd /tmp; echo kept > /workspace/kept") == "");
  CHECK(out("echo $V; pwd; cat kept") == "\n/workspace\nkept\n");
}
