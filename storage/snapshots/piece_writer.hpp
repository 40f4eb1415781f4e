#pragma once

#include "base/limits.hpp"
#include "storage/blobs/blob_store.hpp"
#include "storage/snapshots/manifest.hpp"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace insula::storage::snapshots {

/// Cuts bytes into pieces and puts those that are not there yet into a store.
class piece_writer {
public:
  /// `known`: those of a snapshot that stays until this one is there. `day`: of the others, which
  /// are at most `most_new`.
  piece_writer(blob_store& blobs, std::string space, std::int64_t day,
               const std::vector<piece>& known, std::size_t most_new = limits::snapshot_new_pieces);

  /// Errors: those of blob_store; limit_reached: they are too many, or too many of them are new.
  result<void> add(std::string_view bytes);
  /// A piece ends here, so that what follows makes the same ones whatever has been before it.
  result<void> cut();

  const std::vector<piece>& pieces() const { return pieces_; }
  std::size_t written() const { return written_; } ///< Of the pieces, those that were not there.

private:
  blob_store& blobs_;
  const std::string space_;
  const std::int64_t day_;
  const std::size_t most_new_;
  std::string open_;
  std::string last_; ///< The piece before it: of zeros there may be many.
  std::vector<piece> pieces_;
  std::map<std::string, piece, std::less<>> known_; ///< By digest.
  std::size_t written_ = 0;
  std::uint64_t large_bytes_ = 0; ///< In these.
};

} // namespace insula::storage::snapshots
