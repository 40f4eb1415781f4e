// insula-broker UID STATE: started by the spawner and by nothing else. STATE is for those who list
// processes.

#include "base/log.hpp"
#include "runtime/broker/program.hpp"
#include "runtime/broker/rights.hpp"

#include <openssl/rand.h>
#include <openssl/ssl.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

int main(int argc, char** argv) {
  using namespace insula;
  if (argc < 2) {
    std::fputs("insula-broker is started by insula itself.\n", stderr);
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN); // Sent to all processes of a name, as for a server that reloads.
  namespace broker = runtime::broker;
  unique_fd spawner{broker::spawner_fd};
  ::fcntl(spawner.get(), F_SETFD, FD_CLOEXEC);
  const auto parent = ::getppid();
  const auto user = static_cast<uid_t>(std::strtoul(argv[1], nullptr, 10));
  // While there are files: what OpenSSL reads once.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  unsigned char some[16];
  RAND_bytes(some, sizeof some);
  boost::asio::io_context io{1};
  broker::program self{io, std::move(spawner)};
  if (!broker::give_up_rights(user)) {
    log::error("broker.cannot_start", {{"reason", std::strerror(errno)}});
    return 1;
  }
  if (::getppid() != parent)
    return 0; // It has gone before that could be heard.
  self.begin();
  io.run();
  return 0;
}
