#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"

#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

namespace insula {

/// How a server was started, as it says itself while it is root. A server that serves is not root
/// any more and can write anything into its own memory, so whoever replaces it as root, with the
/// same arguments, does not take them from there.
struct server_record {
  pid_t pid = 0;
  std::uint32_t protocol = 0; ///< runtime::spawner::version: who has another cannot take over.
  std::string started; ///< When, as /proc tells it: the number may be another process's by now.
  std::string program; ///< Which file it runs: device, number, birth.
  std::string state;   ///< Its state directory.
  std::string directory;
  std::vector<std::string> arguments, environment;
};

/// Writes that of this process into a file that lives as long as the descriptor, belongs to root
/// and cannot be changed by anybody. Before root is given up. Errors: io_failed.
result<unique_fd> publish_server_record(const std::string& state);

/// Reads it from the process, which `process` is a pidfd of, and which runs `program`. For root.
/// Errors: not_found: there is none; it is another process's; or another program has published it.
result<server_record> find_server_record(pid_t pid, int process, int program);

} // namespace insula
