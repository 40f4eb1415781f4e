#pragma once

#include "tests/e2e/node.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace insula::test {

// The ceilings of the sandboxes here.
inline constexpr std::uint64_t memory_limit = 128u << 20;
inline constexpr std::uint64_t disk_limit = 64u << 20;
inline constexpr std::uint64_t shm_limit = 16u << 20;
inline constexpr std::uint64_t log_limit = 8u << 20;
inline constexpr long processes_limit = 128;

/// Commands that callers start are let in over the limit of processes; there are never more at once
/// here.
inline constexpr long slack = 8;

/// An attack that has met its limit and presses on.
struct attack_report {
  std::unique_ptr<exec_stream> stream;
  long count = 0;
  std::string why; ///< The errno's name; "0" for none.
};

/// A server with two sandboxes, `victim` and `neighbour`, that both have the programs
/// /workspace/attack and /workspace/neighbours. With INSULA_ABUSE_SUDO in the environment,
/// sandboxes have the privileges `sudo`, and the victim attacks as root.
class battlefield {
public:
  /// `more`: sections of cluster.yaml other than `runtime` and `sandbox`.
  explicit battlefield(const std::string& more = {});

  /// Runs insula_attack in the victim until it says what it has met.
  attack_report attack(const std::string& words, std::chrono::milliseconds patience = 60s);

  /// Ends the victim's sandbox by DELETE and makes a new one. Checks that nothing of it is left,
  /// that the neighbour answers, and that the server has not grown.
  void end();

  // ---- The victim as the machine sees it

  long processes() const;
  std::uint64_t memory_bytes() const;
  std::uint64_t shm_bytes() const;

  // ---- All sandboxes together

  std::uint64_t disk_bytes() const; ///< In use of the disk that only the spawner sees.
  std::uint64_t log_bytes() const;  ///< Of the output that the server keeps.

  const std::string by; ///< In front of what the victim runs: empty, or "sudo ".
  node server;

private:
  void arm(const std::string& id);
  void arm_victim();
  std::uint64_t read_number(const std::vector<std::string>& names) const;

  std::vector<std::string> victims_groups_;
  std::uint64_t server_bytes_ = 0;
};

} // namespace insula::test
