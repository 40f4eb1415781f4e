// The standard input of a command, by the bridge's extension, and over the ends of servers.
#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/planned_crash.hpp"

#include <csignal>
#include <regex>

using namespace insula::test;

namespace {

const std::string opened = "Insula-Stdin: open\r\n";

std::string keyed(const std::string& key) {
  return "Idempotency-Key: " + key + "\r\n" + opened;
}

/// Begun: what is written by another connection does not come before it.
struct begun_stream : exec_stream {
  begun_stream(const node& it, const std::string& key, const std::vector<std::string>& argv)
      : exec_stream{it.port(), "a", exec_body(argv), keyed(key)} {
    head();
  }
};

begun_stream start(const node& it, const std::string& key, const std::vector<std::string>& argv) {
  return {it, key, argv};
}

std::string place(const std::string& key, const std::string& query = {}) {
  return "/v1/sandbox/a/exec/" + key + "/stdin" + (query.empty() ? "" : "?" + query);
}

struct answered {
  int status = 0;
  std::uint64_t taken = 0;
};

answered write(const node& it, const std::string& key, const std::string& query = {},
               const std::string& bytes = {}) {
  const auto told = it.ask("POST", place(key, query), bytes);
  std::smatch found;
  const bool has = std::regex_search(told.body, found, std::regex{"\"taken\":([0-9]+)"});
  return {told.status, has ? std::stoull(found[1]) : 0};
}

/// Lines that are all different.
std::string many_lines(int count) {
  std::string all;
  for (int i = 0; i < count; ++i)
    all += "line " + std::to_string(i) + " of what the command is to read\n";
  return all;
}

} // namespace

TEST_CASE("a command reads what is written to its input, each byte once, until it is closed",
          "[exec][input]") {
  node it;
  auto stream = start(it, "sorted", {"sort"});
  CHECK(stream.head().status == 200);
  CHECK(write(it, "sorted").taken == 0);
  CHECK(write(it, "sorted", "offset=0", "pear\n").taken == 5);
  CHECK(write(it, "sorted", "offset=0", "pear\napple\n").taken == 11);
  const auto ahead = write(it, "sorted", "offset=12", "fig\n");
  CHECK(ahead.status == 409);
  CHECK(ahead.taken == 11);
  CHECK(write(it, "sorted", "offset=11&close=true", "fig\n").status == 200);
  const auto all = stream.rest();
  CHECK(all.out == "apple\nfig\npear\n");
  CHECK(all.exit_code == 0);
  CHECK(write(it, "sorted", "offset=11&close=true", "fig\n").status == 200);
  const auto late = write(it, "sorted", "offset=15", "plum\n");
  CHECK(late.status == 410);
  CHECK(late.taken == 15);
  CHECK(start(it, "sorted", {"sort"}).rest().out == all.out); // It has run once.
}

TEST_CASE("an answer of the command comes before the next line of its input", "[exec][input]") {
  node it;
  auto stream = start(it, "talk", {"bash", "-c", "while read -r line; do echo \"<$line>\"; done"});
  for (const std::string line : {"one", "two", "three"}) {
    REQUIRE(write(it, "talk", {}, line + "\n").status == 200);
    const auto said = stream.next();
    REQUIRE(said);
    CHECK(said->data == "<" + line + ">\n");
  }
  REQUIRE(write(it, "talk", "close=true").status == 200);
  CHECK(stream.rest().exit_code == 0);
}

TEST_CASE("who asks for no input has none, as by the contract", "[exec][input]") {
  node it;
  CHECK(it.exec("a", {"cat"}).exit_code == 0);
  exec_stream none{it.port(), "a", exec_body({"cat"}), "Idempotency-Key: none\r\n"};
  CHECK(none.rest().exit_code == 0);
  const auto refused = [&](const std::string& fields) {
    exec_stream stream{it.port(), "a", exec_body({"cat"}), fields};
    return stream.head().status;
  };
  CHECK(refused(opened) == 400);
  CHECK(refused("Idempotency-Key: other\r\nInsula-Stdin: true\r\n") == 400);
  CHECK(refused(keyed("other") + "Session-Id: s\r\n") == 400);
  CHECK(refused(keyed("none")) == 409); // Another request.
  CHECK(write(it, "none", {}, "text").status == 410);
  CHECK(write(it, "nothing", {}, "text").status == 404);
  CHECK(write(it, "none", "offset=-1").status == 400);
  CHECK(write(it, "none", "close=yes").status == 400);
  CHECK(write(it, "none", {}, std::string(512 * 1024 + 1, 'x')).status == 413);
}

TEST_CASE("input goes on when its server is gone", "[input][adoption]") {
  const int signal = GENERATE(SIGKILL, SIGTERM);
  CAPTURE(signal);
  node it;
  const auto lines = many_lines(6'000); // More than a pipe takes: the command has not read it all.
  auto before =
    start(it, "kept", {"bash", "-c", "read -r first; echo \"$first\"; read x < go; cat"});
  REQUIRE(it.sh("a", "mkfifo go").exit_code == 0);
  REQUIRE(lines.size() > 200'000);
  const auto first = lines.substr(0, 100'000);
  REQUIRE(write(it, "kept", "offset=0", first).taken == first.size());
  const int status = it.stop(signal);
  if (signal == SIGTERM)
    REQUIRE(status == 0);
  it.start();
  CHECK(write(it, "kept").taken == first.size());
  auto after =
    start(it, "kept", {"bash", "-c", "read -r first; echo \"$first\"; read x < go; cat"});
  REQUIRE(it.sh("a", "echo > go").exit_code == 0);
  CHECK(write(it, "kept", "offset=50000&close=true", lines.substr(50'000)).taken == lines.size());
  const auto all = after.rest();
  CHECK(all.exit_code == 0);
  CHECK((all.out == lines));
  it.crash_server();
  it.start();
  CHECK(write(it, "kept").taken == lines.size());
  CHECK(write(it, "kept", {}, "more").status == 410);
}

TEST_CASE("killed at any step of its way, input comes to the command once",
          "[crash][failpoint][input]") {
  const auto* step = GENERATE("input.taken", "input.taken#3", "input.moved", "input.moved#4",
                              "input.next", "input.next#2", "input.closed");
  CAPTURE(step);
  std::optional<planned_crash> crash;
  crash.emplace(step);
  node it;
  const auto lines = many_lines(6'000);
  auto before = start(it, "once", {"cat"});
  try {
    write(it, "once", "offset=0&close=true", lines);
  } catch (const std::exception&) { // The connection was cut.
  }
  // The last steps come after the answer.
  CHECK(eventually([&] { return status_of(it.pid(), "State").starts_with('Z'); }));
  crash.reset();
  it.crash_server(); // It is dead already.
  it.start();
  const auto taken = write(it, "once").taken;
  CHECK(taken > 0);
  CHECK(write(it, "once", "offset=" + std::to_string(taken) + "&close=true", lines.substr(taken))
          .taken == lines.size());
  const auto all = start(it, "once", {"cat"}).rest();
  CHECK(all.exit_code == 0);
  CHECK((all.out == lines));
  CHECK(it.remove("a") == 204);
}
