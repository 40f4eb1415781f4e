// OpenSandbox's execd, in real sandboxes.
#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <csignal>
#include <thread>

using namespace insula::test;

namespace {

/// A member's value in a line of JSON, as it is written; empty: it is not there.
std::string member(const std::string& json, const std::string& name) {
  const auto mark = "\"" + name + "\":";
  auto at = json.find(mark);
  if (at == std::string::npos)
    return {};
  at += mark.size();
  if (json[at] != '"')
    return json.substr(at, json.find_first_of(",}", at) - at);
  std::string text;
  for (++at; json[at] != '"'; ++at)
    text += json[at] == '\\' ? (json[++at] == 'n' ? '\n' : json[at]) : json[at];
  return text;
}

struct told {
  int status = 0;
  std::string body, id, out, err, evalue;
  bool complete = false; ///< execution_complete has come.
};

told read_events(const http_answer& answer) {
  told all{answer.status, answer.body, {}, {}, {}, {}, false};
  for (std::size_t at = 0; (at = answer.body.find("data: ", at)) != std::string::npos; ++at) {
    const auto line = answer.body.substr(at, answer.body.find('\n', at) - at);
    const auto type = member(line, "type"), text = member(line, "text");
    if (type == "init")
      all.id = text;
    (type == "stdout"   ? all.out
     : type == "stderr" ? all.err
                        : all.evalue) +=
      type == "stdout" || type == "stderr" ? text : member(line, "evalue");
    all.complete = all.complete || type == "execution_complete";
  }
  return all;
}

struct execd_node : node {
  explicit execd_node(const std::string& yaml = {})
      : node(yaml) {
    REQUIRE(sh("a", "true").exit_code == 0); // There is one.
  }

  http_answer call(const std::string& method, const std::string& path,
                   const std::string& body = {}) const {
    return ask(method, "/sandboxes/a/proxy/44772" + path, body);
  }
  static std::string body(const std::string& command, const std::string& more = {}) {
    return R"({"command":)" + json_string(command) + more + "}";
  }
  told run(const std::string& command, const std::string& more = {}) const {
    return read_events(call("POST", "/command", body(command, more)));
  }
  std::string start(const std::string& command, const std::string& more = {}) const {
    const auto begun = run(command, more + R"(,"background":true)");
    CHECK(begun.complete);
    CHECK(begun.out.empty());
    return begun.id;
  }
  std::string status(const std::string& id) const {
    return call("GET", "/command/status/" + id).body;
  }
  bool ends(const std::string& id) const {
    return eventually([&] { return member(status(id), "running") == "false"; });
  }
  std::string logs(const std::string& id) const {
    return call("GET", "/command/" + id + "/logs").body;
  }
};

} // namespace

TEST_CASE("execd: a command's output, exit code and status", "[execd]") {
  const execd_node it;
  const auto good = it.run("echo hello; echo oops >&2; pwd; echo $A; cat", R"(,"envs":{"A":"b"})");
  CHECK(good.status == 200);
  CHECK(good.out == "hello\n/workspace\nb\n");
  CHECK(good.err == "oops\n");
  CHECK(good.complete);
  CHECK(member(it.status(good.id), "running") == "false");
  CHECK(member(it.status(good.id), "exit_code") == "0");
  const auto bad = it.run("exit 7");
  CHECK_FALSE(bad.complete);
  CHECK(bad.evalue == "7");
  CHECK(member(it.status(bad.id), "error") == "exit status 7");
  CHECK(it.run("kill -TERM $$").evalue == "-1");
  CHECK(it.run("pwd", R"(,"cwd":"~")").out == "/home/sandbox\n");
  CHECK(it.run("pwd", R"(,"cwd":"$HOME/../${USER}")").out == "/home/sandbox\n");
  CHECK(it.run("pwd", R"(,"cwd":"/nowhere")").status == 400);
  CHECK(it.run("pwd", R"(,"cwd":"/etc/passwd")").status == 400);
  CHECK(it.run("pwd", R"(,"cwd":"$NOWHERE")").status == 400);
  CHECK(it.call("GET", "/command/status/nothing").status == 404);
  CHECK(it.ask("POST", "/sandboxes/nobody/proxy/44772/command", execd_node::body("x")).status ==
        404);
  CHECK(it.ask("GET", "/v1/sandboxes/a/proxy/44772/ping").status == 200);
}

TEST_CASE("execd: a prompt is told though its line has not ended", "[execd]") {
  const execd_node it;
  const auto ask = [&](const std::string& prompt, const std::string& fields) {
    it.sh("a", "rm -f go");
    auto one = std::make_unique<http_connection>(it.port());
    one->send(http_request(
      "POST", "/sandboxes/a/proxy/44772/command",
      execd_node::body("printf '" + prompt + "'; until [ -e go ]; do sleep 0.05; done; echo yes"),
      fields));
    CHECK(one->receive_head().status == 200);
    return one;
  };
  const auto all_of = [](http_connection& from) {
    std::string all;
    while (const auto more = from.more())
      all += *more;
    return all;
  };
  SECTION("where a client puts the parts together") {
    const auto [prompt, told] = GENERATE(table<std::string, std::string>(
      {{"first\\nname? ", "name? "}, {"caf\\303\\251? \\342", "caf\xc3\xa9? "}}));
    const auto one = ask(prompt, "");
    std::string heard;
    while (heard.find(told) == std::string::npos) {
      const auto more = one->more();
      REQUIRE(more);
      heard += *more;
    }
    it.sh("a", "touch go"); // It was told before the command could go on.
    CHECK(all_of(*one).find("yes\\n\"") != std::string::npos);
  }
  SECTION("not where lines are told without their ends") {
    const auto* name = GENERATE("OpenSandbox-JS-SDK/0.1.11", "Mozilla/5.0 (X11; Linux x86_64)");
    const auto one = ask("name? ", "User-Agent: " + std::string{name} + "\r\n");
    std::string heard;
    while (heard.find("pong") == heard.rfind("pong")) { // The second one is after 3 s.
      const auto more = one->more();
      REQUIRE(more);
      heard += *more;
    }
    CHECK(heard.find("name") == std::string::npos);
    it.sh("a", "touch go");
    CHECK(all_of(*one).find("\"text\":\"name? yes") != std::string::npos);
  }
}

TEST_CASE("execd: a command is over when its shell is", "[execd]") {
  const execd_node it;
  const auto begun = std::chrono::steady_clock::now();
  CHECK(it.run("(sleep 30; echo late) & echo hi").out == "hi\n");
  CHECK(std::chrono::steady_clock::now() - begun < 20s);
  CHECK(it.sh("a", "pgrep -x sleep").exit_code == 0); // It lives on.
}

TEST_CASE("execd: what is left in the background may go on writing", "[execd]") {
  const execd_node it;
  CHECK(it.run("(while :; do echo more; echo >> beats; sleep 0.01; done) & echo hi").complete);
  const auto beats = [&] { return std::stoi("0" + it.sh("a", "wc -l < beats").out); };
  const auto before = beats();
  CHECK(eventually([&] { return beats() > before + 10; }));
}

TEST_CASE("execd: a reader that is slow gets everything", "[execd]") {
  const execd_node it{"sandbox: {limits: {log: 1MiB}}"}; // Less than what comes.
  http_connection slow{it.port()};
  slow.send(http_request("POST", "/sandboxes/a/proxy/44772/command",
                         execd_node::body("yes 0123456789 | head -n 1000000")));
  REQUIRE(slow.receive_head().status == 200);
  std::this_thread::sleep_for(1s);
  std::string all;
  while (const auto some = slow.more())
    all += *some;
  CHECK(slow.whole());
  INFO(all.substr(0, 1000));
  // A line whose end comes late is told in two events.
  const std::string event = R"("type":"stdout","text":")", line = R"(0123456789\n)";
  std::string said;
  for (std::size_t at = 0; (at = all.find(event, at)) != std::string::npos;) {
    at += event.size();
    said.append(all, at, all.find('"', at) - at);
  }
  CHECK(said.size() == 1'000'000 * line.size());
  std::size_t lines = 0;
  for (std::size_t at = 0; said.compare(at, line.size(), line) == 0; at += line.size())
    ++lines;
  CHECK(lines == 1'000'000);
  CHECK(all.find("execution_complete") != std::string::npos);
}

TEST_CASE("execd: a time limit ends the whole group at once", "[execd]") {
  const execd_node it;
  const auto done = it.run("trap '' TERM; echo up; sleep 1000 & wait", R"(,"timeout":300)");
  CHECK(done.out == "up\n");
  CHECK(done.evalue == "command timed out after 300 ms");
  CHECK(member(it.status(done.id), "exit_code") == "null");
  CHECK(eventually([&] { return it.sh("a", "pgrep -x sleep").exit_code == 1; }));
}

TEST_CASE("execd: in the background, with one log in its order", "[execd]") {
  const execd_node it;
  const auto id = it.start("echo one; echo two >&2; echo three; printf rest; "
                           "while [ ! -e go ]; do sleep 0.01; done; echo");
  REQUIRE(eventually([&] { return it.logs(id) == "one\ntwo\nthree\n"; }));
  const auto part = it.call("GET", "/command/" + id + "/logs?cursor=1");
  CHECK(part.body == "three\n");
  CHECK(part.fields.at("execd-commands-tail-cursor") == "2");
  CHECK(member(it.status(id), "running") == "true");
  REQUIRE(it.sh("a", "touch go").exit_code == 0);
  REQUIRE(it.ends(id));
  const auto tail = it.call("GET", "/command/" + id + "/logs?cursor=2");
  CHECK(tail.body == "rest\n");
  CHECK(tail.fields.at("execd-commands-tail-cursor") == "3");
  const auto front = it.run("true");
  CHECK(it.call("GET", "/command/" + front.id + "/logs").status == 400);
}

TEST_CASE("execd: an interrupt ends what ignores it, too", "[execd]") {
  const execd_node it;
  SECTION("a handler runs, and says how it ended") {
    const auto id =
      it.start("trap 'echo bye; exit 5' TERM; echo up; while [ ! -e go ]; do :; done");
    REQUIRE(eventually([&] { return it.logs(id) == "up\n"; }));
    CHECK(it.call("DELETE", "/command?id=" + id).body == "{}");
    CHECK(it.logs(id) == "up\nbye\n");
    CHECK(member(it.status(id), "exit_code") == "5");
    CHECK(it.call("DELETE", "/command?id=" + id).status == 400);
  }
  SECTION("and whoever has no output any more") {
    const auto id = it.start("(trap '' TERM; while :; do sleep 0.1; done) >/dev/null 2>&1 & "
                             "echo up; wait");
    REQUIRE(eventually([&] { return it.logs(id) == "up\n"; }));
    CHECK(it.call("DELETE", "/command?id=" + id).status == 200);
    CHECK(eventually([&] { return it.sh("a", "pgrep -f 'sleep 0[.]1'").exit_code == 1; }));
  }
  SECTION("or it is killed, with its children") {
    const auto id = it.start("trap '' TERM; echo up; sleep 1000");
    REQUIRE(eventually([&] { return it.logs(id) == "up\n"; }));
    CHECK(it.call("DELETE", "/command?id=" + id).status == 200);
    CHECK(member(it.status(id), "error") == "signal: killed");
    CHECK(it.sh("a", "pgrep -x sleep").exit_code == 1);
  }
}

TEST_CASE("execd: long lines, odd bytes and many lines come whole", "[execd]") {
  const execd_node it;
  const auto long_line = it.run("head -c 3000000 /dev/zero | tr '\\0' x; echo");
  CHECK(long_line.out == std::string(3'000'000, 'x') + "\n");
  const auto many = it.run("seq 50000");
  CHECK(std::count(many.out.begin(), many.out.end(), '\n') == 50'000);
  CHECK(many.out.ends_with("\n50000\n"));
  const auto odd = it.run("printf 'a\\0b\\n\\377\\n'");
  CHECK(odd.body.find(R"("text":"a\u0000b\n")") != std::string::npos);
  CHECK(odd.body.find("\"text\":\"\xef\xbf\xbd\\n\"") != std::string::npos);
}

TEST_CASE("execd: as another user", "[execd]") {
  const execd_node it;
  CHECK(it.run("id -u; id -g", R"(,"uid":0)").out == "0\n0\n");
  CHECK(it.run("id -u; id -g", R"(,"uid":33,"gid":44)").out == "33\n44\n");
}

TEST_CASE("execd: two hundred commands at once", "[execd]") {
  const execd_node it;
  const auto all = at_once(200, [&](std::size_t i) {
    const auto got = it.run("echo " + std::to_string(i));
    const bool good = got.out == std::to_string(i) + "\n" && got.complete;
    return good ? std::string{} : std::to_string(got.status) + ": " + got.body;
  });
  for (const auto& each : all)
    CHECK(each == "");
}

TEST_CASE("execd: a client that leaves, and a server that is killed, end no command", "[execd]") {
  execd_node it;
  std::string front;
  {
    http_connection one{it.port()};
    one.send(http_request("POST", "/sandboxes/a/proxy/44772/command",
                          execd_node::body("while [ ! -e go ]; do sleep 0.01; done; exit 9")));
    REQUIRE(one.receive_head().status == 200);
    front = member(*one.more(), "text");
  }
  const auto back = it.start("echo up; while [ ! -e go ]; do sleep 0.01; done; echo over");
  const auto before = it.start("echo done; exit 4");
  REQUIRE(it.ends(before));
  const auto known = it.status(before);
  REQUIRE(eventually([&] { return it.logs(back) == "up\n"; }));
  it.crash_server();
  it.node::start();
  CHECK(it.status(before) == known);
  CHECK(it.logs(before) == "done\n");
  CHECK(it.logs(back) == "up\n");
  CHECK(member(it.status(back), "running") == "true");
  CHECK(member(it.status(front), "running") == "true");
  REQUIRE(it.sh("a", "touch go").exit_code == 0);
  REQUIRE(it.ends(front));
  REQUIRE(it.ends(back));
  CHECK(member(it.status(front), "exit_code") == "9");
  CHECK(it.logs(back) == "up\nover\n");
}

namespace {

constexpr std::string_view multipart = "Content-Type: multipart/form-data; boundary=XX\r\n";

std::string part(const std::string& name, const std::string& content) {
  return "--XX\r\nContent-Disposition: form-data; name=\"" + name + "\"; filename=\"" + name +
         "\"\r\n\r\n" + content + "\r\n";
}

/// Of an answer that goes on.
void read_until(http_connection& from, const std::string& mark) {
  REQUIRE(from.receive_head().status == 200);
  std::string all;
  while (all.find(mark) == std::string::npos) {
    const auto more = from.more();
    REQUIRE(more);
    all += *more;
  }
}

std::string upload(const std::string& metadata, const std::string& content) {
  return part("metadata", metadata) + part("file", content);
}

} // namespace

TEST_CASE("execd: files are uploaded as they come", "[execd]") {
  const execd_node it;
  const auto post = [&](const std::string& body) {
    return it.ask("POST", "/sandboxes/a/proxy/44772/files/upload", body, multipart);
  };
  const std::string large(8u << 20, 'l');
  const auto good = post(upload(R"({"path":"new/one"})", "1\n") +
                         upload(R"({"path":"~/two","mode":600})", large) + "--XX--\r\n");
  CHECK(good.status == 200);
  CHECK(good.body.empty());
  CHECK(it.sh("a", "cat new/one; stat -c '%a %s' new/one ~/two").out == "1\n755 2\n600 8388608\n");
  CHECK(post(upload(R"({"path":"new/one"})", "11\n") + "--XX--").status == 200);
  CHECK(it.sh("a", "cat new/one; stat -c %a new/one").out == "11\n755\n");
  // Two descriptions, then their two files.
  CHECK(post(part("metadata", R"({"path":"a"})") + part("metadata", R"({"path":"b"})") +
             part("file", "A") + part("file", "B") + "--XX--")
          .status == 200);
  CHECK(it.sh("a", "cat a b").out == "AB");
  const auto refused = [&](const std::string& body, const std::string& code, int status = 400) {
    const auto got = post(body);
    CHECK(got.status == status);
    CHECK(member(got.body, "code") == code);
  };
  refused("{}", "INVALID_FILE");
  refused("--XX--\r\n", "INVALID_FILE_METADATA");
  refused(part("file", "x") + "--XX--", "INVALID_FILE_METADATA");
  refused(part("metadata", R"({"path":"x"})") + "--XX--", "INVALID_FILE_CONTENT");
  refused(part("metadata", R"({"path":""})") + "--XX--", "INVALID_FILE_METADATA");
  refused(upload(R"({"path":"x"})", "x") + part("file", "y") + "--XX--", "INVALID_FILE");
  refused(upload(R"({"path":"x"})", "x") + part("metadata", R"({"path":"y"})") + "--XX--",
          "INVALID_FILE");
  refused(upload(R"({"path":"/etc/passwd"})", large) + "--XX--", "RUNTIME_ERROR", 500);
  refused(upload(R"({"path":"x","owner":"nobody_here"})", "x") + "--XX--", "RUNTIME_ERROR", 500);
  CHECK(it.ask("POST", "/sandboxes/a/proxy/44772/files/upload", "x").status == 400);
  CHECK(it.ask("POST", "/sandboxes/nobody/proxy/44772/files/upload",
               upload(R"({"path":"x"})", "x") + "--XX--", multipart)
          .status == 404);
  // One after the other, each longer than what a channel takes at once.
  http_connection same{it.port()};
  for (int i = 0; i < 3; ++i) {
    same.send(http_request("POST", "/sandboxes/a/proxy/44772/files/upload",
                           upload(R"({"path":"same"})", large) + "--XX--\r\n", multipart));
    CHECK(same.receive().status == 200);
  }
  CHECK(it.sh("a", "stat -c %s same").out == "8388608\n");
  // What is cut short replaces nothing.
  const auto cut = upload(R"({"path":"new/one"})", "half");
  CHECK(post(cut.substr(0, cut.size() - 2)).status == 400);
  CHECK(it.sh("a", "cat new/one").out == "11\n");
  CHECK(eventually([&] { return it.sh("a", "find -name '.insula*'").out.empty(); }));
}

TEST_CASE("execd: files are downloaded whole, in part, or by line", "[execd]") {
  const execd_node it;
  REQUIRE(it.sh("a", "printf 0123456789 > ten; seq 100000 > many; : > empty; mkdir d; "
                     "printf x > $'a \"\\xc3\\xa9\\n'")
            .exit_code == 0);
  const auto get = [&](const std::string& query, const std::string& fields = {}) {
    return it.ask("GET", "/sandboxes/a/proxy/44772/files/download?path=" + query, {}, fields);
  };
  const auto whole = get("ten");
  CHECK(whole.status == 200);
  CHECK(whole.body == "0123456789");
  CHECK(whole.fields.at("content-length") == "10");
  CHECK(whole.fields.at("accept-ranges") == "bytes");
  CHECK(whole.fields.at("content-disposition") == "attachment; filename=\"ten\"");
  CHECK(whole.fields.at("last-modified").ends_with(" GMT"));
  CHECK(get("empty").fields.at("content-length") == "0");
  CHECK(get("a%20%22%C3%A9%0A").fields.at("content-disposition") ==
        "attachment; filename=\"a%20%22%C3%A9%0A\"; filename*=UTF-8''a%20%22%C3%A9%0A");
  const auto part = get("ten", "Range: bytes=2-4, 6-7\r\n");
  CHECK(part.status == 206);
  CHECK(part.body == "234");
  CHECK(part.fields.at("content-range") == "bytes 2-4/10");
  CHECK(get("ten", "Range: bytes=-3\r\n").body == "789");
  CHECK(get("ten", "Range: bytes=7-\r\n").fields.at("content-range") == "bytes 7-9/10");
  for (const auto* range :
       {"bytes=10-", "bytes=5-4", "bytes=x", "bytes=-", "lines=1-2", "bytes=-0"})
    CHECK(get("ten", "Range: " + std::string{range} + "\r\n").status == 416);
  CHECK(get("ten", "Range: bytes=10-\r\n").fields.at("content-range") == "bytes */10");
  CHECK(get("empty", "Range: bytes=0-\r\n").status == 416);
  // If-Range names a state of the file, and one of the last second may not be the only one.
  REQUIRE(
    it.sh("a", "printf x > new; touch -d '2026-01-02 03:04:05 UTC' ten; touch -d '+1 hour' new")
      .exit_code == 0);
  const std::string dated = "If-Range: Fri, 02 Jan 2026 03:04:05 GMT\r\n";
  CHECK(get("ten").fields.at("last-modified") == "Fri, 02 Jan 2026 03:04:05 GMT");
  CHECK(get("ten", "Range: bytes=2-4\r\n" + dated).body == "234");
  CHECK(get("ten", "Range: bytes=10-\r\n" + dated).body == "0123456789");
  for (const auto* range : {"bytes=2-4", "bytes=10-"}) {
    const auto all = get("ten", "Range: " + std::string{range} +
                                  "\r\nIf-Range: Fri, 02 Jan 2026 03:04:06 GMT\r\n");
    CHECK(all.status == 200);
    CHECK(all.body == "0123456789");
    CHECK(all.fields.at("content-length") == "10");
  }
  CHECK(get("ten", "Range: bytes=2-4\r\nIf-Range: \"tag\"\r\n").status == 200);
  const auto fresh = get("new").fields.at("last-modified");
  CHECK(get("new", "Range: bytes=0-\r\nIf-Range: " + fresh + "\r\n").status == 200);
  const auto head =
    it.ask("HEAD", "/sandboxes/a/proxy/44772/files/download?path=ten", {}, "Range: bytes=2-4\r\n");
  CHECK(head.status == 200);
  CHECK(head.fields.at("content-length") == "10");
  CHECK(get("many").body.size() == 588'895);
  CHECK(get("many&offset=99999").body == "99999\n100000");
  CHECK(get("many&offset=5&limit=2").body == "5\n6");
  CHECK(get("many&offset=100001").body.empty());
  CHECK(get("many&offset=0").status == 400);
  CHECK(get("many&limit=x").status == 400);
  CHECK(get("many&limit=1", "Range: bytes=0-1\r\n").status == 400);
  CHECK(get("").status == 400);
  CHECK(get("d").status == 400);
  CHECK(get("none").status == 404);
  CHECK(get("none%00").status == 400);
}

TEST_CASE("execd: a session's shell outlives what ends in it", "[execd]") {
  const execd_node it;
  const auto made = it.call("POST", "/session", "");
  CHECK(made.status == 200);
  const auto session = member(made.body, "session_id");
  const auto in_session = [&](const std::string& command, const std::string& more = {}) {
    return read_events(
      it.call("POST", "/session/" + session + "/run", execd_node::body(command, more)));
  };
  CHECK(in_session("cd /tmp; export A=b; echo up").out == "up\n");
  const auto over = in_session("exit 7");
  CHECK(over.evalue == "7");
  CHECK(over.id == session);
  CHECK(in_session("pwd; echo $A").complete);
  CHECK(in_session("kill -9 $BASHPID").evalue == "-1");
  CHECK(in_session("echo again").out == "again\n");
  CHECK(in_session("x", R"(,"cwd":"/none")").status == 400);
  REQUIRE(it.sh("a", "mkdir here; ln -s here link; ln -s /none gone; touch file; mkfifo pipe")
            .exit_code == 0);
  for (const std::string cwd : {"gone", "file", "pipe", "file/", "gone/."})
    CHECK(in_session("x", ",\"cwd\":\"" + cwd + "\"").status == 400);
  CHECK(in_session("cd() { :; }; pwd", R"(,"cwd":"sub/.././link")").out == "/workspace/link\n");
  CHECK(in_session("pwd; unset -f cd", R"(,"cwd":"/tmp/")").out == "/tmp\n");
  CHECK(it.call("POST", "/session/nobody/run", execd_node::body("x")).status == 404);
  CHECK(it.call("POST", "/session", "[]").status == 400);
  // A client that goes takes its command with it.
  {
    http_connection gone{it.port()};
    gone.send(http_request("POST", "/sandboxes/a/proxy/44772/session/" + session + "/run",
                           execd_node::body("echo here; sleep 1234")));
    read_until(gone, "here");
  }
  CHECK(eventually([&] { return it.sh("a", "pgrep -f 'sleep 123[4]'").exit_code != 0; }));
  CHECK(it.call("DELETE", "/command?id=" + session).status == 200); // It ends the session.
  CHECK(it.call("DELETE", "/session/" + session).status == 404);
  CHECK(it.call("DELETE", "/command?id=nothing").status == 404);
}

TEST_CASE("execd: what a sandbox uses is measured, once and again", "[execd]") {
  const execd_node it;
  const auto id = it.start("while :; do :; done");
  const auto now = it.call("GET", "/metrics").body;
  CHECK(std::stod(member(now, "cpu_count")) > 0);
  CHECK(std::stod(member(now, "mem_total_mib")) > 0);
  CHECK(eventually(
    [&] { return std::stod(member(it.call("GET", "/metrics").body, "cpu_used_pct")) > 1; }));
  http_connection watching{it.port()};
  watching.send(http_request("GET", "/sandboxes/a/proxy/44772/metrics/watch"));
  read_until(watching, "}\n{");
  CHECK(it.call("DELETE", "/command?id=" + id).status == 200);
  CHECK(it.ask("GET", "/sandboxes/nobody/proxy/44772/metrics").status == 404);
}
