#pragma once

#include "base/tree_groups.hpp"
#include "storage/store.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// A snapshot is a tar archive, compressed by zstd and cut into pieces; each piece is a whole zstd
/// frame with the digest of its plain bytes in its name, so one behind the other they are a
/// .tar.zst. A manifest says which they are.
///
/// Below a space of the store's own: `pieces/<day>/<two digits>/<sha256>`, `day` being when it was
/// written (in days since 1970: so what is removed for its age is nothing that somebody is about to
/// name), and `manifests/<sandbox>/<epoch>-<when>`, which grow.
namespace insula::storage::snapshots {

struct piece {
  std::int64_t day = 0;
  std::string digest; ///< 64 hexadecimal digits.
  std::uint32_t bytes = 0;

  std::string name(std::string_view space) const;
  bool operator==(const piece&) const = default;
};

/// `content`: of one large file, within a group of entries.
enum class group_kind : std::uint8_t { entries, content };

/// Pieces that are the same as long as the key is: of a snapshot of a disk.
struct piece_group {
  group_kind kind = group_kind::entries;
  group_key key{};
  std::uint32_t first = 0; ///< Among the pieces.
  std::uint32_t count = 0;

  bool operator==(const piece_group&) const = default;
};

struct manifest {
  std::int64_t taken_ms = 0;
  std::vector<piece> pieces;
  std::vector<piece_group> groups = {}; ///< In the order of their first pieces.

  std::string text() const;
  /// None: it is none, or of another version.
  static std::optional<manifest> read(std::string_view text);
};

/// Where a manifest is, and its digest: what stands in a sandbox's record.
struct reference {
  std::string name;
  std::string digest; ///< As of images::digest_of().

  std::string text() const { return name + " " + digest; }
  static std::optional<reference> read(std::string_view text);
};

std::string manifests_of(std::string_view space, std::string_view owner);
std::string manifest_name(std::string_view space, std::string_view owner, epoch at,
                          std::int64_t taken_ms);

struct manifest_key {
  std::string owner;
  epoch at = 0;
  std::int64_t taken_ms = 0;
};
/// None: it is no name of a manifest in this space.
std::optional<manifest_key> key_of(std::string_view space, std::string_view name);
/// The same of a piece, without its size.
std::optional<piece> piece_of(std::string_view space, std::string_view name);

} // namespace insula::storage::snapshots
