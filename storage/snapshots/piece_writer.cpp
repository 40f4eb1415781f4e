#include "storage/snapshots/piece_writer.hpp"

#include "base/limits.hpp"
#include "storage/images/digest.hpp"
#include "storage/snapshots/zstd_piece.hpp"

#include <algorithm>

namespace insula::storage::snapshots {

namespace {

/// What a line of a manifest may take.
constexpr std::size_t line_bytes = 100;

} // namespace

piece_writer::piece_writer(blob_store& blobs, std::string space, std::int64_t day,
                           const std::vector<piece>& known)
    : blobs_(blobs)
    , space_(std::move(space))
    , day_(day) {
  for (const auto& each : known)
    known_.emplace(each.digest, each);
}

result<void> piece_writer::add(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto count = std::min(bytes.size(), limits::snapshot_piece_bytes - open_.size());
    open_.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    if (open_.size() == limits::snapshot_piece_bytes)
      if (auto good = cut(); !good)
        return good;
  }
  return {};
}

result<void> piece_writer::cut() {
  if (open_.empty())
    return {};
  if ((pieces_.size() + 1) * line_bytes > limits::snapshot_manifest_bytes)
    return error{errc::limit_reached, "the files are too many, or too large, for a snapshot"};
  piece next{day_, images::digest_of(open_).substr(sizeof "sha256:" - 1),
             static_cast<std::uint32_t>(open_.size())};
  if (const auto there = known_.find(next.digest); there != known_.end()) {
    next = there->second;
  } else {
    const auto frame = compressed(open_);
    if (!frame)
      return frame.reason();
    if (auto put = blobs_.put(next.name(space_), *frame); !put)
      return put;
    known_.emplace(next.digest, next);
    ++written_;
  }
  pieces_.push_back(std::move(next));
  open_.clear();
  return {};
}

} // namespace insula::storage::snapshots
