#include "storage/snapshots/snapshot_store.hpp"

#include "base/limits.hpp"
#include "storage/images/digest.hpp"
#include "storage/snapshots/piece_writer.hpp"
#include "storage/snapshots/snapshot_reader.hpp"
#include "storage/snapshots/snapshot_writer.hpp"

#include <algorithm>
#include <chrono>
#include <random>
#include <set>

namespace insula::storage::snapshots {

/// A set of any number of digests in a known amount of memory: it has all that were added, and now
/// and then one that was not, other ones each time. What is kept for that goes some other day.
class snapshot_store::digest_set {
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

namespace {

constexpr std::int64_t day_ms = std::chrono::milliseconds{std::chrono::hours{24}}.count();
constexpr std::int64_t garbage_ms = std::chrono::milliseconds{limits::snapshot_garbage_age}.count();

static_assert(limits::snapshot_time < limits::snapshot_garbage_age, "its first pieces are there");

/// How often a sweep begins anew with manifests that have come while it read others, and how many
/// pieces it removes, at_once at a time.
constexpr unsigned most_rounds = 20;
constexpr std::size_t at_once = 10'000;
constexpr std::size_t most_swept = 1'000'000;

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

/// Then only the others come.
result<void> snapshot_store::tell_groups(const manifest& known, tree_channel& to) {
  std::vector<group_key> keys;
  for (const auto& each : known.groups)
    keys.push_back(each.key);
  std::sort(keys.begin(), keys.end());
  const groups_head head{static_cast<std::uint32_t>(keys.size()), 0};
  if (auto good = to.write(&head, sizeof head); !good)
    return good;
  if (auto good = to.write(keys.data(), keys.size() * sizeof(group_key)); !good)
    return good;
  return to.flush();
}

result<std::string> snapshot_store::take(const ticket& what, int socket,
                                         const unwanted_function& unwanted) {
  manifest known;
  if (const auto earlier = reference::read(what.earlier))
    if (auto found = fetch(*earlier)) // Else everything is written anew.
      known = std::move(*found);
  const auto until = std::chrono::steady_clock::now() + limits::snapshot_time;
  tree_channel tree{
    socket, [&] { return (unwanted && unwanted()) || std::chrono::steady_clock::now() > until; }};
  if (const auto told = what.whole ? tell_groups(known, tree) : result<void>{}; !told)
    return told.reason();
  piece_writer pieces{blobs_, space_, what.taken_ms / day_ms, std::move(known)};
  if (const auto written = write_tree(tree, pieces, what.whole); !written)
    return written.reason();
  const auto text = manifest{what.taken_ms, pieces.pieces(), pieces.groups()}.text();
  if ((unwanted && unwanted()) || std::chrono::steady_clock::now() > until)
    return error{errc::sandbox_not_running, "nobody wants it any more"};
  const reference made{manifest_name(space_, what.owner, what.at, what.taken_ms),
                       images::digest_of(text)};
  if (const auto put = blobs_.put(made.name, text); !put)
    return put.reason();
  return made.text();
}

result<void> snapshot_store::put_back(const std::string& text, int socket,
                                      const unwanted_function& unwanted, bool whole) {
  const auto which = reference::read(text);
  if (!which || !key_of(space_, which->name))
    return damaged("its reference makes no sense here: " + text);
  const auto found = fetch(*which);
  if (!found)
    return found.reason();
  tree_channel tree{socket, unwanted};
  return read_tree(blobs_, space_, *found, tree, whole);
}

result<void> snapshot_store::forget(const std::string& owner, epoch last,
                                    const std::string& newest) {
  const auto stays = reference::read(newest);
  if (!stays && !newest.empty())
    return damaged("a reference that makes no sense");
  std::vector<std::string> gone;
  auto listed = blobs_.list(manifests_of(space_, owner), [&](const blob_info& each) {
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

/// By the store's own clock.
result<std::int64_t> snapshot_store::store_time() {
  const auto name = space_ + "/clock";
  if (const auto put = blobs_.put(name, "now"); !put)
    return put.reason();
  std::int64_t found = 0;
  const auto listed = blobs_.list(name, [&](const blob_info& each) {
    found = std::max(found, each.modified_ms);
    return true;
  });
  if (!listed)
    return listed.reason();
  return found;
}

/// All pieces of `named`. What went while others were read was replaced: then those that have come
/// are read as well, which are remembered before the others go.
result<snapshot_store::digest_set>
snapshot_store::pieces_of(std::set<std::string> named, const remembered_function& remembered) {
  digest_set used;
  std::set<std::string> done;
  for (unsigned round = 0; round < most_rounds; ++round) {
    std::vector<std::string> gone;
    for (const auto& each : named) {
      if (!done.insert(each).second)
        continue;
      const auto text = blobs_.get(each, limits::snapshot_manifest_bytes);
      if (!text && text.reason().code == errc::not_found) {
        gone.push_back(each);
        continue;
      }
      const auto found = text ? manifest::read(*text) : std::nullopt;
      if (!found)
        return text ? damaged(each) : text.reason();
      for (const auto& one : found->pieces)
        used.add(one.digest);
    }
    if (gone.empty())
      return used;
    auto now = names_of(remembered);
    if (!now)
      return now.reason();
    for (const auto& each : gone)
      if (now->count(each) > 0) // And so it should be there.
        return damaged(each + " is not there");
    named = std::move(*now);
  }
  return error{errc::store_failed, "snapshots change faster than they can be looked at"};
}

result<std::set<std::string>>
snapshot_store::names_of(const remembered_function& remembered) const {
  const auto references = remembered();
  if (!references)
    return references.reason();
  std::set<std::string> names;
  for (const auto& each : *references)
    if (const auto which = reference::read(each); which && key_of(space_, which->name))
      names.insert(which->name);
  return names;
}

// A piece is garbage if no manifest names it. Manifests that come to be meanwhile name new pieces,
// whose day keeps them, and those of a manifest that stays until they are remembered: as long as
// each sandbox has one manifest that was read here, nothing of a later one is removed. What is old
// is so by the clocks of its writer, of the store, and of this node, which may all be wrong.
result<snapshot_store::swept> snapshot_store::sweep(std::int64_t now_ms,
                                                    const remembered_function& remembered) {
  const auto there = store_time();
  if (!there)
    return there.reason();
  const auto oldest_ms = std::min(now_ms, *there) - garbage_ms;
  swept count;
  std::set<std::string> named; // Manifests, by what stays and what goes.
  std::vector<std::string> old;
  const auto listed = blobs_.list(space_ + "/manifests/", [&](const blob_info& each) {
    const auto key = key_of(space_, each.name);
    if (!key)
      return true;
    const bool young = key->taken_ms > oldest_ms || each.modified_ms > oldest_ms;
    young ? void(named.insert(each.name)) : old.push_back(each.name);
    return true;
  });
  if (!listed)
    return listed.reason();
  auto referred = names_of(remembered); // After that: what is remembered now was there then, or is
                                        // read below.
  if (!referred)
    return referred.reason();
  named.merge(*referred);
  const auto used = pieces_of(named, remembered);
  if (!used)
    return used.reason();
  for (const auto& each : old)
    if (named.count(each) == 0) {
      if (const auto removed = blobs_.remove(each); !removed)
        return removed.reason();
      ++count.manifests;
    }
  const auto last_day = oldest_ms / day_ms - 1; // Which was over by then.
  std::vector<std::string> garbage;
  do {
    garbage.clear();
    const auto seen = blobs_.list(space_ + "/pieces/", [&](const blob_info& each) {
      const auto which = piece_of(space_, each.name);
      if (which && which->day <= last_day && each.modified_ms <= oldest_ms &&
          !used->has(which->digest))
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
  } while (garbage.size() == at_once && count.pieces < most_swept);
  return count;
}

} // namespace insula::storage::snapshots
