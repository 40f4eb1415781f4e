#pragma once

#include "tests/simulation/node.hpp"

#include <optional>

namespace insula::simulation {

class plain_history;

/// Its activations are callbacks: quick, so that there are many histories. What matters of an actor
/// is written down here once more.
class plain_node final : public node {
public:
  using node::node;
  ~plain_node() override { end(false); }

  void use(const std::string& id) override;
  void create(const std::string& id) override;

private:
  /// The actor of an id, as far as it matters here.
  struct activation {
    storage::epoch held = 0;
    bool asked = false;
    bool making = false;
    std::string object; ///< Of its record, once that is known.
  };
  /// What was stored for it, and when it is due.
  struct alarm {
    std::string record;
    nanoseconds due;
    std::uint64_t number;
  };
  static std::optional<alarm> parse(const std::string& record);

  plain_history& told() const;

  void begin() override;
  void evict(std::function<void()> gone) override;
  void cease() override;
  bool has_sandbox(const std::string& id) const override { return running_.contains(id); }
  bool has_sandboxes() const override { return !running_.empty() || !live_.empty(); }
  void end_sandboxes() override { running_.clear(); }
  void found_alarms() override { reread_asked_ = true; }

  void hold(const std::string& id, std::function<void(storage::epoch)> then);
  void sleep(const std::string& id);
  void act(const std::string& id, storage::epoch held);
  void write(const std::string& id, storage::epoch held);

  void tick();
  void reread();
  void ring(const std::string& id, const alarm& what);

  std::map<std::string, storage::epoch> running_; ///< The machine's.
  bool reread_asked_ = false;
  std::map<std::string, activation> live_;
  std::map<std::string, alarm> alarms_;
};

} // namespace insula::simulation
