#include "runtime/script_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace insula::runtime {

script_file::script_file(std::string_view script)
    : file_(::memfd_create("script", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  while (file_ && !script.empty()) {
    const ssize_t n = ::write(file_.get(), script.data(), script.size());
    if (n <= 0) {
      file_.reset();
      return;
    }
    script.remove_prefix(static_cast<std::size_t>(n));
  }
  if (!file_)
    return;
  ::lseek(file_.get(), 0, SEEK_SET);
  // It may shrink: that is how it is emptied.
  if (::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    file_.reset();
}

script_file& script_file::operator=(script_file&& other) noexcept {
  empty();
  file_ = std::move(other.file_);
  return *this;
}

script_file::~script_file() {
  empty();
}

void script_file::empty() {
  if (file_ && ::ftruncate(file_.get(), 0) == 0)
    file_.reset();
}

} // namespace insula::runtime
