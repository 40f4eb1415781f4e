#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// What differs between two disks over one image, and how a sandbox's agent says so.
///
/// Its text, of which nothing is trusted, is a record for each change, in the order of the paths,
/// in which a directory comes before what is in it: one letter for the change (A, M, D), one for
/// what is there (- a file, d, l, p, s, c, b; of what is deleted, what was there), its bytes as a
/// number, a blank, the path without a leading slash, a NUL. The last record is "." (all has been
/// said), "+" (there is more), or "!" with the reason why there is no answer, and a NUL.
namespace insula {

enum class change_kind : std::uint8_t { added, changed, deleted };
enum class changed_file : std::uint8_t { file, directory, symlink, other };

struct disk_change {
  change_kind what{};
  changed_file type{};     ///< Of what is deleted: what it was.
  std::uint64_t bytes = 0; ///< Of a file; 0 for all else.
  std::string path;        ///< Absolute. Bytes of any kind but NUL.

  bool operator==(const disk_change&) const = default;
};

struct disk_changes {
  std::vector<disk_change> changes; ///< In the order of their paths, by components.
  bool more = false;                ///< There are others behind the last one.
};

inline constexpr std::uint32_t max_changes_at_once = 10'000;

/// At most so many bytes come at once; the agent ends its page before.
inline constexpr std::size_t max_changes_bytes = std::size_t{4} << 20;

} // namespace insula
