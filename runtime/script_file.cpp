#include "runtime/script_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace insula::runtime {

unique_fd script_file(std::string_view script) {
  unique_fd file{::memfd_create("script", MFD_CLOEXEC)};
  while (file && !script.empty()) {
    const ssize_t n = ::write(file.get(), script.data(), script.size());
    if (n <= 0)
      return {};
    script.remove_prefix(static_cast<std::size_t>(n));
  }
  if (file)
    ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

} // namespace insula::runtime
