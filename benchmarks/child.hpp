#pragma once

#include "base/unique_fd.hpp"

#include <chrono>
#include <csignal>
#include <string>
#include <sys/types.h>
#include <vector>

namespace insula::bench {

/// A program that runs beside the benchmark until it is told to stop. In a process group of its
/// own, so that Ctrl-C reaches the benchmark alone, which then stops it in order.
class child {
public:
  struct options {
    std::vector<std::string> argv;
    std::vector<std::string> env; ///< All of it: "NAME=value".
    std::string log;              ///< A file for what it says on standard error.
  };

  /// Throws std::system_error.
  explicit child(const options& what);
  ~child();
  child(const child&) = delete;
  child& operator=(const child&) = delete;

  pid_t pid() const { return pid_; }

  /// The next line it prints; throws std::runtime_error when there is none in time.
  std::string read_line(std::chrono::seconds patience);

  /// Signals, waits, and kills what does not end in time. Answers whether it ended well by itself.
  bool stop(int signal, std::chrono::seconds patience);

private:
  pid_t pid_ = -1;
  unique_fd output_;
  std::string line_;
};

/// The environment that sandboxes have too, for what they are compared with.
std::vector<std::string> plain_environment();

} // namespace insula::bench
