// What a program that serves a bucket finds when it begins. Needs root.
#include "runtime/spawner/fuse_process.hpp"
#include "tests/support/catch.hpp"

#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace insula;
using namespace insula::runtime::spawner;

namespace {

unique_fd something() {
  return unique_fd{::open("/dev/null", O_RDWR | O_CLOEXEC)};
}

/// All that it says until it ends.
std::string words_of(fuse_process started) {
  REQUIRE(started.pid > 0);
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
  const fuse_program reads{{"cat", path}, "the secret\n", 61'234, 1, &no_groups};
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
