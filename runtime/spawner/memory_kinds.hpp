#pragma once

#include "runtime/cgroup.hpp"
#include "runtime/spawner/memory_judgement.hpp"
#include "runtime/spawner/open_files.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Readings of kernel memory that no cgroup is charged for. Every reading has a ceiling, since its
/// size is what a sandbox makes of it.
namespace insula::runtime::spawner {

/// What is known of a sandbox beside its processes.
struct watched_sandbox {
  std::uint64_t id = 0;
  std::uint32_t slot = 0;
  pid_t first = -1;       ///< Its PID 1 as the machine numbers it.
  std::string image;      ///< The root of its image, and
  std::string disk;       ///< its own disk, with the upper layers `u` and `uu`.
  std::string sudo = {};  ///< The layer with sudo, which goes over both. Empty: there is none.
  std::string lists = {}; ///< That with lists of packages, which goes over the image. The same.
};

/// One sandbox as its kinds are read. What several kinds need is read once.
class inhabitants {
public:
  inhabitants(const watched_sandbox& who, const cgroup_tree& groups);

  const watched_sandbox& who() const { return who_; }
  const std::vector<pid_t>& processes() const { return processes_; }
  const open_files& open() const;

private:
  const watched_sandbox& who_;
  std::vector<pid_t> processes_;
  mutable std::optional<open_files> open_;
};

/// A kind: its name is in name_of(), its bytes each are in the function.
struct kind_of_memory {
  memory_kind kind;
  std::uint64_t (*held)(const inhabitants& in); ///< Bytes, estimated.
};
/// All but `hidden`, which nobody can count.
const std::vector<kind_of_memory>& counted_kinds();

/// `is_short`: the machine is, and what might hide more memory is counted as well.
sandbox_memory read_memory(const watched_sandbox& who, const cgroup_tree& groups, bool is_short);

} // namespace insula::runtime::spawner
