#pragma once

#include <string>
#include <vector>

namespace insula::test {

/// An attack on one table, or one kind of memory, that the kernel or the node has once for all
/// sandboxes.
struct table_attack {
  enum class by : unsigned char { user, root };

  const char* table;             ///< As docs/isolation.md names it.
  std::string kind;              ///< Rows of one kind are one test.
  std::string command;           ///< In the victim's bash.
  std::vector<std::string> told; ///< What it is told, one of these: see running_attack::hear().
  std::string own = {};          ///< The neighbour's use of the same table meanwhile, and
  std::string own_told = {};     ///< what that is told.
  by who = by::user;
  bool read = true; ///< Somebody waits for its output.
  /// It takes long, and abuse_test.cpp or the memory tests of runtime have it in a shorter form; or
  /// it is only there to be compared with.
  bool only_measured = false;

  /// The node ends the sandbox: what it is told is "ended: <kind of memory>".
  bool ends() const { return told.front().starts_with("ended: "); }
};

const std::vector<table_attack>& all_table_attacks();

} // namespace insula::test
