#pragma once

#include "tests/abuse/battlefield.hpp"
#include "tests/abuse/tables.hpp"
#include "tests/support/internet.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace insula::test {

/// What the node keeps free here. So much of the machine's memory may be gone beside what sandboxes
/// are charged for: the watch lets each have 256 MiB of that, and up to 128 MiB more for a while.
inline constexpr std::uint64_t uncharged_allowed = 512u << 20;

/// The machine's memory at one moment, in bytes.
struct memory_reading {
  std::uint64_t unavailable = 0; ///< All of it but MemAvailable.
  std::uint64_t programs = 0;    ///< Of all programs on the machine, with what they share.
  std::uint64_t charged = 0;     ///< To the groups of all sandboxes here,
  std::uint64_t inside = 0;      ///< and what of that is programs' memory.

  /// What the machine has lost since then, but for what other programs on it have come to use.
  std::int64_t lost_since(const memory_reading& then) const;
  std::int64_t charged_since(const memory_reading& then) const;
};

/// What was done several times: how long each took, and what went wrong, in words.
struct done_things {
  std::vector<double> ms;
  std::vector<std::string> wrong;
};

class running_attack;

/// A battlefield with an internet beside it, for seeing what an attack in one sandbox is to all
/// others: to one that is there, to one that starts, and to the machine's memory.
class neighbourhood : internet, public battlefield {
public:
  neighbourhood();

  // ---- What the neighbour does, so many times

  done_things executes(int times) const;
  done_things starts(int times) const; ///< A new sandbox's first command; then its end.
  done_things resolves(int times) const { return by_neighbour("resolve", times); }
  done_things connects(int times) const { return by_neighbour("connect", times); }
  done_things downloads(int times) const { return by_neighbour("download", times); } ///< A MiB.
  /// A command that uses the attacked table, too. Answers as running_attack::hear() does.
  std::string uses(const std::string& command) const;

  memory_reading memory() const;

private:
  done_things by_neighbour(const char* what, int times) const;

  child_program far_;
};

/// An attack in the victim's sandbox, from its first byte on.
class running_attack {
public:
  running_attack(const battlefield& field, const table_attack& what);

  /// Waits for what it is told: the name of an errno ("0": it has all that it wanted), or another
  /// word of its own. If the node has to end its sandbox, waits for that and answers
  /// "ended: <kind of memory>".
  std::string hear();

private:
  std::string hear_end();

  const battlefield& field_;
  const table_attack& what_;
  const std::size_t ended_before_;
  std::unique_ptr<exec_stream> as_user_;
  std::unique_ptr<http_connection> as_root_;
};

} // namespace insula::test
