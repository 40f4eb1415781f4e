#include "storage/snapshots/piece_writer.hpp"

#include "storage/images/digest.hpp"
#include "storage/snapshots/zstd_piece.hpp"

#include <algorithm>

namespace insula::storage::snapshots {

namespace {

/// What a line of a manifest may take.
constexpr std::size_t line_bytes = 100;

} // namespace

piece_writer::piece_writer(blob_store& blobs, std::string space, std::int64_t day,
                           const std::vector<piece>& known, std::size_t most_new)
    : blobs_(blobs)
    , space_(std::move(space))
    , day_(day)
    , most_new_(most_new) {
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
  constexpr std::uint64_t large_piece = 512u << 10;
  static const error too_many{errc::limit_reached,
                              "the files are too many, or too large, for a snapshot"};
  if ((pieces_.size() + 1) * line_bytes > limits::snapshot_manifest_bytes)
    return too_many;
  if (!pieces_.empty() && open_ == last_) {
    pieces_.push_back(pieces_.back());
    open_.clear();
    return {};
  }
  piece next{day_, images::digest_of(open_).substr(sizeof "sha256:" - 1),
             static_cast<std::uint32_t>(open_.size())};
  if (const auto there = known_.find(next.digest); there != known_.end()) {
    next = there->second;
  } else {
    // Small ones are what costs others; large ones are bounded by what a tree may have.
    if (written_ >= most_new_ + large_bytes_ / large_piece)
      return too_many;
    const auto frame = compressed(open_);
    if (!frame)
      return frame.reason();
    if (auto put = blobs_.put(next.name(space_), *frame); !put)
      return put;
    known_.emplace(next.digest, next);
    ++written_;
    large_bytes_ += open_.size();
  }
  pieces_.push_back(std::move(next));
  open_.swap(last_);
  open_.clear();
  return {};
}

} // namespace insula::storage::snapshots
