#pragma once

#include "actors/protocol/snapshots.hpp"
#include "actors/sandbox/core.hpp"

#include <map>
#include <string>
#include <vector>

namespace insula::actors::inside_sandbox {

class teardown;
class persistence;

/// Snapshots of the sandbox's whole disk: taken while it runs or stands still, and what its disk
/// begins with. A snapshot that it begins with is held in its name: it says so in its record after
/// the snapshot has said so in its own, and lets go after its record has gone.
class disk_snapshots final : public part {
public:
  disk_snapshots(core& of, persistence& files, teardown& ends)
      : part(of)
      , persistence_(files)
      , teardown_(ends) {}

  void take(const take_snapshot& wanted, const reply<snapshot_description>& to);
  void roll_back_to(const roll_back& wanted, const reply<sandbox_description>& to);

  /// Its disk as it is now, or later, is what the next start begins with, once that is durable.
  void keep(std::function<void(const result<void>&)> then);

  using kept_function = std::function<void(const result<snapshot_description>&)>;
  /// The same in a snapshot that clients see, of an id that is new: what the end of a run leaves to
  /// the next one. From then on keep() keeps nothing more of this start, and is answered with this.
  /// Older ones make room then.
  void keep_for_next_run(const take_snapshot& wanted, kept_function then);
  /// An earlier server has been ended in the middle of that. It is finished if the snapshot is
  /// there. Errors: not_found (it is not).
  void find_for_next_run(const std::string& id, kept_function then);
  /// A run that is not the first begins. What its disk begins with stays from now on for as long as
  /// it is alive; `then` gets what is written of that together with the run. Errors: snapshot_gone;
  /// those of hold_snapshot.
  void begin_run(const request_context& context,
                 std::function<void(const result<std::vector<storage::change>>&)> then);
  /// Those changes have been written.
  void note_run_begun();
  /// They have not, and will not be.
  void note_run_refused() {
    begins_ = false;
    let_go_.clear();
  }
  /// The next run begins with that snapshot, whose group is that of the sandbox, unless a run that
  /// is alive leaves another one: `changes` become durable together with that. Errors:
  /// snapshot_gone; those of hold_snapshot.
  void begin_next_run_with(const std::string& id, const request_context& context,
                           std::function<result<std::vector<storage::change>>()> changes,
                           std::function<void(const result<void>&)> then);
  /// As the node's run_disk_rule has it. Its record is loaded.
  snapshot_retention retention() const;
  /// As APIs tell base().
  std::string told_base() const;

  /// That the next start begins with. Empty: with nothing. Its record is loaded.
  std::string base() const;
  /// The engine is asked for the sandbox of this start, with base() or what has survived.
  void note_made() { made_after_ = rollbacks_; }
  /// What a new sandbox writes that begins with that one, which it holds.
  static std::vector<storage::change> changes_for(const snapshot_description& from);
  /// It was rolled back while it ran, and what an earlier server has left has the disk of before.
  bool has_other_disk() const;
  /// Adds to the record of a start.
  void note_start(std::vector<storage::change>& into) const;

  void describe(sandbox_description& into) const override;
  void deleting(const error& why) override;
  void ends(const error& why) override;

private:
  using base_changes = std::function<result<std::vector<storage::change>>()>;
  struct taking {
    take_snapshot wanted;
    std::vector<reply<snapshot_description>> to;
    pending_operation mine;
    std::shared_ptr<void> awake = nullptr;
    snapshot_description is = {};        ///< As it was when the snapshot began.
    std::uint64_t start = 0;             ///< The start of the sandbox in which it began.
    steady_clock::time_point since = {}; ///< For figures alone, as the next.
    runtime::disk_snapshot made;
    std::shared_ptr<void> noted = nullptr;
    bool stands_on_it = false; ///< It is for this sandbox alone, and is removed with its hold.
    bool is_held = false;      ///< This, or clients see it as well.
    std::string earlier = {};  ///< As of define_snapshot.

    void give(const result<snapshot_description>& outcome) const;
  };

  void begin_unless_known(const take_snapshot& wanted, const reply<snapshot_description>& to);
  /// What a snapshot is for: for those that see it, for the next run as well, or for the next start
  /// of this sandbox alone.
  enum class purpose : std::uint8_t { seen, next_run, next_start };
  void begin(const take_snapshot& wanted, const reply<snapshot_description>& to,
             purpose of = purpose::seen);
  void take_and_keep(const take_snapshot& wanted, const reply<snapshot_description>& to);
  void keep_taken(const result<snapshot_description>& taken, std::uint64_t start,
                  const kept_function& then);
  void left(const result<snapshot_description>& outcome);
  bool has_run() const;
  void begin_with_seen(const std::string& id, const request_context& context,
                       std::function<result<std::vector<storage::change>>()> changes,
                       const std::function<void(const result<void>&)>& then);
  void note_next(const snapshot_description& next,
                 const std::function<result<std::vector<storage::change>>()>& changes,
                 const std::function<void(const result<void>&)>& then);
  void stand_on(const snapshot_description& next, base_changes changes,
                std::function<void(const std::string&)> then, const otherwise_function& otherwise);
  void release(const std::string& id, const then_function& then);
  void run_from_base(const request_context& context, unsigned starts_left,
                     const reply<sandbox_description>& to);
  void on_taken(const std::string& id, const result<runtime::disk_snapshot>& outcome);
  void on_defined(const std::string& id, const result<snapshot_description>& defined);
  void drop_unless_defined(const std::string& id);
  snapshot_description describe_next(const std::string& id, const take_snapshot& wanted) const;
  void begin_roll_back(const roll_back& wanted, const reply<sandbox_description>& to);
  void write_base(const snapshot_description& next, const roll_back& wanted,
                  const reply<sandbox_description>& to);

  persistence& persistence_;
  teardown& teardown_;
  std::map<std::string, taking> taking_; ///< By the id that the snapshot gets.
  bool rolling_back_ = false;
  std::uint64_t left_by_start_ = 0; ///< A run that ends leaves its disk in this start, or has.
  bool leaves_ = false;             ///< It is about to.
  std::vector<std::function<void(const result<void>&)>> when_left_;
  bool begins_ = false;          ///< A run is about to be written that begins with what is held.
  std::string let_go_;           ///< What it does not begin with.
  std::uint64_t rollbacks_ = 0;  ///< Counts those of this activation.
  std::uint64_t made_after_ = 0; ///< So many of them were there when the running disk was made.
};

} // namespace insula::actors::inside_sandbox
