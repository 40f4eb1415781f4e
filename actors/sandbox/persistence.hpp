#pragma once

#include "actors/sandbox/core.hpp"

namespace insula::actors::inside_sandbox {

class disk_snapshots;
class idle;
class startup;
class teardown;

/// What is kept of a persistent sandbox: a snapshot of its whole disk, taken now and then while it
/// is used, before it stands still or is stopped for want of use, and before it is handed over. Its
/// next start begins with that. What an earlier version kept, which was /workspace alone, is put
/// back by a start, and goes with the first snapshot of the disk.
class persistence final : public part {
public:
  /// The parts that it needs.
  struct others {
    idle& ladder;
    disk_snapshots& disk;
    startup& starts;
    teardown& ends;
  };
  persistence(core& of, others with)
      : part(of)
      , idle_(with.ladder)
      , disk_(with.disk)
      , startup_(with.starts)
      , teardown_(with.ends) {}

  /// From now on it is persistent.
  void mark(const mark_persistent& wanted, const reply<caf::ok_atom>& to);
  /// A snapshot as of now, or later, is durable when this is answered. Of a sandbox that has none
  /// to take, at once.
  void keep(const reply<caf::ok_atom>& to);
  /// The same if it was used since the last one.
  void keep_if_used(const reply<caf::ok_atom>& to);

  /// It runs, and its files are to outlive it.
  bool may_be_kept() const;
  /// Since the last snapshot began.
  bool was_used() const { return files_.used; }
  /// After a failure: not before.
  steady_clock::time_point retry_at() const { return files_.retry_at; }

  /// Adds to the record of a start.
  void note_start(std::vector<storage::change>& into);
  /// What a snapshot of its whole disk changes in the record.
  std::vector<storage::change> changes_of_kept(std::int64_t taken_ms) const;
  /// Adds to the record what makes its files those of its disk alone.
  void note_other_disk(std::vector<storage::change>& into) const;
  /// It has been taken down while its files were put back: what it has is not all of them.
  bool has_half_its_files() const;
  /// An earlier version may have kept some of it. Its record is loaded.
  bool has_snapshots() const;
  /// Nothing of that is to be found any more. After its record has gone, or says so.
  void forget_snapshots() const;

  /// The files of its last snapshot are back.
  bool settle(const then_function& then, const otherwise_function& failed) override;
  /// If its files were put back the request will say so, unless another one has.
  void served(const request_context& context) override;
  void used() override;
  void stopped(const error& why) override { forget(why); }
  void deleting(const error& why) override;
  void ends(const error& why) override { forget(why); }
  /// A request that wants it to be persistent waits until that is durable.
  bool delays(const request_context& context, const then_function& then,
              const otherwise_function& otherwise) override;
  /// A snapshot comes first.
  bool delays(idle_step next) override;

private:
  enum class state : std::uint8_t { unknown, settling, settled };
  struct recorded_snapshot {
    std::int64_t taken_ms = 0;
    snapshot_reference where;
  };
  using waiting_replies = std::vector<reply<caf::ok_atom>>;

  /// Of one start.
  struct files_of_start {
    state now = state::unknown;
    bool ran_before = false;           ///< It is not the first start.
    bool used = false;                 ///< Since the last snapshot began.
    bool keeping = false;              ///< A snapshot is on its way.
    bool before_stop = false;          ///< It is for want of use, and the last thing that is done.
    std::shared_ptr<work_token> token; ///< Of what is put back.
    std::optional<steady_clock::time_point> last_began;
    steady_clock::time_point retry_at{};
    std::chrono::seconds retry = limits::snapshot_retry; ///< After the next failure, at least.
    waiting_replies waiting, waiting_next;               ///< For that one, and for the next.
    std::shared_ptr<recovery> recovered;                 ///< Of this start, until it has been told.
    then_function then;                                  ///< Once they are there.
  };

  std::optional<recorded_snapshot> recorded() const;
  bool is_marked() const;
  void forget(const error& why);
  void on_back(std::uint64_t start, const result<void>& outcome);
  void not_back(const error& why);
  void expect_snapshot();
  void check();
  void begin_snapshot();
  void stand_still_if_kept(std::uint64_t number);
  void on_kept(std::uint64_t start, bool had_older, const result<void>& outcome);
  void not_kept(const error& why);
  void snapshot_over(const result<void>& outcome);

  idle& idle_;
  disk_snapshots& disk_;
  startup& startup_;
  teardown& teardown_;
  files_of_start files_;
  std::uint64_t number_ = 0;  ///< Of the last snapshot.
  bool check_is_set_ = false; ///< A look at whether one is due is on its way.
  bool marking_ = false;      ///< Persistence was requested; the record is not durable yet.
};

/// Its files outlive their node. Its record is loaded.
bool is_persistent(const core& of);

} // namespace insula::actors::inside_sandbox
