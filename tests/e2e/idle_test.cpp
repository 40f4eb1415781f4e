// The idle ladder in the real program, with its steps seconds apart.
#include "tests/e2e/node.hpp"
#include "tests/http/web_socket_client.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/metrics_text.hpp"

#include <csignal>

using namespace insula::test;

namespace {

const std::string soon_frozen = "sandbox: {freeze_after: 1s}";

/// What the console's list says of it; empty: it is not there.
std::string state_of(const node& it, const std::string& id) {
  const auto list = it.ask("GET", "/console/sandboxes").body;
  const std::string before = R"("id":")" + id + R"(","state":")";
  const auto at = list.find(before);
  if (at == std::string::npos)
    return {};
  const auto from = at + before.size();
  return list.substr(from, list.find('"', from) - from);
}

bool becomes(const node& it, const std::string& id, const std::string& state) {
  return eventually([&] { return state_of(it, id) == state; }, 60s);
}

struct visitor : web_socket_client {
  visitor(const node& at, const std::string& id)
      : web_socket_client(at.port(), "/v1/sandbox/" + id + "/pty", {}) {
    REQUIRE(head().status == 101);
    auto first = next();
    if (first.kind == frame_kind::binary) {
      replay = first.bytes;
      first = next();
    }
    REQUIRE(first.bytes == R"({"type":"ready"})");
  }

  std::string replay;
};

} // namespace

TEST_CASE("an idle sandbox is frozen with all that is in it, and the next command finds it so",
          "[idle]") {
  const node it{soon_frozen};
  const std::string session = "Session-Id: s\r\n";
  const auto in_session = [&](const std::string& script) {
    return exec_stream{it.port(), "a", exec_body({"bash", "-c", script}), session}.rest();
  };
  REQUIRE(it.sh("a", "echo kept > file; echo > beats; "
                     "(while :; do echo beat >> beats; sleep 0.01; done) > /dev/null 2>&1 &")
            .exit_code == 0);
  REQUIRE(exec_stream{it.port(), "a", exec_body({"export", "WHO=me"}), session}.rest().exit_code ==
          0);
  REQUIRE(becomes(it, "a", "frozen")); // What was left in the background alone does not keep it.
  REQUIRE(it.sh("b", "true").exit_code == 0);
  REQUIRE(becomes(it, "b", "frozen")); // So much time has passed since.
  CHECK(state_of(it, "a") == "frozen");

  const auto beats = [&] { return std::stoi(it.sh("a", "wc -l < beats").out); };
  const auto before = beats();
  CHECK(state_of(it, "a") == "running");
  CHECK(before > 1);
  CHECK(eventually([&] { return beats() > before; }));
  CHECK(in_session("echo $WHO; cat file").out == "me\nkept\n");
  REQUIRE(becomes(it, "a", "frozen"));
  CHECK(it.ask("GET", "/v1/sandbox/a/file/workspace/file").body == "kept\n");
  const metrics_page page{it.ask("GET", "/metrics").body};
  CHECK(page.value("insula_sandboxes_frozen_total") >= 2);
  CHECK(page.value("insula_sandboxes_thawed_total") >= 2);
  CHECK(page.value("insula_sandboxes_not_frozen_total") == 0);
}

TEST_CASE("a running command and an open terminal keep a sandbox awake", "[idle]") {
  const node it{soon_frozen};
  auto running = it.open("a", {"bash", "-c", "echo up; exec sleep 1000"});
  REQUIRE(running.next());
  visitor watching{it, "b"};
  REQUIRE(it.sh("c", "true").exit_code == 0);
  REQUIRE(becomes(it, "c", "frozen"));
  REQUIRE(it.sh("c", "true").exit_code == 0);
  REQUIRE(becomes(it, "c", "frozen")); // For the second time since anybody was asked anything.
  CHECK(state_of(it, "a") == "running");
  CHECK(state_of(it, "b") == "running");

  // The terminal stays without its client, replays to the next one, and hears what is typed.
  watching.type("echo he''re.\n");
  watching.until("here.\r\n");
  watching.raw().close();
  REQUIRE(becomes(it, "b", "frozen"));
  visitor again{it, "b"};
  CHECK(again.replay.find("here.\r\n") != std::string::npos);
  CHECK(state_of(it, "b") == "running");
  again.type("echo a''gain.\n");
  again.until("again.\r\n");
  again.raw().close();
}

TEST_CASE("a frozen sandbox can be deleted, and stopping follows freezing", "[idle]") {
  node it{"sandbox: {freeze_after: 500ms, stop_after: 3s}"};
  REQUIRE(it.sh("a", "sleep 1000 > /dev/null 2>&1 &").exit_code == 0);
  REQUIRE(eventually([&] { return state_of(it, "a") == "frozen"; }));
  CHECK(it.remove("a") == 204);
  CHECK(it.sandbox_groups().empty());
  CHECK(state_of(it, "a").empty());
  REQUIRE(it.sh("b", "echo x > file").exit_code == 0);
  REQUIRE(eventually([&] { return it.log().find("sandbox.idle id=b") != std::string::npos; }, 60s));
  CHECK(it.log().find("sandbox.frozen id=b") != std::string::npos);
  CHECK(eventually([&] { return it.sandbox_groups().empty(); }));
  CHECK(it.sh("b", "ls -A").out.empty());
  // Frozen ones end with the server like any other.
  REQUIRE(it.sh("c", "sleep 1000 > /dev/null 2>&1 &").exit_code == 0);
  REQUIRE(eventually([&] { return state_of(it, "c") == "frozen"; }));
  CHECK(it.stop(SIGINT) == 0);
  CHECK(eventually([&] { return it.processes().empty(); }));
}
