// insula-spawner STATE KEY DISK POOL_BYTES SERVER_FD MEMORY_RESERVE MOST_UNCHARGED: started by the
// server and by nothing else.

#include "runtime/spawner/spawner.hpp"

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  if (argc != 8) {
    std::fputs("insula-spawner is started by insula itself.\n", stderr);
    return 2;
  }
  insula::runtime::spawner::options given;
  given.state_directory = argv[1];
  given.key = argv[2];
  given.disk = argv[3];
  given.pool_bytes = std::strtoull(argv[4], nullptr, 10);
  given.server = std::atoi(argv[5]);
  given.memory_reserve = std::strtoull(argv[6], nullptr, 10);
  given.most_uncharged = std::strtoull(argv[7], nullptr, 10);
  return insula::runtime::spawner::run(given);
}
