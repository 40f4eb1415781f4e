#pragma once

#include "actors/protocol/messages.hpp"
#include "actors/sandbox_groups.hpp"
#include "storage/memory_store.hpp"
#include "tests/simulation/node.hpp"
#include "tests/simulation/played_engine.hpp"
#include "tests/simulation/played_place.hpp"

#include <memory>
#include <optional>

namespace insula::simulation {

class actor_history;

/// Every sandbox is in lists of one group.
inline std::optional<grouped_sandbox> everybodys_group(const api_metadata&) {
  return grouped_sandbox{"everybody", "same"};
}

/// Its server has the actors of the real one: the directory and its sandboxes, with their gates to
/// the stores, alarms, and one for each peer. They run on CAF's scheduler for tests, one message
/// after the other in an order that is drawn, by this node's clock.
class actor_node final : public node {
public:
  actor_node(history& in, std::string name);
  ~actor_node() override;

  void use(const std::string& id) override;
  void create(const std::string& id) override;
  void settle() override;

  /// By so much two nodes' wall clocks may differ.
  static constexpr nanoseconds clocks_differ = 2s;
  static std::int64_t wall_ms(nanoseconds at) {
    return 1'700'000'000'000 + std::chrono::duration_cast<std::chrono::milliseconds>(at).count();
  }

  // ---- Snapshots

  const std::map<std::string, std::string>& disk_snapshots() const {
    return engine_.disk_snapshots();
  }
  /// The machine's, for good. Its server has ended.
  void lose_disk() { engine_.lose_disk(); }
  /// A sandbox begins here with the snapshot of that box: it is made, if that has not been done,
  /// and started. `then` is told whether it runs.
  void begin_box(const std::string& box, std::function<void(bool)> then);
  /// A run of that desk, which is made if need be, wherever it is. `then` is told whether it runs.
  void begin_desk(const std::string& desk, std::function<void(bool)> then);
  /// A box of clients', wherever it is.
  void use_box(const std::string& box, std::function<void(bool)> then);

private:
  struct server;

  void begin() override;
  void joined_again() override;
  void evict(std::function<void()> gone) override;
  void cease() override;
  void forget() override;
  bool has_sandbox(const std::string& id) const override { return engine_.has(id); }
  bool has_sandboxes() const override { return engine_.has_any(); }
  void end_sandboxes() override { engine_.end_all(); }
  void found_alarms() override;

  actor_history& told() const;
  bool serves() const { return runs() && serving_ && server_ && !client->stands_still; }
  void run();

  // A request, from the node that was asked to the one that does it.
  using deed = std::function<void(actor_node&)>;
  void route(const std::string& id, const deed& what);
  void forward(const std::string& to, const deed& what);
  void answer_peer(const std::string& what, std::string text,
                   std::function<void(result<std::string>)> reply);

  void act(const std::string& id);
  void write(const std::string& id);
  void remove(const std::string& id);
  void start(const std::string& id);
  void hand_over(const std::string& id);
  template <class Question>
  void describe(const std::string& id, Question what,
                std::function<void(sandbox_description&)> then,
                std::function<void(const error&)> otherwise);
  void make(const std::string& id);
  void look_at(const std::string& id, int tries);

  // Of snapshots: see snapshot_plays.cpp.
  static constexpr double uses_of_snapshots = 0.12; ///< Of all uses.
  void use_snapshots(const std::string& id);
  void answer_for_snapshot(const std::string& question,
                           const std::function<void(result<std::string>)>& reply);
  void let_go(const std::string& owner, const std::function<void(result<std::string>)>& reply);
  void take(const std::string& of, const std::string& as, int tries);
  void take_again(const std::string& of, const std::string& as, int tries);
  void fork(const std::string& id);
  void make_siblings(const std::string& snapshot);
  void delete_snapshot(const std::string& id);
  void hand_over_a_snapshot();
  void begin_one(const std::string& snapshot, bool stays, int tries,
                 const std::function<void()>& then);
  void try_to_begin(const std::string& box, bool stays, int tries,
                    const std::function<void()>& then);
  void start_box(const std::string& box, std::function<void(bool)> then);
  void delete_box(const std::string& box);
  void use_desk(const std::string& desk);
  void run_desk(const std::string& desk, const std::function<void(bool)>& then);
  void stop_desk(const std::string& desk);
  void delete_desk(const std::string& desk);
  /// Some program writes into the disk of a sandbox that runs here.
  void write_disk(const std::string& id);

  // The machine's:
  const nanoseconds wall_ahead_;
  played_engine engine_;
  played_files files_;
  storage::memory_store local_;

  std::unique_ptr<server> server_;
};

} // namespace insula::simulation
