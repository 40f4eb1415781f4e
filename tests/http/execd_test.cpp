#include "base/file_tasks.hpp"
#include "http/opensandbox/execd_json.hpp"
#include "http/opensandbox/files_json.hpp"
#include "http/opensandbox/lines.hpp"
#include "http/opensandbox/log_cursor.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

#include <cerrno>
#include <regex>

using namespace insula;
using namespace insula::test;
using namespace insula::http;

namespace {

const std::string base = "/v1/sandboxes/abc/proxy/44772";

/// Each line with its end, in brackets.
std::string split(const std::vector<std::string>& pieces) {
  opensandbox::line_splitter lines;
  std::string told;
  const auto tell = [&](std::string_view line, std::string_view end) {
    told += "[" + std::string{line} + std::string{end} + "]";
  };
  for (const auto& each : pieces)
    lines.feed(each, tell);
  lines.finish(tell);
  return told;
}

/// What is different each time is written as 0.
std::string plain(std::string text) {
  text =
    std::regex_replace(text, std::regex{R"x("(timestamp|execution_time)":[0-9]+)x"}, R"("$1":0)");
  return std::regex_replace(text, std::regex{"[0-9a-f]{32}"}, "ID");
}

const std::string begin = "data: {\"type\":\"init\",\"text\":\"ID\",\"timestamp\":0}\n\n"
                          "data: {\"type\":\"ping\",\"text\":\"pong\",\"timestamp\":0}\n\n";

std::string event(const std::string& type, const std::string& text) {
  return "data: {\"type\":\"" + type + "\",\"text\":\"" + text + "\",\"timestamp\":0}\n\n";
}

const std::string complete =
  "data: {\"type\":\"execution_complete\",\"execution_time\":0,\"timestamp\":0}\n\n";

std::string failure(const std::string& value, const std::string& words) {
  return "data: {\"type\":\"error\",\"timestamp\":0,\"error\":{\"ename\":\"CommandExecError\","
         "\"evalue\":\"" +
         value + "\",\"traceback\":[\"" + words + "\"]}}\n\n";
}

std::string run(house& h, const std::string& body, const std::string& fields = {}) {
  const auto got = ask(h.port(), "POST", base + "/command", body, fields);
  CHECK(got.status == 200);
  CHECK(got.complete);
  CHECK(got.fields.at("content-type") == "text/event-stream");
  return plain(got.body);
}

} // namespace

TEST_CASE("output is taken apart into lines", "[http][execd]") {
  CHECK(split({}) == "");
  CHECK(split({"a\nb\n"}) == "[a\n][b\n]");
  CHECK(split({"a", "b", "\n", "c"}) == "[ab\n][c]");
  CHECK(split({"50%\r60%\r", "x"}) == "[50%\r][60%\r][x]");
  CHECK(split({"a\r\nb\r\n"}) == "[a\r\n][b\r\n]");
  CHECK(split({"a\r", "\nb\n"}) == "[a\r][b\n]");
  CHECK(split({"a\r", "", "\nb"}) == "[a\r][b]");
  CHECK(split({"\n\n", "\r"}) == "[\n][\n][\r]");
  CHECK(split({std::string(9u << 20, 'x'), "y\n"}) == "[" + std::string(9u << 20, 'x') + "][y\n]");
}

TEST_CASE("what there is of a line can be told before it ends", "[http][execd]") {
  opensandbox::line_splitter lines;
  std::string told;
  const auto tell = [&](std::string_view line, std::string_view end) {
    told += "[" + std::string{line} + std::string{end} + "]";
  };
  lines.flush(tell);
  CHECK_FALSE(lines.has_rest());
  lines.feed("a\nname? ", tell);
  CHECK(lines.has_rest());
  lines.flush(tell);
  CHECK_FALSE(lines.has_rest());
  lines.flush(tell);
  lines.feed("\n\xc3", tell);
  lines.flush(tell); // Half a character.
  CHECK(lines.has_rest());
  lines.feed("\xa9\xe2\x82", tell);
  lines.flush(tell);
  lines.feed("\xac\r\n\xff", tell);
  lines.flush(tell);
  lines.feed("\xc3", tell);
  lines.finish(tell);
  CHECK(told == "[a\n][name? ][\n][\xc3\xa9][\xe2\x82\xac\r\n][\xff][\xc3]");
}

TEST_CASE("a cursor is the number of a line", "[http][execd]") {
  const auto told = [](std::int64_t after, const std::vector<std::string>& pieces, bool over) {
    opensandbox::log_cursor cursor{after};
    std::string all;
    for (const auto& each : pieces) {
      cursor.count(each);
      all += each;
    }
    cursor.end(over);
    return all.substr(cursor.start(), cursor.stop() - cursor.start()) + "|" +
           std::to_string(cursor.last_line());
  };
  const std::vector<std::string> log{"one\ntw", "o\nthr"};
  CHECK(told(-1, log, false) == "one\ntwo\n|1");
  CHECK(told(-9, log, true) == "one\ntwo\nthr|2");
  CHECK(told(0, log, false) == "two\n|1");
  CHECK(told(1, log, false) == "|1");
  CHECK(told(1, log, true) == "thr|2");
  CHECK(told(2, log, true) == "|2");
  CHECK(told(99, log, true) == "|2");
  CHECK(told(-1, {}, false) == "|-1");
  CHECK(told(-1, {}, true) == "|-1");
  CHECK(told(0, {"x"}, false) == "|-1");
  CHECK(told(-1, {"x"}, true) == "x|0");
}

TEST_CASE("a command's output comes as events, line by line", "[http][execd]") {
  house h;
  h.plays().output = {{output_stream::out, "hel"},
                      {output_stream::out, "lo\n\n"},
                      {output_stream::err, "\"o\xffops\"\r"},
                      {output_stream::out, "rest"}};
  const std::string body = R"({"command":"ls","cwd":"/tmp","timeout":30000,"envs":{"A":"b"}})";
  CHECK(run(h, body) == begin + event("stdout", "hello\\n") + event("stdout", "\\n") +
                          event("stderr", "\\\"o\xef\xbf\xbdops\\\"\\r") + event("stdout", "rest") +
                          complete);
  const auto asked = h.last_exec();
  CHECK(asked.command_line == "ls");
  CHECK(asked.cwd == "/tmp");
  CHECK(asked.timeout_ms == 30'000);
  CHECK(asked.env == std::map<std::string, std::string>{{"A", "b"}});
  CHECK(asked.rules.with_its_shell);
  CHECK(asked.rules.killed_at_timeout);
  CHECK(asked.only_if_there);
  REQUIRE(asked.remembered);
  CHECK(asked.remembered->text == "ls");
  CHECK_FALSE(asked.remembered->output);
  // Their own clients get lines without ends.
  CHECK(run(h, body, "User-Agent: OpenSandbox-JS-SDK/0.1.11\r\n") ==
        begin + event("stdout", "hello") + event("stdout", "\\n") +
          event("stderr", "\\\"o\xef\xbf\xbdops\\\"") + event("stdout", "rest") + complete);
}

TEST_CASE("whatever ends a command is told once", "[http][execd]") {
  house h;
  const auto [end, told] = GENERATE(table<process_end, std::string>({
    {process_end{}, complete},
    {process_end{.exit_code = 7}, failure("7", "exit status 7")},
    {process_end{.exit_code = 137, .signal = 9}, failure("-1", "signal: killed")},
    {process_end{.exit_code = 143, .signal = 15}, failure("-1", "signal: terminated")},
    {process_end{.exit_code = 137, .timed_out = true, .timeout_ms = 500, .signal = 9},
     failure("command timed out after 500 ms", "command timed out after 500 ms")},
    {process_end{.lost = true}, failure("the sandbox has ended", "the sandbox has ended")},
  }));
  h.plays().end = end;
  CHECK(run(h, R"({"command":"x"})") == begin + told);
}

TEST_CASE("in the background a command is told as started, and that is all", "[http][execd]") {
  house h;
  h.plays().end.reset();
  h.plays().output = {{output_stream::out, "hello\n"}};
  CHECK(run(h, R"({"COMMAND":"sleep 9","Background":true,"more":1} behind)") == begin + complete);
  CHECK(h.last_exec().command_line == "exec 2>&1; sleep 9");
  REQUIRE(h.last_exec().remembered);
  CHECK(h.last_exec().remembered->output);
  CHECK(h.last_exec().remembered->text == "sleep 9");
}

TEST_CASE("what makes no sense is refused before anything runs", "[http][execd]") {
  house h;
  for (const auto* body : {"", "{", "[]", "null", "{}", R"({"command":""})", R"({"command":1})",
                           R"({"command":"a","timeout":-1})", R"({"command":"a","timeout":1.5})",
                           R"({"command":"a","timeout":"1"})", R"({"command":"a","gid":1})",
                           R"({"command":"a","uid":-1})", R"({"command":"a","background":"yes"})",
                           R"({"command":"a","envs":{"A":1}})", R"({"command":"a\u0000b"})"}) {
    CAPTURE(body);
    const auto got = ask(h.port(), "POST", base + "/command", body);
    CHECK(got.status == 400);
    CHECK(got.body.starts_with(R"({"code":"INVALID_REQUEST_BODY","message":")"));
  }
  CHECK(h.heard().all().empty());
}

TEST_CASE("an id that no user of a sandbox has is refused by every route", "[http][execd]") {
  house h;
  const auto [number, good] = GENERATE(table<std::string, bool>({{"0", true},
                                                                 {"1000", true},
                                                                 {"65534", true},
                                                                 {"65535", true},
                                                                 {"65536", false},
                                                                 {"2147483648", false},
                                                                 {"4294967295", false},
                                                                 {"4294967296", false},
                                                                 {"18446744073709551616", false},
                                                                 {"-1", false},
                                                                 {"-0.0", false},
                                                                 {"1.5", false}}));
  CAPTURE(number);
  for (const auto* path : {"/command", "/session/s/run"})
    for (const auto& body : {R"({"command":"a","uid":)" + number + "}",
                             R"({"command":"a","uid":1000,"gid":)" + number + "}"}) {
      CAPTURE(path, body);
      CHECK(ask(h.port(), "POST", base + path, body).status == (good ? 200 : 400));
      const auto text = body.substr(0, body.rfind(':') + 1) + "\"" + number + "\"}";
      CHECK(ask(h.port(), "POST", base + path, text).status == 400);
    }
  // A file's owner is a name, which may be a number.
  for (const auto* whose : {"owner", "group"}) {
    const auto rights = "{\"" + std::string{whose} + "\":\"" + number + "\"}";
    for (const auto* path : {"/files/permissions", "/directories"}) {
      CAPTURE(path, rights);
      const auto got = ask(h.port(), "POST", base + path, R"({"/a":)" + rights + "}");
      CHECK((got.status != 400) == good);
      CHECK(ask(h.port(), "POST", base + path,
                "{\"/a\":{\"" + std::string{whose} + "\":" + number + "}}")
              .status == 400);
    }
    const auto upload = opensandbox::read_upload("{\"path\":\"/a\"," + rights.substr(1));
    CHECK(static_cast<bool>(upload) == good);
  }
  if (!good)
    CHECK(h.heard().all().empty());
}

TEST_CASE("what cannot start is told by how far it came", "[http][execd]") {
  house h;
  const auto asked = [&](const error& why) {
    h.plays().exec_error = why;
    return ask(h.port(), "POST", base + "/command", R"({"command":"x","cwd":"/no"})");
  };
  CHECK(asked({errc::launch_failed, "entering the working directory: No such file"}).status == 400);
  CHECK(asked({errc::invalid_request, "cwd has a variable"}).status == 400);
  const auto unknown = asked({errc::not_found, "Sandbox abc not found."});
  CHECK(unknown.status == 404);
  CHECK(unknown.body ==
        R"({"code":"DOCKER::SANDBOX_NOT_FOUND","message":"Sandbox abc not found."})");
  CHECK(asked({errc::limit_reached, "too many"}).status == 500);
  const auto full = asked({errc::machine_full, "no room for a filter"});
  CHECK(full.status == 503);
  CHECK(full.fields.at("retry-after") == "5");
  CHECK(full.body == R"({"code":"RUNTIME_ERROR","message":"no room for a filter"})");
  const auto late = asked({errc::launch_failed, "starting it: out of memory"});
  CHECK(late.status == 200);
  CHECK(plain(late.body) ==
        begin + failure("starting it: out of memory", "starting it: out of memory"));
}

TEST_CASE("a client that leaves does not end its command", "[http][execd]") {
  house h;
  h.plays().end.reset();
  client one{h.port()};
  one.send(request("POST", base + "/command", R"({"command":"x"})"));
  one.read_until("pong");
  one.close();
  CHECK(h.heard().has("detached"));
}

TEST_CASE("what has become of a command is told", "[http][execd]") {
  house h;
  const auto status = [&] { return ask(h.port(), "GET", base + "/command/status/abcd"); };
  CHECK(status().status == 404);
  CHECK(status().body == R"({"code":"INVALID_REQUEST_BODY","message":"command not found: abcd"})");
  h.plays().command = {true, false, "python \"server\".py", 1'700'000'000'123, 0, {}};
  CHECK(
    status().body ==
    R"({"id":"abcd","content":"python \"server\".py","running":true,"exit_code":null,"error":"","started_at":"2023-11-14T22:13:20.123Z","finished_at":null})");
  h.plays().command.end = process_end{.exit_code = 3};
  h.plays().command.ended_ms = 1'700'000'001'000;
  CHECK(
    status().body.substr(status().body.find("\"running\"")) ==
    R"("running":false,"exit_code":3,"error":"exit status 3","started_at":"2023-11-14T22:13:20.123Z","finished_at":"2023-11-14T22:13:21.000Z"})");
  h.plays().command.end = process_end{.timed_out = true, .timeout_ms = 5};
  CHECK(status().body.find(R"("exit_code":null,"error":"command timed out after 5 ms")") !=
        std::string::npos);
}

TEST_CASE("the output of a command in the background is read by cursor", "[http][execd]") {
  house h;
  h.plays().output = {{output_stream::out, "one\ntwo\n"}, {output_stream::out, "thr"}};
  h.plays().end.reset();
  const auto logs = [&](const std::string& query) {
    return ask(h.port(), "GET", base + "/command/abcd/logs" + query);
  };
  CHECK(logs("").status == 404);
  run(h, R"({"command":"x","background":true})");
  h.plays().command = {true, false, "x", 1, 0, {}};
  CHECK(logs("").status == 400); // In the foreground.
  h.plays().command.output = true;
  h.plays().extent = {0, 11};
  const auto all = logs("");
  CHECK(all.status == 200);
  CHECK(all.body == "one\ntwo\n");
  CHECK(all.fields.at("execd-commands-tail-cursor") == "1");
  CHECK(all.fields.at("content-type") == "text/plain; charset=utf-8");
  CHECK(logs("?cursor=0").body == "two\n");
  CHECK(logs("?cursor=1").body.empty());
  CHECK(logs("?cursor=x").body == "one\ntwo\n");
  h.plays().command.end = process_end{};
  CHECK(logs("?cursor=1").body == "thr");
  CHECK(logs("?cursor=1").fields.at("execd-commands-tail-cursor") == "2");
  // What is large is told as it is read.
  std::string large;
  for (int i = 0; large.size() < (3u << 20); ++i)
    large += "line " + std::to_string(i) + "\n";
  h.plays().output = {{output_stream::out, large}, {output_stream::out, "end\n"}};
  run(h, R"({"command":"x","background":true})");
  h.plays().extent = {0, large.size() + 4};
  const auto whole = logs("?cursor=0");
  CHECK(whole.complete);
  CHECK(whole.body == large.substr(7) + "end\n");
}

TEST_CASE("a command is interrupted by its id", "[http][execd]") {
  house h;
  const auto interrupt = [&](const std::string& query) {
    return ask(h.port(), "DELETE", base + "/command" + query);
  };
  CHECK(interrupt("").status == 400);
  CHECK(interrupt("").body ==
        R"({"code":"MISSING_QUERY","message":"missing query parameter 'id'"})");
  const auto done = interrupt("?id=abcd");
  CHECK(done.status == 200);
  CHECK(done.body == "{}");
  CHECK(h.heard().has("interrupt abcd"));
  // What is no command may be a session.
  h.plays().interrupt_error = error{errc::not_found, "no"};
  CHECK(interrupt("?id=abcd").body == "{}");
  CHECK(h.heard().has("delete_session abcd"));
  h.plays().session_error = error{errc::not_found, "no"};
  CHECK(interrupt("?id=abcd").status == 404);
  CHECK(interrupt("?id=a%2Fb").status == 404);
}

TEST_CASE("a session is made, used and ended", "[http][execd]") {
  house h;
  h.plays().file = [](int fd) {
    write_head(fd, {});
    file_entry entry{};
    entry.kind = file_kind::directory;
    entry.path_bytes = 4;
    write_frame(fd, std::string(reinterpret_cast<const char*>(&entry), sizeof entry) + "/a'b");
    write_frame(fd, {});
  };
  const auto make = [&](const std::string& body) {
    return ask(h.port(), "POST", base + "/session", body);
  };
  CHECK(std::regex_match(make("").body, std::regex{R"(\{"session_id":"[0-9a-f]{32}"\})"}));
  CHECK(h.heard().has("file_task 1 [./.]"));
  CHECK(make(R"({"cwd":"~/x"})").status == 200);
  CHECK(h.heard().has("file_task 8 [~/x] [] [] []"));
  CHECK(h.heard().has("file_task 1 [~/x/.]"));
  CHECK(h.heard().all().back().ends_with(" in /a'b"));
  for (const auto* body : {"[]", "{", R"({"cwd":1})"})
    CHECK(make(body).status == 400);

  h.plays().output = {{output_stream::out, "one\n"}, {output_stream::err, "two\n"}};
  const auto run = [&](const std::string& body) {
    return ask(h.port(), "POST", base + "/session/s1/run", body);
  };
  const auto got = run(R"({"command":"ls","cwd":"x","timeout":5})");
  const auto text = std::regex_replace(plain(got.body), std::regex{"\"s1\""}, "\"ID\"");
  CHECK(text == begin + event("stdout", "one\\n") + event("stdout", "two\\n") + complete);
  CHECK(h.last_exec().command_line == "\\builtin cd -- $'/a\\'b' || return\nls");
  CHECK(h.last_exec().session == "s1");
  CHECK(h.last_exec().only_if_session);
  CHECK(h.last_exec().timeout_ms == 5);
  CHECK(run("{}").status == 400);
  h.plays().exec_error = error{errc::not_found, "Session 's1' not found"};
  CHECK(run(R"({"command":"ls"})").body ==
        R"({"code":"CONTEXT_NOT_FOUND","message":"Session 's1' not found"})");
  CHECK(ask(h.port(), "POST", base + "/session/a%2Fb/run", R"({"command":"ls"})").status == 404);

  CHECK(ask(h.port(), "DELETE", base + "/session/s1").status == 200);
  CHECK(h.heard().has("delete_session s1"));
  h.plays().session_error = error{errc::not_found, "no"};
  CHECK(ask(h.port(), "DELETE", base + "/session/s1").status == 404);
}

TEST_CASE("a client that leaves interrupts its command in a session", "[http][execd]") {
  house h;
  h.plays().end.reset();
  client one{h.port()};
  one.send(request("POST", base + "/session/s1/run", R"({"command":"x"})"));
  one.read_until("pong");
  one.close();
  CHECK(h.heard().has("interrupt " + h.last_exec().idempotency.key));
}

TEST_CASE("what a sandbox says about its files is told with care", "[http][execd]") {
  house h;
  const auto get = [&](const std::string& path) { return ask(h.port(), "GET", base + path); };
  const auto fails = [&](int code, file_step step, const std::string& path) {
    h.plays().file = [=](int fd) {
      file_head head{};
      head.error = code;
      head.step = static_cast<std::uint32_t>(step);
      head.size = 99; // Of no word.
      write_head(fd, head);
    };
    return get(path);
  };
  CHECK(fails(ENOENT, file_step::open, "/files/info?path=a&path=b").status == 404);
  CHECK(fails(EACCES, file_step::open, "/files/info?path=a").status == 500);
  CHECK(fails(ENOTDIR, file_step::type, "/directories/list?path=a").status == 400);
  CHECK(fails(EISDIR, file_step::type, "/files/download?path=a").status == 400);
  // No entry, half of one, a file that is shorter than where it begins.
  for (const std::string frame : {"", "x"}) {
    h.plays().file = [=](int fd) {
      write_head(fd, {});
      if (!frame.empty())
        write_frame(fd, frame);
      write_frame(fd, {});
    };
    CHECK(get("/files/download?path=a").status == 500);
    CHECK(get("/files/info?path=a").body == "{}");
    CHECK(get("/directories/list?path=a").body == "[]");
    CHECK(get("/files/search?path=a").body == "[]");
  }
  // Less than was announced: whoever reads it can tell.
  h.plays().file = [](int fd) {
    write_head(fd, {});
    file_entry entry{};
    entry.size = 10;
    write_frame(fd, {reinterpret_cast<const char*>(&entry), sizeof entry});
    write_frame(fd, "abc");
    write_frame(fd, {});
  };
  const auto cut = get("/files/download?path=a");
  CHECK(cut.status == 200);
  CHECK(cut.fields.at("content-length") == "10");
  CHECK_FALSE(cut.complete);
  h.plays().file = [](int) {};
  CHECK(get("/files/info?path=a").status == 500);
  CHECK(get("/files/info").body == "{}");
  CHECK(get("/files/search").status == 400);
  CHECK(get("/files/search?path=a&pattern=%5Ba").status == 500);
  CHECK(get("/directories/list?path=a&depth=-1").status == 400);
  h.plays().file_error = error{errc::not_found, "Sandbox abc not found."};
  CHECK(get("/files/info?path=a").status == 404);
}

TEST_CASE("execd asks for its token, whatever is asked for", "[http][execd]") {
  http::server_options options;
  options.api_key = "s3cret";
  house h{options};
  h.plays().description.exists = true;
  for (const auto& path : {base + "/ping", base + "/command/status/x", base + "/nowhere"}) {
    const auto got = ask(h.port(), "GET", path, "", "X-EXECD-ACCESS-TOKEN: wrong\r\n");
    CHECK(got.status == 401);
    CHECK(got.body ==
          R"({"error":"Unauthorized: invalid or missing header X-EXECD-ACCESS-TOKEN"})");
  }
  for (const std::string name :
       {"X-EXECD-ACCESS-TOKEN: ", "OPEN-SANDBOX-API-KEY: ", "Authorization: Bearer "}) {
    const auto got = ask(h.port(), "GET", base + "/ping", "", name + "s3cret\r\n");
    CHECK(got.status == 200);
    CHECK(got.body.empty());
    CHECK(got.fields.at("content-length") == "0");
    const auto nowhere = ask(h.port(), "GET", base + "/nowhere", "", name + "s3cret\r\n");
    CHECK(nowhere.status == 404);
    CHECK(nowhere.body == R"({"code":"GENERAL::NOT_FOUND","message":"there is no such route"})");
    CHECK(nowhere.fields.at("content-type").starts_with("application/json"));
  }
}

TEST_CASE("execd at an address of its own is one sandbox, made on first use", "[http][execd]") {
  http::server_options options;
  options.execd = http::server_options::execd_listener{"127.0.0.1", 0};
  options.secret = "s";
  house h{options};
  const auto port = h.server().execd_port();
  CHECK(ask(port, "GET", "/ping").status == 200);
  CHECK(plain(ask(port, "POST", "/command", R"({"command":"x"})").body) == begin + complete);
  CHECK_FALSE(h.last_exec().only_if_there);
  CHECK(ask(port, "GET", "/v1/sandbox/abc/running").status == 404);
  CHECK(h.heard().all().front().starts_with("find "));
}
