#include "benchmarks/host_command.hpp"
#include "benchmarks/scenario.hpp"
#include "runtime/spawner/wire_network.hpp"

#include <boost/beast/core/detail/base64.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <linux/sched.h>
#include <sched.h>
#include <sstream>
#include <stdexcept>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace insula::bench {

namespace {

using namespace std::chrono_literals;

/// An address that looks public: what the other end of the measured networks has.
constexpr const char* far_end = "203.0.113.2";
constexpr const char* port = "9000";

/// The node's own network for as long as a measurement lasts, with a cable to another one behind
/// it, and a third one beside it that is routed there: how sandboxes are wired elsewhere. All of
/// them are of this thread and end with it.
constexpr const char* lay_cables = R"(set -e
ip link set lo up
ip link add far type veth peer name eth0 netns $FAR
ip addr add 203.0.113.1/24 dev far; ip link set far up
nsenter --net=/proc/$FAR/ns/net sh -ec 'ip link set lo up; ip addr add 203.0.113.2/24 dev eth0
  ip link set eth0 up; ip route add default via 203.0.113.1'
ip link add routed type veth peer name eth0 netns $ROUTED
ip addr add 10.99.0.1/24 dev routed; ip link set routed up
nsenter --net=/proc/$ROUTED/ns/net sh -ec 'ip link set lo up; ip addr add 10.99.0.2/24 dev eth0
  ip link set eth0 up; ip route add default via 10.99.0.1'
echo 1 >/proc/sys/net/ipv4/ip_forward
nft -f - <<'RULES'
table ip sandboxes {
  set denied { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 169.254.0.0/16, 192.168.0.0/16 } }
  chain one { ip daddr @denied reject; accept; }
  chain forward { type filter hook forward priority 0; policy drop;
    ct state established,related accept
    iifname vmap { "routed" : jump one }
  }
  chain leave { type nat hook postrouting priority 100; oifname "far" masquerade; }
}
RULES
)";

/// A process that does nothing but have a network of its own.
class network_holder {
public:
  network_holder() {
    int ready[2];
    if (::pipe(ready) != 0 || (pid_ = ::fork()) < 0)
      throw std::runtime_error("making a network");
    if (pid_ == 0) {
      ::close(ready[0]);
      const bool made = ::unshare(CLONE_NEWNET) == 0;
      if (made && ::write(ready[1], "r", 1) == 1)
        for (;;)
          ::pause();
      ::_exit(1);
    }
    ::close(ready[1]);
    char byte = 0;
    const bool made = ::read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
    if (!made)
      throw std::runtime_error("making a network");
  }
  ~network_holder() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  network_holder(const network_holder&) = delete;
  network_holder& operator=(const network_holder&) = delete;
  pid_t pid() const { return pid_; }

private:
  pid_t pid_ = -1;
};

std::vector<std::string> inside(const network_holder& where, std::vector<std::string> argv) {
  argv.insert(argv.begin(),
              {"/usr/bin/nsenter", "--net=/proc/" + std::to_string(where.pid()) + "/ns/net"});
  return argv;
}

std::vector<double> numbers(const std::string& text) {
  std::istringstream words{text};
  return {std::istream_iterator<double>{words}, {}};
}

/// A sandbox's way out through the gateway, beside a network that is routed by the kernel.
class network : public scenario {
public:
  std::string name() const override { return "a sandbox's network"; }
  std::string about() const override {
    return "wiring of a network namespace; connecting and throughput through the egress gateway, "
           "beside veth + nft";
  }

  void measure(bench& with) override {
    for (const char* each : {"ip", "nft", "nsenter"})
      if (find_program(each).empty())
        throw std::runtime_error(std::string{each} +
                                 " is not installed (Debian: iproute2, nftables)");
    for (auto* each : {&wiring_, &connect_, &connect_routed_, &rate_, &rate_routed_})
      each->next_round();
    std::exception_ptr thrown;
    std::thread{[&] { // Its network goes with it.
      try {
        if (::unshare(CLONE_NEWNET) != 0)
          throw std::runtime_error("unshare");
        measure_wiring(with.repeat(400, 40));
        measure_ways(with);
      } catch (...) {
        thrown = std::current_exception();
      }
    }}
      .join();
    if (thrown)
      std::rethrow_exception(thrown);
  }

  void tell(const bench&, report& all) const override {
    auto wiring = make_row("wiring of one namespace", "ms", wiring_);
    wiring.wanted = {0.5, {}, {}};
    auto connect = make_row("connect and first byte", "ms", connect_);
    const auto connect_routed = make_row("the same over veth + nft", "ms", connect_routed_);
    connect.wanted = {0.8, {}, {}};
    connect.floors = {{"veth + nft", connect_routed.measured.p50}};
    auto rate = make_row("one download", "Gbit/s", rate_, better::higher);
    const auto rate_routed =
      make_row("the same over veth + nft", "Gbit/s", rate_routed_, better::higher);
    rate.wanted = {5, {}, {}};
    rate.floors = {{"veth + nft", rate_routed.measured.p50}};
    for (const auto& each : {wiring, connect, connect_routed, rate, rate_routed})
      all.rows.push_back(each);
  }

private:
  void measure_wiring(std::size_t times) {
    for (std::size_t i = 0; i < times; ++i) {
      int process = -1;
      clone_args how{};
      how.flags = CLONE_PIDFD | CLONE_NEWUSER | CLONE_NEWNET;
      how.pidfd = reinterpret_cast<std::uint64_t>(&process);
      how.exit_signal = SIGCHLD;
      const auto pid = static_cast<pid_t>(::syscall(SYS_clone3, &how, sizeof how));
      if (pid == 0)
        for (;;)
          ::pause();
      if (pid < 0)
        throw std::runtime_error("clone3");
      const unique_fd child{process};
      runtime::spawner::network_sockets made;
      const auto began = clock::now();
      const bool wired = runtime::spawner::wire_network(child.get(), made);
      const auto took = ms_since(began);
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      if (wired)
        wiring_.add(took);
      else
        wiring_.fail("it was not wired");
    }
  }

  void measure_ways(bench& with) {
    const network_holder far, routed;
    const auto script = "FAR=" + std::to_string(far.pid()) +
                        " ROUTED=" + std::to_string(routed.pid()) + "\n" + lay_cables;
    run_on_host({"/bin/sh", "-c", script});
    child peer{
      {inside(far, {INSULA_NETWORK_PROBE, "serve", port}), plain_environment(), "/dev/null"}};
    if (peer.read_line(10s) != "ready")
      throw std::runtime_error("the other end is not ready");
    const auto server = with.start_insula();
    {
      bridge_client client{server->port(), server->key()};
      const auto id = client.create();
      std::ifstream file{INSULA_NETWORK_PROBE, std::ios::binary};
      const std::string probe{std::istreambuf_iterator<char>{file}, {}};
      client.write_file(id, "/workspace/probe", probe);
      client.exec(id, {{"chmod", "+x", "/workspace/probe"}, {}}, clock::now());
      const std::vector<std::string> connecting{"connect", far_end, port,
                                                std::to_string(with.repeat(300, 30))};
      const std::vector<std::string> pulling{"pull", far_end, port,
                                             std::to_string(with.repeat(4096, 256))};
      run_in_random_order(
        with, {{&connect_, [&] { connect_.add(in_sandbox(client, id, connecting)); }},
               {&connect_routed_, [&] { connect_routed_.add(beside(routed, connecting)); }},
               {&rate_, [&] { rate_.add(in_sandbox(client, id, pulling)); }},
               {&rate_routed_, [&] { rate_routed_.add(beside(routed, pulling)); }}});
      client.remove(id);
    }
    server->stop();
  }

  static std::vector<double> in_sandbox(bridge_client& client, const std::string& id,
                                        const std::vector<std::string>& words) {
    client.ready();
    std::vector<std::string> argv{"/workspace/probe"};
    argv.insert(argv.end(), words.begin(), words.end());
    const auto coded = client.exec(id, {argv, {}}, clock::now()).output;
    namespace base64 = boost::beast::detail::base64;
    std::string text(base64::decoded_size(coded.size()), '\0');
    text.resize(base64::decode(text.data(), coded.data(), coded.size()).first);
    return numbers(text);
  }

  static std::vector<double> beside(const network_holder& where,
                                    const std::vector<std::string>& words) {
    std::vector<std::string> argv{INSULA_NETWORK_PROBE};
    argv.insert(argv.end(), words.begin(), words.end());
    child probe{{inside(where, argv), plain_environment(), "/dev/null"}};
    std::vector<double> all;
    for (auto lines = words[0] == "connect" ? std::stoul(words.back()) : 1; lines > 0; --lines)
      all.push_back(std::stod(probe.read_line(120s)));
    return all;
  }

  series wiring_, connect_, connect_routed_, rate_, rate_routed_;
};

} // namespace

std::unique_ptr<scenario> make_network() {
  return std::make_unique<network>();
}

} // namespace insula::bench
