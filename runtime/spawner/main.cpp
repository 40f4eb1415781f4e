// insula-spawner STATE KEY DISK POOL_BYTES SERVER_FD MEMORY_RESERVE MOST_UNCHARGED: started by the
// server and by nothing else.

#include "runtime/spawner/spawner.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc != 8) {
    std::fputs("insula-spawner is started by insula itself.\n", stderr);
    return 2;
  }
  // What starts it in a scope gives it the name of its file, which says nothing in a list.
  std::string name = insula::runtime::spawner::program_name;
  if (argv[0] != name) {
    argv[0] = name.data();
    ::execv("/proc/self/exe", argv);
    return insula::runtime::spawner::status_cannot_start;
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
