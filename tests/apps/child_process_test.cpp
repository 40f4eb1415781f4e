#include "apps/child_process.hpp"
#include "base/unique_fd.hpp"
#include "tests/support/catch.hpp"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

using namespace insula;
using namespace std::chrono_literals;

namespace {

/// Lives until the other end is closed.
std::pair<pid_t, unique_fd> waiting_child() {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const unique_fd from{ends[0]};
  unique_fd to{ends[1]};
  const auto child = ::fork();
  if (child == 0) {
    to.reset();
    char ignored = 0;
    static_cast<void>(!::read(from.get(), &ignored, 1));
    ::_exit(0);
  }
  REQUIRE(child > 0);
  return {child, std::move(to)};
}

/// Nobody has taken its end yet.
bool is_there(pid_t child) {
  siginfo_t ignored{};
  return ::waitid(P_PID, static_cast<id_t>(child), &ignored, WEXITED | WNOHANG | WNOWAIT) == 0;
}

} // namespace

TEST_CASE("the end of a child is waited for, and taken once", "[apps]") {
  auto [pid, way] = waiting_child();
  child_process child{pid};
  CHECK_FALSE(child.take_end(0ms));
  CHECK_FALSE(child.take_end(20ms));
  CHECK(is_there(pid));
  way.reset();
  CHECK(child.take_end(60s));
  CHECK_FALSE(is_there(pid));
  CHECK(child.take_end(0ms));
}

TEST_CASE("a child has one owner at a time, and is no zombie behind that", "[apps]") {
  auto [pid, way] = waiting_child();
  {
    child_process first{pid};
    child_process second{std::move(first)};
    CHECK(first.take_end(0ms));
    first = std::move(second);
    CHECK(second.take_end(0ms));
    CHECK(is_there(pid));
    way.reset();
    siginfo_t ignored{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(pid), &ignored, WEXITED | WNOWAIT) == 0);
  }
  CHECK_FALSE(is_there(pid));
  CHECK(child_process{}.take_end(0ms));
}
