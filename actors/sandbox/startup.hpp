#pragma once

#include "actors/sandbox/core.hpp"

#include <map>

namespace insula::actors::inside_sandbox {

class disk_snapshots;
class egress;
class gate;
class idempotency;
class idle;
class mounts;
class teardown;
class persistence;

/// The attempts to start the sandbox, one at a time. First the lease, then the record and the
/// engine's sandbox side by side; it runs with both. Of a sandbox that has run before, the record
/// goes first: a sandbox that a later server finds is of the start that is recorded.
class startup final : public part {
public:
  /// The parts that a start needs.
  struct others {
    gate& requests;
    idle& ladder;
    persistence& files;
    disk_snapshots& disk;
    egress& network;
    mounts& buckets;
    idempotency& keys;
    teardown& ends;
  };
  using claim_function = std::function<void(claim_slot, const reply<claim_answer>&)>;

  /// `claim` asks the pool for a warm one. Null: there is no pool.
  startup(core& of, others with, claim_function claim)
      : part(of)
      , with_(with)
      , claim_(std::move(claim)) {}

  /// For the first of the requests that wait.
  void begin();
  /// Takes over the survivor of an earlier server, if there is one and no start has begun.
  void adopt();
  /// Ends the engine's sandbox of this start; requests that wait are refused.
  void give_up(const error& why);
  /// The sandbox runs no more, or never did. Requests that wait are refused.
  void fall_asleep(const error& why);
  /// Ends what an earlier server has left.
  void end_survivor();

  /// This start takes over what an earlier server has left.
  bool adopting() const { return adopting_; }
  /// The sandbox has never run before.
  bool is_first() const { return first_; }
  /// The request that made it necessary.
  const request_context& whose() const { return watch_.whose; }

  void stopped(const error& why) override;
  void deleting(const error& why) override;
  bool may_hibernate() const override { return given_up_.empty(); }

private:
  /// The measured times of a start. Nothing is decided by them, so they are by the system's clock.
  struct watch {
    steady_clock::time_point began;
    steady_clock::time_point lease_asked;
    steady_clock::time_point record_sent;
    steady_clock::time_point claimed;
    steady_clock::time_point made_ours;
    start_times parts{};
    request_context whose;

    std::chrono::nanoseconds& part(start_phase which) {
      return parts[static_cast<std::size_t>(which)];
    }
  };

  /// What a start has of others, and gives back.
  struct taken_places {
    instance_count::place instance;     ///< Among the node's.
    storage::key_places::held of_key{}; ///< Among those of the key that has made it.
  };

  void make_unless_paused();
  void choose_image_and_make();
  void on_image(std::uint64_t start, const result<std::string>& found);
  void make_from(shared_image image);
  void take_place_of_key(const then_function& then);
  void take_place(then_function then);
  void take_place_cold(const then_function& then);
  void take_lease_and_make();
  bool has_no_run() const;
  bool begins_run() const;
  void write_record(const then_function& make);
  void record_failed(const error& why, bool before);
  void make();
  runtime::sandbox_listener listener();
  void run_if_ready();
  void account();

  void on_ready(std::uint64_t start, std::shared_ptr<runtime::sandbox> made);
  void on_failed(std::uint64_t start, error why);
  void end_failed(error why);
  std::optional<error> cannot_be_brought(const snapshot_description& found) const;
  void bring_disk();
  void on_disk(std::uint64_t start, const result<void>& back);
  void on_survivor_ended(std::uint64_t start);
  taken_places take_given_up(std::uint64_t start);

  const others with_;
  const claim_function claim_;
  taken_places taken_;
  std::string image_name_; ///< Of this start.
  bool making_ = false; ///< The engine has been asked for this start, and has not said how it went.
  /// By start: the places of engine's sandboxes that are still being made for starts that are over.
  std::map<std::uint64_t, taken_places> given_up_;
  std::shared_ptr<claimed_slot> slot_; ///< From the pool, until it is made ours.
  bool warm_ = false;                  ///< This start is that of one from the pool.
  unsigned claims_ = 0;                ///< Of this start, that found a dead slot.
  bool recorded_ = false;              ///< This start is in the store.
  bool first_ = false;                 ///< The record had no start before this one.
  bool known_ = false;                 ///< The sandbox was there already when this start began.
  bool adopting_ = false;
  bool awaits_image_ = false; ///< This start waits until its image is here.
  std::string brought_disk_;  ///< The snapshot that the engine lacked for this start. Empty: none.
  bool awaits_disk_ = false;  ///< It waits for that,
  std::shared_ptr<work_token> disk_wanted_; ///< unless this is cancelled.
  watch watch_;                             ///< Of the last start.
};

} // namespace insula::actors::inside_sandbox
