#pragma once

#include "base/limits.hpp"
#include "storage/blobs/blob_store.hpp"
#include "storage/snapshots/manifest.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace insula::storage::snapshots {

/// Cuts bytes into pieces and puts those that are not there yet into a store.
class piece_writer {
public:
  /// `known`: a snapshot that stays until this one is there. `day`: of pieces that it has not,
  /// which are at most `most_new`.
  piece_writer(blob_store& blobs, std::string space, std::int64_t day, manifest known,
               std::size_t most_new = limits::snapshot_new_pieces);

  /// Errors: those of blob_store; limit_reached: they are too many, or too many of them are new.
  result<void> add(std::string_view bytes);
  /// A piece ends here, so that what follows makes the same ones whatever has been before it.
  result<void> cut();

  /// What follows is a group of entries, until its end; or a large content within one, whose
  /// beginning and end are cut by the caller. What began before ends first.
  result<void> begin_group(const group_key& key);
  result<void> end_group();
  void begin_content(const group_key& key);
  void end_content();
  /// All pieces of a group that is known; how many bytes they have. Nothing is open before. Errors:
  /// io_failed (it is not known), limit_reached.
  result<std::uint64_t> add_known(group_kind kind, const group_key& key);

  const std::vector<piece>& pieces() const { return pieces_; }
  const std::vector<piece_group>& groups() const { return groups_; }
  std::size_t written() const { return written_; } ///< Of the pieces, those that were not there.

private:
  blob_store& blobs_;
  const std::string space_;
  const std::int64_t day_;
  const std::size_t most_new_;
  std::string open_;
  std::string last_; ///< The piece before it: of zeros there may be many.
  std::vector<piece> pieces_;
  std::vector<piece_group> groups_;
  std::optional<std::size_t> open_group_, open_content_; ///< Their places in it.
  const manifest earlier_;
  std::map<std::pair<group_kind, group_key>, std::size_t> known_groups_; ///< Their places there.
  std::map<std::string, piece, std::less<>> known_;                      ///< By digest.
  std::size_t written_ = 0;
  std::uint64_t large_bytes_ = 0; ///< In these.
};

} // namespace insula::storage::snapshots
