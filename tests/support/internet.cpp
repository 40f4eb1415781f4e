#include "tests/support/internet.hpp"

#include <chrono>
#include <csignal>
#include <sched.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace insula::test {

namespace {

constexpr const char* lay_cable = R"(set -e
ip link set lo up
ip link add out type veth peer name in netns "$0"
ip addr add 203.0.113.1/24 dev out
ip -6 addr add 2001:db8::1/64 dev out nodad
ip link set out up
ip route add default via 203.0.113.2
ip -6 route add default via 2001:db8::2
exec nsenter --net=/proc/"$0"/ns/net sh -ec '
  ip link set lo up
  for each in 203.0.113.2 203.0.113.3; do ip addr add $each/24 dev in; done
  ip -6 addr add 2001:db8::2/64 dev in nodad
  ip link set in up')";

/// A process that does nothing but have a network of its own.
pid_t hold_network() {
  int ready[2];
  if (::pipe(ready) != 0)
    throw std::runtime_error("no pipe");
  const pid_t made = ::fork();
  if (made == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    ::close(ready[0]);
    if (::unshare(CLONE_NEWNET) == 0 && ::write(ready[1], "r", 1) == 1)
      for (;;)
        ::pause();
    ::_exit(1);
  }
  ::close(ready[1]);
  char byte = 0;
  const bool good = ::read(ready[0], &byte, 1) == 1;
  ::close(ready[0]);
  if (!good)
    throw std::runtime_error("no network could be made");
  return made;
}

} // namespace

internet::internet(const std::string& sites_script) {
  if (::unshare(CLONE_NEWNET) != 0)
    throw std::runtime_error("no network could be made");
  far_ = hold_network();
  output_of({"/bin/sh", "-c", lay_cable, std::to_string(far_)});
  const auto certificate = (files_ / "certificate.pem").string();
  output_of({"/bin/sh", "-c",
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
             "-subj /CN=example -keyout \"$0\" -out \"$0.crt\" 2>/dev/null && cat \"$0.crt\" >> "
             "\"$0\"",
             certificate});
  sites_ = std::make_unique<child_program>(beside_sites(
    {"/usr/bin/python3", sites_script, certificate, "203.0.113.2", "203.0.113.3", "2001:db8::2"}));
  if (sites_->read_line(std::chrono::seconds{30}) != "ready")
    throw std::runtime_error("the sites do not come up");
}

std::vector<std::string> internet::beside_sites(std::vector<std::string> argv) const {
  argv.insert(argv.begin(),
              {"/usr/bin/nsenter", "--net=/proc/" + std::to_string(far_) + "/ns/net"});
  return argv;
}

internet::~internet() {
  sites_.reset();
  ::kill(far_, SIGKILL);
  ::waitpid(far_, nullptr, 0);
}

} // namespace insula::test
