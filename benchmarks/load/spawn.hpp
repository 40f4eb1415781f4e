#pragma once

#include "base/unique_fd.hpp"

#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace insula::load {

struct spawn_request {
  std::vector<std::string> argv; ///< argv[0] is looked for in PATH.
  std::vector<std::string> env;
  int output = -1; ///< Becomes standard output.
  int errors = -1; ///< Becomes standard error; -1: thrown away.
  bool own_group = false;
};

/// posix_spawn with nothing on standard input, and signals as a shell would give them. Throws
/// std::system_error.
pid_t spawn(const spawn_request& what);

/// Read end and write end, both closed on exec.
std::pair<unique_fd, unique_fd> make_pipe();

} // namespace insula::load
