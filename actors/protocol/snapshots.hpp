#pragma once

#include "actors/protocol/request_context.hpp"
#include "base/disk_changes.hpp"

#include <caf/allowed_unsafe_message_type.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// Snapshots of whole disks: what a sandbox has changed of its image's files.
namespace insula {

/// `deleted`: nobody can begin with it. Its bytes stay for as long as a sandbox stands on them.
/// `failed`: its bytes are not there any more.
enum class snapshot_state : std::uint8_t { created, deleted, failed };

constexpr const char* name_of(snapshot_state now) {
  switch (now) {
    case snapshot_state::created: return "created";
    case snapshot_state::deleted: return "deleted";
    case snapshot_state::failed: return "failed";
  }
  return "?";
}

struct snapshot_description {
  std::string id;     ///< As of a sandbox, and of no other snapshot.
  std::string origin; ///< The sandbox whose disk it was. That may be gone.
  /// What that sandbox took before, or had begun with. Empty: this is the first one.
  std::string parent = {};
  std::string root = {};         ///< The first of its tree: itself, if it has no parent.
  std::uint64_t run = 0;         ///< The run of the origin that it was taken in. 0: it had none.
  std::string image = {};        ///< By its name on the node.
  std::string image_source = {}; ///< As of a sandbox: REPOSITORY@DIGEST. Empty: from no registry.
  std::string image_digest = {}; ///< Of what it lies over. Empty: it is not known.
  /// Its image is not what it was: `host`, on a machine that was changed since. Of one that is
  /// asked, not of those in a list.
  bool image_changed = false;
  std::uint64_t bytes = 0; ///< That the disk has. 0: it is not known.
  bool automatic = false;  ///< Nobody has asked for it.
  bool hidden = false;     ///< Made for forks: it is in no list and in no tree.
  std::string name = {};   ///< Of the caller's; empty: none.
  std::map<std::string, std::string> labels = {};
  std::int64_t created_ms = 0;   ///< Unix time, and the next.
  std::int64_t last_used_ms = 0; ///< When a sandbox last began with it; before that, created_ms.
  std::int64_t keep_ms = 0;      ///< It is deleted so long after its last use. 0: never.
  snapshot_state state = snapshot_state::created;
  /// Where a copy is that outlives the node: a line of text. Empty: there is none.
  std::string copy = {};
  std::string no_copy = {};    ///< Why there is none, for good. Empty: one may be made yet.
  bool pending = false;        ///< Nobody sees it before it has a copy.
  std::uint64_t sandboxes = 0; ///< That stand on it. Of one that is asked, not of those in a list.
  /// Its bytes are on a node that is not there now. Of one that is asked, as far as is known.
  bool away = false;
  std::string group = {}; ///< That its origin was in. Empty: in none.
};
/// Unix time. None: it stays until it is deleted.
inline std::optional<std::int64_t> expires_ms(const snapshot_description& of) {
  return of.keep_ms == 0 ? std::nullopt : std::optional{of.last_used_ms + of.keep_ms};
}

/// Its bytes are there: from now on it is one.
struct define_snapshot {
  /// The snapshot sets its times, but for keep_ms, and `root` if there is no parent.
  snapshot_description is;
  /// Beyond so many, older ones of the origin on which no sandbox stands are deleted. 0: none.
  std::uint32_t keep_last = 0;
  /// A sandbox that stands on it from the beginning. One that is `deleted` is for that sandbox
  /// alone: where there is a place for copies it is defined once it has one. Empty: none.
  std::string held_by = {};
  /// Its copy shares what it can with that of this one, or, if that is empty, of its parent.
  std::string earlier = {};
  request_context context = {};
  /// No sweep takes its bytes for somebody's who has forgotten them.
  std::shared_ptr<void> wanted = nullptr;
};
struct find_snapshot {
  std::string id;
  request_context context = {};
  bool hidden = false;     ///< One that nobody sees is found, too.
  bool needs_copy = false; ///< Another node lacks its bytes: it gets a copy, if it has none.
};
/// A sandbox is about to stand on it: its bytes stay until they are released.
struct hold_snapshot {
  std::string id;
  std::string sandbox;
  request_context context = {};
  /// It stands on it already, and is about to use it. Answered before it is durable that it does so
  /// now.
  bool again = false;
};
struct release_snapshot {
  std::string id;
  std::string sandbox;
};
struct delete_snapshot {
  std::string id;
  request_context context = {};
  /// Not if a sandbox stands on it: limit_reached.
  bool evicts = false;
  /// Not 0, of one that is evicted: it is not deleted, but expires so long after this.
  std::int64_t keep_ms = 0;
};

/// A page of snapshots: of all, of an origin or of a group the newest first, without those that are
/// deleted; of a tree, with those, the oldest first; or of those of one parent that are in a group,
/// with those, the newest first.
struct list_snapshots {
  std::string origin = {};
  std::string root = {};
  std::string after = {};  ///< `next` of the page before. Empty: this is the first page.
  std::uint32_t limit = 1; ///< At most limits::list_page_sandboxes.
  std::string group = {};
  std::string parent = {};
  bool turned = false; ///< The oldest first, of an origin or a group: those that are in a group.
};
struct snapshot_page {
  std::vector<snapshot_description> snapshots;
  std::string next; ///< Empty: this is the last page.
};

/// What differs between a snapshot and an older one over the same image.
struct compare_snapshots {
  std::string id;
  std::string older = {};    ///< Empty: its parent; of one that has none, the image.
  std::string after = {};    ///< The last path of the page before. Empty: this is the first page.
  std::uint32_t limit = 100; ///< 1 to max_changes_at_once.
  request_context context = {};
};
struct snapshot_changes {
  std::string older; ///< Empty: the image.
  disk_changes found;
};

// ---- Of a sandbox

/// Starts it if it does not run; one that stands still is left so.
struct take_snapshot {
  /// Of the snapshot: of a second request with the same one, the answer is the first's. Empty: a
  /// new one.
  std::string id = {};
  std::string name = {};
  std::map<std::string, std::string> labels = {};
  std::int64_t keep_ms = 0;
  std::uint32_t keep_last = 0; ///< As of define_snapshot.
  bool hidden = false;
  request_context context = {};
  bool automatic = false; ///< Nobody has asked for it.
  /// The sandbox begins with it from now on; those before it are kept as the node's run_disk_rule
  /// has it.
  bool becomes_base = false;
};
/// Its disk becomes that of the snapshot, which is one of its own, or that it has begun with. All
/// that runs in it ends.
struct roll_back {
  std::string snapshot;
  request_context context = {};
};

} // namespace insula

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::snapshot_description)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::define_snapshot)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::find_snapshot)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::hold_snapshot)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::release_snapshot)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::delete_snapshot)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::list_snapshots)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::snapshot_page)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::compare_snapshots)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::snapshot_changes)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::take_snapshot)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::roll_back)
