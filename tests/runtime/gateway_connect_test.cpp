// What a program in a sandbox sees when it connects: the same as without a gateway. With the
// programs that people use, on an internet of the test's own.
#include "tests/support/catch.hpp"
#include "tests/support/child_program.hpp"
#include "tests/support/driven_gateway.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/inner_address.hpp"
#include "tests/support/internet.hpp"

#include <algorithm>
#include <chrono>

using namespace insula;
using namespace insula::test;

namespace {

constexpr std::uint32_t slot = 7;
constexpr std::chrono::seconds patience{60};

/// Connects to ADDRESS PORT, and prints what happens: the error's name, or what the server says
/// first.
constexpr const char* connect_script = R"(
import errno,socket,sys
try:
  s=socket.create_connection((sys.argv[1],int(sys.argv[2])),float(sys.argv[3]))
  print('open', flush=True)
  if len(sys.argv)>4: s.sendall(bytes.fromhex(sys.argv[4]))
  print(s.recv(6))
except TimeoutError as e: print(errno.errorcode[e.errno] if e.errno else 'waited')
except OSError as e: print(errno.errorcode[e.errno])
)";

/// At 203.0.113.2 a port 81 that nobody listens at, at 203.0.113.3 one that is a web server's; 82
/// is reset after a byte. 203.0.113.99 is no machine, and 198.51.100.1 never answers.
constexpr const char* more_sites = R"(
import http.server,socket,struct,threading
class Site(http.server.BaseHTTPRequestHandler):
  def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b'second\n')
  def log_message(self,*_): pass
web=http.server.ThreadingHTTPServer(('203.0.113.3',81),Site)
threading.Thread(target=web.serve_forever,daemon=True).start()
cut=socket.create_server(('203.0.113.3',82))
print('ready',flush=True)
while True:
  c,_=cut.accept(); c.sendall(b'x'); c.recv(1)
  c.setsockopt(socket.SOL_SOCKET,socket.SO_LINGER,struct.pack('ii',1,0)); c.close()
)";

struct scene : internet {
  scene()
      : internet(INSULA_NETWORK_SITES)
      , more{beside_sites({"/usr/bin/python3", "-c", more_sites})}
      , gateway(INSULA_GATEWAY) {
    REQUIRE(more.read_line(patience) == "ready");
    gateway.add(slot, box);
    gateway.settings(std::string{"resolver "} + resolver + "\n");
  }

  void obey(bool allow_rest, std::vector<egress_rule> rules, bool dry_run = false) {
    gateway.policy(slot, {.allow_rest = allow_rest, .rules = std::move(rules), .dry_run = dry_run});
  }
  std::vector<std::string> connecting(const std::string& address, int port,
                                      const std::string& timeout = "30") const {
    return box.with(
      {"/usr/bin/python3", "-c", connect_script, address, std::to_string(port), timeout});
  }
  std::string connect(const std::string& address, int port,
                      const std::string& timeout = "30") const {
    return output_of(connecting(address, port, timeout));
  }
  /// What it says, on both channels.
  std::string shell(const std::string& line) const {
    return output_of(box.with({"/bin/bash", "-c", "(" + line + ") 2>&1; true"}));
  }
  /// The address inside that stands for a name.
  std::string address_of(const std::string& name) const { return inner_address(box, name); }
  network_failure last_failure() { return gateway.figures(slot).last_failures.at(0); }
  /// Looks until so many are counted.
  network_figures figures_after(std::uint64_t failures) {
    network_figures now;
    eventually([&] { return (now = gateway.figures(slot)).failures >= failures; }, patience);
    return now;
  }

  child_program more;
  wired_process box;
  driven_gateway gateway;
};

const std::string a = "203.0.113.2", b = "203.0.113.3";
const std::string nobody_there = "203.0.113.99", silent = "198.51.100.1";

} // namespace

TEST_CASE("a port where nobody listens is refused at connect", "[gateway][connect]") {
  scene at;
  const auto check = [&](const std::string& address) {
    CHECK(at.connect(address, 81) == "ECONNREFUSED\n");
    const auto failure = at.last_failure();
    CHECK(failure.reason == connection_failure::refused);
    CHECK(failure.address == a);
    CHECK(failure.port == 81);
    CHECK(at.gateway.figures(slot).refusals == 0);
    CHECK(at.connect(address, 7) == "open\nb'hello\\n'\n");
  };
  SECTION("where everything is allowed") {
    at.obey(true, {});
    check(a);
  }
  SECTION("where its address is allowed") {
    at.obey(false, {{true, "203.0.113.0/24"}});
    check(a);
  }
  SECTION("where another name is denied") {
    at.obey(true, {{false, "b.example"}});
    check(a);
  }
  SECTION("where its name is allowed") {
    at.obey(false, {{true, "a.example"}});
    check(at.address_of("a.example"));
    CHECK(at.last_failure().name == "a.example");
  }
  SECTION("where another name is allowed, and everything else") {
    at.obey(true, {{false, "10.0.0.0/8"}, {true, "b.example"}});
    check(a);
  }
  CHECK(at.gateway.figures(slot).failures == 1);
}

TEST_CASE("a dry run hides nothing of what is at the other end", "[gateway][connect]") {
  scene at;
  at.obey(false, {{true, "b.example"}}, true);
  CHECK(at.connect(a, 81) == "ECONNREFUSED\n");
  CHECK(at.connect(a, 7) == "open\nb'hello\\n'\n");
}

TEST_CASE("a port is shut over IPv6 as well", "[gateway][connect]") {
  scene at;
  at.obey(true, {});
  CHECK(at.connect("2001:db8::2", 81) == "ECONNREFUSED\n");
  CHECK(at.connect("2001:db8::2", 7) == "open\nb'hello\\n'\n");
}

TEST_CASE("where there is no way, that is what connect says", "[gateway][connect]") {
  scene at;
  at.obey(true, {{false, "b.example"}});
  SECTION("no machine") {
    CHECK(at.connect(nobody_there, 80) == "EHOSTUNREACH\n");
    CHECK(at.connect("2001:db8::99", 80) == "EHOSTUNREACH\n");
  }
  SECTION("no route") {
    output_of({"/bin/sh", "-c", "ip -6 route del default; ip route del default"});
    CHECK(at.connect("2001:db8:1::1", 80) == "ENETUNREACH\n");
    CHECK(at.connect(silent, 80) == "ENETUNREACH\n");
  }
  CHECK(at.last_failure().reason == connection_failure::unreachable);
  CHECK(at.gateway.figures(slot).failures == 2);
}

TEST_CASE("who never answers is waited for, and counted once", "[gateway][connect]") {
  scene at;
  at.obey(true, {});
  CHECK(at.connect(silent, 80, "2") == "waited\n");
  const auto figures = at.figures_after(1); // The gateway waits for longer than the client.
  REQUIRE(figures.failures == 1);
  CHECK(figures.last_failures[0].reason == connection_failure::timed_out);
  CHECK(figures.last_failures[0].address == silent);
  CHECK(figures.open_connections == 0);
}

TEST_CASE("what no rule can allow is refused at connect", "[gateway][connect]") {
  scene at;
  const auto refused = [&](const std::string& address, const std::string& rule) {
    CAPTURE(address);
    CHECK(at.connect(address, 80) == "ECONNREFUSED\n");
    CHECK(at.gateway.figures(slot).last_refusals.at(0).rule == rule);
  };
  SECTION("before it is known what it may reach") {
    refused(a, "it is not known yet what it may reach");
  }
  SECTION("where nothing is allowed") {
    at.obey(false, {});
    refused(a, "default");
    refused("2001:db8::2", "default");
  }
  SECTION("where names are only denied") {
    at.obey(false, {{false, "b.example"}});
    refused(a, "default");
  }
  SECTION("where its address is denied before any name") {
    at.obey(false, {{false, b + "/32"}, {true, "*.example"}});
    refused(b, "deny 203.0.113.3/32");
  }
  SECTION("what only this machine can reach") {
    at.obey(true, {});
    refused("10.1.2.3", "private address");
    refused("203.0.113.1", "address of the node");
    at.obey(true, {{false, "b.example"}});
    refused("10.1.2.3", "private address");
  }
  CHECK(at.gateway.figures(slot).failures == 0);
}

TEST_CASE("who must say a name first is let in, and reset at once when nobody is there",
          "[gateway][connect]") {
  scene at;
  at.obey(false, {{true, "a.example"}});
  const auto hello = [&](int port) {
    return output_of(
      at.box.with({"/usr/bin/python3", "-c",
                   "import socket,ssl,sys\nc=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)\n"
                   "c.check_hostname=False; c.verify_mode=ssl.CERT_NONE\n"
                   "s=socket.create_connection(('203.0.113.3',int(sys.argv[1])),30)\n"
                   "try: c.wrap_socket(s,server_hostname='a.example'); print('open')\n"
                   "except ConnectionResetError: print('reset')",
                   std::to_string(port)}));
  };
  CHECK(hello(443) == "open\n");
  CHECK(hello(444) == "reset\n");
  const auto failure = at.last_failure();
  CHECK(failure.name == "a.example");
  CHECK(failure.address == a);
  CHECK(failure.reason == connection_failure::refused);
}

TEST_CASE("a name that leads to several addresses fails as the one that says most",
          "[gateway][connect]") {
  scene at;
  at.obey(false, {{true, "both.example"}});
  output_of({"/bin/sh", "-c", "ip -6 route add unreachable 2001:db8::2"});
  CHECK(at.connect(at.address_of("both.example"), 81) == "ECONNREFUSED\n");
  CHECK(at.last_failure().reason == connection_failure::refused);
  CHECK(at.gateway.figures(slot).failures == 1);
  CHECK(at.connect(at.address_of("both.example"), 7) == "open\nb'hello\\n'\n");
}

TEST_CASE("a name is looked up again when it is connected to", "[gateway][connect]") {
  scene at;
  at.obey(false, {{true, "moving.example"}});
  const auto inner = at.address_of("moving.example");
  SECTION("it leads to where there is no way") {
    output_of(at.beside_sites(
      {"/usr/bin/curl", "-s", "http://203.0.113.3:9000/move/moving.example/2001:db8::77"}));
    output_of({"/bin/sh", "-c", "ip -6 route add unreachable 2001:db8::77"});
    // Where it led is remembered for a second.
    std::string said;
    const auto until = std::chrono::steady_clock::now() + patience;
    do
      said = at.connect(inner, 81);
    while (said == "ECONNREFUSED\n" && std::chrono::steady_clock::now() < until);
    CHECK(said == "EHOSTUNREACH\n");
    CHECK(at.last_failure().reason == connection_failure::unreachable);
    CHECK(at.last_failure().address == "2001:db8::77");
  }
  SECTION("nobody knows where it leads") {
    at.gateway.settings("resolver 203.0.113.2 54\n");
    CHECK(at.connect(inner, 81) == "EHOSTUNREACH\n");
    CHECK(at.last_failure().reason == connection_failure::unresolved);
  }
  CHECK(at.last_failure().name == "moving.example");
}

TEST_CASE("connections that the far side cuts are counted, those that end are not",
          "[gateway][connect]") {
  scene at;
  at.obey(true, {});
  CHECK(at.connect(b, 7) == "open\nb'hello\\n'\n");
  CHECK(at.gateway.figures(slot).failures == 0);
  CHECK(output_of(
          at.box.with({"/usr/bin/python3", "-c",
                       "import socket\ns=socket.create_connection(('203.0.113.3',82),30)\n"
                       "print(s.recv(1)); s.sendall(b'x')\n"
                       "try: print(s.recv(1))\nexcept ConnectionResetError: print('reset')"})) ==
        "b'x'\nreset\n");
  const auto figures = at.figures_after(1);
  CHECK(figures.failures == 1);
  CHECK(figures.last_failures.at(0).reason == connection_failure::reset);
  CHECK(figures.last_failures.at(0).port == 82);
}

TEST_CASE("programs see a shut port, and try the next address", "[gateway][connect]") {
  scene at;
  at.obey(true, {{false, "deep.sub.a.example"}});
  SECTION("bash") {
    CHECK(at.shell("exec 3<>/dev/tcp/203.0.113.2/81").find("Connection refused") !=
          std::string::npos);
  }
  SECTION("nc -z, where there is one") {
    const std::string ask =
      "command -v nc >/dev/null || { echo shut; exit; }; nc -z 203.0.113.2 81 || echo shut";
    CHECK(at.shell(ask) == "shut\n");
    CHECK(at.shell("command -v nc >/dev/null || { echo open; exit; }; "
                   "nc -z 203.0.113.2 7 && echo open") == "open\n");
  }
  SECTION("PostgreSQL's clients") {
    CHECK(at.shell("command -v pg_isready >/dev/null || { echo no response; exit; }; "
                   "pg_isready -t 30 -h 203.0.113.2 -p 81")
            .find("no response") != std::string::npos);
    const auto said =
      at.shell("command -v psql >/dev/null || { echo Connection refused 2; exit; }; "
               "psql -w 'host=203.0.113.2,10.1.2.3 port=81 user=x dbname=x'");
    CHECK(said.find("Connection refused") != std::string::npos);
    CHECK(said.find("closed the connection") == std::string::npos);
  }
  SECTION("curl, with several addresses") {
    const std::string curl = "curl -gsS --connect-timeout 20 ";
    CHECK(at.shell(curl + "--resolve x.example:81:203.0.113.2,203.0.113.3 http://x.example:81/") ==
          "second\n");
    CHECK(at.shell(curl + "--resolve 'x.example:81:[2001:db8::2],203.0.113.3' "
                          "http://x.example:81/") == "second\n");
    CHECK(at.shell(curl + "http://203.0.113.2:81/ || echo $?").ends_with("\n7\n"));
  }
  SECTION("curl, where there is no way over IPv6") {
    output_of({"/bin/sh", "-c", "ip -6 route add unreachable 2001:db8::77"});
    CHECK(at.shell("curl -gsS --connect-timeout 20 "
                   "--resolve 'x.example:81:[2001:db8::77],203.0.113.3' http://x.example:81/") ==
          "second\n");
  }
  SECTION("Python") {
    CHECK(
      output_of(at.box.with(
        {"/usr/bin/python3", "-c",
         "import socket\n"
         "real=socket.getaddrinfo\n"
         "socket.getaddrinfo=lambda h,p,*a,**k: sum((real(x,p,*a,**k) for x in h.split(',')),[])\n"
         "s=socket.create_connection(('203.0.113.2,203.0.113.3',81),20)\n"
         "print(s.getpeername()[0])"})) == "203.0.113.3\n");
  }
  SECTION("Node") {
    const std::string node = "command -v node >/dev/null || { echo ECONNREFUSED; exit; }; node -e ";
    CHECK(at.shell(node + "'require(\"net\").connect(81,\"203.0.113.2\")"
                          ".on(\"error\",e=>console.log(e.code))"
                          ".on(\"connect\",()=>{console.log(\"open\");process.exit()})'") ==
          "ECONNREFUSED\n");
    CHECK(at.shell("command -v node >/dev/null || { echo 203.0.113.3; exit; }; node -e "
                   "'const s=require(\"net\").connect({port:81,host:\"x.example\","
                   "autoSelectFamily:true,lookup:(h,o,f)=>f(null,[{address:\"203.0.113.2\","
                   "family:4},{address:\"2001:db8::2\",family:6},{address:\"203.0.113.3\","
                   "family:4}])});s.on(\"error\",e=>console.log(e.code));"
                   "s.on(\"connect\",()=>{console.log(s.remoteAddress);process.exit()})'") ==
          "203.0.113.3\n");
  }
}

TEST_CASE("a server that speaks first is heard under every policy that lets it through",
          "[gateway][connect]") {
  scene at;
  const auto talks = [&](const std::string& address) {
    CHECK(output_of(at.box.with(
            {"/usr/bin/python3", "-c",
             "import socket,sys\ns=socket.create_connection((sys.argv[1],7),20)\n"
             "print(s.recv(6)); s.sendall(b'x'); print(s.recv(1)); s.shutdown(socket.SHUT_WR)\n"
             "print(s.recv(4))",
             address})) == "b'hello\\n'\nb'x'\nb'bye\\n'\n");
  };
  at.obey(true, {});
  talks(b);
  at.obey(true, {{false, "a.example"}});
  talks(b);
  at.obey(false, {{true, b + "/32"}, {true, "a.example"}});
  talks(b);
  at.obey(true, {{true, "a.example"}});
  talks(b);
  at.obey(false, {{true, "b.example"}});
  talks(at.address_of("b.example"));
  at.obey(false, {{true, "a.example"}}, true);
  talks(b);
  CHECK(at.gateway.figures(slot).failures == 0);
}

TEST_CASE("a client that has given up leaves nothing, and its port serves the next one",
          "[gateway][connect]") {
  scene at;
  at.obey(true, {});
  // The same two ends, again and again, while the first one is still held.
  CHECK(output_of(
          at.box.with({"/usr/bin/python3", "-c",
                       "import socket\n"
                       "def one(block):\n"
                       " s=socket.socket(); s.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEADDR,1)\n"
                       " s.bind(('0.0.0.0',4321)); s.settimeout(1 if block else 0)\n"
                       " try: s.connect(('198.51.100.1',80))\n"
                       " except OSError: pass\n"
                       " s.close()\n"
                       "for i in range(200): one(False)\n"
                       "one(True)\nprint('done')"})) == "done\n");
  CHECK(at.gateway.figures(slot).open_connections <= 1);
  CHECK(at.connect(b, 7) == "open\nb'hello\\n'\n");
  CHECK(at.figures_after(1).failures >= 1);
}

TEST_CASE("many connect at once, to what is there and what is not", "[gateway][connect]") {
  scene at;
  at.obey(true, {{false, "a.example"}});
  CHECK(output_of(at.box.with({"/usr/bin/python3", "-c", R"(
import collections,errno,socket,threading
seen=collections.Counter()
def one(i):
  try:
    s=socket.create_connection(('203.0.113.3',7 if i%2 else 83),60); seen[s.recv(6)]+=1
  except OSError as e: seen[errno.errorcode[e.errno]]+=1
all=[threading.Thread(target=one,args=(i,)) for i in range(400)]
[t.start() for t in all]; [t.join() for t in all]
print(seen[b'hello\n'],seen['ECONNREFUSED'])
)"})) == "200 200\n");
  const auto figures = at.figures_after(200);
  CHECK(figures.failures == 200);
  CHECK(figures.connections == 200);
}

TEST_CASE("a new policy refuses what is still held", "[gateway][connect]") {
  scene at;
  at.obey(true, {});
  child_program held{at.connecting(silent, 80)};
  REQUIRE(eventually([&] { return at.gateway.figures(slot).open_connections > 0; }, patience));
  at.obey(false, {});
  CHECK(held.read_line(patience) == "ECONNREFUSED");
  CHECK(at.gateway.figures(slot).refusals == 1);
}

TEST_CASE("the program of a mount sees a shut port as well", "[gateway][connect]") {
  internet sites{INSULA_NETWORK_SITES};
  wired_process program{runtime::spawner::wired_for::mount};
  driven_gateway gateway{INSULA_GATEWAY};
  gateway.settings(std::string{"resolver "} + internet::resolver + "\nallow 127.0.0.1/32\n");
  gateway.add(slot, program, "port 81\ndefault deny\nallow 203.0.113.2/32\nallow 127.0.0.1/32\n");
  for (const char* where : {"203.0.113.2", "127.0.0.1"})
    CHECK(output_of(program.with({"/usr/bin/python3", "-c", connect_script, where, "81", "30"})) ==
          "ECONNREFUSED\n");
  CHECK(gateway.figures(slot).failures == 2);
}
