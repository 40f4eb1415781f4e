// insula-gateway UID STATE: started by the spawner and by nothing else. STATE is for those who list
// processes.

#include "base/limits.hpp"
#include "base/log.hpp"
#include "runtime/gateway/gateway.hpp"
#include "runtime/gateway/rights.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

int main(int argc, char** argv) {
  using namespace insula;
  if (argc < 2) {
    std::fputs("insula-gateway is started by insula itself.\n", stderr);
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN); // Sent to all processes of a name, as for a server that reloads.
  namespace gateway = runtime::gateway;
  unique_fd spawner{gateway::spawner_fd};
  ::fcntl(spawner.get(), F_SETFD, FD_CLOEXEC);
  const auto parent = ::getppid();
  const auto user = static_cast<uid_t>(std::strtoul(argv[1], nullptr, 10));
  // Where the machine does not allow it, it is one process among others.
  ::setpriority(PRIO_PROCESS, 0, limits::gateway_nice);
  boost::asio::io_context io{1};
  gateway::gateway self{io, std::move(spawner)};
  if (!gateway::give_up_rights(user)) {
    log::error("gateway.cannot_start", {{"reason", std::strerror(errno)}});
    return 1;
  }
  if (::getppid() != parent)
    return 0; // It has gone before that could be heard.
  self.run();
  return 0;
}
