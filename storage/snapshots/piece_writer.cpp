#include "storage/snapshots/piece_writer.hpp"

#include "storage/images/digest.hpp"
#include "storage/snapshots/zstd_piece.hpp"

#include <algorithm>

namespace insula::storage::snapshots {

namespace {

/// What a line of a manifest may take.
constexpr std::size_t line_bytes = 100;

const error too_many{errc::limit_reached, "the files are too many, or too large, for a snapshot"};

} // namespace

piece_writer::piece_writer(blob_store& blobs, std::string space, std::int64_t day, manifest known,
                           std::size_t most_new)
    : blobs_(blobs)
    , space_(std::move(space))
    , day_(day)
    , most_new_(most_new)
    , earlier_(std::move(known)) {
  for (const auto& each : earlier_.pieces)
    known_.emplace(each.digest, each);
  for (std::size_t i = 0; i < earlier_.groups.size(); ++i)
    known_groups_.emplace(std::pair{earlier_.groups[i].kind, earlier_.groups[i].key}, i);
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
  if ((pieces_.size() + groups_.size() + 1) * line_bytes > limits::snapshot_manifest_bytes)
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

// ---- Groups

result<void> piece_writer::begin_group(const group_key& key) {
  if ((pieces_.size() + groups_.size() + 1) * line_bytes > limits::snapshot_manifest_bytes)
    return too_many;
  open_group_ = groups_.size();
  groups_.push_back({group_kind::entries, key, static_cast<std::uint32_t>(pieces_.size()), 0});
  return {};
}

result<void> piece_writer::end_group() {
  if (auto good = cut(); !good)
    return good;
  if (const auto at = std::exchange(open_group_, std::nullopt))
    groups_[*at].count = static_cast<std::uint32_t>(pieces_.size()) - groups_[*at].first;
  return {};
}

void piece_writer::begin_content(const group_key& key) {
  open_content_ = groups_.size();
  groups_.push_back({group_kind::content, key, static_cast<std::uint32_t>(pieces_.size()), 0});
}

void piece_writer::end_content() {
  if (const auto at = std::exchange(open_content_, std::nullopt))
    groups_[*at].count = static_cast<std::uint32_t>(pieces_.size()) - groups_[*at].first;
}

result<std::uint64_t> piece_writer::add_known(group_kind kind, const group_key& key) {
  const auto at = known_groups_.find({kind, key});
  if (at == known_groups_.end())
    return error{errc::io_failed, "the sandbox speaks of files that nobody knows"};
  const auto& group = earlier_.groups[at->second];
  const auto end = group.first + group.count;
  const auto here = static_cast<std::uint32_t>(pieces_.size());
  if ((pieces_.size() + group.count + groups_.size()) * line_bytes >
      limits::snapshot_manifest_bytes)
    return too_many;
  std::uint64_t bytes = 0;
  for (auto i = group.first; i < end; ++i) {
    pieces_.push_back(earlier_.pieces[i]);
    bytes += pieces_.back().bytes;
  }
  last_.clear(); // It is not the one before any more.
  groups_.push_back({kind, key, here, group.count});
  // With what is large in it.
  for (auto i = at->second + 1; kind == group_kind::entries && i < earlier_.groups.size() &&
                                earlier_.groups[i].kind == group_kind::content;
       ++i) {
    const auto& inner = earlier_.groups[i];
    if (inner.first + inner.count <= end)
      groups_.push_back({inner.kind, inner.key, here + inner.first - group.first, inner.count});
  }
  return bytes;
}

} // namespace insula::storage::snapshots
