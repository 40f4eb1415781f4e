#include "runtime/agent/quiet_shells.hpp"

#include "runtime/agent/channel.hpp"
#include "runtime/agent/processes.hpp"

#include <cstddef>
#include <cstdio>

namespace insula::runtime::agent {

void send_quiet_shells(int channel) {
  open_process_list(); // The agent's own is closed here.
  look_at_processes();
  pid_t shells[max_quiet_shells];
  const int count = find_quiet_shells(shells, max_quiet_shells);
  for (int i = 0; i < count; ++i) {
    char line[16];
    const int length = std::snprintf(line, sizeof line, "%d\n", static_cast<int>(shells[i]));
    if (!send_all(channel, line, static_cast<std::size_t>(length)))
      return;
  }
}

} // namespace insula::runtime::agent
