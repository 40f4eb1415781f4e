#pragma once

#include "base/unique_fd.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace insula::test {

/// A program that a test runs beside itself. Its standard output can be read line by line; its
/// standard error goes to a file or nowhere. Ended with SIGKILL at the latest when this goes.
class child_program {
public:
  struct options {
    std::string error_file = "/dev/null";
    uid_t user = 0; ///< Other than 0: that user and group, with nothing else.
  };

  explicit child_program(const std::vector<std::string>& argv)
      : child_program(argv, options{}) {}
  child_program(const std::vector<std::string>& argv, const options& how);
  ~child_program();
  child_program(const child_program&) = delete;
  child_program& operator=(const child_program&) = delete;

  pid_t pid() const { return pid_; }
  /// Without its end; none when it has closed its output. Throws when neither comes in time.
  std::optional<std::string> read_line(std::chrono::milliseconds patience);
  /// Everything up to the end of its output.
  std::string read_all(std::chrono::milliseconds patience);
  /// After SIGSTOP each of its threads stands still.
  void signal(int number) const;
  bool running() const { return !status_; }
  /// What waitpid() tells, once it has ended; none if it has not in time.
  std::optional<int> wait(std::chrono::milliseconds patience);

private:
  bool fill(std::chrono::milliseconds patience);

  pid_t pid_ = -1;
  unique_fd process_, output_;
  std::string text_;
  std::optional<int> status_;
};

/// A pidfd, for waiting for the end of a process that is no child.
unique_fd open_process(pid_t pid);
bool wait_for_end(const unique_fd& process, std::chrono::milliseconds patience);

/// Runs it to its end. Throws unless it succeeds.
std::string output_of(const std::vector<std::string>& argv);

} // namespace insula::test
