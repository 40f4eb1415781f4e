// insula-spawner STATE KEY DISK POOL_BYTES SERVER_FD: started by the server and by nothing else.

#include "runtime/spawner/spawner.hpp"

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fputs("insula-spawner is started by insula itself.\n", stderr);
    return 2;
  }
  insula::runtime::spawner::options given;
  given.state_directory = argv[1];
  given.key = argv[2];
  given.disk = argv[3];
  given.pool_bytes = std::strtoull(argv[4], nullptr, 10);
  given.server = std::atoi(argv[5]);
  return insula::runtime::spawner::run(given);
}
