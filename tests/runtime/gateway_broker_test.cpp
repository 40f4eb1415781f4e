// The gateway's and the broker's own programs between a network that is wired like a sandbox's and
// an internet, with the test in place of the spawner and the server.
#include "tests/support/catch.hpp"
#include "tests/support/child_program.hpp"
#include "tests/support/driven_broker.hpp"
#include "tests/support/driven_gateway.hpp"
#include "tests/support/inner_address.hpp"
#include "tests/support/internet.hpp"

#include <chrono>
#include <fcntl.h>
#include <memory>
#include <string>
#include <vector>

using namespace insula;
using namespace insula::test;

namespace {

constexpr std::uint32_t slot = 7;

struct carried : internet {
  carried()
      : internet(INSULA_NETWORK_SITES)
      , gateway(INSULA_GATEWAY)
      , broker(INSULA_BROKER) {
    gateway.add(slot, box);
    gateway.settings(std::string{"resolver "} + resolver + "\n");
    gateway.policy(slot, egress_policy::allow_all());
    give_broker();
  }

  void give_broker() {
    auto way = broker.way();
    ::fcntl(way.get(), F_SETFL, O_NONBLOCK);
    gateway.broker(slot, way);
  }
  void rules(const std::vector<request_rule>& all) {
    broker.use(all, broker.sandbox.certificate);
    std::string lines;
    for (const auto& each : all)
      lines += "carry " + each.domain + '\n';
    lines += forwards;
    gateway.carried(slot, lines);
  }
  std::string last_refusal() { return gateway.figures(slot).last_refusals.at(0).rule; }
  /// What curl says of a page of that host.
  std::string get(const std::string& host, const std::string& more = {},
                  const std::string& address = "203.0.113.2") const {
    return output_of(box.with({"/bin/sh", "-c",
                               "curl -sk --max-time 20 " + more + " --resolve " + host +
                                 ":443:" + address + " https://" + host + "/ || echo failed $?"}));
  }

  std::string forwards; ///< Lines of the places to which rules forward.
  wired_process box;
  driven_gateway gateway;
  driven_broker broker;
};

request_rule answering(const std::string& domain, const std::string& body) {
  return {domain, {}, respond_action{200, {}, body}};
}

} // namespace

TEST_CASE("names with rules are the broker's, and all others go as ever", "[gateway][broker]") {
  carried at;
  CHECK(at.get("a.example") == "site 203.0.113.2 tls a.example\n");
  at.rules({answering("a.example", "by the rule\n")});
  for (const char* more : {"--http1.1", "--http2"})
    CHECK(at.get("a.example", more) == "by the rule\n");
  CHECK(at.get("b.example", {}, "203.0.113.3") == "site 203.0.113.3 tls b.example\n");
  // Whatever address it is looked for at.
  CHECK(at.get("a.example", {}, "203.0.113.3") == "by the rule\n");
  at.rules({});
  CHECK(at.get("a.example") == "site 203.0.113.2 tls a.example\n");
}

TEST_CASE("a broker reaches servers through the gateway, and trusts no certificate unseen",
          "[gateway][broker]") {
  carried at;
  at.rules({{"a.example", {}, transform_action{{{"x-key", "secret"}}}},
            {"nowhere.example", {}, transform_action{{{"x-key", "secret"}}}}});
  CHECK(at.get("a.example") ==
        "a.example: the certificate of a.example is not good: self-signed certificate\n");
  CHECK(at.get("nowhere.example") == "nowhere.example: its name leads nowhere\n");
  CHECK(at.gateway.figures(slot).connections == 2);
}

TEST_CASE("a request for another host than its connection is for is refused and recorded",
          "[gateway][broker]") {
  carried at;
  at.rules({answering("*.example", "by the rule\n")});
  CHECK(at.get("a.example", "-H 'Host: b.example'") == "This connection is for a.example alone.\n");
  const auto figures = at.gateway.figures(slot);
  REQUIRE(figures.last_refusals.size() == 1);
  CHECK(figures.last_refusals[0].name == "b.example");
}

TEST_CASE("without its broker a name with rules waits for the next one, and for its rules",
          "[gateway][broker]") {
  carried at;
  const std::vector<request_rule> rules{answering("a.example", "by the rule\n")};
  at.rules(rules);
  at.broker.end();
  const auto ask = [&] {
    return std::make_unique<child_program>(
      at.box.with({"/bin/sh", "-c",
                   "echo begun; exec curl -sk --max-time 60 --resolve a.example:443:203.0.113.2 "
                   "https://a.example/"}));
  };
  const auto before_it = ask();
  REQUIRE(before_it->read_line(std::chrono::seconds{30}) == "begun");
  // It has said its name, and is held.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  while (at.gateway.figures(slot).open_connections == 0)
    REQUIRE(std::chrono::steady_clock::now() < end);
  driven_broker next{INSULA_BROKER};
  auto way = next.way();
  ::fcntl(way.get(), F_SETFL, O_NONBLOCK);
  at.gateway.broker(slot, way);
  const auto before_rules = ask();
  REQUIRE(before_rules->read_line(std::chrono::seconds{30}) == "begun");
  while (at.gateway.figures(slot).connections < 2)
    REQUIRE(std::chrono::steady_clock::now() < end);
  next.use(rules, next.sandbox.certificate);
  CHECK(before_it->read_line(std::chrono::seconds{30}) == "by the rule");
  CHECK(before_rules->read_line(std::chrono::seconds{30}) == "by the rule");
}

TEST_CASE("without a broker a name with rules is refused after a while", "[gateway][broker]") {
  carried at;
  at.rules({answering("a.example", "by the rule\n")});
  at.broker.end();
  CHECK(at.get("a.example").starts_with("failed "));
  CHECK(at.gateway.figures(slot).last_refusals.at(0).rule == "nothing carries its requests now");
  CHECK(at.get("b.example", {}, "203.0.113.3") == "site 203.0.113.3 tls b.example\n");
}

TEST_CASE("what the policy forbids the broker does not get", "[gateway][broker]") {
  carried at;
  at.rules({answering("a.example", "by the rule\n")});
  at.gateway.policy(slot, {.allow_rest = true, .rules = {{false, "a.example"}}});
  CHECK(at.get("a.example").starts_with("failed "));
  CHECK(at.gateway.figures(slot).last_refusals.at(0).rule == "deny a.example");
}

TEST_CASE("a name with rules is reached by HTTPS alone", "[gateway][broker]") {
  carried at;
  at.rules({answering("a.example", "by the rule\n")});
  const auto inner = inner_address(at.box, "a.example");
  CHECK(at.get("a.example", {}, inner) == "by the rule\n");
  const auto curl = [&](const std::string& words) {
    return output_of(
      at.box.with({"/bin/sh", "-c", "curl -sk --max-time 20 " + words + " || echo failed $?"}));
  };
  // Nameless TLS, as to an address; and no TLS at all.
  CHECK(curl("https://" + inner + "/").starts_with("failed "));
  CHECK(at.last_refusal() == "a name with rules is reached by HTTPS alone");
  CHECK(curl("http://" + inner + ":443/").starts_with("failed "));
  CHECK(curl("-H 'Host: a.example' http://" + inner + "/").starts_with("failed "));
  CHECK(at.gateway.figures(slot).refusals == 3);
}

TEST_CASE("rules answer for a name that leads nowhere", "[gateway][broker]") {
  carried at;
  at.rules({answering("nowhere.example", "by the rule\n")});
  CHECK(at.get("nowhere.example", {}, inner_address(at.box, "nowhere.example")) == "by the rule\n");
}

TEST_CASE("an address that is allowed is reached without the rules of a name that is not",
          "[gateway][broker]") {
  carried at;
  at.rules({answering("a.example", "by the rule\n")});
  at.gateway.policy(slot, {.allow_rest = false, .rules = {{true, "203.0.113.2/32"}}});
  CHECK(at.get("a.example") == "site 203.0.113.2 tls a.example\n");
  at.gateway.policy(
    slot, {.allow_rest = false, .rules = {{true, "203.0.113.2/32"}, {true, "a.example"}}});
  CHECK(at.get("a.example") == "by the rule\n");
}

TEST_CASE("a broker is connected to hosts with rules, and to which they forward, and no others",
          "[gateway][broker]") {
  carried at;
  const std::vector<request_rule> rules{
    {"a.example", {}, forward_action{"https://b.example"}},
  };
  at.rules(rules);
  // There is nobody to sign its token, so the broker asks for no connection.
  CHECK(at.get("a.example").starts_with("The request was not forwarded"));
  // What a broker may ask for does not depend on that.
  at.broker.use({{"a.example", {}, transform_action{{{"x-key", "secret"}}}}},
                at.broker.sandbox.certificate);
  CHECK(at.get("a.example").find("self-signed certificate") != std::string::npos);
  at.gateway.carried(slot, "carry c.example\ncarry a.example\n");
  at.gateway.policy(slot, {.allow_rest = true, .rules = {{false, "203.0.113.2/32"}}});
  CHECK(at.get("a.example", {}, "203.0.113.3") ==
        "a.example: its address is refused (deny 203.0.113.2/32)\n");
}

TEST_CASE("what went to the port of HTTPS unseen ends when rules come", "[gateway][broker]") {
  carried at;
  child_program client{at.box.with(
    {"/usr/bin/python3", "-c",
     "import socket,ssl\nc=ssl.create_default_context(); c.check_hostname=False\n"
     "c.verify_mode=ssl.CERT_NONE\n"
     "s=c.wrap_socket(socket.create_connection(('203.0.113.2',443)),server_hostname='b.example')\n"
     "print('open',flush=True)\n"
     "try: s.recv(1)\nexcept OSError: pass\nprint('over',flush=True)"})};
  REQUIRE(client.read_line(std::chrono::seconds{30}) == "open");
  at.rules({answering("a.example", "by the rule\n")});
  CHECK(client.read_line(std::chrono::seconds{30}) == "over");
}
