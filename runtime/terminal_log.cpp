#include "runtime/terminal_log.hpp"

#include <algorithm>
#include <sys/mman.h>
#include <unistd.h>

namespace insula::runtime {

namespace {

constexpr std::uint64_t page_bytes = 4096;

} // namespace

terminal_log::terminal_log(unique_fd file, std::uint64_t ceiling)
    : ceiling_(ceiling)
    , file_(std::move(file)) {
  if (::pread(file_.get(), &end_, sizeof end_, 0) != sizeof end_)
    end_ = 0;
}

int terminal_log::file() {
  if (!file_)
    file_.reset(::memfd_create("terminal", MFD_CLOEXEC));
  return file_.get();
}

bool terminal_log::append(std::string_view bytes) {
  if (file() < 0)
    return false;
  for (std::uint64_t done = 0; done < bytes.size();) {
    const auto position = (end_ + done) % ceiling_;
    const auto part = std::min<std::uint64_t>(bytes.size() - done, ceiling_ - position);
    const ssize_t n =
      ::pwrite(file_.get(), bytes.data() + done, part, static_cast<off_t>(page_bytes + position));
    if (n <= 0)
      return false;
    done += static_cast<std::uint64_t>(n);
  }
  const auto end = end_ + bytes.size();
  if (::pwrite(file_.get(), &end, sizeof end, 0) != sizeof end)
    return false;
  end_ = end;
  return true;
}

std::string terminal_log::read(std::uint64_t offset, std::size_t max_bytes) const {
  std::string bytes(std::min<std::uint64_t>(max_bytes, end_ - offset), '\0');
  for (std::size_t done = 0; done < bytes.size();) {
    const auto position = (offset + done) % ceiling_;
    const auto part = std::min<std::uint64_t>(bytes.size() - done, ceiling_ - position);
    const ssize_t n =
      ::pread(file_.get(), bytes.data() + done, part, static_cast<off_t>(page_bytes + position));
    if (n <= 0) {
      bytes.resize(done);
      break;
    }
    done += static_cast<std::size_t>(n);
  }
  return bytes;
}

} // namespace insula::runtime
