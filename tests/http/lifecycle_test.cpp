#include "http/opensandbox/lifecycle_json.hpp"
#include "tests/contract/metadata_contract.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

#include <array>
#include <ctime>
#include <regex>

using namespace insula;
using namespace insula::test;
using namespace insula::http;

namespace {

const std::string good =
  R"({"image":{"uri":"ubuntu"},"entrypoint":["tail","-f","/dev/null"],"resourceLimits":{}})";

/// `good` with more members.
std::string with(const std::string& more) {
  return good.substr(0, good.size() - 1) + "," + more + "}";
}

/// `good` with these limits.
std::string limited(const std::string& limits) {
  return good.substr(0, good.size() - 2) + limits + "}}";
}

/// A day of it, in UTC.
std::string next_week() {
  const auto when = std::time(nullptr) + 7 * 24 * 3600;
  std::tm utc{};
  ::gmtime_r(&when, &utc);
  std::array<char, 16> day{};
  std::strftime(day.data(), day.size(), "%Y-%m-%d", &utc);
  return day.data();
}

std::string code_of(const answer& got) {
  std::smatch found;
  const auto known = std::regex_search(got.body, found, std::regex{R"x("code":"([^"]*)")x"});
  return known ? found[1].str() : std::string{};
}

std::string made_id(const house& h) {
  return ask(h.port(), "POST", "/v1/sandboxes", good).body.substr(7, 26);
}

} // namespace

TEST_CASE("OpenSandbox: a sandbox is made, told and changed", "[http][opensandbox]") {
  house h;
  const auto made = ask(h.port(), "POST", "/v1/sandboxes",
                        with(R"("env":{"A":"b","C":null},"metadata":{"k":"v"},"timeout":60)"));
  CHECK(made.status == 202);
  CHECK(std::regex_match(
    made.body,
    std::regex{
      R"x(\{"id":"[a-z2-7]{26}","status":\{"state":"Running","reason":"CONTAINER_RUNNING","message":"","lastTransitionAt":"2023-11-14T22:13:20.123Z"\},"metadata":\{"k":"v"\},"entrypoint":\["tail","-f","/dev/null"\],"expiresAt":"[^"]*Z","createdAt":"2023-11-14T22:13:20.123Z"\})x"}));
  CHECK(h.heard().has("define A=b"));
  const auto id = made.body.substr(7, 26);
  for (const std::string prefix : {"", "/v1"}) {
    const auto got = ask(h.port(), "GET", prefix + "/sandboxes/" + id);
    CHECK(got.status == 200);
    CHECK(got.body.find(R"("image":{"uri":"ubuntu"})") != std::string::npos);
  }
  const auto patched =
    ask(h.port(), "PATCH", "/v1/sandboxes/" + id + "/metadata", R"({"k":null,"l":"w"})");
  CHECK(patched.status == 200);
  CHECK(patched.body.find(R"("metadata":{"l":"w"})") != std::string::npos);
  const auto renewed = ask(h.port(), "POST", "/v1/sandboxes/" + id + "/renew-expiration",
                           R"({"expiresAt":")" + next_week() + "T02:00:00.5+02:00\"}");
  CHECK(renewed.body == R"({"expiresAt":")" + next_week() + "T00:00:00.500Z\"}");
  CHECK(ask(h.port(), "DELETE", "/v1/sandboxes/" + id).status == 204);
}

TEST_CASE("OpenSandbox: what a sandbox may use is said when it is made", "[http][opensandbox]") {
  house h;
  for (const auto& [limits, heard] : std::vector<std::pair<std::string, std::string>>{
         {R"("cpu":"500m","memory":"512Mi","gpu":"0","disk":"x")",
          "define memory 536870912 cpu 50"},
         {R"("cpu":"1.5","memory":"2G")", "define memory 2000000000 cpu 150"},
         {R"("memory":"100000000")", "define memory 100000000 cpu 0"},
         {"", "define"}}) {
    CHECK(ask(h.port(), "POST", "/v1/sandboxes", limited(limits)).status == 202);
    CHECK(h.heard().has(heard));
  }
}

TEST_CASE("OpenSandbox: a sandbox that is being deleted is not found any more",
          "[http][opensandbox]") {
  house h;
  const auto id = made_id(h);
  const std::string place = "/v1/sandboxes/" + id;
  const auto later = R"({"expiresAt":")" + next_week() + R"(T00:00:00Z"})";
  const auto statuses = [&] {
    std::vector<int> all;
    for (const auto& [method, path, body] :
         std::vector<std::tuple<std::string, std::string, std::string>>{
           {"GET", "", ""},
           {"POST", "/renew-expiration", later},
           {"PATCH", "/metadata", R"({"a":"b"})"},
           {"GET", "/endpoints/8080", ""},
           {"GET", "/proxy/44772/ping", ""},
           {"DELETE", "", ""}})
      all.push_back(ask(h.port(), method, place + path, body).status);
    return all;
  };
  h.plays().redefine_error = being_deleted;
  CHECK(statuses() == std::vector<int>(6, 404));
  h.plays().redefine_error = error{errc::sandbox_not_running, "the node is going down"};
  CHECK(statuses() == std::vector<int>(6, 503));
  h.plays().redefine_error.reset();
  CHECK(ask(h.port(), "GET", place + "/proxy/44772/ping").status == 200);
  h.plays().description.exists = false;
  CHECK(ask(h.port(), "GET", place + "/proxy/44772/ping").status == 404);
}

TEST_CASE("OpenSandbox: an image that is not here is refused with its name",
          "[http][opensandbox]") {
  const auto asked = [](const house& h, const std::string& uri) {
    auto body = good;
    body.replace(body.find("ubuntu"), 6, uri);
    return ask(h.port(), "POST", "/v1/sandboxes", body);
  };
  house h;
  h.plays().images = {{"host", "ubuntu", "node-22", "tool-latest"}};
  for (const auto& [uri, name] :
       std::vector<std::pair<std::string, std::string>>{{"ubuntu", "ubuntu"},
                                                        {"ubuntu:latest", "ubuntu"},
                                                        {"docker.io/library/ubuntu", "ubuntu"},
                                                        {"localhost:5000/node:22", "node-22"},
                                                        {"tool", "tool-latest"}}) {
    CAPTURE(uri);
    CHECK(asked(h, uri).status == 202);
    CHECK(h.plays().description.image == name);
  }
  for (const std::string uri : {"node", "node:20", "ubuntu:24.04", "ghcr.io/a/b:c",
                                "ubuntu@sha256:0123456789abcdef", "/", ":"}) {
    CAPTURE(uri);
    const auto got = asked(h, uri);
    CHECK(got.status == 500);
    CHECK(code_of(got) == "DOCKER::SANDBOX_IMAGE_PULL_FAILED");
    CHECK(got.body.find("there is no image " + uri + " on this node") != std::string::npos);
  }
  house open_house{{.any_image = true}};
  open_house.plays().images = {{"host"}};
  CHECK(asked(open_house, "node:20").status == 202);
  CHECK(open_house.plays().description.image.empty());
}

TEST_CASE("OpenSandbox: what makes no sense is refused with its code", "[http][opensandbox]") {
  house h;
  for (const auto& [body, status, code] : std::vector<std::tuple<std::string, int, std::string>>{
         {"", 422, "GENERAL::INVALID_REQUEST"},
         {"[]", 422, "GENERAL::INVALID_REQUEST"},
         {"{}", 422, "GENERAL::INVALID_REQUEST"},
         {R"({"image":{"uri":"a"},"resourceLimits":{}})", 422, "GENERAL::INVALID_REQUEST"},
         {R"({"image":{"uri":"a"},"entrypoint":["x"]})", 422, "GENERAL::INVALID_REQUEST"},
         {R"({"image":{"uri":"a"},"entrypoint":[],"resourceLimits":{}})", 422,
          "GENERAL::INVALID_REQUEST"},
         {R"({"snapshotId":"X/"})", 404, "SNAPSHOT::NOT_FOUND"},
         {R"({"snapshotId":"x"})", 422, "GENERAL::INVALID_REQUEST"},
         {R"({"snapshotId":1})", 422, "GENERAL::INVALID_REQUEST"},
         {R"({"snapshotId":""})", 400, "SANDBOX::INVALID_PARAMETER"},
         {with(R"("snapshotId":"x")"), 422, "GENERAL::INVALID_REQUEST"},
         {limited(R"("memory":512)"), 422, "GENERAL::INVALID_REQUEST"},
         {limited(R"("memory":"many")"), 400, "SANDBOX::INVALID_PARAMETER"},
         {limited(R"("memory":"512MB")"), 400, "SANDBOX::INVALID_PARAMETER"},
         {limited(R"("memory":"-1Gi")"), 400, "SANDBOX::INVALID_PARAMETER"},
         {limited(R"("memory":"1Mi")"), 400, "SANDBOX::INVALID_PARAMETER"},
         {limited(R"("cpu":"nan")"), 400, "SANDBOX::INVALID_PARAMETER"},
         {limited(R"("cpu":"1m")"), 400, "SANDBOX::INVALID_PARAMETER"},
         {limited(R"("gpu":"1")"), 400, "SANDBOX::INVALID_PARAMETER"},
         {with(R"("timeout":59)"), 422, "GENERAL::INVALID_REQUEST"},
         {with(R"("timeout":99999999999)"), 400, "SANDBOX::INVALID_PARAMETER"},
         {with(R"("env":{"A":1})"), 422, "GENERAL::INVALID_REQUEST"},
         {with(R"("env":{"A=B":"1"})"), 422, "GENERAL::INVALID_REQUEST"},
         {with(R"("metadata":{"opensandbox.io/x":"1"})"), 400, "SANDBOX::INVALID_METADATA_LABEL"},
         {with(R"("metadata":{"a b":"1"})"), 400, "SANDBOX::INVALID_METADATA_LABEL"},
         // Of a member that comes twice the last one counts.
         {with(R"("timeout":60,"timeout":30)"), 422, "GENERAL::INVALID_REQUEST"},
         {with(R"("metadata":{"a":"-"})"), 400, "SANDBOX::INVALID_METADATA_LABEL"},
         {with(R"("networkPolicy":{"defaultAction":"maybe"})"), 400, "SANDBOX::INVALID_PARAMETER"},
         {with(R"("volumes":[{"name":"a"}])"), 400, "SANDBOX::INVALID_PARAMETER"},
         {with(R"("secureAccess":true)"), 400, "SANDBOX::INVALID_PARAMETER"}}) {
    CAPTURE(body);
    const auto got = ask(h.port(), "POST", "/v1/sandboxes", body);
    CHECK(got.status == status);
    CHECK(code_of(got) == code);
  }
  CHECK(h.heard().all().empty());
}

TEST_CASE("OpenSandbox: an unknown sandbox is not found, whatever is asked of it",
          "[http][opensandbox]") {
  house h;
  for (const auto& [method, path, body] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
         {"GET", "", ""},
         {"DELETE", "", ""},
         {"GET", "/endpoints/80", ""},
         {"PATCH", "/metadata", "{}"},
         {"POST", "/pause", ""},
         {"POST", "/resume", ""},
         {"POST", "/renew-expiration", R"({"expiresAt":")" + next_week() + "T00:00:00Z\"}"}}) {
    CAPTURE(method, path);
    for (const std::string id : {"abc", "not-an-id"}) {
      const auto got = ask(h.port(), method, "/v1/sandboxes/" + id + path, body);
      CHECK(got.status == 404);
      CHECK(got.body ==
            R"({"code":"DOCKER::SANDBOX_NOT_FOUND","message":"Sandbox )" + id + R"( not found."})");
    }
  }
}

TEST_CASE("OpenSandbox: an endpoint has what its clients need", "[http][opensandbox]") {
  http::server_options options;
  options.api_key = "s3cret";
  options.secret = "only here";
  house h{options};
  h.plays().description.exists = true;
  const std::string key = "OPEN-SANDBOX-API-KEY: s3cret\r\n";
  const auto at = [&](const std::string& port) {
    return ask(h.port(), "GET", "/v1/sandboxes/abc/endpoints/" + port, "", key);
  };
  const auto execd = at("44772");
  CHECK(execd.status == 200);
  CHECK(execd.body.find(R"(/sandboxes/abc/proxy/44772","headers":{"X-EXECD-ACCESS-TOKEN":")") !=
        std::string::npos);
  const auto from = execd.body.find("TOKEN\":\"") + 8;
  const auto token = execd.body.substr(from, execd.body.find('"', from) - from);
  CHECK(ask(h.port(), "GET", "/sandboxes/abc/proxy/44772/ping", "",
            "X-EXECD-ACCESS-TOKEN: " + token + "\r\n")
          .status == 200);
  CHECK(ask(h.port(), "GET", "/sandboxes/abd/proxy/44772/ping", "",
            "X-EXECD-ACCESS-TOKEN: " + token + "\r\n")
          .status == 401);
  CHECK(at("8000").body.find("X-Insula-Preview-Token") != std::string::npos);
  CHECK(code_of(at("0")) == "DOCKER::INVALID_PORT");
  CHECK(at("x").status == 422);
  CHECK(code_of(at("80?expires=1")) == "SANDBOX::API_NOT_SUPPORTED");
  const auto missing = ask(h.port(), "GET", "/v1/sandboxes/abc");
  CHECK(missing.status == 401);
  CHECK(code_of(missing) == "MISSING_API_KEY");
  CHECK(code_of(ask(h.port(), "GET", "/v1/sandboxes/abc", "", "OPEN-SANDBOX-API-KEY: x\r\n")) ==
        "INVALID_API_KEY");
}

TEST_CASE("OpenSandbox: times are read with and without a zone", "[http][opensandbox]") {
  const auto read = [](const std::string& text) {
    const auto ms = opensandbox::read_expiration(R"({"expiresAt":")" + text + "\"}");
    return ms ? *ms : -1;
  };
  CHECK(read("1970-01-01T00:00:01Z") == 1000);
  CHECK(read("1970-01-01T00:00:01") == 1000);
  CHECK(read("1970-01-01T01:00:01.25+01:00") == 1250);
  CHECK(read("1969-12-31T23:00:01.123456-01:00") == 1123);
  for (const auto* wrong : {"", "tomorrow", "1970-01-01", "1970-01-01T00:00:01X"})
    CHECK(read(wrong) == -1);
}

TEST_CASE("OpenSandbox: an expiration has to be one", "[http][opensandbox]") {
  house h;
  h.plays().description.exists = true;
  const auto renew = [&](const std::string& when) {
    return ask(h.port(), "POST", "/v1/sandboxes/abc/renew-expiration",
               R"({"expiresAt":")" + when + "\"}");
  };
  CHECK(renew("soon").status == 422);
  CHECK(code_of(renew("2001-01-01T00:00:00Z")) == "DOCKER::INVALID_EXPIRATION");
  CHECK(code_of(renew("2999-01-01T00:00:00Z")) == "DOCKER::INVALID_EXPIRATION");
  CHECK(renew(next_week() + "T00:00:00Z").status == 409); // It has none.
}

TEST_CASE("OpenSandbox: a sandbox is paused and resumed, once each", "[http][opensandbox]") {
  house h;
  h.plays().description.exists = true;
  const std::string prefix = GENERATE("", "/v1");
  const auto post = [&](const std::string& what, const std::string& body = {}) {
    return ask(h.port(), "POST", prefix + "/sandboxes/abc/" + what, body);
  };
  const auto tells = [&](const std::string& state, const std::string& reason) {
    return ask(h.port(), "GET", prefix + "/sandboxes/abc")
             .body.find(R"("status":{"state":")" + state + R"(","reason":")" + reason + '"') !=
           std::string::npos;
  };
  CHECK(code_of(post("resume")) == "DOCKER::SANDBOX_NOT_PAUSED");
  CHECK(post("resume").status == 409);
  const auto paused = post("pause");
  CHECK(paused.status == 202);
  CHECK(paused.body.empty());
  CHECK(tells("Paused", "CONTAINER_PAUSED"));
  const auto again = post("pause", "not looked at");
  CHECK(again.status == 409);
  CHECK(code_of(again) == "DOCKER::SANDBOX_NOT_RUNNING");
  const auto resumed = post("resume", "{}");
  CHECK(resumed.status == 202);
  CHECK(resumed.body.empty());
  CHECK(tells("Running", "CONTAINER_RUNNING"));
}

TEST_CASE("OpenSandbox: why a sandbox is not paused, or not resumed, is told by a code",
          "[http][opensandbox]") {
  const auto [why, pause, resume, status] = GENERATE(table<errc, std::string, std::string, int>(
    {{errc::io_failed, "DOCKER::SANDBOX_PAUSE_FAILED", "DOCKER::SANDBOX_RESUME_FAILED", 500},
     {errc::store_failed, "GENERAL::UNKNOWN_ERROR", "GENERAL::UNKNOWN_ERROR", 503},
     {errc::machine_full, "GENERAL::UNKNOWN_ERROR", "GENERAL::UNKNOWN_ERROR", 503},
     {errc::disk_full, "GENERAL::UNKNOWN_ERROR", "GENERAL::UNKNOWN_ERROR", 507}}));
  house h;
  h.plays().pause_error = error{why, "words"};
  for (const auto& [what, code] : {std::pair{"pause", pause}, std::pair{"resume", resume}}) {
    const auto got = ask(h.port(), "POST", std::string{"/v1/sandboxes/abc/"} + what);
    CHECK(got.status == status);
    CHECK(code_of(got) == code);
    CHECK(got.fields.contains("retry-after") == (why == errc::machine_full));
  }
}

TEST_CASE("the sandbox that is played keeps metadata as the real one does",
          "[http][opensandbox][contract]") {
  house h;
  check_metadata_contract([&](const auto& message) { return h.describe(message); });
}

TEST_CASE("OpenSandbox: a change of metadata begins anew after another one, and leaves other APIs' "
          "alone",
          "[http][opensandbox]") {
  house h;
  const auto made = ask(h.port(), "POST", "/v1/sandboxes", with(R"("metadata":{"k":"v"})"));
  const auto path = "/v1/sandboxes/" + made.body.substr(7, 26) + "/metadata";
  auto& is = h.plays().description;
  is.metadata["other"] = "1";
  int changes = 0, others = 0;
  SECTION("another client's change is not lost") {
    h.plays().meanwhile = [&](sandbox_description& now) {
      if (++changes > 1)
        return;
      auto notes = opensandbox::read_notes(opensandbox::text_of_notes(now));
      notes.metadata["theirs"] = "too";
      now.metadata[opensandbox::metadata_api] = opensandbox::write_notes(notes);
    };
    const auto patched = ask(h.port(), "PATCH", path, R"({"mine":"x"})");
    CHECK(patched.status == 200);
    CHECK(patched.body.find(R"("metadata":{"k":"v","mine":"x","theirs":"too"})") !=
          std::string::npos);
    CHECK(changes == 2);
  }
  SECTION("one that never ends is told") {
    h.plays().meanwhile = [&](sandbox_description& now) {
      ++changes;
      now.metadata[opensandbox::metadata_api] += ' ';
    };
    CHECK(ask(h.port(), "PATCH", path, R"({"mine":"x"})").status == 409);
    CHECK(changes > 1);
  }
  SECTION("another API's change does not matter") {
    h.plays().meanwhile = [&](sandbox_description& now) {
      ++changes;
      now.metadata["other"] = std::to_string(++others + 1);
    };
    CHECK(ask(h.port(), "PATCH", path, R"({"mine":"x"})").status == 200);
    CHECK(changes == 1);
    CHECK(is.metadata.at("other") == "2");
  }
}

TEST_CASE("OpenSandbox: sandboxes are listed by their states", "[http][opensandbox]") {
  house h;
  h.plays().described = {{"run", {true, {}, "host", 2, {}, false}},
                         {"still", {true, {}, "host", 1, {}, true}}};
  const auto has = [&](const std::string& query, bool run, bool still) {
    const auto got = ask(h.port(), "GET", "/v1/sandboxes" + query).body;
    return (got.find(R"("id":"run")") != std::string::npos) == run &&
           (got.find(R"("id":"still")") != std::string::npos) == still;
  };
  CHECK(has("", true, true));
  CHECK(has("?state=Paused", false, true));
  CHECK(has("?state=pAUSED&state=Failed", false, true));
  CHECK(has("?state=running", true, false));
  CHECK(has("?state=Paused&state=Running", true, true));
  CHECK(has("?state=Failed", false, false));
}

TEST_CASE("OpenSandbox: a page asks for no more than it shows, and a filter looks on in steps",
          "[http][opensandbox]") {
  house h;
  constexpr int many = 1'000;
  for (int i = 0; i < many; ++i) {
    opensandbox::sandbox_notes notes;
    notes.metadata = {{"rare", i % 250 == 0 ? "yes" : "no"}};
    h.plays().described.push_back(
      {"a" + std::string(static_cast<std::size_t>(1 + i / 26), 'b') +
         static_cast<char>('a' + i % 26),
       {true, {{"opensandbox", opensandbox::write_notes(notes)}}, "host", i, {}, i == 3}});
  }
  const auto steps_of = [&](const std::string& query) {
    h.plays().list_steps.clear();
    CHECK(ask(h.port(), "GET", "/v1/sandboxes" + query).status == 200);
    std::string steps;
    for (const auto& each : h.plays().list_steps)
      steps += (each.after.empty() ? "0" : each.after) + "+" + std::to_string(each.limit) +
               (each.counted ? "# " : " ");
    return steps;
  };
  const auto pagination = [&](const std::string& query) {
    const auto body = ask(h.port(), "GET", "/v1/sandboxes" + query).body;
    return body.substr(body.find(R"("pagination")"));
  };
  CHECK(steps_of("") == "0+20# ");
  CHECK(steps_of("?pageSize=200") == "0+200# ");
  CHECK(steps_of("?state=Running&state=Paused&state=Terminated&pageSize=1") ==
        "0+1# "); // That is no filter.
  CHECK(steps_of("?pageSize=200&page=3") == "0+256# 256+256 512+88 ");
  CHECK(
    pagination("?pageSize=200&page=3") ==
    R"("pagination":{"page":3,"pageSize":200,"totalItems":1000,"totalPages":5,"hasNextPage":true}})");
  CHECK(steps_of("?page=1000000000&pageSize=200") == "0+256# "); // It is past the end.
  // How many there are is known at the end of the list alone.
  CHECK(steps_of("?state=Paused") == "0+256 256+256 512+256 768+256 ");
  CHECK(
    pagination("?state=Paused") ==
    R"("pagination":{"page":1,"pageSize":20,"totalItems":1,"totalPages":1,"hasNextPage":false}})");
  CHECK(steps_of("?metadata=rare%3Dyes&pageSize=1") == "0+256 256+256 512+256 768+256 ");
  CHECK(
    pagination("?metadata=rare%3Dyes&pageSize=3&page=2") ==
    R"("pagination":{"page":2,"pageSize":3,"totalItems":4,"totalPages":2,"hasNextPage":false}})");
  CHECK(steps_of("?state=Failed").empty()); // None is ever in that state.
  h.plays().most_on_page = 7;               // Large ones: pages end early.
  CHECK(steps_of("?pageSize=10") == "0+10# 7+3 ");
  CHECK(
    pagination("?pageSize=10") ==
    R"("pagination":{"page":1,"pageSize":10,"totalItems":1000,"totalPages":100,"hasNextPage":true}})");
}

TEST_CASE("OpenSandbox: sandboxes are listed by pages, the newest first", "[http][opensandbox]") {
  house h;
  for (int i = 0; i < 25; ++i) {
    opensandbox::sandbox_notes notes;
    notes.metadata = {{"half", i % 2 == 0 ? "even" : "odd"}, {"all", "yes"}};
    h.plays().described.push_back(
      {std::string(3, static_cast<char>('a' + i)),
       {true, {{"opensandbox", opensandbox::write_notes(notes)}}, "host", 1000 + i, {}}});
  }
  h.plays().described.push_back({"zzz", {true, {{"other", "x"}}, "host", 5, {}}}); // Another API's.
  const auto list = [&](const std::string& query) {
    const auto got = ask(h.port(), "GET", "/v1/sandboxes" + query);
    std::string ids;
    for (std::size_t at = 0; (at = got.body.find(R"({"id":")", at)) != std::string::npos; ++at)
      ids += (ids.empty() ? "" : " ") + got.body.substr(at + 7, 3);
    const auto from = got.body.find(R"("pagination")");
    return std::to_string(got.status) + " " + ids +
           (from == std::string::npos ? got.body : got.body.substr(from));
  };
  CHECK(
    list("?pageSize=2") ==
    R"(200 yyy xxx"pagination":{"page":1,"pageSize":2,"totalItems":26,"totalPages":13,"hasNextPage":true}})");
  CHECK(
    list("?pageSize=20&page=2&state=RUNNING&state=Paused&state=terminated") ==
    R"(200 eee ddd ccc bbb aaa zzz"pagination":{"page":2,"pageSize":20,"totalItems":26,"totalPages":2,"hasNextPage":false}})");
  CHECK(
    list("?page=9") ==
    R"(200 "pagination":{"page":9,"pageSize":20,"totalItems":26,"totalPages":2,"hasNextPage":false}})");
  CHECK(
    list("?metadata=half%3Dodd%26all%3Dyes&pageSize=1") ==
    R"(200 xxx"pagination":{"page":1,"pageSize":1,"totalItems":12,"totalPages":12,"hasNextPage":true}})");
  CHECK(
    list("?state=Paused") ==
    R"(200 "pagination":{"page":1,"pageSize":20,"totalItems":0,"totalPages":0,"hasNextPage":false}})");
  CHECK(list("?page=0").starts_with("422"));
  CHECK(list("?pageSize=201").starts_with("422"));
  CHECK(list("?metadata=x").find("SANDBOX::INVALID_METADATA_FORMAT") != std::string::npos);
}
