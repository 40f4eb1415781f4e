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
    std::string earlier = {};  ///< As of define_snapshot.

    void give(const result<snapshot_description>& outcome) const;
  };

  void begin_unless_known(const take_snapshot& wanted, const reply<snapshot_description>& to);
  void begin(const take_snapshot& wanted, const reply<snapshot_description>& to,
             bool stands_on_it = false);
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
  std::uint64_t rollbacks_ = 0;  ///< Counts those of this activation.
  std::uint64_t made_after_ = 0; ///< So many of them were there when the running disk was made.
};

} // namespace insula::actors::inside_sandbox
