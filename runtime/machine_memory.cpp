#include "runtime/machine_memory.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fcntl.h>
#include <string>
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
    : meminfo_(::open("/proc/meminfo", O_RDONLY | O_CLOEXEC))
    , zoneinfo_(::open("/proc/zoneinfo", O_RDONLY | O_CLOEXEC)) {}

std::optional<machine_memory> machine_meter::read() const {
  std::array<char, 8192> text;
  const ssize_t n = ::pread(meminfo_.get(), text.data(), text.size(), 0);
  return n > 0 ? parse({text.data(), static_cast<std::size_t>(n)}) : std::nullopt;
}

std::optional<machine_memory> machine_meter::parse(std::string_view meminfo) {
  const auto all = bytes_of(meminfo, "MemTotal:"), available = bytes_of(meminfo, "MemAvailable:");
  if (!all || !available)
    return std::nullopt;
  const auto reclaimable = bytes_of(meminfo, "SReclaimable:").value_or(0);
  std::uint64_t others = reclaimable; // Programs', free, or a copy of a file.
  for (const char* each : {"MemFree:", "Buffers:", "Cached:", "SwapCached:", "AnonPages:"})
    others += bytes_of(meminfo, each).value_or(0);
  return machine_memory{*all, *available, *all - std::min(others, *all), reclaimable};
}

std::uint64_t machine_meter::pages_at_hand() const {
  std::string text;
  std::array<char, 16384> piece;
  constexpr std::size_t most = 4u << 20; // For thousands of processors.
  while (text.size() < most) {
    const ssize_t n =
      ::pread(zoneinfo_.get(), piece.data(), piece.size(), static_cast<off_t>(text.size()));
    if (n <= 0)
      break;
    text.append(piece.data(), static_cast<std::size_t>(n));
  }
  return parse_pages_at_hand(text);
}

std::uint64_t machine_meter::parse_pages_at_hand(std::string_view zoneinfo) {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  constexpr std::string_view name = " count:";
  std::uint64_t pages = 0;
  for (auto at = zoneinfo.find(name); at != std::string_view::npos;
       at = zoneinfo.find(name, at + 1)) {
    const auto from = zoneinfo.find_first_not_of(' ', at + name.size());
    std::uint64_t count = 0;
    if (from != std::string_view::npos)
      std::from_chars(zoneinfo.data() + from, zoneinfo.data() + zoneinfo.size(), count);
    pages += count;
  }
  return pages * page;
}

std::uint64_t usual_reserve(std::uint64_t machine_bytes) {
  const auto wanted = std::clamp<std::uint64_t>(machine_bytes / 20, 256ull << 20, 2ull << 30);
  return std::min(wanted, machine_bytes / 8);
}

} // namespace insula::runtime
