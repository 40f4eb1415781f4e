#pragma once

#include "base/unique_fd.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <string>
#include <unistd.h>

namespace insula::test {

/// What is written to stderr while `what` runs.
template <class What>
std::string stderr_of(What&& what) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const unique_fd in{ends[0]};
  unique_fd out{ends[1]};
  const unique_fd before{::dup(STDERR_FILENO)};
  ::dup2(out.get(), STDERR_FILENO);
  what();
  ::dup2(before.get(), STDERR_FILENO);
  out.reset();
  std::string text(4096, '\0');
  text.resize(
    static_cast<std::size_t>(std::max<ssize_t>(::read(in.get(), text.data(), text.size()), 0)));
  return text;
}

} // namespace insula::test
