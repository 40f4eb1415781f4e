#include "runtime/machine_memory.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fcntl.h>
#include <unistd.h>

namespace insula::runtime {

namespace {

/// The number behind a name at the beginning of a line, which counts KiB.
std::optional<std::uint64_t> bytes_of(std::string_view text, std::string_view name) {
  while (!text.starts_with(name)) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos)
      return std::nullopt;
    text.remove_prefix(end + 1);
  }
  text.remove_prefix(name.size());
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  std::uint64_t kib = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), kib).ec != std::errc{})
    return std::nullopt;
  return kib * 1024;
}

} // namespace

machine_meter::machine_meter()
    : meminfo_(::open("/proc/meminfo", O_RDONLY | O_CLOEXEC)) {}

std::optional<machine_memory> machine_meter::read() const {
  std::array<char, 8192> text;
  const ssize_t n = ::pread(meminfo_.get(), text.data(), text.size(), 0);
  return n > 0 ? parse({text.data(), static_cast<std::size_t>(n)}) : std::nullopt;
}

std::optional<machine_memory> machine_meter::parse(std::string_view meminfo) {
  const auto all = bytes_of(meminfo, "MemTotal:"), available = bytes_of(meminfo, "MemAvailable:");
  if (!all || !available)
    return std::nullopt;
  // The stacks of threads are among what vmalloc gives. Not all that is neither free nor a
  // program's: processors keep some hundred MiB of pages at hand, and how many changes each second.
  std::uint64_t kernel = 0;
  for (const char* each :
       {"SUnreclaim:", "VmallocUsed:", "PageTables:", "SecPageTables:", "Percpu:"})
    kernel += bytes_of(meminfo, each).value_or(0);
  return machine_memory{*all, *available, kernel, bytes_of(meminfo, "SReclaimable:").value_or(0)};
}

std::uint64_t usual_reserve(std::uint64_t machine_bytes) {
  const auto wanted = std::clamp<std::uint64_t>(machine_bytes / 20, 256ull << 20, 2ull << 30);
  return std::min(wanted, machine_bytes / 8);
}

} // namespace insula::runtime
