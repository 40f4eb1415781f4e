#include "runtime/program_file.hpp"

#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace insula::runtime {

unique_fd program_file(const char* name, const unsigned char* begin, const unsigned char* end) {
  const unique_fd writable{
    static_cast<int>(::syscall(SYS_memfd_create, name, MFD_CLOEXEC | MFD_ALLOW_SEALING))};
  const auto size = static_cast<std::size_t>(end - begin);
  if (!writable || ::write(writable.get(), begin, size) != static_cast<ssize_t>(size) ||
      ::fcntl(writable.get(), F_ADD_SEALS,
              F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    return {};
  // A program cannot be run while somebody has it open for writing.
  return unique_fd{
    ::open(("/proc/self/fd/" + std::to_string(writable.get())).c_str(), O_RDONLY | O_CLOEXEC)};
}

} // namespace insula::runtime
