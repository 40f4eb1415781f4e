#include "base/limits.hpp"
#include "http/bridge/network_json.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>

using namespace insula;
using namespace insula::test;

namespace {

const std::string path = "/v1/sandbox/abc/network";

std::string as_text(const std::string& body) {
  const auto read = http::json::read_network_body(body);
  return read ? to_text(read->policy) : "error: " + read.reason().message;
}

std::string lines(const std::string& rest, const std::string& dry_run, const std::string& host,
                  const std::string& rules) {
  return "default " + rest + "\ndry-run " + dry_run + "\nmatch-host " + host + "\n" + rules;
}

} // namespace

TEST_CASE("policies in all their forms", "[http][network]") {
  CHECK(as_text(R"({"mode":"allow-all"})") == lines("allow", "off", "on", ""));
  CHECK(as_text(R"({"mode":"deny-all","dry_run":true})") == lines("deny", "on", "on", ""));
  CHECK(as_text(R"({"default":"deny"})") == lines("deny", "off", "on", ""));
  CHECK(
    as_text(
      R"({"default":"allow","match_host":false,"rules":[{"action":"deny","target":"B.example."},{"action":"allow","target":"10.1.2.3/16"}]})") ==
    lines("allow", "off", "off", "deny b.example\nallow 10.1.0.0/16\n"));
  CHECK(as_text("{}") == lines("deny", "off", "off", ""));
  CHECK(
    as_text(
      R"({"allow":["a.example","*"],"subnets":{"allow":["9.9.9.9"],"deny":["10.0.0.0/8"]}})") ==
    lines("deny", "off", "off", "deny 10.0.0.0/8\nallow 9.9.9.9/32\nallow a.example\nallow *\n"));
  CHECK(as_text(R"({"allow":{"a.example":[],"*.b.example":[]}})") ==
        lines("deny", "off", "off", "allow a.example\nallow *.b.example\n"));
}

TEST_CASE("rules about requests, and what is told of them", "[http][network]") {
  const auto read = http::json::read_network_body(R"({"default":"deny","rules":[
    {"action":"allow","target":"A.example","match":{"path":{"startsWith":"/v1"},"method":["post"],
      "queryString":[{"key":{"exact":"q"}}],"headers":[{"key":{"exact":"x"},"value":{"regex":"^y"}}]},
     "transform":{"headers":{"Authorization":"Bearer secret"}}},
    {"action":"allow","target":"a.example","forward":"https://P.example/base/"},
    {"action":"allow","target":"b.example","respond":{"status":403,"headers":{"x-a":"hidden"},"body":"hidden"}},
    {"action":"allow","target":"c.example"}]})");
  REQUIRE(read);
  // One rule allows a domain, however many there are about its requests.
  CHECK(to_text(read->policy) ==
        lines("deny", "off", "on", "allow a.example\nallow b.example\nallow c.example\n"));
  REQUIRE(read->requests.size() == 3);
  CHECK(read->requests[0].match.methods == std::vector<std::string>{"POST"});
  CHECK(std::get<transform_action>(read->requests[0].action).headers ==
        header_list{{"authorization", "Bearer secret"}});
  CHECK(std::get<forward_action>(read->requests[1].action).url == "https://p.example/base");

  network_state state{read->policy};
  state.requests = read->requests; // With values, which are not told all the same.
  state.running = true;
  state.figures.rules = {{3, 10, 20, 200}};
  const auto written = http::json::write_network(state);
  CHECK(written.find("secret") == std::string::npos);
  CHECK(written.find("hidden") == std::string::npos);
  CHECK(written.find(R"("transform":{"headerNames":["authorization"]})") != std::string::npos);
  CHECK(written.find(R"("respond":{"status":403,"headerNames":["x-a"]})") != std::string::npos);
  CHECK(written.find(R"({"target":"a.example","requests":3,"bytes_in":10,"bytes_out":20,)"
                     R"("last_status":200})") != std::string::npos);

  const auto wrong = [](const std::string& members) {
    return as_text(R"({"default":"deny","rules":[{"target":"a.example",)" + members + "}]}");
  };
  CHECK(wrong(R"("action":"allow","match":{})").starts_with("error: a rule with a match has one"));
  CHECK(
    wrong(R"("action":"deny","forward":"https://b.example")").starts_with("error: only a rule"));
  CHECK(wrong(R"("action":"allow","forward":"http://b.example")")
          .starts_with("error: forward: the URL must begin with https://"));
  CHECK(wrong(R"("action":"allow","transform":{"headers":{"host":"x"}})")
          .starts_with("error: header \"host\" cannot be set"));
  CHECK(wrong(R"("action":"allow","transform":{"headers":{"x":"<redacted>"}})")
          .starts_with("error: header \"x\" has the value <redacted>"));
  CHECK(wrong(R"("action":"allow","transform":{"headerNames":["x"]})")
          .starts_with("error: transform must be an object with headers"));
  CHECK(wrong(R"("action":"allow","match":{"path":{"contains":"x"}},"forward":"https://b.example")")
          .starts_with("error: "));
  CHECK(wrong(R"("action":"allow","respond":{"status":100})").starts_with("error: respond"));
}

TEST_CASE("what is told of a policy can be sent back", "[http][network]") {
  for (const std::string body :
       {R"({"mode":"allow-all"})", R"({"mode":"deny-all","dry_run":true})",
        R"({"default":"deny","rules":[{"action":"allow","target":"a.example"}]})"}) {
    const auto read = http::json::read_network_body(body);
    REQUIRE(read);
    auto written = http::json::write_network({read->policy});
    const std::string before = R"({"policy":)", after = R"(,"running":false,"figures":null})";
    REQUIRE(written.starts_with(before));
    REQUIRE(written.ends_with(after));
    written = written.substr(before.size(), written.size() - before.size() - after.size());
    CAPTURE(written);
    CHECK(as_text(written) == to_text(read->policy));
  }
}

TEST_CASE("a policy that is not understood whole is refused, and the reason names it",
          "[http][network]") {
  const auto [body, why] = GENERATE(table<std::string, std::string>({
    {"", "Invalid JSON body"},
    {"{", "Invalid JSON body"},
    {"[]", "the body must be a JSON object"},
    {R"({"mode":"open"})", R"(mode must be "allow-all", "deny-all" or "custom")"},
    {R"({"mode":"deny-all","allow":["a"]})", R"(unknown member "allow")"},
    {R"({"mode":"deny-all","rules":[{"action":"allow","target":"a"}]})",
     R"(mode "deny-all" has no rules)"},
    {R"({"default":"deny","rule":[]})", R"(unknown member "rule")"},
    {R"({"rules":[]})", R"(default must be "allow" or "deny")"},
    {R"({"default":"deny","rules":{}})", "rules must be an array"},
    {R"({"default":"deny","rules":["a"]})", "a rule must be an object"},
    {R"({"default":"deny","rules":[{"action":"allow"}]})", "a rule needs a target"},
    {R"({"default":"deny","rules":[{"action":"pass","target":"a"}]})",
     R"(action must be "allow" or "deny")"},
    {R"({"default":"deny","rules":[{"action":"deny","target":"a","port":80}]})",
     R"(unknown member "port" in a rule)"},
    {R"({"default":"deny","rules":[{"action":"deny","target":1}]})", "target must be a string"},
    {R"({"default":"deny","dry_run":1})", "dry_run must be true or false"},
    {R"({"default":"deny","rules":[{"action":"deny","target":"10.0.0.0/99"}]})",
     R"("10.0.0.0/99" has a prefix that is not 0 to 32)"},
    {R"({"allow":["*a.example"]})", R"("*a.example" has a wildcard that is not a whole label)"},
    {R"({"allow":"a"})", "allow must be an array or an object"},
    {R"({"allow":{"a.example":[{"transform":[]}]}})",
     R"(rules for the domain "a.example" are not supported)"},
    {R"({"subnets":{"deny":["a.example"]}})", R"("a.example" is no address or subnet)"},
    {R"({"subnets":{"block":[]}})", R"(unknown member "block" in subnets)"},
    {R"({"allowedDomains":[]})", R"(unknown member "allowedDomains")"},
  }));
  CAPTURE(body);
  CHECK(as_text(body) == "error: " + why);
  house h;
  const auto got = ask(h.port(), "PUT", path, body);
  CHECK(got.status == 400);
  CHECK(got.body.find(R"("code":"invalid_request")") != std::string::npos);
  CHECK(h.heard().all().empty());
}

TEST_CASE("a policy is set and read without a start", "[http][network]") {
  house h;
  const auto set = ask(h.port(), "PUT", path, R"({"allow":["a.example"]})");
  CHECK(set.status == 200);
  CHECK(
    set.body ==
    R"({"policy":{"mode":"custom","default":"deny","rules":[{"action":"allow","target":"a.example"}],"dry_run":false,"match_host":false},"running":false,"figures":null})");
  CHECK(h.heard().all() ==
        std::vector<std::string>{"reach abc", "set network\n" +
                                                lines("deny", "off", "off", "allow a.example\n")});

  h.plays().network.running = true;
  h.plays().network.figures = {
    10,
    20,
    3,
    1,
    2,
    {{1'700'000'000'123, "tcp", "b.example", "9.9.9.9", 443, "default", false}},
    4'700,
    7,
    {{1'700'000'000'123, "tcp", "a.example", "9.9.9.9", 25, connection_failure::timed_out}}};
  const auto got = ask(h.port(), "GET", path);
  CHECK(got.status == 200);
  CHECK(
    got.body.substr(got.body.find("\"running\"")) ==
    R"("running":true,"figures":{"bytes_in":10,"bytes_out":20,"connections":3,"open_connections":1,"refusals":2,"gateway_ms":4,"last_refusals":[{"at":"2023-11-14T22:13:20.123Z","protocol":"tcp","name":"b.example","address":"9.9.9.9","port":443,"rule":"default","let_through":false}],"request_rules":[],"failures":7,"last_failures":[{"at":"2023-11-14T22:13:20.123Z","protocol":"tcp","name":"a.example","address":"9.9.9.9","port":25,"reason":"timed_out"}]}})");
}

TEST_CASE("a policy with too many rules is too large", "[http][network]") {
  house h;
  std::string body = R"({"allow":[)";
  for (std::size_t i = 0; i <= max_egress_rules; ++i)
    body += (i == 0 ? "\"a" : ",\"a") + std::to_string(i) + "\"";
  const auto got = ask(h.port(), "PUT", path, body + "]}");
  CHECK(got.status == 413);
  CHECK(got.body.find("4096 rules") != std::string::npos);
}

TEST_CASE("ports are listed", "[http][network]") {
  house h;
  h.plays().ports = {{"127.0.0.1", 80, 7, "web"}, {"::", 81, 0, ""}};
  CHECK(
    ask(h.port(), "GET", "/v1/sandbox/abc/ports").body ==
    R"({"ports":[{"port":80,"address":"127.0.0.1","pid":7,"process":"web"},{"port":81,"address":"::"}]})");
}

TEST_CASE("a network that does not answer is told as that, and the key is wanted",
          "[http][network]") {
  http::server_options options;
  options.api_key = "s3cret";
  house h{options};
  const std::string key = "Authorization: Bearer s3cret\r\n";
  for (const auto& each : {path, std::string{"/v1/sandbox/abc/ports"}}) {
    CHECK(ask(h.port(), "GET", each).status == 401);
    h.plays().network_error = error{errc::io_failed, "silence"};
    const auto got = ask(h.port(), "GET", each, "", key);
    CHECK(got.status == 502);
    CHECK(got.body == R"({"error":"network: silence","code":"network_error"})");
    h.plays().network_error = error{errc::disk_full, "full"};
    CHECK(ask(h.port(), "GET", each, "", key).status == 507);
  }
}

TEST_CASE("a port is waited for, on both kinds of loopback", "[http][network]") {
  house h;
  for (const int family : {AF_INET, AF_INET6}) {
    const unique_fd listener{::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_addr = in6addr_loopback;
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* where =
      family == AF_INET ? reinterpret_cast<sockaddr*>(&four) : reinterpret_cast<sockaddr*>(&six);
    socklen_t size = family == AF_INET ? sizeof four : sizeof six;
    REQUIRE(::bind(listener.get(), where, size) == 0);
    REQUIRE(::getsockname(listener.get(), where, &size) == 0);
    const auto port = std::to_string(ntohs(family == AF_INET ? four.sin_port : six.sin6_port));
    const auto ready = "/v1/sandbox/abc/port/" + port + "/ready?timeout_ms=";
    const auto early = ask(h.port(), "GET", ready + "120");
    CHECK(early.status == 504);
    CHECK(early.body == R"({"error":"nothing listens at port )" + port +
                          R"( after 120 ms","code":"port_not_ready"})");
    std::thread later{[&] {
      h.heard().has("reach abc");
      ::listen(listener.get(), 8);
    }};
    const auto got = ask(h.port(), "GET", ready + "60000");
    later.join();
    CHECK(got.status == 200);
    CHECK(got.body.starts_with(R"({"ready":true,"waited_ms":)"));
  }
}

TEST_CASE("waiting for a port that cannot be is refused", "[http][network]") {
  house h;
  for (const std::string each :
       {"0/ready", "65536/ready", "x/ready", "-1/ready", "80/ready?timeout_ms=0",
        "80/ready?timeout_ms=300001", "80/ready?timeout_ms=soon"})
    CHECK(ask(h.port(), "GET", "/v1/sandbox/abc/port/" + each).status == 400);
  h.plays().network_error = error{errc::sandbox_not_running, "the sandbox does not run"};
  CHECK(ask(h.port(), "GET", "/v1/sandbox/abc/port/80/ready").status == 502);
}

// ---- As OpenSandbox's clients say it

namespace {

const std::string sidecar = "/v1/sandboxes/abc/proxy/18080/policy";

std::string policy_of(std::string_view mode, std::string_view rules, std::string_view rest) {
  std::string text = R"({"status":"ok","mode":")";
  text.append(mode).append(R"(","enforcementMode":"dns+nft","policy":{"egress":[)").append(rules);
  return text.append(R"(],"defaultAction":")").append(rest).append("\"}}");
}

} // namespace

TEST_CASE("OpenSandbox: a policy is read and replaced", "[http][network][opensandbox]") {
  house h;
  h.plays().network.exists = true;
  CHECK(ask(h.port(), "GET", sidecar).body == policy_of("allow_all", "", "allow"));
  const std::string rule = R"({"action":"allow","target":"*.a.example"})";
  for (const std::string method : {"PUT", "POST"})
    for (const auto& where : {sidecar, sidecar.substr(3)}) {
      const auto set =
        ask(h.port(), method, where, R"({"egress":[{"action":"allow","target":"*.A.example"}]})");
      CHECK(set.status == 200);
      CHECK(set.body == policy_of("enforcing", rule, "deny"));
      CHECK(ask(h.port(), "GET", where).body == set.body);
      for (const std::string nothing : {"", "null", "{}"})
        CHECK(ask(h.port(), method, where, nothing).body == policy_of("deny_all", "", "deny"));
      CHECK(ask(h.port(), method, where, R"({"defaultAction":"allow"})").body ==
            policy_of("allow_all", "", "allow"));
    }
  CHECK(ask(h.port(), "GET", "/sandboxes/abc/proxy/18080/healthz").body == "ok");
}

TEST_CASE("OpenSandbox: rules are merged and removed", "[http][network][opensandbox]") {
  house h;
  h.plays().network.exists = true;
  CHECK(ask(h.port(), "PATCH", sidecar,
            R"([{"action":"deny","target":"B.example"},{"action":"allow","target":"10.1.2.3/8"}])")
          .status == 200);
  CHECK(h.heard().has("change network deny b.example allow 10.0.0.0/8"));
  CHECK(ask(h.port(), "DELETE", sidecar, R"(["B.example","not a target"])").status == 200);
  CHECK(h.heard().has("change network remove b.example"));
}

TEST_CASE("OpenSandbox: errors are plain text", "[http][network][opensandbox]") {
  house h;
  const auto status = [&](const std::string& method, const std::string& body) {
    const auto got = ask(h.port(), method, sidecar, body);
    CHECK(got.fields.at("content-type") == "text/plain");
    CHECK_FALSE(got.body.empty());
    return got.status;
  };
  // But for a sandbox that has never run, or cannot be: that is said in front of it.
  for (const std::string method : {"GET", "PUT", "PATCH", "DELETE"}) {
    const auto got = ask(h.port(), method, sidecar,
                         method == "PATCH"    ? R"([{"action":"deny","target":"a.b"}])"
                         : method == "DELETE" ? "[]"
                                              : "{}");
    CHECK(got.status == 404);
    CHECK(got.fields.at("content-type").starts_with("application/json"));
    CHECK(got.body == R"({"code":"DOCKER::SANDBOX_NOT_FOUND","message":"Sandbox abc not found."})");
  }
  CHECK(ask(h.port(), "GET", "/v1/sandboxes/NOT-ONE/proxy/18080/policy").body ==
        R"({"code":"DOCKER::SANDBOX_NOT_FOUND","message":"Sandbox NOT-ONE not found."})");
  h.plays().network.exists = true;
  CHECK(status("PATCH", "[]") == 400);
  CHECK(status("PATCH", "{}") == 400);
  CHECK(status("DELETE", "{}") == 400);
  CHECK(status("DELETE", "[1]") == 400);
  CHECK(status("PUT", "[") == 400);
  CHECK(status("PUT", R"({"defaultAction":"maybe"})") == 400);
  CHECK(status("PUT", R"({"egress":[{"action":"allow","target":"a b"}]})") == 400);
  std::string much = R"({"egress":[)";
  for (std::size_t i = 0; i <= max_egress_rules; ++i)
    much += (i == 0 ? "" : ",") + (R"({"action":"deny","target":"a)" + std::to_string(i) + "\"}");
  CHECK(status("PUT", much + "]}") == 413);
  CHECK(status("PUT", std::string(limits::network_body_bytes + 1, ' ')) == 413);
  h.plays().network_error = error{errc::io_failed, "silence"};
  CHECK(status("GET", "") == 502);
  h.plays().network_error = error{errc::limit_reached, "too many"};
  CHECK(status("PATCH", R"([{"action":"deny","target":"a"}])") == 413);
}

TEST_CASE("OpenSandbox: the key is wanted in its own header", "[http][network][opensandbox]") {
  http::server_options options;
  options.api_key = "s3cret";
  house h{options};
  h.plays().network.exists = true;
  for (const std::string field :
       {"", "OPEN-SANDBOX-API-KEY: wrong\r\n", "OPEN-SANDBOX-API-KEY:\r\n"}) {
    const auto got = ask(h.port(), "GET", sidecar, "", field);
    CHECK(got.status == 401);
    CHECK(got.body == "Unauthorized");
  }
  CHECK(ask(h.port(), "GET", sidecar, "", "OPEN-SANDBOX-API-KEY: s3cret\r\n").status == 200);
  CHECK(ask(h.port(), "GET", sidecar, "", "Authorization: Bearer s3cret\r\n").status == 200);
}
