// The gateway's own program between a network that is wired like a sandbox's and an internet, with
// the test in place of the spawner and the server.
#include "runtime/gateway/rights.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/child_program.hpp"
#include "tests/support/driven_gateway.hpp"
#include "tests/support/internet.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <ifaddrs.h>
#include <iterator>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sstream>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <termios.h>

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

TEST_CASE("questions by TCP have places among the connections of all", "[gateway]") {
  internet sites{INSULA_NETWORK_SITES};
  constexpr rlim_t files = 600; // Fifty connections.
  wired_process box;
  driven_gateway gateway{INSULA_GATEWAY, files};
  gateway.add(slot, box);
  gateway.settings(std::string{"resolver "} + internet::resolver + "\n");
  gateway.policy(slot, egress_policy::allow_all());
  // Which have answered, and then say nothing; the last word is that of one that comes when they
  // have gone.
  const auto ask =
    box.with({"/usr/bin/python3", "-c",
              "import socket,struct\n"
              "q=b'\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\1a\\7example\\0\\0\\1\\0\\1'\n"
              "def ask():\n"
              " try:\n"
              "  s=socket.create_connection(('9.9.9.9',53),20)\n"
              "  s.sendall(struct.pack('>H',len(q))+q); return s if s.recv(2) else None\n"
              " except ConnectionError: return None\n"
              "all=[ask() for i in range(60)]\n"
              "print(sum(1 for s in all if s), flush=True)\n"
              "for s in all:\n"
              " if s: s.close()\n"
              "while not ask(): pass\n"
              "print('again')"});
  CHECK(output_of(ask) == "50\nagain\n");
  CHECK(gateway.figures(slot).last_refusals.at(0).rule ==
        "too many connections of all sandboxes at once");
}

// ---- Neighbours

namespace {

/// Two sandboxes beside each other: one that floods the gateway, and one that goes on.
struct neighbours : internet {
  static constexpr std::uint32_t noisy_slot = 3, calm_slot = 4;

  neighbours()
      : internet(INSULA_NETWORK_SITES)
      , far{beside_sites({INSULA_NEIGHBOURS, "serve"})}
      , gateway(INSULA_GATEWAY) {
    REQUIRE(far.read_line(patience) == "ready");
    gateway.add(noisy_slot, noisy);
    gateway.add(calm_slot, calm);
    gateway.settings(std::string{"resolver "} + resolver + " 5353\n");
    gateway.policy(calm_slot, egress_policy::allow_all());
    // Names count there, and are dialled by where they lead.
    gateway.policy(noisy_slot, {.allow_rest = true,
                                .rules = {{false, "10.0.0.0/8"}, {true, "*.silent.example"}}});
  }

  struct times {
    std::vector<double> all; ///< In microseconds, sorted.
    std::size_t failed = 0;
    double at(double part) const {
      return all[static_cast<std::size_t>(part * static_cast<double>(all.size() - 1))];
    }
  };
  times measure(const char* what, int count) const {
    times made;
    std::istringstream lines{
      output_of(calm.with({INSULA_NEIGHBOURS, what, std::to_string(count)}))};
    for (double each = 0; lines >> each;)
      if (each > 0)
        made.all.push_back(each);
      else
        ++made.failed;
    std::sort(made.all.begin(), made.all.end());
    REQUIRE(made.all.size() + made.failed == static_cast<std::size_t>(count));
    return made;
  }

  /// In the other sandbox, for at most so long.
  std::unique_ptr<child_program> flood(const char* kind, int seconds) const {
    auto made = std::make_unique<child_program>(
      noisy.with({INSULA_NEIGHBOURS, "flood", kind, std::to_string(seconds)}));
    REQUIRE(made->read_line(patience) == "0 begun");
    return made;
  }

  child_program far;
  wired_process noisy, calm;
  driven_gateway gateway;
};

double median(std::vector<double> all) {
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2),
                   all.end());
  return all[all.size() / 2];
}

} // namespace

TEST_CASE("names whose server is silent, in one sandbox, are nothing to another",
          "[gateway][neighbours]") {
  neighbours at;
  const auto flood = at.flood("names", 20);
  // Its whole share is under way, its queue is full, and it is told so.
  for (const auto until = std::chrono::steady_clock::now() + patience;
       at.gateway.figures(neighbours::noisy_slot).refusals < 1000 &&
       std::chrono::steady_clock::now() < until;)
    ::usleep(20'000);
  const auto figures = at.gateway.figures(neighbours::noisy_slot);
  CHECK(figures.refusals >= 1000);
  CHECK(std::any_of(figures.last_refusals.begin(), figures.last_refusals.end(), [](auto& each) {
    return each.rule == "too many questions to the DNS at once";
  }));
  CHECK(at.measure("resolve", 100).failed == 0);
  CHECK(at.measure("connect", 100).failed == 0);
  CHECK(at.gateway.figures(neighbours::calm_slot).refusals == 0);
}

TEST_CASE("connections that lead nowhere, in one sandbox, are nothing to another",
          "[gateway][neighbours]") {
  neighbours at;
  const auto flood = at.flood("nowhere", 20);
  for (const auto until = std::chrono::steady_clock::now() + patience;
       at.gateway.figures(neighbours::noisy_slot).refusals < 1000 &&
       std::chrono::steady_clock::now() < until;)
    ::usleep(20'000);
  CHECK(at.gateway.figures(neighbours::noisy_slot).refusals >= 1000);
  CHECK(at.measure("resolve", 100).failed == 0);
  CHECK(at.measure("connect", 100).failed == 0);
}

TEST_CASE("a neighbour is served while another sandbox floods the gateway, whose time is charged",
          "[gateway][neighbours]") {
  neighbours at;
  for (const char* kind : {"refused", "connections", "nowhere", "questions", "names"}) {
    CAPTURE(kind);
    const auto flood = at.flood(kind, 20);
    CHECK(at.measure("connect", 100).failed == 0);
    CHECK(at.measure("resolve", 100).failed == 0);
  }
  const auto used = at.gateway.figures(neighbours::noisy_slot).gateway_us,
             mine = at.gateway.figures(neighbours::calm_slot).gateway_us;
  CHECK(mine > 0);
  CHECK(used > 3 * mine);
}

/// A measurement, run by hand on a quiet machine: `runtime_gateway_test "[measure]"`. The middle of
/// several rounds stands beside a control that uses the processor as much and leaves the gateway
/// alone.
TEST_CASE("measured: a neighbour's connections and questions beside floods of the gateway",
          "[.][measure]") {
  neighbours at;
  constexpr int rounds = 5, count = 100;
  struct column {
    const char* kind; ///< Null: nothing.
    std::vector<double> middle = {}, late = {}, asked = {};
  };
  std::vector<column> columns{{nullptr},   {"burn"},      {"refused"}, {"connections"},
                              {"nowhere"}, {"questions"}, {"names"}};
  for (int round = 0; round < rounds; ++round)
    for (auto& each : columns) {
      const auto flood = each.kind != nullptr ? at.flood(each.kind, 20) : nullptr;
      const auto connected = at.measure("connect", count);
      const auto resolved = at.measure("resolve", count);
      CHECK(connected.failed + resolved.failed == 0);
      each.middle.push_back(connected.at(0.5));
      each.late.push_back(connected.at(0.99));
      each.asked.push_back(resolved.at(0.5));
    }
  std::printf("a neighbour, in us: beside, connect p50, p99, question p50\n");
  for (const auto& each : columns)
    std::printf("  %-12s %8.0f %8.0f %8.0f\n", each.kind != nullptr ? each.kind : "nothing",
                median(each.middle), median(each.late), median(each.asked));
  // What is quicker than this is not told apart: an ordinary connection, and a tick of the
  // kernel's.
  constexpr double ordinary = 200, tick = 4'000;
  const auto worst = [&](auto part, double least) {
    return std::max({median(columns[0].*part), median(columns[1].*part), least});
  };
  for (std::size_t i = 2; i < columns.size(); ++i) {
    CAPTURE(columns[i].kind);
    CHECK(median(columns[i].middle) < 3 * worst(&column::middle, ordinary));
    CHECK(median(columns[i].asked) < 3 * worst(&column::asked, ordinary));
    CHECK(median(columns[i].late) < 5 * worst(&column::late, tick));
  }
}

// ---- Rights

TEST_CASE("the gateway runs under a list of the calls that it makes", "[gateway][rights]") {
  driven_gateway gateway{INSULA_GATEWAY};
  gateway.settings("resolver 203.0.113.2\n"); // It is through its start.
  std::ifstream file{"/proc/" + std::to_string(gateway.pid()) + "/status"};
  const std::string status{std::istreambuf_iterator<char>{file}, {}};
  for (const char* each : {"Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000",
                           "CapPrm:\t0000000000000000", "Uid:\t61234\t61234\t61234\t61234"})
    CHECK(status.find(each) != std::string::npos);
}

namespace {

struct tried {
  const char* what;
  bool is_allowed;
  long (*call)();
};

/// What is forbidden fails with EPERM and nothing else; of what is allowed it counts that it does
/// not.
const tried all_tried[] = {
  {"open", false, [] { return ::syscall(SYS_openat, AT_FDCWD, "/", O_RDONLY); }},
  {"stat", false, [] { return ::syscall(SYS_statx, AT_FDCWD, "/", 0, 0, nullptr); }},
  {"unlink", false, [] { return ::syscall(SYS_unlinkat, AT_FDCWD, "x", 0); }},
  {"execve", false, [] { return ::syscall(SYS_execve, "/", nullptr, nullptr); }},
  {"clone", false, [] { return ::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }},
  {"clone3", false, [] { return ::syscall(SYS_clone3, nullptr, 0); }},
  {"unshare", false, [] { return ::syscall(SYS_unshare, CLONE_NEWUSER); }},
  {"setns", false, [] { return ::syscall(SYS_setns, 0, 0); }},
  {"mount", false, [] { return ::syscall(SYS_mount, "", "/", "tmpfs", 0, nullptr); }},
  {"chroot", false, [] { return ::syscall(SYS_chroot, "/"); }},
  {"ptrace", false, [] { return ::syscall(SYS_ptrace, 0, 0, 0, 0); }},
  {"process_vm_readv", false,
   [] { return ::syscall(SYS_process_vm_readv, ::getpid(), nullptr, 0, nullptr, 0, 0); }},
  {"pidfd_open", false, [] { return ::syscall(SYS_pidfd_open, 1, 0); }},
  {"kill", false, [] { return ::syscall(SYS_kill, 0, 0); }},
  {"prctl", false, [] { return ::syscall(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0); }},
  {"setpriority", false, [] { return ::syscall(SYS_setpriority, PRIO_PROCESS, 0, 19); }},
  {"setuid", false, [] { return ::syscall(SYS_setuid, 61234); }},
  {"bpf", false, [] { return ::syscall(SYS_bpf, 0, nullptr, 0); }},
  {"seccomp", false, [] { return ::syscall(SYS_seccomp, 2, 0, nullptr); }},
  {"perf_event_open", false, [] { return ::syscall(SYS_perf_event_open, nullptr, 0, -1, -1, 0); }},
  {"io_uring_setup", false, [] { return ::syscall(SYS_io_uring_setup, 1, nullptr); }},
  {"userfaultfd", false, [] { return ::syscall(SYS_userfaultfd, 0); }},
  {"keyctl", false, [] { return ::syscall(SYS_keyctl, 0, 0, 0, 0, 0); }},
  {"memfd_create", false, [] { return ::syscall(SYS_memfd_create, "x", 0); }},
  {"a call of tomorrow", false, [] { return ::syscall(1000); }},
  {"listen", false, [] { return ::syscall(SYS_listen, 0, 1); }},
  {"socketpair", false, [] { return ::syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, nullptr); }},
  {"a socket of the machine's own", false,
   [] { return ::syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0); }},
  {"a raw socket", false, [] { return ::syscall(SYS_socket, AF_INET, SOCK_RAW, IPPROTO_ICMP); }},
  {"a socket of another protocol", false,
   [] { return ::syscall(SYS_socket, AF_INET, SOCK_STREAM, 262); }},
  {"a socket of packets", false, [] { return ::syscall(SYS_socket, AF_PACKET, SOCK_DGRAM, 0); }},
  {"a socket of virtual machines", false,
   [] { return ::syscall(SYS_socket, AF_VSOCK, SOCK_STREAM, 0); }},
  {"netfilter", false, [] { return ::syscall(SYS_socket, AF_NETLINK, SOCK_RAW, 12); }},
  {"a terminal's input", false, [] { return ::syscall(SYS_ioctl, 0, TIOCSTI, "x"); }},
  {"a filter on a socket", false,
   [] { return ::syscall(SYS_setsockopt, 0, SOL_SOCKET, SO_ATTACH_FILTER, nullptr, 0); }},
  {"another protocol in TCP", false,
   [] { return ::syscall(SYS_setsockopt, 0, IPPROTO_TCP, TCP_ULP, "tls", 3); }},
  {"the peer's credentials", false,
   [] { return ::syscall(SYS_getsockopt, 0, SOL_SOCKET, SO_PEERCRED, nullptr, nullptr); }},
  {"another process's signals", false, [] { return ::syscall(SYS_fcntl, 0, F_SETOWN, 1); }},
  {"memory to be run", false,
   [] {
     return ::syscall(SYS_mmap, nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
   }},
  {"memory that becomes a program", false,
   [] { return ::syscall(SYS_mprotect, nullptr, 4096, PROT_EXEC); }},
  {"TCP", true, [] { return ::syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0); }},
  {"TCP over IPv6", true, [] { return ::syscall(SYS_socket, AF_INET6, SOCK_STREAM, 0); }},
  {"UDP", true, [] { return ::syscall(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); }},
  {"the machine's addresses", true,
   [] {
     ifaddrs* all = nullptr;
     return static_cast<long>(::getifaddrs(&all));
   }},
  {"a pipe that is grown", true,
   [] {
     int ends[2];
     return ::pipe2(ends, O_CLOEXEC) == 0 ? ::syscall(SYS_fcntl, ends[0], F_SETPIPE_SZ, 1 << 16)
                                          : -1;
   }},
  {"memory", true,
   [] {
     return ::syscall(SYS_mmap, nullptr, 1 << 20, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
   }},
  {"the thread's own time", true,
   [] {
     timespec now{};
     return ::syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &now);
   }},
  {"random numbers", true,
   [] {
     char bytes[4];
     return ::syscall(SYS_getrandom, bytes, sizeof bytes, 0);
   }},
};

} // namespace

TEST_CASE("what the gateway has no use for is refused to it", "[gateway][rights]") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::array<int, std::size(all_tried)> errors{};
    const bool given_up = runtime::gateway::give_up_rights(61234);
    for (std::size_t i = 0; given_up && i < errors.size(); ++i) {
      errno = 0;
      errors[i] = all_tried[i].call() < 0 ? errno : 0;
    }
    const auto written = given_up ? ::write(ends[1], errors.data(), sizeof errors) : -1;
    ::syscall(SYS_exit_group, written > 0 ? 0 : 1);
  }
  ::close(ends[1]);
  std::array<int, std::size(all_tried)> errors{};
  const auto n = ::read(ends[0], errors.data(), sizeof errors);
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  REQUIRE(n == static_cast<ssize_t>(sizeof errors));
  for (std::size_t i = 0; i < errors.size(); ++i) {
    CAPTURE(all_tried[i].what);
    CHECK(errors[i] == (all_tried[i].is_allowed ? 0 : EPERM));
  }
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

// ---- The program of a mount

namespace {

constexpr auto program_slot = runtime::gateway::slot_of_mount(3);

/// In a network that is wired for such a program.
struct mount_scene : internet {
  mount_scene()
      : internet(INSULA_NETWORK_SITES)
      , gateway(INSULA_GATEWAY) {
    gateway.settings(std::string{"resolver "} + resolver + "\n");
  }

  /// It may reach these, at this port.
  void serve(std::vector<std::string> targets, std::uint16_t port) {
    auto reach = egress_policy::deny_all();
    for (auto& each : targets)
      reach.rules.push_back({true, std::move(each)});
    reach.rules.push_back({false, "*"});
    gateway.add(program_slot, program, "port " + std::to_string(port) + "\n" + to_text(reach));
  }
  std::string curl(const std::string& words) const {
    return output_of(program.with(
      {"/bin/sh", "-c", "curl -gsSk -m 20 " + words + " 2>/dev/null || echo failed $?"}));
  }
  std::string last_rule() { return gateway.figures(program_slot).last_refusals.at(0).rule; }

  wired_process program{runtime::spawner::wired_for::mount};
  driven_gateway gateway;
};

/// Says "inside" to whoever asks by HTTP at this port of this network's loopback.
constexpr const char* inside = R"(
import http.server,sys
class Inside(http.server.BaseHTTPRequestHandler):
  def do_GET(self):
    self.send_response(200); self.end_headers(); self.wfile.write(b'inside\n')
  def log_message(self, *_): pass
s=http.server.HTTPServer(('127.0.0.1',0),Inside); print(s.server_port,flush=True); s.serve_forever()
)";

} // namespace

TEST_CASE("the program of a mount reaches its endpoint, at its port, and nothing else",
          "[gateway]") {
  mount_scene at;
  at.serve({"a.example", "data.a.example"}, 80);
  CHECK(at.curl("http://a.example/") == "site 203.0.113.2 host a.example\n");
  SECTION("no other name, and no address") {
    CHECK(at.curl("http://b.example/").starts_with("failed 6"));
    CHECK(at.last_rule() == "deny *");
    CHECK(at.curl("http://203.0.113.3/").starts_with("failed"));
    CHECK(at.curl("-H 'Host: b.example' http://203.0.113.2/").starts_with("failed"));
    CHECK(at.curl("http://127.0.0.1/").starts_with("failed"));
  }
  SECTION("no other port") {
    CHECK(at.curl("https://a.example/").starts_with("failed"));
    CHECK(at.last_rule() == "a port that is not the endpoint's");
    CHECK(at.curl("http://a.example:7/").starts_with("failed"));
  }
  SECTION("not where it is redirected to") {
    CHECK(at.curl("-L http://a.example/away").starts_with("failed 6"));
  }
  SECTION("and no server changes that") {
    CHECK_THROWS_WITH(at.gateway.policy(program_slot, egress_policy::allow_all(), 7),
                      std::string{"the gateway refuses: "} + std::strerror(ESTALE));
    CHECK(at.curl("http://203.0.113.3/").starts_with("failed"));
  }
}

TEST_CASE("the program of a mount reaches the machine's loopback only if that is opened",
          "[gateway]") {
  mount_scene at;
  child_program server{{"/usr/bin/python3", "-c", inside}};
  const auto port = server.read_line(patience).value();
  const auto number = static_cast<std::uint16_t>(std::stoi(port));
  const auto by_address = "http://127.0.0.1:" + port + "/";
  const auto by_name = "http://rebound.example:" + port + "/";
  at.serve({"127.0.0.1/32", "rebound.example"}, number);
  for (const auto& each : {by_address, by_name}) {
    CAPTURE(each);
    CHECK(at.curl(each).starts_with("failed"));
    CHECK(at.last_rule() != "deny *");
  }
  at.gateway.settings(std::string{"resolver "} + internet::resolver + "\nallow 127.0.0.1/32\n");
  for (const auto& each : {by_address, by_name}) {
    CAPTURE(each);
    CHECK(at.curl(each) == "inside\n");
  }
}

TEST_CASE("the program of a mount has its sandbox's share of the gateway", "[gateway]") {
  mount_scene at;
  wired_process box;
  at.gateway.add(slot, box);
  const std::string reach = "port 80\ndefault deny\nallow a.example\n";
  at.gateway.add(program_slot, at.program, reach, slot);
  CHECK(at.gateway.figures(slot).gateway_us == 0);
  CHECK(at.curl("http://a.example/") == "site 203.0.113.2 host a.example\n");
  CHECK(at.gateway.figures(slot).gateway_us > 0);
  CHECK(at.gateway.figures(slot).connections == 0);
  CHECK(at.gateway.figures(program_slot).connections == 1);
  // One that is not there pays nothing.
  at.gateway.add(program_slot, at.program, reach, slot + 1);
  CHECK(at.curl("http://a.example/") == "site 203.0.113.2 host a.example\n");
  const auto paid = at.gateway.figures(slot).gateway_us;
  CHECK(at.curl("http://a.example/") == "site 203.0.113.2 host a.example\n");
  CHECK(at.gateway.figures(slot).gateway_us == paid);
}

TEST_CASE("the program of a mount reaches what only the node's hosts file knows", "[gateway]") {
  mount_scene at;
  const std::string policy = "default deny\nallow store.lan\nallow inside.lan\n";
  at.gateway.add(program_slot, at.program, "port 80\n" + policy);
  CHECK(at.curl("http://store.lan/").starts_with("failed"));
  const std::string hosts = "host store.lan 203.0.113.2\nhost inside.lan 127.0.0.1\n";
  at.gateway.add(program_slot, at.program, "port 80\n" + hosts + policy);
  CHECK(at.curl("http://store.lan/") == "site 203.0.113.2 host store.lan\n");
  // The addresses are judged as any others.
  CHECK(at.curl("http://inside.lan/").starts_with("failed"));
  CHECK(at.last_rule() != "deny *");
  CHECK(at.gateway.figures(program_slot).last_refusals.at(0).address == "127.0.0.1");
}

TEST_CASE("what is no policy of a mount's program allows nothing", "[gateway]") {
  mount_scene at;
  const auto everything = to_text(egress_policy::allow_all());
  for (const auto& reach :
       std::vector<std::string>{"port 80\n", "port 80\nnonsense\n", "port\n" + everything,
                                "port 0\n" + everything, everything, "\n"}) {
    CAPTURE(reach);
    at.gateway.add(program_slot, at.program, reach);
    CHECK(at.curl("http://203.0.113.2/").starts_with("failed"));
  }
}
