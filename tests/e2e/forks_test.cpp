// OpenSandbox's forks and snapshots, through the real program.
#include "tests/e2e/disk_requests.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/planned_crash.hpp"

#include <csignal>

using namespace insula::test;

namespace {

constexpr auto npos = std::string::npos;

using insula::test::member;
std::string member(const http_answer& of, const std::string& name) {
  return member(of.body, name);
}

bool has(const http_answer& of, const std::string& text) {
  return of.body.find(text) != npos;
}

std::string make(const node& it, const std::string& more = {}) {
  const auto made = it.ask("POST", "/v1/sandboxes",
                           R"({"image":{"uri":"host"},"entrypoint":["tail","-f","/dev/null"],)"
                           R"("resourceLimits":{})" +
                             more + "}");
  INFO(made.body);
  REQUIRE(made.status == 202);
  return member(made, "id");
}

http_answer fork_of(const node& it, const std::string& source, const std::string& body,
                    const std::string& fields = {}) {
  return it.ask("POST", "/v1/sandboxes/" + source + "/fork", body, fields);
}

std::string total(const node& it, const std::string& list) {
  const auto told = it.ask("GET", "/v1/" + list);
  const std::string key = R"("totalItems":)";
  const auto at = told.body.find(key);
  REQUIRE(at != npos);
  const auto from = at + key.size();
  return told.body.substr(from, told.body.find(',', from) - from);
}

const std::string hour = R"({"timeout":3600})";
const std::string key = "Idempotency-Key: once more\r\n";

} // namespace

TEST_CASE("OpenSandbox: a fork begins with the disk of its source, and goes on without it",
          "[snapshots][fork][opensandbox]") {
  node it;
  it.keeps_snapshots = true;
  const auto source =
    make(it, R"(,"env":{"WHO":"source","KEPT":"yes"},"metadata":{"tree":"a"},"timeout":600)");
  said(it, source, "echo one > file; sleep 1000 > /dev/null 2>&1 & echo $! > pid");
  const auto plain = fork_of(it, source, hour);
  INFO(plain.body);
  REQUIRE(plain.status == 202);
  CHECK(has(plain, R"("status":{"state":"Succeeded"})"));
  CHECK(has(plain, R"("cleanupPending":false)"));
  CHECK(member(plain, "sourceSandboxId") == source);
  CHECK(plain.fields.at("location") == "/v1/forks/" + member(plain, "id"));
  const auto box = member(plain, "sandboxId");
  CHECK(said(it, box, "cat file; echo $WHO $KEPT; kill -0 $(cat pid) 2> /dev/null || echo none") ==
        "one\nsource yes\nnone\n");
  const auto told = it.ask("GET", "/v1/sandboxes/" + box);
  CHECK(has(told, R"("metadata":{"tree":"a"})"));
  CHECK(member(told, "snapshotId") == member(plain, "snapshotId"));
  CHECK(member(told, "expiresAt") >
        member(it.ask("GET", "/v1/sandboxes/" + source), "expiresAt")); // Its own time.

  const auto other = fork_of(it, source,
                             R"({"timeout":60,"overrides":{"env":{"WHO":"fork"},"metadata":{},)"
                             R"("entrypoint":["sh","-c","echo begun > /workspace/begun"]}})");
  INFO(other.body);
  REQUIRE(other.status == 202);
  CHECK(said(it, member(other, "sandboxId"),
             "echo $WHO $KEPT; for i in $(seq 100); do [ -s begun ] && break; sleep 0.1; done; "
             "cat begun file") == "fork\nbegun\none\n");

  // Each has its own disk, and needs neither source nor snapshot.
  said(it, source, "echo two > file");
  CHECK(it.ask("DELETE", "/v1/sandboxes/" + source).status == 204);
  CHECK(it.ask("DELETE", "/v1/snapshots/" + member(plain, "snapshotId")).status == 204);
  CHECK(said(it, box, "cat file; echo mine > file") == "one\n");
  CHECK(it.ask("GET", "/v1/forks/" + box).body == plain.body);
  CHECK(it.stop(SIGINT) == 0);
  it.start();
  CHECK(it.ask("GET", "/v1/forks/" + box).body == plain.body);
  CHECK(said(it, box, "cat file") == "one\n");
  CHECK(it.ask("DELETE", "/v1/sandboxes/" + box).status == 204);
  CHECK(it.ask("GET", "/v1/forks/" + box).status == 404);
  it.remove(member(other, "sandboxId"));
}

TEST_CASE("OpenSandbox: a fork with a key is made once", "[snapshots][fork][opensandbox]") {
  node it;
  it.keeps_snapshots = true;
  const auto source = make(it);
  said(it, source, "echo one > file");
  const auto all = at_once(6, [&](std::size_t) { return fork_of(it, source, hour, key); });
  const auto box = member(all[0], "id");
  for (const auto& each : all) {
    INFO(each.body);
    CHECK(each.status == 202);
    CHECK(member(each, "id") == box);
  }
  REQUIRE(
    eventually([&] { return has(it.ask("GET", "/v1/forks/" + box), R"("state":"Succeeded")"); }));
  const auto first = it.ask("GET", "/v1/forks/" + box);
  said(it, source, "echo two > file");
  said(it, box, "echo three >> file");
  CHECK(fork_of(it, source, hour, key).body == first.body);
  CHECK(said(it, box, "cat file") == "one\nthree\n");
  CHECK(total(it, "sandboxes") == "2");
  CHECK(total(it, "snapshots") == "1");
  const auto conflict = fork_of(it, source, R"({"timeout":60})", key);
  CHECK(conflict.status == 409);
  CHECK(member(conflict, "code") == "FORK::IDEMPOTENCY_CONFLICT");
  const auto second = make(it);
  CHECK(fork_of(it, second, hour, key).status == 409);
  CHECK(it.remove(second) == 204);
  // It is known for as long as its sandbox is there, with or without the source.
  CHECK(it.remove(source) == 204);
  CHECK(fork_of(it, source, hour, key).body == first.body);
  CHECK(it.remove(box) == 204);
  CHECK(fork_of(it, source, hour, key).status == 404);
  CHECK(it.ask("DELETE", "/v1/snapshots/" + member(first, "snapshotId")).status == 204);
}

TEST_CASE("OpenSandbox: a fork whose sandbox and snapshot are deleted is made anew with its key",
          "[snapshots][fork][opensandbox]") {
  node it;
  it.keeps_snapshots = true;
  const auto source = make(it);
  said(it, source, "echo one > file");
  const auto first = fork_of(it, source, hour, key);
  REQUIRE(first.status == 202);
  said(it, source, "echo two > file");
  const auto box = member(first, "id");
  CHECK(it.remove(box) == 204);
  SECTION("the snapshot is there") {
    const auto second = fork_of(it, source, hour, key);
    CHECK(member(second, "id") == box);
    CHECK(member(second, "snapshotId") == member(first, "snapshotId"));
    CHECK(said(it, box, "cat file") == "one\n");
  }
  SECTION("the snapshot is gone") {
    CHECK(it.ask("DELETE", "/v1/snapshots/" + member(first, "snapshotId")).status == 204);
    const auto second = fork_of(it, source, hour, key);
    CHECK(second.status == 202);
    CHECK(member(second, "id") == box);
    CHECK(member(second, "snapshotId") != member(first, "snapshotId"));
    CHECK(said(it, box, "cat file") == "two\n");
  }
  CHECK(total(it, "snapshots") == "1");
  it.remove(box);
  it.remove(source);
}

TEST_CASE("OpenSandbox: a fork in whose midst the server is killed is made once by its repetition",
          "[snapshots][fork][opensandbox][crash][failpoint]") {
  const auto* const step = GENERATE("snapshot.taken", "snapshot.defined", "object.durable#3",
                                    "sandbox.made#2", "exec.sent");
  CAPTURE(step);
  node it;
  it.keeps_snapshots = true;
  const auto source = make(it);
  // By no command, whose end the next server might have to hear of first.
  REQUIRE(it.ask("PUT", "/v1/sandbox/" + source + "/file/workspace/file", "one\n").status == 200);
  const std::string body =
    R"({"timeout":3600,"overrides":{"entrypoint":["sh","-c","echo begun >> /workspace/begun"]}})";
  it.crash_server();
  {
    const planned_crash plan{step};
    it.start(); // Which takes the source over.
  }
  try {
    fork_of(it, source, body, key);
  } catch (const std::exception&) { // The connection was cut.
  }
  CHECK(it.stop(0) == SIGKILL);
  it.start();
  said(it, source, "echo two > file");
  const auto again = fork_of(it, source, body, key);
  INFO(again.body);
  REQUIRE(again.status == 202);
  CHECK(has(again, R"("state":"Succeeded")"));
  const auto box = member(again, "id");
  CHECK(member(again, "sandboxId") == box);
  // Once the snapshot was there, that is what the fork is of.
  CHECK(said(it, box, "cat file") == (std::string{step} == "snapshot.taken" ? "two\n" : "one\n"));
  CHECK(
    said(it, box, "for i in $(seq 100); do [ -s begun ] && break; sleep 0.1; done; cat begun") ==
    "begun\n");
  CHECK(fork_of(it, source, body, key).body == again.body);
  CHECK(it.ask("GET", "/v1/forks/" + box).body == again.body);
  CHECK(total(it, "sandboxes") == "2");
  CHECK(total(it, "snapshots") == "1");
  // Nothing of it stays that nobody knows of.
  it.keeps_snapshots = false;
  CHECK(it.ask("DELETE", "/v1/snapshots/" + member(again, "snapshotId")).status == 204);
  it.remove(box);
  it.remove(source);
}

TEST_CASE("OpenSandbox: a fork that finds no room leaves nothing",
          "[snapshots][fork][opensandbox]") {
  const node it{"sandbox: {max_instances: 1}"};
  const auto source = make(it);
  const auto refused = fork_of(it, source, hour, key);
  CHECK(refused.status == 503);
  CHECK(eventually([&] { return total(it, "snapshots") == "0"; }));
  CHECK(eventually([&] { return total(it, "sandboxes") == "1"; }));
  CHECK(fork_of(it, "nobody", hour).status == 404);
  CHECK(it.remove(source) == 204);
}

TEST_CASE("OpenSandbox: a snapshot of a paused sandbox is taken, and a fork of it is not made",
          "[snapshots][fork][opensandbox][pause]") {
  node it;
  it.keeps_snapshots = true;
  const auto source = make(it);
  const std::string of_source = "/v1/sandboxes/" + source;
  said(it, source, "echo one > file");
  CHECK(it.ask("POST", of_source + "/pause").status == 202);
  const auto taken =
    it.ask("POST", of_source + "/snapshots", R"({"name":"paused","mode":"rootfsOnly"})");
  INFO(taken.body);
  REQUIRE(taken.status == 202);
  CHECK(member(taken, "state") == "Ready");
  CHECK(member(it.ask("GET", of_source), "state") == "Paused");
  const auto refused = fork_of(it, source, hour);
  CHECK(refused.status == 409);
  CHECK(member(refused, "code") == "FORK::INVALID_SOURCE_STATE");
  CHECK(it.ask("POST", of_source + "/resume").status == 202);
  said(it, source, "echo two > file");
  CHECK(it.ask("POST", of_source + "/snapshots").status == 202);
  CHECK(total(it, "snapshots") == "2");
  CHECK(total(it, "snapshots?name=paused") == "1");
  CHECK(total(it, "snapshots?name=other") == "0");
  const auto made =
    it.ask("POST", "/v1/sandboxes",
           R"({"snapshotId":")" + member(taken, "id") + R"(","resourceLimits":{}})");
  INFO(made.body);
  REQUIRE(made.status == 202);
  CHECK(said(it, member(made, "id"), "cat file") == "one\n");
  it.remove(member(made, "id"));
  it.remove(source);
}
