#pragma once

#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

#include <csignal>
#include <fstream>
#include <string>

/// `insula upgrade` of a node that a test has started.
namespace insula::test {

inline child_program start_upgrade(const node& of) {
  return child_program{{INSULA_PROGRAM, "upgrade", "--state", of.state()},
                       {.error_file = of.scratch() + "/complaint"}};
}

/// What the last upgrade said on stderr.
inline std::string complaint_of(const node& it) {
  std::ifstream file{it.scratch() + "/complaint", std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

inline pid_t server_in(const std::string& state) {
  pid_t pid = 0;
  std::ifstream{state + "/lock"} >> pid;
  return pid;
}

/// The server of a node after an upgrade, which is no child of the test: it ends with this.
class next_server {
public:
  explicit next_server(const node& of)
      : pid_(server_in(of.state()))
      , process_(open_process(pid_)) {}
  ~next_server() {
    CHECK(::kill(pid_, SIGINT) == 0);
    CHECK(wait_for_end(process_, 30s));
  }
  next_server(const next_server&) = delete;
  next_server& operator=(const next_server&) = delete;

  pid_t pid() const { return pid_; }

private:
  const pid_t pid_;
  const unique_fd process_;
};

} // namespace insula::test
