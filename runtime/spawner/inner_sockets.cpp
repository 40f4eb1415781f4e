#include "runtime/spawner/inner_sockets.hpp"

#include "runtime/spawner/network_visit.hpp"

#include <cerrno>
#include <sys/socket.h>

namespace insula::runtime::spawner {

int make_sockets(int process, bool ipv6, std::uint32_t count, std::vector<unique_fd>& made) {
  const network_visit there{process};
  if (!there)
    return errno;
  while (made.size() < count) {
    unique_fd next{
      ::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    if (!next) {
      const int why = errno;
      made.clear();
      return why;
    }
    made.push_back(std::move(next));
  }
  return 0;
}

} // namespace insula::runtime::spawner
