#pragma once

#include "base/unique_fd.hpp"

#include <string>
#include <sys/types.h>
#include <vector>

namespace insula::runtime::spawner {

/// Where such a program finds the spawner's socket.
inline constexpr int own_program_fd = 3;

/// Starts a program of the spawner's own (program_file()) with `socket` and nothing else that is
/// open here, without variables, and with no signal blocked. -1, with errno: it did not start.
pid_t start_own_program(const unique_fd& program, const unique_fd& socket,
                        const std::vector<std::string>& argv);

} // namespace insula::runtime::spawner
