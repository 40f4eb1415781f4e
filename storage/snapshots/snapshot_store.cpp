#include "storage/snapshots/snapshot_store.hpp"

#include "base/limits.hpp"
#include "storage/images/digest.hpp"
#include "storage/snapshots/piece_writer.hpp"
#include "storage/snapshots/snapshot_reader.hpp"
#include "storage/snapshots/snapshot_writer.hpp"

#include <chrono>
#include <random>
#include <set>

namespace insula::storage::snapshots {

namespace {

constexpr std::int64_t day_ms = std::chrono::milliseconds{std::chrono::hours{24}}.count();
constexpr std::int64_t garbage_ms = std::chrono::milliseconds{limits::snapshot_garbage_age}.count();

/// A snapshot that takes so long is given up: its first pieces would become garbage under it.
constexpr std::chrono::hours longest_snapshot{12};

/// A set of any number of digests in a known amount of memory: it has all that were added, and now
/// and then one that was not, other ones each time. What is kept for that goes some other day.
class digest_set {
public:
  digest_set()
      : bits_(all_bits / 64)
      , salt_(std::uint64_t{std::random_device{}()} << 32 | std::random_device{}()) {}

  void add(std::string_view digest) {
    for (unsigned i = 0; i < probes; ++i)
      bits_[bit(digest, i) / 64] |= std::uint64_t{1} << bit(digest, i) % 64;
  }
  bool has(std::string_view digest) const {
    for (unsigned i = 0; i < probes; ++i)
      if ((bits_[bit(digest, i) / 64] >> bit(digest, i) % 64 & 1) == 0)
        return false;
    return true;
  }

private:
  static constexpr std::uint64_t all_bits = 1u << 25; // 4 MiB.
  static constexpr unsigned probes = 4;

  std::uint64_t bit(std::string_view digest, unsigned which) const {
    auto mixed = std::hash<std::string_view>{}(digest) + salt_ * (which + 1);
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
    return (mixed ^ mixed >> 31) % all_bits;
  }

  std::vector<std::uint64_t> bits_;
  const std::uint64_t salt_;
};

error damaged(const std::string& what) {
  return {errc::store_failed, "a snapshot is damaged: " + what};
}

} // namespace

snapshot_store::snapshot_store(blob_store& blobs, std::string space)
    : blobs_(blobs)
    , space_(std::move(space)) {}

result<manifest> snapshot_store::fetch(const reference& which) {
  const auto text = blobs_.get(which.name, limits::snapshot_manifest_bytes);
  if (!text)
    return text.reason().code == errc::not_found ? damaged(which.name + " is not there")
                                                 : text.reason();
  if (images::digest_of(*text, which.digest) != which.digest)
    return damaged(which.name + " is not what it was");
  auto found = manifest::read(*text);
  if (!found)
    return damaged(which.name + " is no manifest that this version knows");
  return std::move(*found);
}

result<std::string> snapshot_store::take(const ticket& what, int socket,
                                         const unwanted_function& unwanted) {
  std::vector<piece> known;
  if (const auto earlier = reference::read(what.earlier))
    if (auto found = fetch(*earlier)) // Else everything is written anew.
      known = std::move(found->pieces);
  const auto until = std::chrono::steady_clock::now() + longest_snapshot;
  tree_channel tree{
    socket, [&] { return (unwanted && unwanted()) || std::chrono::steady_clock::now() > until; }};
  piece_writer pieces{blobs_, space_, what.taken_ms / day_ms, known};
  if (const auto written = write_tree(tree, pieces); !written)
    return written.reason();
  const auto text = manifest{what.taken_ms, pieces.pieces()}.text();
  if ((unwanted && unwanted()) || std::chrono::steady_clock::now() > until)
    return error{errc::sandbox_not_running, "nobody wants it any more"};
  const reference made{manifest_name(space_, what.owner, what.at, what.taken_ms),
                       images::digest_of(text)};
  if (const auto put = blobs_.put(made.name, text); !put)
    return put.reason();
  return made.text();
}

result<void> snapshot_store::put_back(const std::string& text, int socket,
                                      const unwanted_function& unwanted) {
  const auto which = reference::read(text);
  if (!which || !key_of(space_, which->name))
    return damaged("its reference makes no sense here: " + text);
  const auto found = fetch(*which);
  if (!found)
    return found.reason();
  tree_channel tree{socket, unwanted};
  return read_tree(blobs_, space_, *found, tree);
}

result<void> snapshot_store::forget(const std::string& owner, epoch last,
                                    const std::string& newest) {
  const auto stays = reference::read(newest);
  if (!stays && !newest.empty())
    return damaged("a reference that makes no sense");
  std::vector<std::string> gone;
  const auto listed = blobs_.list(manifests_of(space_, owner), [&](const blob_info& each) {
    const auto key = key_of(space_, each.name);
    if (key && (stays ? each.name < stays->name : key->at <= last))
      gone.push_back(each.name);
    return true;
  });
  if (!listed)
    return listed;
  for (const auto& each : gone)
    if (auto removed = blobs_.remove(each); !removed)
      return removed;
  return {};
}

// A piece is garbage if no manifest names it. Manifests that come to be meanwhile name new pieces,
// whose day keeps them, and those of a manifest that stays until they are remembered: as long as
// each sandbox has one manifest that was read here, nothing of a later one is removed.
result<snapshot_store::swept>
snapshot_store::sweep(std::int64_t now_ms,
                      const std::function<result<std::vector<std::string>>()>& remembered) {
  swept count;
  std::set<std::string> named; // Manifests, by what stays and what goes.
  std::vector<std::string> old;
  const auto listed = blobs_.list(space_ + "/manifests/", [&](const blob_info& each) {
    const auto key = key_of(space_, each.name);
    if (!key)
      return true;
    const bool young =
      key->taken_ms > now_ms - garbage_ms || each.modified_ms > now_ms - garbage_ms;
    young ? void(named.insert(each.name)) : old.push_back(each.name);
    return true;
  });
  if (!listed)
    return listed.reason();
  const auto references = remembered(); // After that: what is remembered now was there then, or is
                                        // read below.
  if (!references)
    return references.reason();
  for (const auto& each : *references)
    if (const auto which = reference::read(each); which && key_of(space_, which->name))
      named.insert(which->name);
  digest_set used;
  for (const auto& each : named) {
    const auto text = blobs_.get(each, limits::snapshot_manifest_bytes);
    const auto found = text ? manifest::read(*text) : std::nullopt;
    if (!found) // It went meanwhile, and which one has come is not known; or it is damaged.
      return text ? damaged(each) : text.reason();
    for (const auto& one : found->pieces)
      used.add(one.digest);
  }
  for (const auto& each : old)
    if (named.count(each) == 0) {
      if (const auto removed = blobs_.remove(each); !removed)
        return removed.reason();
      ++count.manifests;
    }
  std::vector<std::string> garbage;
  const auto last_day = (now_ms - garbage_ms) / day_ms - 1; // Which was over by then.
  const auto seen = blobs_.list(space_ + "/pieces/", [&](const blob_info& each) {
    constexpr std::size_t at_once = 10'000; // The others go with the next sweep.
    const auto which = piece_of(space_, each.name);
    if (which && which->day <= last_day && !used.has(which->digest))
      garbage.push_back(each.name);
    return garbage.size() < at_once;
  });
  if (!seen)
    return seen.reason();
  for (const auto& each : garbage) {
    if (const auto removed = blobs_.remove(each); !removed)
      return removed.reason();
    ++count.pieces;
  }
  return count;
}

} // namespace insula::storage::snapshots
