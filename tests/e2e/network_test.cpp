// What sandboxes may reach, on an internet of the test's own.
#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/internet.hpp"
#include "tests/support/metrics_text.hpp"

#include <arpa/inet.h>
#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <sched.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace insula::test;

namespace {

/// A node in the middle of the internet. The network comes first and goes last.
struct online_node : internet, node {
  explicit online_node(const std::string& more = {})
      : internet(INSULA_NETWORK_SITES)
      , node("network: {resolvers: [203.0.113.2]}\n" + more) {}

  http_answer set(const std::string& id, const std::string& policy) const {
    auto answer = ask("PUT", "/v1/sandbox/" + id + "/network", policy);
    INFO(answer.body);
    CHECK(answer.status == 200);
    return answer;
  }
  std::string network(const std::string& id) const {
    return ask("GET", "/v1/sandbox/" + id + "/network").body;
  }
  /// What curl prints, or "failed" with its number.
  std::string curl(const std::string& id, const std::string& words) const {
    const auto done = sh(id, "curl -sSk -m 10 " + words + " 2>&1");
    return done.exit_code == 0
             ? done.out
             : "failed " + std::to_string(done.exit_code.value_or(-1)) + ": " + done.out;
  }
  std::string python(const std::string& id, const std::string& script) const {
    const auto done = exec(id, {"/usr/bin/python3", "-c", script});
    return done.out + done.err;
  }
  bool refused(const std::string& id, const std::string& what) const {
    const auto said = network(id);
    INFO(said);
    return said.find(what) != std::string::npos;
  }
};

const std::string allow_all = R"({"mode":"allow-all"})";
const std::string deny_all = R"({"mode":"deny-all"})";
const std::string only_a =
  R"({"default":"deny","rules":[{"action":"allow","target":"a.example"},{"action":"allow","target":"*.a.example"}]})";

/// Connects and says whether that worked: "open" or the error's name.
std::string connecting(const std::string& address, int port) {
  return "import socket,errno\n"
         "s=socket.socket(socket.AF_INET6 if ':' in '" +
         address +
         "' else socket.AF_INET)\ns.settimeout(5)\n"
         "try:\n s.connect(('" +
         address + "'," + std::to_string(port) +
         "))\n s.sendall(b'?'); print('open' if s.recv(1) else 'closed')\n"
         "except OSError as e: print(errno.errorcode.get(e.errno, str(e)))\n";
}

/// A ClientHello for `name`, sent as `pieces`, and what the site says then.
std::string hello(const std::string& address, const std::string& name, int pieces) {
  return "import socket,ssl,time\n"
         "c=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); c.check_hostname=False; "
         "c.verify_mode=ssl.CERT_NONE\n"
         "c.set_alpn_protocols(['http/1.1']+['p%03d'%i+'x'*20 for i in range(70)])\n"
         "i,o=ssl.MemoryBIO(),ssl.MemoryBIO()\n"
         "t=c.wrap_bio(i,o,server_hostname=" +
         (name.empty() ? "None" : "'" + name + "'") +
         ")\n"
         "s=socket.create_connection(('" +
         address +
         "',443),5); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)\n"
         "def step(f):\n"
         " while True:\n"
         "  try: return f()\n"
         "  except ssl.SSLWantReadError: pass\n"
         "  d=o.read(); n=" +
         std::to_string(pieces) +
         "\n"
         "  for k in range(n):\n"
         "   p=d[len(d)*k//n:len(d)*(k+1)//n]\n"
         "   if p: s.sendall(p); time.sleep(0.02 if n>1 else 0)\n"
         "  r=s.recv(65536)\n"
         "  i.write(r) if r else i.write_eof()\n"
         "try:\n"
         " step(t.do_handshake)\n"
         " t.write(b'GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n'); "
         "s.sendall(o.read())\n"
         " print(step(lambda: t.read(4096)).decode().split('\\r\\n\\r\\n')[-1] or "
         "step(lambda: t.read(4096)).decode())\n"
         "except OSError as e: print('failed', type(e).__name__)\n";
}

} // namespace

TEST_CASE("a sandbox reaches the internet, and neither this machine nor what only it can reach",
          "[network]") {
  const online_node it;
  const std::string id = "a";
  CHECK(it.curl(id, "http://203.0.113.3/") == "site 203.0.113.3 host 203.0.113.3\n");
  CHECK(it.curl(id, "http://a.example/") == "site 203.0.113.2 host a.example\n");
  CHECK(it.curl(id, "https://b.example/") == "site 203.0.113.3 tls b.example\n");
  CHECK(it.curl(id, "http://six.example/") == "site 2001:db8::2 host six.example\n");
  CHECK(it.curl(id, "'http://[2001:db8::2]/'") == "site 2001:db8::2 host [2001:db8::2]\n");
  CHECK(it.curl(id, "http://nowhere.example/").starts_with("failed 6:"));
  // Real addresses are told, as nothing depends on the name.
  CHECK(it.python(id, "import socket; print(socket.gethostbyname('a.example'))") ==
        "203.0.113.2\n");

  SECTION("the node itself, and what is private, by address and by name") {
    const auto port = std::to_string(it.port());
    for (const char* where :
         {"203.0.113.1", "10.1.2.3", "192.168.1.1", "169.254.169.254", "100.64.1.1",
          "[2001:db8::1]", "[fe80::1]", "[fd00:ec2::254]", "[::ffff:10.1.2.3]",
          "[64:ff9b::a01:203]", "[2002:a01:203::1]", "inner.example", "metadata.example"}) {
      CAPTURE(where);
      CHECK(it.curl(id, "'http://" + std::string{where} + ":" + port + "/'").starts_with("failed"));
    }
    CHECK(it.refused(id, R"("address":"203.0.113.1","port":)" + port +
                           R"(,"rule":"address of the node")"));
    CHECK(it.refused(id, R"("rule":"link-local or metadata address")"));
    // A name that leads to this machine leads into the sandbox itself.
    CHECK(it.curl(id, "http://rebound.example:" + port + "/").starts_with("failed 7:"));
    // The gateway itself is no destination.
    CHECK(it.python(id, connecting("127.0.0.1", 1)) == "ECONNRESET\n");
  }
  SECTION("UDP and ICMP are refused at once") {
    CHECK(it.python(id, "import socket\ns=socket.socket(type=socket.SOCK_DGRAM)\n"
                        "try: s.sendto(b'x',('203.0.113.2',443)); print('sent')\n"
                        "except PermissionError: print('refused')") == "refused\n");
    CHECK(it.python(id,
                    "import errno,socket\ntry:\n"
                    " s=socket.socket(type=socket.SOCK_DGRAM,proto=socket.IPPROTO_ICMP)\n"
                    " s.sendto(b'\\x08\\0\\0\\0\\0\\0\\0\\0',('203.0.113.2',0)); print('sent')\n"
                    "except OSError as e: print(errno.errorcode[e.errno])") == "EPROTONOSUPPORT\n");
  }
  SECTION("the DNS answers by TCP as well, and drops records that hide names") {
    const std::string ask =
      "import socket,struct\n"
      "def q(kind): return b'\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\1a\\7example\\0'+"
      "struct.pack('>HH',kind,1)\n"
      "s=socket.create_connection(('9.9.9.9',53),5)\n"
      "def tcp(kind):\n m=q(kind); s.sendall(struct.pack('>H',len(m))+m)\n"
      " n=struct.unpack('>H',s.recv(2,socket.MSG_WAITALL))[0]; return "
      "s.recv(n,socket.MSG_WAITALL)\n"
      "for kind in (1,16,65,255):\n r=tcp(kind); print(kind, r[3]&15, r[7])\n";
    CHECK(it.python(id, ask) == "1 0 1\n16 0 1\n65 0 0\n255 5 0\n");
  }
  SECTION("large bodies go both ways, and are counted") {
    CHECK(it.curl(id, "-o /dev/null -w '%{size_download}' http://a.example/big/50000000") ==
          "50000000");
    CHECK(it.sh(id, "head -c 20000000 /dev/zero > up").exit_code == 0);
    CHECK(it.curl(id, "-T up http://a.example/") == "site 203.0.113.2 host a.example\n");
    const auto said = it.network(id);
    const auto figure = [&](const std::string& name) {
      return std::stoull(said.substr(said.find("\"" + name + "\":") + name.size() + 3));
    };
    CHECK(figure("bytes_in") > 50'000'000);
    CHECK(figure("bytes_out") > 20'000'000);
    CHECK(figure("connections") >= 5);
  }
}

TEST_CASE("deny-all denies everything, names included, and is lifted while it runs", "[network]") {
  const online_node it{};
  const std::string id = "b";
  it.set(id, deny_all); // There is no sandbox yet: it holds before the first command.
  CHECK(it.network(id).find(R"("running":false,"figures":null)") != std::string::npos);
  CHECK(it.curl(id, "http://a.example/").starts_with("failed 6:"));
  CHECK(it.python(id, connecting("203.0.113.2", 80)) == "ECONNREFUSED\n");
  CHECK(it.refused(id, R"("protocol":"dns","name":"a.example")"));
  CHECK(it.refused(id, R"("address":"203.0.113.2","port":80,"rule":"default")"));
  it.set(id, allow_all);
  CHECK(it.curl(id, "http://a.example/") == "site 203.0.113.2 host a.example\n");
}

TEST_CASE("a list of domains: whoever is allowed is reached, whatever address is chosen",
          "[network]") {
  const online_node it;
  const std::string id = "c";
  it.set(id, only_a);
  CHECK(it.curl(id, "http://a.example/") == "site 203.0.113.2 host a.example\n");
  CHECK(it.curl(id, "https://a.example/") == "site 203.0.113.2 tls a.example\n");
  CHECK(it.curl(id, "https://deep.sub.a.example/") == "site 203.0.113.2 tls deep.sub.a.example\n");
  CHECK(it.curl(id, "http://b.example/").starts_with("failed 6:"));
  // Any other port maps back to the name by its own address.
  CHECK(it.python(id, "import socket\nprint(socket.gethostbyname('a.example')[:7])\n"
                      "s=socket.create_connection(('a.example',7),5)\n"
                      "print(s.recv(6)); s.sendall(b'x'); print(s.recv(1)); "
                      "s.shutdown(socket.SHUT_WR); print(s.recv(4))") ==
        "198.18.\nb'hello\\n'\nb'x'\nb'bye\\n'\n");

  SECTION("by its name in TLS") {
    for (const int pieces : {1, 3, 40}) {
      CAPTURE(pieces);
      CHECK(it.python(id, hello("203.0.113.3", "a.example", pieces)) ==
            "site 203.0.113.2 tls a.example\n\n");
      CHECK(it.python(id, hello("a.example", "b.example", pieces)).starts_with("failed"));
      CHECK(it.python(id, hello("203.0.113.2", "b.example", pieces)).starts_with("failed"));
    }
    CHECK(it.python(id, hello("203.0.113.2", "", 1)).starts_with("failed"));
    CHECK(
      it.refused(id, R"("name":"b.example","address":"203.0.113.2","port":443,"rule":"default")"));
  }
  SECTION("by the Host of plain HTTP") {
    CHECK(it.curl(id, "-H 'Host: a.example' http://203.0.113.3/") ==
          "site 203.0.113.2 host a.example\n");
    CHECK(it.curl(id, "-H 'Host: b.example' http://203.0.113.2/").starts_with("failed"));
    CHECK(it.curl(id, "http://203.0.113.2/").starts_with("failed"));
    CHECK(it.curl(id, "-L http://a.example/away").starts_with("failed 6:")); // To b.example.
  }
  SECTION("what a name leads to is looked at") {
    it.set(id, R"({"allow":["*.example"],"subnets":{"deny":["203.0.113.3"]}})");
    CHECK(it.curl(id, "https://a.example/") == "site 203.0.113.2 tls a.example\n");
    CHECK(it.curl(id, "https://b.example/").starts_with("failed"));
    CHECK(it.refused(id, R"("rule":"deny 203.0.113.3/32")"));
    for (const char* name : {"rebound", "inner", "metadata"})
      CHECK(it.curl(id, "https://" + std::string{name} + ".example/").starts_with("failed"));
    CHECK(it.refused(id, R"("rule":"loopback address")"));
    // With names on a list, what tells none is not let through: plain HTTP has none in this form.
    CHECK(it.curl(id, "http://203.0.113.2/").starts_with("failed"));
  }
  SECTION("subnets: denied ones, then allowed ones, then domains") {
    it.set(
      id,
      R"({"allow":["a.example"],"subnets":{"allow":["203.0.113.0/24"],"deny":["203.0.113.2"]}})");
    CHECK(it.python(id, connecting("203.0.113.3", 7)) == "open\n");
    CHECK(it.python(id, connecting("203.0.113.2", 7)) == "ECONNREFUSED\n");
    CHECK(it.curl(id, "https://a.example/").starts_with("failed"));
    // The DNS is not limited then.
    CHECK(it.curl(id, "http://b.example/") == "site 203.0.113.3 host b.example\n");
  }
}

TEST_CASE("where nothing is, a connection fails as on any machine, and that is told", "[network]") {
  const online_node it;
  const std::string id = "o";
  REQUIRE(it.sh(id, "true").exit_code == 0);
  const auto bash = it.sh(id, "exec 3<>/dev/tcp/203.0.113.2/81");
  CHECK(bash.err.find("Connection refused") != std::string::npos);
  CHECK(it.curl(id, "http://a.example:81/").starts_with("failed 7:"));
  CHECK(it.python(id, connecting("10.1.2.3", 80)) == "ECONNREFUSED\n"); // No policy opens it.
  CHECK(it.refused(id, R"("name":"","address":"203.0.113.2","port":81,"reason":"refused")"));
  SECTION("under a list of names as well") {
    it.set(id, only_a);
    CHECK(it.sh(id, "exec 3<>/dev/tcp/a.example/81").err.find("Connection refused") !=
          std::string::npos);
    CHECK(
      it.refused(id, R"("name":"a.example","address":"203.0.113.2","port":81,"reason":"refused")"));
  }
  SECTION("npm does not ask again and again") {
    const auto done = it.sh(id, "npm view --registry=http://a.example:81/ --fetch-retries=0 tiny");
    CHECK(done.err.find("ECONNREFUSED") != std::string::npos);
  }
  SECTION("Prometheus hears of it") {
    const metrics_page page{it.ask("GET", "/metrics").body};
    CHECK(page.value("insula_egress_failures_total", {{"reason", "refused"}}) >= 2);
    CHECK(page.has("insula_egress_failures_total", {{"reason", "timed_out"}}));
    CHECK(page.value("insula_egress_refusals_total") >= 1);
    const auto gateway = it.gateway();
    REQUIRE(::kill(gateway, SIGSTOP) == 0); // It has no time for answers.
    std::vector<std::thread> many;
    std::atomic<int> known = 0;
    for (int i = 0; i < 20; ++i)
      many.emplace_back([&] {
        const metrics_page again{it.ask("GET", "/metrics").body};
        known += again.value("insula_egress_refusals_total") >= 1;
      });
    for (auto& each : many)
      each.join();
    CHECK(known == 20);
    REQUIRE(::kill(gateway, SIGCONT) == 0);
  }
}

TEST_CASE("a package is installed from the one registry that is allowed", "[network]") {
  const online_node it;
  const std::string id = "n";
  it.set(id, only_a);
  const auto done = it.sh(id, "npm install --registry=http://a.example/ --no-audit --no-fund "
                              "--fetch-retries=0 tiny 2>&1 && node -p 'require(\"tiny\")'");
  CAPTURE(done.out);
  CHECK(done.exit_code == 0);
  CHECK(done.out.ends_with("it works\n"));
  it.set(id, deny_all);
  CHECK(it.sh(id, "npm install --registry=http://a.example/ --fetch-retries=0 other").exit_code !=
        0);
}

TEST_CASE("what is denied by name passes no more, and the rest does", "[network]") {
  const online_node it;
  const std::string id = "d";
  it.set(id, R"({"default":"allow","rules":[{"action":"deny","target":"b.example"}]})");
  CHECK(it.curl(id, "http://a.example/") == "site 203.0.113.2 host a.example\n");
  CHECK(it.curl(id, "https://b.example/").starts_with("failed 6:"));
  CHECK(it.python(id, hello("203.0.113.3", "b.example", 2)).starts_with("failed"));
  // A server that speaks first is not waited for long.
  CHECK(
    it.python(id, "import socket\nprint(socket.create_connection(('203.0.113.3',7),5).recv(6))") ==
    "b'hello\\n'\n");
  SECTION("a dry run refuses nothing and says what it would") {
    it.set(id, R"({"mode":"deny-all","dry_run":true})");
    CHECK(it.curl(id, "http://b.example/") == "site 203.0.113.3 host b.example\n");
    CHECK(it.refused(
      id, R"("name":"b.example","address":"","port":53,"rule":"default","let_through":true)"));
    CHECK(
      it.refused(id, R"("address":"203.0.113.3","port":80,"rule":"default","let_through":true)"));
    CHECK(it.curl(id, "http://10.1.2.3/").starts_with("failed"));
  }
}

TEST_CASE("a new policy cuts what it forbids, and nothing else", "[network]") {
  const online_node it;
  const std::string id = "e";
  auto open = it.open(id, {"/usr/bin/python3", "-uc",
                           "import socket,sys\n"
                           "a=socket.create_connection(('203.0.113.2',7)); a.recv(6)\n"
                           "b=socket.create_connection(('203.0.113.3',7)); b.recv(6)\n"
                           "sys.stdout.write('open\\n')\n"
                           "try: print('b', b.recv(1))\n"
                           "except ConnectionResetError: print('b cut')\n"
                           "a.sendall(b'!'); print('a', a.recv(1))\n"});
  CHECK(open.next()->data == "open\n");
  it.set(id, R"({"default":"deny","rules":[{"action":"allow","target":"203.0.113.2"}]})");
  const auto rest = open.rest();
  CHECK(rest.out == "b cut\na b'!'\n");
  CHECK(rest.exit_code == 0);
}

TEST_CASE("policies and open connections outlive the server", "[network]") {
  online_node it;
  const std::string id = "f", session = "Session-Id: s\r\n";
  it.set(id, R"({"default":"deny","rules":[{"action":"allow","target":"203.0.113.2"}]})");
  CHECK(it.sh(id, "exec 3<>/dev/tcp/203.0.113.2/7 && read -u 3 line && echo $line", "").out ==
        "hello\n");
  exec_stream{it.port(), id, exec_body({"bash", "-c", "true"}), session}.rest();
  REQUIRE(exec_stream{it.port(), id,
                      exec_body({"eval", "exec 3<>/dev/tcp/203.0.113.2/7; read -u 3 line"}),
                      session}
            .rest()
            .exit_code == 0);
  const auto gateway = it.gateway();
  REQUIRE(gateway > 0);
  SECTION("that is killed") {
    it.crash_server();
    it.start();
  }
  SECTION("that ends well") {
    it.stop(SIGTERM);
    it.start();
  }
  CHECK(it.gateway() == gateway);
  CHECK(exec_stream{it.port(), id,
                    exec_body({"eval", "echo still >&3; read -u 3 line; echo $line"}), session}
          .rest()
          .out == "still\n");
  CHECK(it.python(id, connecting("203.0.113.3", 7)) == "ECONNREFUSED\n");
  CHECK(it.python(id, connecting("203.0.113.2", 7)) == "open\n");
}

TEST_CASE("a gateway that is killed is started again, with every policy", "[network]") {
  const online_node it{"pool: {target: 1}"};
  it.set("g", only_a);
  CHECK(it.curl("g", "https://a.example/") == "site 203.0.113.2 tls a.example\n");
  CHECK(it.curl("h", "https://b.example/") == "site 203.0.113.3 tls b.example\n");
  for (int i = 0; i < 2; ++i) {
    const auto before = it.gateway();
    ::kill(before, SIGKILL);
    CHECK(eventually([&] { return it.gateway() > 0 && it.gateway() != before; }));
    CHECK(eventually(
      [&] { return it.curl("g", "https://a.example/") == "site 203.0.113.2 tls a.example\n"; }));
    CHECK(it.curl("g", "https://b.example/").starts_with("failed"));
    CHECK(eventually(
      [&] { return it.curl("h", "https://b.example/") == "site 203.0.113.3 tls b.example\n"; }));
  }
  CHECK(it.curl("new", "https://b.example/") == "site 203.0.113.3 tls b.example\n");
}

TEST_CASE("five hundred connections at once, beside peers that take nothing", "[network]") {
  const online_node it;
  REQUIRE(it.sh("i", "true").exit_code == 0);
  const auto gateway = it.gateway();
  const auto at_rest = open_files(gateway);
  CHECK(it.python("i", R"(
import resource,socket,threading
resource.setrlimit(resource.RLIMIT_NOFILE,(4096,4096))
stalled=[socket.create_connection(('203.0.113.2',9),10) for _ in range(20)]
for s in stalled:
  s.setblocking(False)
  try:
    while True: s.send(b'x'*65536)
  except BlockingIOError: pass
all=[]; wrong=[]
def one(i):
  try:
    s=socket.create_connection(('203.0.113.2',7),30); s.recv(6)
    all.append(s); s.sendall(b'%4d'%i)
    if s.recv(4,socket.MSG_WAITALL)!=b'%4d'%i: wrong.append(i)
  except OSError as e: wrong.append(e)
threads=[threading.Thread(target=one,args=(i,)) for i in range(500)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(all),wrong)
)") == "500 []\n");
  CHECK(it.curl("j", "http://a.example/") == "site 203.0.113.2 host a.example\n");
  // Those that ended are gone; what was sent to the stalled peers waits for them.
  CHECK(eventually([&] { return open_files(gateway) < at_rest + 150; }));
}

TEST_CASE("a million refused connections leave the gateway as it was", "[network][slow]") {
  const online_node it;
  it.set("k", deny_all);
  REQUIRE(it.sh("k", "true").exit_code == 0);
  const auto gateway = it.gateway();
  // From the sandbox's network, and fast: a thread goes there.
  pid_t inside = -1;
  for (const auto pid : it.processes()) {
    std::ifstream words{"/proc/" + std::to_string(pid) + "/cmdline"};
    std::string name;
    if (std::getline(words, name, '\0') && name.starts_with("insula-agent"))
      inside = pid;
  }
  REQUIRE(inside > 0);
  std::uint64_t settled = 0;
  std::size_t odd = 0;
  const auto attack = [&](int times) {
    std::thread{[&] {
      const int there = ::open(("/proc/" + std::to_string(inside) + "/ns/net").c_str(), O_RDONLY);
      if (::setns(there, CLONE_NEWNET) != 0)
        odd = 1'000'000'000;
      ::close(there);
      sockaddr_in where{};
      where.sin_family = AF_INET;
      where.sin_port = htons(80);
      for (int i = 0; i < times; ++i) {
        where.sin_addr.s_addr = htonl(0xcb007102u); // 203.0.113.2
        const int made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        char byte = 0;
        if (::connect(made, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0 &&
            ::recv(made, &byte, 1, 0) >= 0)
          ++odd;
        ::close(made);
      }
    }}.join();
  };
  attack(20'000);
  settled = resident_bytes(gateway);
  const auto files = open_files(gateway);
  attack(1'000'000);
  CHECK(odd == 0);
  CHECK(resident_bytes(gateway) < settled + (4u << 20));
  CHECK(eventually([&] { return open_files(gateway) <= files; }));
  CHECK(it.network("k").find(R"("refusals":1020)") != std::string::npos);
  it.set("k", allow_all);
  CHECK(it.curl("k", "http://203.0.113.2/") == "site 203.0.113.2 host 203.0.113.2\n");
}

TEST_CASE("ports that something listens at are told with the process", "[network]") {
  const node it;
  CHECK(it.ask("GET", "/v1/sandbox/l/ports").status == 502); // It does not run.
  REQUIRE(it.sh("l", "python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 &\n"
                     "python3 -c 'import socket,time; s=socket.socket(socket.AF_INET6); "
                     "s.bind((\"::\",9123)); s.listen(); time.sleep(1000)' >/dev/null 2>&1 &")
            .exit_code == 0);
  std::string said;
  CHECK(eventually([&] {
    said = it.ask("GET", "/v1/sandbox/l/ports").body;
    return said.find(R"("port":8123,"address":"127.0.0.1","pid":)") != std::string::npos &&
           said.find(R"("port":9123,"address":"::","pid":)") != std::string::npos;
  }));
  INFO(said);
  for (const char* port : {"8123", "9123"}) // On the sandbox's own loopback.
    CHECK(it.ask("GET", "/v1/sandbox/l/port/" + std::string{port} + "/ready").status == 200);
  CHECK(it.ask("GET", "/v1/sandbox/l/port/8124/ready?timeout_ms=100").status == 504);
  CHECK(said.starts_with(R"({"ports":[{"port":8123,)")); // The gateway's own are not among them.
  CHECK(said.find(R"("process":"python3)") != std::string::npos);
}
