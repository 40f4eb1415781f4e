#include "runtime/spawner/filter_ceilings.hpp"

#include "base/log.hpp"
#include "base/unique_fd.hpp"
#include "runtime/spawner/protocol.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <string>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

constexpr std::size_t most_instructions = BPF_MAXINSNS; ///< Of one filter.

int load(std::span<const sock_filter> filter) {
  const sock_fprog program{static_cast<unsigned short>(filter.size()),
                           const_cast<sock_filter*>(filter.data())};
  // It judges nothing, so there is nothing that guessing could reveal.
  return ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW,
                   &program) == 0
           ? 0
           : errno;
}

/// Allows everything, and counts as a filter of many instructions.
std::array<sock_filter, most_instructions> filler(sock_filter counted) {
  std::array<sock_filter, most_instructions> all;
  all.fill(counted);
  all.front() = all.back() = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  return all;
}

/// A division by a variable is one instruction of ours, and five of the kernel's.
int load_fillers() {
  for (const sock_filter counted : {sock_filter BPF_STMT(BPF_ALU | BPF_DIV | BPF_X, 0),
                                    sock_filter BPF_STMT(BPF_ALU | BPF_XOR | BPF_X, 0)})
    if (const int why = load(filler(counted)); why != 0)
      return why;
  return 0;
}

/// As in a sandbox: by somebody without rights.
bool fits_in_child(std::span<const sock_filter> of_sandbox) {
  const pid_t child = ::fork();
  if (child == 0) {
    // As long as a browser's, and of numbers, which count threefold where the kernel hides them.
    constexpr std::size_t of_program = 1'024;
    const auto program = filler(BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 0x12345678));
    const bool fits = load_fillers() == 0 && ::setresuid(first_uid, first_uid, first_uid) == 0 &&
                      ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && load(of_sandbox) == 0 &&
                      load(std::span{program}.last(of_program)) == 0;
    ::_exit(fits ? 0 : 1);
  }
  int status = -1;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0;
}

/// /proc says it by the links of the directory: itself, its parent and one for each thread.
bool is_only_thread() {
  struct stat threads {};
  return ::stat("/proc/self/task", &threads) == 0 && threads.st_nlink == 3;
}

std::string in_mib(std::uint64_t bytes) {
  return std::to_string(bytes >> 20) + "MiB";
}

} // namespace

void raise_ceiling_of_filters() {
  // Twice what 4,096 processes at their ceiling take; x86-64 has 1,008 MiB for this and the
  // kernel's modules together. Nobody is charged for it, so it is a sixteenth of the memory at
  // most.
  constexpr std::uint64_t enough = 896ull << 20;
  constexpr const char* path = "/proc/sys/net/core/bpf_jit_limit";
  struct sysinfo machine {};
  ::sysinfo(&machine);
  const auto wanted =
    std::min(enough, std::uint64_t{machine.totalram} * machine.mem_unit / 16) & ~0xfffffull;
  const unique_fd file{::open(path, O_RDWR | O_CLOEXEC)};
  char text[32];
  const ssize_t n = file ? ::read(file.get(), text, sizeof text) : -1;
  std::uint64_t now = 0;
  if (n > 0 && std::from_chars(text, text + n, now).ec == std::errc{} && now >= wanted)
    return;
  // What the kernel can give is not to be read; elsewhere than on x86-64 it may be less.
  for (auto next = wanted; n > 0 && next > now; next = next / 8 * 7) {
    const auto line = std::to_string(next) + "\n";
    if (::pwrite(file.get(), line.data(), line.size(), 0) > 0)
      return log::info("spawner.bpf_jit_limit", {{"before", in_mib(now)}, {"now", in_mib(next)}});
  }
  log::warning("spawner.bpf_jit_limit",
               {{"reason", std::strerror(errno)},
                {"path", path},
                {"risk", "sandboxes can use up the machine's memory for filters sooner"}});
}

void narrow_filters_of_processes(std::span<const sock_filter> of_sandbox) {
  std::string reason;
  if (!is_only_thread())
    reason = "there are other threads";
  else if (!fits_in_child(of_sandbox))
    reason = "other filters would not fit behind these";
  else if (const int why = load_fillers(); why != 0)
    reason = std::strerror(why);
  if (!reason.empty())
    log::warning(
      "spawner.filters_not_narrowed",
      {{"reason", reason}, {"risk", "few processes can use up the machine's memory for filters"}});
}

} // namespace insula::runtime::spawner
