// What a program that serves a bucket finds when it begins. Needs root.
#include "runtime/spawner/fuse_process.hpp"
#include "tests/support/catch.hpp"

#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace insula;
using namespace insula::runtime::spawner;

namespace {

unique_fd something() {
  return unique_fd{::open("/dev/null", O_RDWR | O_CLOEXEC)};
}

const std::vector<sock_filter> anything{{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};

/// All that it says until it ends.
std::string words_of(fuse_process started) {
  REQUIRE(started.pid > 0);
  REQUIRE(let_run(started));
  std::string all;
  for (pollfd one{started.said.get(), POLLIN, 0}; ::poll(&one, 1, 60'000) > 0;) {
    char bytes[256];
    const auto n = ::read(started.said.get(), bytes, sizeof bytes);
    if (n <= 0)
      break;
    all.append(bytes, static_cast<std::size_t>(n));
  }
  ::kill(started.pid, SIGKILL); // One that says nothing more is not waited for.
  CHECK(::waitpid(started.pid, nullptr, 0) == started.pid);
  return all;
}

} // namespace

TEST_CASE("a program has its secret, however many files its spawner has open", "[mounts]") {
  const std::vector<unique_fd> no_groups;
  const auto path = "/proc/self/fd/" + std::to_string(fuse_secret_fd);
  const fuse_program reads{{"cat", path}, "the secret\n", 61'234, 1, &no_groups, &anything};
  std::vector<unique_fd> taken;
  // It starts with a few descriptors more than there are here.
  for (int highest = 0; highest <= fuse_secret_fd + 1;) {
    taken.push_back(something());
    highest = taken.back().get();
    if (highest < fuse_device_fd - 10)
      continue;
    CAPTURE(highest);
    CHECK(words_of(start_fuse_process(reads, taken.front().get())) == "the secret\n");
  }
}

TEST_CASE("a program sees /usr, what TLS needs, and nothing else of the machine", "[mounts]") {
  const std::vector<unique_fd> no_groups;
  const auto device = something();
  const auto said = [&](const std::vector<std::string>& words) {
    return words_of(start_fuse_process(
      {{words.begin(), words.end()}, "", 61'234, 1, &no_groups, &anything}, device.get()));
  };
  CHECK(said({"find", "/", "-maxdepth", "1", "-type", "d", "-printf", "%f "}).find("root") ==
        std::string::npos);
  auto top = said({"ls", "-U1", "/"});
  for (const std::string other : {"home", "root", "var", "run", "srv", "mnt", "sys", "boot", "opt"})
    CHECK(("\n" + top).find("\n" + other + "\n") == std::string::npos);
  for (const std::string own : {"usr", "etc", "dev", "proc", "tmp"})
    CHECK(("\n" + top).find("\n" + own + "\n") != std::string::npos);
  CHECK(
    said({"find", "/etc", "-name", "*shadow*", "-o", "-name", "*.key", "-o", "-name", "machine-id"})
      .empty());
  CHECK(said({"cat", "/etc/resolv.conf"}) == "nameserver 10.0.0.53\n");
  CHECK(said({"ls", "/dev"}) == "full\nfuse\nnull\nrandom\nurandom\nzero\n");
  CHECK(said({"ls", "/proc"}).find("sys") == std::string::npos);
  CHECK(said({"id", "-u"}) == "61234\n");
  CHECK(said({"uname", "-n"}) == "bucket\n");
  CHECK(said({"cat", "/proc/net/dev"}).find("eth") == std::string::npos);
  for (const std::string place : {"/x", "/usr/x", "/etc/x", "/dev/x", "/insula/x"})
    CHECK(said({"touch", place}).find("Read-only file system") != std::string::npos);
  const auto status = said({"cat", "/proc/self/status"});
  for (const std::string line :
       {"NoNewPrivs:\t1", "Seccomp:\t2", "NSpid:\t1", "CapEff:\t0000000000000000",
        "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "CapInh:\t0000000000000000",
        "CapAmb:\t0000000000000000", "Groups:\t "})
    CHECK(("\n" + status).find("\n" + line + "\n") != std::string::npos);
}

TEST_CASE("a program that is not let run does nothing, and ends", "[mounts]") {
  std::fflush(stdout); // Sanitizers have a child write what is left of it.
  const std::vector<unique_fd> no_groups;
  const auto device = something();
  auto made =
    start_fuse_process({{"echo", "x"}, "", 61'234, 1, &no_groups, &anything}, device.get());
  REQUIRE(made.pid > 0);
  pollfd one{made.said.get(), POLLIN, 0};
  CHECK(::poll(&one, 1, 100) == 0);
  made.go.reset();
  CHECK(::waitpid(made.pid, nullptr, 0) == made.pid);
  char byte = 0;
  CHECK(::read(made.said.get(), &byte, 1) == 0);
}

TEST_CASE("of a program that ends before it is let run it is known that it has, and why",
          "[mounts]") {
  std::fflush(stdout);           // Sanitizers have a child write what is left of it.
  std::signal(SIGPIPE, SIG_IGN); // As the spawner does.
  std::vector<unique_fd> full;   // No group that could be entered.
  full.emplace_back(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  const auto device = something();
  auto made = start_fuse_process({{"echo", "x"}, "", 61'234, 1, &full, &anything}, device.get());
  REQUIRE(made.pid > 0);
  pollfd end{made.process.get(), POLLIN, 0};
  REQUIRE(::poll(&end, 1, 60'000) == 1);
  CHECK(has_ended(made.said));
  CHECK_FALSE(let_run(made));
  char bytes[256] = {};
  REQUIRE(::read(made.said.get(), bytes, sizeof bytes - 1) > 0);
  CHECK(std::string{bytes} == "entering the cgroups: errno 28\n");
  CHECK(::waitpid(made.pid, nullptr, 0) == made.pid);
  SECTION("and of one that waits, that it has not") {
    const std::vector<unique_fd> no_groups;
    auto waits =
      start_fuse_process({{"echo", "x"}, "", 61'234, 1, &no_groups, &anything}, device.get());
    REQUIRE(waits.pid > 0);
    CHECK_FALSE(has_ended(waits.said));
    CHECK(let_run(waits));
    CHECK(::waitpid(waits.pid, nullptr, 0) == waits.pid);
  }
}
