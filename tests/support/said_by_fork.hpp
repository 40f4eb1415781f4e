#pragma once

#include "base/unique_fd.hpp"
#include "tests/support/catch.hpp"

#include <array>
#include <fcntl.h>
#include <iterator>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace insula::test {

/// What `made` returns in a process of its own, which ends then. Requires that the process says it
/// whole.
template <class Made>
std::string said_by_fork(Made made) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const unique_fd from{ends[0]};
  unique_fd to{ends[1]};
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string text = made();
    const bool said = ::write(to.get(), text.data(), text.size()) == std::ssize(text);
    ::_exit(said ? 0 : 1);
  }
  REQUIRE(child > 0);
  to.reset();
  std::string all;
  std::array<char, 4096> some{};
  for (ssize_t n = 0; (n = ::read(from.get(), some.data(), some.size())) > 0;)
    all.append(some.data(), static_cast<std::size_t>(n));
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  return all;
}

} // namespace insula::test
