#pragma once

#include "actors/sandbox/core.hpp"

#include <deque>

namespace insula::actors::inside_sandbox {

class command_logs;
class gate;
class idempotency;
class lease;
class runs;
class startup;
class persistence;

/// The ends of the sandbox: its stop, its deletion, its move to another node, and its alarms.
class teardown final : public part {
public:
  /// The parts that an end needs.
  struct others {
    lease& right;
    gate& requests;
    startup& starts;
    persistence& files;
    idempotency& keys;
    command_logs& logs;
    runs& asked_for;
  };

  /// `quit` ends the actor.
  teardown(core& of, others with, then_function quit)
      : part(of)
      , with_(with)
      , quit_(std::move(quit)) {}

  // As sandbox_object_actor says.
  void remove(request_context context, const reply<caf::ok_atom>& to);
  void evict(const reply<caf::ok_atom>& to);
  void hand_over(const reply<caf::ok_atom>& to);
  void attend(const alarm_due& due, const reply<caf::ok_atom>& to);

  /// It has been idle for long enough, or its run is to end.
  /// `told`: the error for the requests that it interrupts.
  void stop(sandbox_end why = sandbox_end::idle, std::string told = "it was stopped");
  /// It has ended by itself, or for the memory that it held.
  void on_ended(std::uint64_t start, bool for_memory);
  /// Ends the engine's sandbox. on_gone() follows.
  void destroy();
  /// Nothing of it runs any more: what is stored of it goes, too.
  void finish_delete();
  /// The same if its record may not be loaded.
  void load_and_finish_delete();

  void ends(const error& why) override;
  bool may_hibernate() const override { return deleting_.empty(); }

private:
  using waiting_replies = std::vector<reply<caf::ok_atom>>;

  void remove_known(request_context context, const reply<caf::ok_atom>& to);
  void begin_delete();
  bool is_absent() const;
  void on_gone(std::uint64_t start);
  void sleep_unless_awaited(const error& why, std::deque<waiting_request> waiting);
  /// It is over; with a reason, its record stays.
  void deleted(const error* why_not);
  void leave(const reply<caf::ok_atom>& to);
  void keep_and_leave(const reply<caf::ok_atom>& to, unsigned snapshots_left);
  void stay(const error& why, const reply<caf::ok_atom>& to);
  void handed_over();
  void part_from_node(const error* why_not);
  void expire(const reply<caf::ok_atom>& to);
  void silence(kept_record& kept, const alarm_due& due);

  const others with_;
  const then_function quit_;
  std::string why_stopped_;  ///< In words.
  request_context deletion_; ///< The request that ends it.
  waiting_replies deleting_, evicting_, handing_over_;
  bool evicted_ = false; ///< Another node owns it, or none does: its record is not ours to change.
  bool leaving_ = false; ///< For another node.
  bool parting_ = false; ///< It does not run any more, and is about to be another node's.
  bool ended_ = false;   ///< The actor is about to: nothing is begun any more.
  steady_clock::time_point stays_until_{}; ///< It could not leave, and is not to try before.
};

} // namespace insula::actors::inside_sandbox
