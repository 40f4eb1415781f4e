// fusermount: what FUSE programs call to have something mounted. This one is all that they find: it
// hands them the device of what the spawner has mounted in a sandbox. Unmounting is the spawner's.

#include "runtime/descriptors.hpp"
#include "runtime/spawner/fuse_process.hpp"

#include <cstdlib>

int main() {
  const char* way = std::getenv("_FUSE_COMMFD");
  if (way == nullptr)
    return 0;
  char byte = 0;
  iovec part{&byte, 1};
  const int device = insula::runtime::spawner::fuse_device_fd;
  return insula::runtime::send_packet<1>(std::atoi(way), &part, 1, &device, 1) == 1 ? 0 : 1;
}
