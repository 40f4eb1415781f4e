#pragma once

#include "actors/protocol/messages.hpp"
#include "actors/protocol/snapshots.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace insula::simulation {

class history;

/// The snapshots of a history, the boxes (sandboxes that begin with them), and what has to be so.
/// What a disk has is a text.
class snapshot_book {
public:
  /// `shared`: they are acknowledged once they have a copy.
  snapshot_book(history& in, bool shared)
      : all_(in)
      , shared_(shared) {}

  bool shared() const { return shared_; }
  std::uint64_t now() const { return now_; }
  std::string new_text() { return "t" + std::to_string(++texts_); }

  // ---- What machines tell

  /// The disk of a sandbox has that from now on.
  void disk_is(const std::string& sandbox, const std::string& text) {
    disks_[sandbox].emplace_back(++now_, text);
  }
  void begins(const std::string& sandbox, const std::string& snapshot, const std::string& text);
  void brought(const std::string& snapshot, const std::string& text) const;
  /// That machine's are gone.
  void disk_lost(const std::map<std::string, std::string>& snapshots);

  // ---- What etcd tells

  /// There is a record of it. `text`: as the machine of the record's owner has it.
  void recorded(const std::string& id, const std::optional<std::string>& text);

  // ---- What clients ask, and are told

  /// Of a snapshot, which gets its id.
  std::string asks(const std::string& source, bool hidden);
  void taken(const std::string& id, const insula::snapshot_description& is);
  bool is_taken(const std::string& id) const { return snapshots_.at(id).taken != 0; }
  void asks_to_delete(const std::string& id);
  void deleted(const std::string& id);
  /// Nothing is known of it, a node says.
  void not_found(const std::string& id) const;
  /// One that clients know.
  std::optional<std::string> any() const;

  /// Of a box, which gets its id.
  std::string asks_for_box(const std::string& snapshot);
  const std::string& snapshot_of(const std::string& box) const { return boxes_.at(box).snapshot; }
  /// `asked`: now(), when it was asked for this time.
  void made_box(const std::string& box, std::uint64_t asked);
  void asks_to_delete_box(const std::string& box) { boxes_.at(box).delete_asked = true; }
  std::optional<std::string> any_box() const;

  // ---- Desks: sandboxes whose runs leave their disks to the next one

  std::string new_desk();
  void made_desk(const std::string& desk) { desks_.at(desk).made = true; }
  void asks_to_delete_desk(const std::string& desk) { desks_.at(desk).delete_asked = true; }
  std::optional<std::string> any_desk() const;
  bool is_made(const std::string& desk) const { return desks_.at(desk).made; }
  /// The last one that a client has heard of. 0: of none.
  std::uint64_t run_of(const std::string& desk) const { return desks_.at(desk).run; }
  void desk_runs(const std::string& desk, std::uint64_t run);
  void desk_stopped(const std::string& desk, const sandbox_run& run);
  /// It has nothing that its next run could begin with, a node says.
  void desk_gone(const std::string& desk) const;
  /// They can run, but for those that have nothing to begin with.
  std::vector<std::string> good_desks() const;
  bool is_good_desk(const std::string& desk) const {
    return desks_.at(desk).made && !may_be_gone(desks_.at(desk));
  }

  // ---- In the end

  void check_records() const;
  /// With these everything can begin, everywhere.
  std::vector<std::string> good_ones() const;
  std::vector<std::string> good_boxes() const;
  /// Nobody deletes it meanwhile, nor what it begins with.
  bool is_wanted(const std::string& box, bool begins) const {
    const auto& mine = boxes_.at(box);
    return !mine.delete_asked && (!begins || snapshots_.at(mine.snapshot).delete_asked == 0);
  }

private:
  struct snapshot {
    std::string source;
    bool hidden = false;
    std::uint64_t asked = 0, taken = 0, delete_asked = 0, deleted = 0; ///< When. 0: not.
    std::optional<std::string> text = {}; ///< Of its record. None: there was none.
    bool lost = false;                    ///< The only disk that had it is gone.
  };
  struct box {
    std::string snapshot;
    bool made = false, delete_asked = false;
  };

  struct desk {
    bool made = false, delete_asked = false;
    std::uint64_t run = 0;
    std::string left = {}; ///< By the last stop that was acknowledged.
  };
  bool may_be_gone(const desk& which) const;

  bool has_key(const std::string& id, const char* key) const;
  std::string value(const std::string& id, const char* key) const;

  history& all_;
  const bool shared_;
  std::uint64_t now_ = 0; ///< Counts what is told.
  std::uint64_t texts_ = 0;
  std::map<std::string, snapshot> snapshots_;
  std::map<std::string, box> boxes_;
  std::map<std::string, desk> desks_;
  std::map<std::string, std::vector<std::pair<std::uint64_t, std::string>>> disks_;
};

} // namespace insula::simulation
