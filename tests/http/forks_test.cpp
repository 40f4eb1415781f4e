// OpenSandbox's forks, before actors that the test plays.
#include "http/opensandbox/fork_table.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/eventually.hpp"

#include <regex>
#include <thread>
#include <tuple>
#include <vector>

using namespace insula;
using namespace insula::test;

namespace {

constexpr const char* fork_route = "/v1/sandboxes/abc/fork";
const std::string key = "Idempotency-Key: once\r\n";

answer forked(const house& at, const std::string& body, const std::string& fields = {}) {
  return ask(at.port(), "POST", fork_route, body, fields);
}

std::string member(const answer& of, const std::string& name) {
  std::smatch found;
  const std::regex wanted{'"' + name + "\":\"([^\"]*)\""};
  return std::regex_search(of.body, found, wanted) ? found[1].str() : std::string{};
}

bool has(const answer& of, const std::string& text) {
  return of.body.find(text) != std::string::npos;
}

/// The first of a sandbox other than the source that was reached for.
std::string other_id(house& at) {
  for (const auto& each : at.heard().all())
    if (each.starts_with("reach ") && each != "reach abc")
      return each.substr(6);
  return {};
}

/// A source that this API has made.
void play_source(house& at) {
  auto& is = at.plays().description;
  is = {true, {{"opensandbox", R"({"image":"ubuntu","entrypoint":["x"],"metadata":{"a":"1"}})"}}};
  is.memory_limit_bytes = 1 << 20;
}

} // namespace

TEST_CASE("OpenSandbox: a fork has what its source has", "[http][opensandbox][fork]") {
  house at;
  play_source(at);
  const auto made = forked(at, R"({"timeout":60})");
  CHECK(made.status == 202);
  CHECK(std::regex_match(
    made.body,
    std::regex{
      R"x(\{"id":"([a-z2-7]{26})","sourceSandboxId":"abc","status":\{"state":"Succeeded"\},"snapshotId":"[a-z2-7]{26}","sandboxId":"\1","createdAt":"[^"]*Z","updatedAt":"[^"]*Z","cleanupPending":false\})x"}));
  const auto id = member(made, "id");
  CHECK(made.fields.at("location") == "/v1/forks/" + id);
  CHECK(at.heard().has("define SECRET=of the source memory 1048576 cpu 0"));
  CHECK(at.heard().has("find " + id));
  for (const std::string prefix : {"", "/v1"}) {
    const auto got = ask(at.port(), "GET", prefix + "/forks/" + id);
    CHECK(got.status == 200);
    CHECK(got.body == made.body);
  }
  const auto sibling = ask(at.port(), "GET", "/v1/sandboxes/" + id);
  CHECK(has(sibling, R"("snapshotId":")" + member(made, "snapshotId")));
  CHECK(has(sibling, R"("metadata":{"a":"1"},"entrypoint":["tail","-f","/dev/null"],"expiresAt")"));
  // Its snapshot is one like any other, and stays.
  CHECK(member(ask(at.port(), "GET", "/v1/snapshots/" + member(made, "snapshotId")), "sandboxId") ==
        "abc");
  // What changes the metadata leaves that it is a fork.
  CHECK(ask(at.port(), "PATCH", "/v1/sandboxes/" + id + "/metadata", R"({"a":"2"})").status == 200);
  CHECK(ask(at.port(), "GET", "/v1/forks/" + id).body == made.body);
}

TEST_CASE("OpenSandbox: what a fork is told to have takes the place of its source's",
          "[http][opensandbox][fork]") {
  house at;
  play_source(at);
  SECTION("some of each") {
    const auto made = forked(at, R"({"timeout":60,"overrides":{"env":{"A":"b","C":null},)"
                                 R"("metadata":{"b":"2"},"resourceLimits":{"cpu":"1"},)"
                                 R"("entrypoint":["sleep","1"]}})");
    CHECK(made.status == 202);
    CHECK(at.heard().has("define A=b memory 0 cpu 100"));
    const auto sibling = ask(at.port(), "GET", "/v1/sandboxes/" + member(made, "id"));
    CHECK(has(sibling, R"("metadata":{"b":"2"},"entrypoint":["sleep","1"])"));
    CHECK(at.heard().has("exec sleep 1"));
  }
  SECTION("nothing") {
    const auto made =
      forked(at, R"({"timeout":60,"overrides":{"env":{},"metadata":{},"resourceLimits":{}}})");
    CHECK(made.status == 202);
    CHECK(at.heard().has("define"));
    CHECK_FALSE(has(ask(at.port(), "GET", "/v1/sandboxes/" + member(made, "id")), R"("metadata")"));
  }
}

TEST_CASE("OpenSandbox: a fork that makes no sense is refused with its code",
          "[http][opensandbox][fork]") {
  house at;
  play_source(at);
  const auto overrides = [](const std::string& of) {
    return R"({"timeout":60,"overrides":)" + of + "}";
  };
  for (const auto& [body, status, code] : std::vector<std::tuple<std::string, int, std::string>>{
         {"", 422, "GENERAL::INVALID_REQUEST"},
         {"[]", 422, "GENERAL::INVALID_REQUEST"},
         {"{}", 422, "GENERAL::INVALID_REQUEST"},
         {R"({"timeout":null})", 422, "GENERAL::INVALID_REQUEST"},
         {R"({"timeout":59})", 422, "GENERAL::INVALID_REQUEST"},
         {R"({"timeout":60.5})", 422, "GENERAL::INVALID_REQUEST"},
         {R"({"timeout":99999999999})", 400, "SANDBOX::INVALID_PARAMETER"},
         {R"({"timeout":60,"count":3})", 422, "GENERAL::INVALID_REQUEST"},
         {overrides("null"), 422, "GENERAL::INVALID_REQUEST"},
         {overrides("[]"), 422, "GENERAL::INVALID_REQUEST"},
         {overrides(R"({"image":"x"})"), 422, "GENERAL::INVALID_REQUEST"},
         {overrides(R"({"env":null})"), 422, "GENERAL::INVALID_REQUEST"},
         {overrides(R"({"env":{"A=B":"1"}})"), 422, "GENERAL::INVALID_REQUEST"},
         {overrides(R"({"entrypoint":[]})"), 422, "GENERAL::INVALID_REQUEST"},
         {overrides(R"({"metadata":{"a":1}})"), 422, "GENERAL::INVALID_REQUEST"},
         {overrides(R"({"metadata":{"a b":"1"}})"), 400, "SANDBOX::INVALID_METADATA_LABEL"},
         {overrides(R"({"resourceLimits":{"memory":"many"}})"), 400, "SANDBOX::INVALID_PARAMETER"},
         {overrides(R"({"networkPolicy":{"defaultAction":"x"}})"), 400,
          "SANDBOX::INVALID_PARAMETER"},
         {overrides(R"({"resourceRequests":{"cpu":"1"}})"), 409, "FORK::UNSUPPORTED_CONFIG"}}) {
    CAPTURE(body);
    const auto got = forked(at, body);
    CHECK(got.status == status);
    CHECK(member(got, "code") == code);
  }
  for (const std::string& bad : {std::string{" "}, std::string(257, 'k')}) {
    const auto got = forked(at, R"({"timeout":60})", "Idempotency-Key: " + bad + "\r\n");
    CHECK(got.status == 400);
    CHECK(member(got, "code") == "FORK::INVALID_REQUEST");
  }
  CHECK(at.heard().all().empty());
  for (const std::string id : {"nothere", "Not-an-id"})
    CHECK(member(ask(at.port(), "GET", "/v1/forks/" + id), "code") == "FORK::NOT_FOUND");
}

TEST_CASE("OpenSandbox: a fork that fails says why, and leaves nothing",
          "[http][opensandbox][fork]") {
  house at;
  play_source(at);
  const auto refused = [&](int status, const std::string& code) {
    const auto got = forked(at, R"({"timeout":60})");
    CHECK(got.status == status);
    CHECK(member(got, "code") == code);
  };
  SECTION("before anything is done") {
    at.plays().description.paused = true;
    refused(409, "FORK::INVALID_SOURCE_STATE");
    at.plays().description = {};
    refused(404, "DOCKER::SANDBOX_NOT_FOUND");
    CHECK(at.plays().snapshots.empty());
  }
  SECTION("when the snapshot is taken") {
    for (const auto& [why, status, code] : std::vector<std::tuple<errc, int, std::string>>{
           {errc::forbidden, 501, "FORK::UNSUPPORTED_RUNTIME"},
           {errc::run_over, 409, "FORK::INVALID_SOURCE_STATE"},
           {errc::limit_reached, 429, "FORK::SNAPSHOT_FAILED"},
           {errc::io_failed, 500, "FORK::SNAPSHOT_FAILED"},
           {errc::disk_full, 507, "GENERAL::UNKNOWN_ERROR"}}) {
      at.plays().snapshot_error = error{why, "why"};
      refused(status, code);
    }
  }
  SECTION("when the sandbox is made") {
    at.plays().define_error = error{errc::capacity_exceeded, "it is full"};
    CHECK(forked(at, R"({"timeout":60})").status == 503);
    const auto id = other_id(at);
    const auto told = [&] { return ask(at.port(), "GET", "/v1/forks/" + id); };
    CHECK(eventually([&] { return has(told(), R"("cleanupPending":false)"); }));
    CHECK(has(told(), R"("status":{"state":"Failed","reason":"FORK::PROVISIONING_FAILED",)"
                      R"("message":"it is full"})"));
    CHECK_FALSE(has(told(), "snapshotId"));
    CHECK_FALSE(has(told(), "sandboxId"));
    CHECK(at.plays().snapshots.empty());
  }
}

TEST_CASE("OpenSandbox: a fork tells how far it has come", "[http][opensandbox][fork]") {
  house at;
  play_source(at);
  at.plays().hold_find = true;
  answer made;
  std::thread asks{[&] { made = forked(at, R"({"timeout":60})"); }};
  CHECK(at.heard().has("define SECRET=of the source memory 1048576 cpu 0"));
  const auto id = other_id(at);
  CHECK(at.heard().has("find " + id));
  const auto told = ask(at.port(), "GET", "/v1/forks/" + id);
  CHECK(told.status == 200);
  CHECK(has(told, R"("status":{"state":"Provisioning"},"snapshotId":")"));
  CHECK_FALSE(has(told, "sandboxId"));
  at.release();
  asks.join();
  CHECK(made.status == 202);
  CHECK(member(made, "id") == id);
  CHECK(has(ask(at.port(), "GET", "/v1/forks/" + id), R"("state":"Succeeded")"));
}

TEST_CASE("OpenSandbox: a fork that is asked for again is the same one",
          "[http][opensandbox][fork]") {
  house at;
  play_source(at);
  const std::string body = R"({"timeout":60})";
  const auto first = forked(at, body); // The fakes have one record for all ids.
  const auto again = forked(at, body, key);
  CHECK(again.status == 202);
  CHECK(member(again, "id") != member(first, "id"));
  CHECK(member(again, "snapshotId") == member(first, "snapshotId"));
  CHECK(member(again, "createdAt") == member(first, "createdAt"));
  CHECK(forked(at, body, key).body == again.body);
  CHECK(at.plays().snapshots.size() == 1);
  for (const auto& other : {std::string{R"({"timeout":61})"}, std::string{R"({"timeout":60} )"}}) {
    const auto got = forked(at, other, key);
    CHECK(got.status == 409);
    CHECK(member(got, "code") == "FORK::IDEMPOTENCY_CONFLICT");
  }
  CHECK(member(ask(at.port(), "POST", "/v1/sandboxes/def/fork", body, key), "code") ==
        "FORK::IDEMPOTENCY_CONFLICT");
}

TEST_CASE("a question that comes too late is asked again so many times, another failure once",
          "[http]") {
  const caf::error late = caf::sec::request_receiver_down;
  const auto ended = to_caf({errc::sandbox_not_running, "it has ended"});
  http::second_tries tries;
  CHECK(tries.take(ended));
  CHECK_FALSE(tries.take(ended));
  for (int i = 0; i < 8; ++i)
    CHECK(tries.take(late));
  CHECK_FALSE(tries.take(late));
  CHECK_FALSE(http::second_tries{}.take(to_caf({errc::not_found, "there is none"})));
}

TEST_CASE("OpenSandbox: a fork is not begun again while what it has left is being removed",
          "[http][opensandbox][fork]") {
  http::opensandbox::fork_table forks;
  http::opensandbox::fork_operation is;
  is.id = "abc";
  is.from.began_ms = 1'000;
  CHECK_FALSE(forks.begin(is));
  CHECK(forks.begin(is)->state == http::opensandbox::fork_state::pending);
  auto failed = is;
  failed.state = http::opensandbox::fork_state::failed;
  failed.snapshot = "def";
  failed.cleanup_pending = true;
  failed.updated_ms = 2'000;
  forks.put(failed);
  is.from.began_ms = 3'000;
  CHECK(forks.begin(is)->cleanup_pending);
  SECTION("until that has gone") {
    forks.clean("abc");
    CHECK_FALSE(forks.begin(is));
  }
  SECTION("or a minute is over") {
    is.from.began_ms = 62'000;
    CHECK_FALSE(forks.begin(is));
  }
}
