// The gateway's own program between a network that is wired like a sandbox's and an internet, with
// the test in place of the spawner and the server.
#include "tests/support/catch.hpp"
#include "tests/support/child_program.hpp"
#include "tests/support/driven_gateway.hpp"
#include "tests/support/internet.hpp"

#include <chrono>

using namespace insula;
using namespace insula::test;

namespace {

constexpr std::uint32_t slot = 7;
constexpr std::chrono::seconds patience{60};

/// Says hello by TLS to ADDRESS for NAME: in PIECES, WAIT seconds before the first and between
/// them. Prints what becomes of that, and with HOLD then of the connection.
constexpr const char* client = R"(
import socket,ssl,sys,time
address,name,pieces,wait,hold=sys.argv[1],sys.argv[2],int(sys.argv[3]),float(sys.argv[4]),sys.argv[5]
if address[0] not in '0123456789': # This machine's own resolver is not asked.
  q=socket.socket(type=socket.SOCK_DGRAM); q.settimeout(20)
  labels=b''.join(bytes([len(w)])+w.encode() for w in address.split('.'))
  q.sendto(b'\x12\x34\1\0\0\1\0\0\0\0\0\0'+labels+b'\0\0\1\0\1',('9.9.9.9',53))
  address=socket.inet_ntoa(q.recv(512)[-4:])
c=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); c.check_hostname=False; c.verify_mode=ssl.CERT_NONE
i,o=ssl.MemoryBIO(),ssl.MemoryBIO()
t=c.wrap_bio(i,o,server_hostname=name)
s=socket.create_connection((address,443),20); s.setsockopt(socket.IPPROTO_TCP,socket.TCP_NODELAY,1)
def step(f):
  global wait
  while True:
    try: return f()
    except ssl.SSLWantReadError: pass
    d=o.read()
    for k in range(pieces):
      time.sleep(wait); s.sendall(d[len(d)*k//pieces:len(d)*(k+1)//pieces])
    wait=0
    r=s.recv(65536)
    if not r: raise ConnectionResetError
    i.write(r)
try:
  step(t.do_handshake)
  t.write(b'GET / HTTP/1.1\r\nHost: x\r\n\r\n'); s.sendall(o.read())
  said=b''
  while not said.endswith(b'\n') or b'site' not in said: said+=step(lambda: t.read(4096))
  print(said.decode().split('\r\n\r\n')[-1].strip(), flush=True)
  if hold=='hold': print('still open' if s.recv(1) else 'ended', flush=True)
except ConnectionResetError: print('reset', flush=True)
except TimeoutError: print('nothing happened', flush=True)
)";

struct scene : internet {
  scene()
      : internet(INSULA_NETWORK_SITES)
      , gateway(INSULA_GATEWAY) {
    gateway.add(slot, box);
    gateway.settings(std::string{"resolver "} + resolver + "\n");
  }

  void obey(bool allow_rest, std::vector<egress_rule> rules) {
    gateway.policy(slot, {.allow_rest = allow_rest, .rules = std::move(rules)});
  }
  std::vector<std::string> hello(const std::string& address, const std::string& name,
                                 const std::string& pieces, const std::string& wait,
                                 const std::string& hold = "") const {
    return box.with({"/usr/bin/python3", "-c", client, address, name, pieces, wait, hold});
  }
  std::string last_rule() { return gateway.figures(slot).last_refusals.at(0).rule; }

  wired_process box;
  driven_gateway gateway;
};

const std::string a = "203.0.113.2", b = "203.0.113.3";

} // namespace

TEST_CASE("who is denied by name gains nothing by waiting", "[gateway]") {
  scene at;
  at.obey(true, {{false, "b.example"}});
  // Before it says its name, and in the middle of it.
  for (const char* pieces : {"1", "2"}) {
    CAPTURE(pieces);
    CHECK(output_of(at.hello(b, "b.example", pieces, "0.7")) == "reset\n");
    CHECK(at.last_rule() == "deny b.example");
    CHECK(output_of(at.hello(b, "a.example", pieces, "0.7")) == "site 203.0.113.3 tls a.example\n");
  }
  SECTION("nor at the address that stands for another name") {
    at.obey(false, {{true, "a.example"}});
    for (const char* pieces : {"1", "2"}) {
      CAPTURE(pieces);
      CHECK(output_of(at.hello("a.example", "b.example", pieces, "0.7")) == "reset\n");
      CHECK(output_of(at.hello("a.example", "a.example", pieces, "0.7")) ==
            "site 203.0.113.2 tls a.example\n");
    }
  }
}

TEST_CASE("who is denied by name gains nothing by saying much before it", "[gateway]") {
  scene at;
  at.obey(true, {{false, "b.example"}});
  const auto ask =
    at.box.with({"/usr/bin/python3", "-c",
                 "import socket\ns=socket.create_connection(('203.0.113.3',80),20)\n"
                 "try:\n s.sendall(b'GET / HTTP/1.1\\r\\n'+(b'X: '+b'x'*1000+b'\\r\\n')*40+"
                 "b'Host: b.example\\r\\n\\r\\n')\n print(s.recv(4))\n"
                 "except ConnectionError: print('reset')"});
  CHECK(output_of(ask) == "reset\n");
  CHECK(at.last_rule() == "it says too much before its name");
}

TEST_CASE("a new policy looks at where a connection really goes", "[gateway]") {
  scene at;
  SECTION("an allowed name that was told to somebody else") {
    at.obey(true, {{false, "b.example"}});
    child_program held{at.hello(b, "a.example", "1", "0", "hold")};
    CHECK(held.read_line(patience) == "site 203.0.113.3 tls a.example");
    at.obey(false, {{true, "a.example"}});
    CHECK(held.read_line(patience) == "reset");
  }
  SECTION("an allowed address that was never dialled") {
    at.obey(false, {{true, "a.example"}});
    child_program held{at.hello(b, "a.example", "1", "0", "hold")};
    CHECK(held.read_line(patience) == "site 203.0.113.2 tls a.example");
    at.obey(false, {{true, b + "/32"}});
    CHECK(held.read_line(patience) == "reset");
    CHECK(at.gateway.figures(slot).last_refusals.at(0).address == a);
  }
  SECTION("a denied name that was dialled before another one was told") {
    at.obey(false, {{true, "*.example"}});
    child_program held{at.hello("b.example", "a.example", "1", "0.7", "hold")};
    CHECK(held.read_line(patience) == "site 203.0.113.3 tls a.example");
    at.obey(false, {{false, "b.example"}, {true, "*.example"}});
    CHECK(held.read_line(patience) == "reset");
    CHECK(at.last_rule() == "deny b.example");
  }
  SECTION("and leaves what may go there") {
    at.obey(false, {{true, "a.example"}});
    child_program held{at.hello("a.example", "a.example", "1", "0", "hold")};
    CHECK(held.read_line(patience) == "site 203.0.113.2 tls a.example");
    at.obey(true, {{false, "b.example"}});
    at.obey(false, {{true, a + "/32"}});
    at.obey(false, {{true, "*.example"}});
    CHECK(at.gateway.figures(slot).open_connections == 1);
    CHECK(at.gateway.figures(slot).refusals == 0);
    at.obey(false, {{false, a + "/32"}, {true, "a.example"}});
    CHECK(held.read_line(patience) == "reset");
    CHECK(at.last_rule() == "deny 203.0.113.2/32");
  }
}

TEST_CASE("a server that speaks first is heard under rules about names", "[gateway]") {
  scene at;
  at.obey(true, {{false, "b.example"}});
  const auto talk =
    at.box.with({"/usr/bin/python3", "-c",
                 "import socket\ns=socket.create_connection(('203.0.113.3',7),20)\n"
                 "print(s.recv(6)); s.sendall(b'x'); print(s.recv(1)); s.shutdown(socket.SHUT_WR)\n"
                 "print(s.recv(4))"});
  CHECK(output_of(talk) == "b'hello\\n'\nb'x'\nb'bye\\n'\n");
}

TEST_CASE("a policy of who does not hold the sandbox any more does not count", "[gateway]") {
  scene at;
  const egress_policy all{}, without_b{.allow_rest = true, .rules = {{false, "b.example"}}};
  at.gateway.policy(slot, without_b, 5);
  CHECK_THROWS_WITH(at.gateway.policy(slot, all, 4),
                    std::string{"the gateway refuses: "} + std::strerror(ESTALE));
  CHECK(output_of(at.hello(b, "b.example", "1", "0")) == "reset\n");
  at.gateway.policy(slot, all, 6);
  CHECK(output_of(at.hello(b, "b.example", "1", "0")) == "site 203.0.113.3 tls b.example\n");
}

TEST_CASE("what a sandbox sends to itself leaves no records of connections", "[gateway]") {
  scene at;
  at.obey(true, {});
  const auto ask = at.box.with(
    {"/usr/bin/python3", "-c",
     "import socket\n"
     "def records(): return int(open('/proc/sys/net/netfilter/nf_conntrack_count').read())\n"
     "def itself(family,address):\n"
     " s=socket.create_server((address,0),family=family,backlog=512)\n"
     " for i in range(100):\n"
     "  c=socket.socket(family); c.connect(s.getsockname()); p,_=s.accept()\n"
     "  c.sendall(b'x'); assert p.recv(1)==b'x'; p.sendall(b'y'); assert c.recv(1)==b'y'\n"
     "  c.close(); p.close()\n"
     " u=socket.socket(family,socket.SOCK_DGRAM); u.bind((address,0))\n"
     " for i in range(100):\n"
     "  v=socket.socket(family,socket.SOCK_DGRAM); v.connect(u.getsockname())\n"
     "  v.send(b'x'); u.sendto(b'y',u.recvfrom(1)[1]); assert v.recv(1)==b'y'\n"
     "for f,a in (2,'127.0.0.1'),(2,'127.9.9.9'),(2,'10.0.0.1'),(10,'::1'),(10,'fd00:10::1'):\n"
     " itself(f,a)\n"
     "print('itself',records())\n"
     "s=socket.create_connection(('203.0.113.3',80),20)\n"
     "s.sendall(b'GET / HTTP/1.1\\r\\nHost: b.example\\r\\n\\r\\n'); print(s.recv(4))\n"
     "print('outside',records()>0)"});
  CHECK(output_of(ask) == "itself 0\nb'HTTP'\noutside True\n");
}
