// Named keys of the real program: what they open, and the ceilings on what they make.
#include "tests/e2e/node.hpp"
#include "tests/e2e/small_cluster.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/metrics_text.hpp"

#include <algorithm>
#include <csignal>

using namespace insula::test;

namespace {

const std::string main_key = "the-main-key-of-this-server", ci_key = "the-key-of-ci-0123456789",
                  web_key = "the-key-of-web-012345678";

std::string bearer(const std::string& key) {
  return "Authorization: Bearer " + key + "\r\n";
}

std::string with_keys(const std::string& limits) {
  return "server: {api_key: " + main_key + "}\nkeys:\n  ci: {key: " + ci_key +
         ", limits: " + limits + "}\n  web: {key: " + web_key +
         ", apis: [vercel], projects: [mine]}\nsandbox: {limits: {memory: 64MiB}}\n";
}

int start(const node& it, const std::string& id, const std::string& key = ci_key) {
  return it.ask("POST", "/v1/sandbox/" + id + "/exec", exec_body({"true"}), bearer(key)).status;
}

int remove(const node& it, const std::string& id) {
  return it.ask("DELETE", "/v1/sandbox/" + id, {}, bearer(main_key)).status;
}

/// A name of letters.
std::string numbered(const std::string& prefix, std::size_t i) {
  return prefix + static_cast<char>('a' + i / 26) + static_cast<char>('a' + i % 26);
}

/// That run now, by what their nodes say.
std::size_t running(const node& it) {
  return static_cast<std::size_t>(metrics_page(it.ask("GET", "/metrics", {}, bearer(main_key)).body)
                                    .value("insula_key_sandboxes", {{"key", "ci"}}));
}

} // namespace

TEST_CASE("creates at the same time never have more sandboxes than their key may", "[keys]") {
  node it{with_keys("{sandboxes: 3}")};
  const auto began = at_once(12, [&](std::size_t i) { return start(it, numbered("a", i)); });
  CHECK(std::count(began.begin(), began.end(), 200) == 3);
  CHECK(std::count(began.begin(), began.end(), 429) == 9);
  CHECK(running(it) == 3);
  const auto refused = it.ask("POST", "/v1/sandbox/bb/exec", exec_body({"true"}), bearer(ci_key));
  CHECK(refused.status == 429);
  CHECK(refused.body.find("The API key ci may have 3 sandboxes at once") != std::string::npos);
  CHECK(refused.body.find(ci_key) == std::string::npos);
  CHECK(start(it, "bb", main_key) == 200); // The main key has no ceiling.
  // One that ends gives its place to exactly one other.
  const auto one = std::find(began.begin(), began.end(), 200) - began.begin();
  CHECK(remove(it, numbered("a", static_cast<std::size_t>(one))) == 204);
  const auto again = at_once(4, [&](std::size_t i) { return start(it, numbered("c", i)); });
  CHECK(std::count(again.begin(), again.end(), 200) == 1);
  CHECK(running(it) == 3);
}

TEST_CASE("a server that is killed leaves each place to what still runs", "[keys]") {
  node it{with_keys("{sandboxes: 2}")};
  REQUIRE(start(it, "aa") == 200);
  REQUIRE(start(it, "ab") == 200);
  REQUIRE(start(it, "ac") == 429);
  SECTION("with its sandboxes alive") {
    it.crash_server();
    it.start();
    // At once, before anything was asked of them.
    const auto began = at_once(4, [&](std::size_t i) { return start(it, numbered("b", i)); });
    CHECK(std::count(began.begin(), began.end(), 429) == 4);
    CHECK(start(it, "aa") == 200);
    CHECK(running(it) == 2);
    CHECK(remove(it, "aa") == 204);
    CHECK(start(it, "ac") == 200);
  }
  SECTION("with its sandboxes gone") {
    it.crash_both();
    it.start();
    CHECK(running(it) == 0);
    CHECK(start(it, "ac") == 200);
    CHECK(start(it, "ab") == 200); // It goes on, and counts again.
    CHECK(start(it, "aa") == 429);
    CHECK(running(it) == 2);
  }
}

TEST_CASE("so many creates a minute, and the client is told when to come again", "[keys]") {
  node it{with_keys("{creates_per_minute: 2}")};
  const auto began = at_once(6, [&](std::size_t i) { return start(it, numbered("a", i)); });
  CHECK(std::count(began.begin(), began.end(), 200) == 2);
  const auto refused = it.ask("POST", "/v1/sandbox/bb/exec", exec_body({"true"}), bearer(ci_key));
  CHECK(refused.status == 429);
  CHECK(refused.body.find("The API key ci may make 2 sandboxes a minute") != std::string::npos);
  REQUIRE(refused.fields.contains("retry-after"));
  const auto seconds = std::stoi(refused.fields.at("retry-after"));
  CHECK(seconds >= 1);
  CHECK(seconds <= 30);
  // What is there goes on.
  const auto one = std::find(began.begin(), began.end(), 200) - began.begin();
  CHECK(start(it, numbered("a", static_cast<std::size_t>(one))) == 200);
}

TEST_CASE("for a key that has projects, others are not there", "[keys]") {
  node it{with_keys("{sandboxes: 9}")};
  it.keeps_snapshots = true; // Of their sessions.
  const auto make = [&](const std::string& project, const std::string& key) {
    return it.ask("POST", "/v3/sandboxes", R"({"projectId":")" + project + R"(","name":"box"})",
                  bearer(key));
  };
  REQUIRE(make("mine", web_key).status == 200);
  const auto other = make("other", main_key);
  REQUIRE(other.status == 200);
  CHECK(make("third", web_key).status == 404);
  const auto status = [&](const std::string& method, const std::string& target) {
    return it.ask(method, target, {}, bearer(web_key)).status;
  };
  CHECK(status("GET", "/v2/sandboxes/box?projectId=mine") == 200);
  CHECK(status("GET", "/v2/sandboxes/box?projectId=other") == 404);
  CHECK(status("DELETE", "/v2/sandboxes/box?projectId=other") == 404);
  CHECK(status("GET", "/v2/sandboxes?project=other") == 404);
  const auto at = other.body.find("sbx_");
  REQUIRE(at != std::string::npos);
  const auto session = other.body.substr(at, other.body.find('"', at) - at);
  CHECK(status("GET", "/v2/sandboxes/sessions/" + session) == 404);
  CHECK(it.ask("GET", "/v2/sandboxes/sessions/" + session, {}, bearer(main_key)).status == 200);
  CHECK(status("POST", "/v2/sandboxes/sessions/" + session + "/stop") == 404);
  CHECK(status("GET", "/v1/sandbox/" + session.substr(4, 26) + "/running") == 403);
  CHECK(it.log().find(web_key) == std::string::npos);
}

TEST_CASE("SIGHUP has the server take other keys and ceilings", "[keys][reload]") {
  node it{with_keys("{sandboxes: 1}")};
  REQUIRE(start(it, "aa") == 200);
  REQUIRE(start(it, "ab") == 429);
  const auto reload = [&](const std::string& yaml) {
    const auto count = [&] {
      const auto log = it.log();
      std::size_t found = 0;
      for (auto at = log.find("config.reloaded"); at != log.npos;
           at = log.find("config.reloaded", at + 1))
        ++found;
      return found;
    };
    const auto before = count();
    it.configure(yaml);
    ::kill(it.pid(), SIGHUP);
    REQUIRE(eventually([&] { return count() > before; }));
  };
  reload(with_keys("{sandboxes: 2}"));
  CHECK(it.log().find("named_keys=others") != std::string::npos);
  CHECK(start(it, "ab") == 200);
  CHECK(start(it, "ac") == 429);
  reload("server: {api_key: " + main_key + "}\n");
  CHECK(start(it, "ab") == 401);
  CHECK(start(it, "ab", main_key) == 200);
  // What has run meanwhile counts when the key comes back.
  reload(with_keys("{sandboxes: 2}"));
  CHECK(start(it, "ac") == 429);
  CHECK(running(it) == 2);
}

TEST_CASE("a key's ceiling holds over the nodes of a cluster", "[cluster][keys]") {
  small_cluster nodes{3, with_keys("{sandboxes: 4}"), std::nullopt, main_key};
  const auto began =
    at_once(18, [&](std::size_t i) { return start(nodes[i % 3], numbered("a", i)); });
  CHECK(std::count(began.begin(), began.end(), 200) == 4);
  CHECK(std::count(began.begin(), began.end(), 429) == 14);
  const auto sum = [&] { return running(nodes[0]) + running(nodes[1]) + running(nodes[2]); };
  CHECK(sum() == 4);
  // Each node asks for one that is elsewhere, and for one of its own.
  std::vector<std::string> ids;
  for (std::size_t i = 0; i < began.size(); ++i)
    if (began[i] == 200)
      ids.push_back(numbered("a", i));
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(start(nodes[i], ids[0]) == 200);
  CHECK(remove(nodes[1], ids[0]) == 204);
  REQUIRE(eventually([&] { return start(nodes[2], "bb") == 200; }));
  CHECK(start(nodes[0], "cc") == 429);
  CHECK(sum() == 4);
  // What a killed node had counts no more once its lease is over.
  std::size_t most = 0;
  for (std::size_t i = 1; i < 3; ++i)
    if (running(nodes[i]) > running(nodes[most]))
      most = i;
  const auto lost = running(nodes[most]);
  REQUIRE(lost > 0);
  nodes[most].crash_both();
  const auto& left = nodes[(most + 1) % 3];
  std::size_t next = 0;
  for (std::size_t had = 0; had < lost; ++had)
    REQUIRE(eventually([&] { return start(left, numbered("d", next++ % 400)) == 200; }));
  CHECK(start(left, "zz") == 429);
  CHECK(running(nodes[(most + 1) % 3]) + running(nodes[(most + 2) % 3]) == 4);
  nodes[most].start(); // It has nothing, and may have nothing.
  REQUIRE(eventually([&] { return start(nodes[most], "zy") == 429; }));
  CHECK(sum() == 4);
}

TEST_CASE("a node takes from another one only a key that it knows", "[cluster][keys]") {
  small_cluster nodes{2, with_keys("{sandboxes: 9}"), std::nullopt, main_key};
  REQUIRE(start(nodes[0], "aa", main_key) == 200);
  const auto owner = nodes.owner_number("aa");
  const auto other = 1 - owner;
  REQUIRE(start(nodes[other], "aa") == 200);
  // The owner's configuration has no such key any more; the other node's has.
  nodes[owner].configure(nodes.yaml_with(owner, "server: {api_key: " + main_key + "}\n"));
  ::kill(nodes[owner].pid(), SIGHUP);
  REQUIRE(
    eventually([&] { return nodes[owner].log().find("named_keys=others") != std::string::npos; }));
  CHECK(start(nodes[other], "aa") == 403);
  CHECK(start(nodes[other], "aa", main_key) == 200);
}
