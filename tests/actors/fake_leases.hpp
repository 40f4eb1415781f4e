#pragma once

#include "storage/lease.hpp"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace insula::test {

/// Leases that are given to whoever asks, with growing epochs, and remember who holds what.
class fake_leases final : public storage::lease_service {
public:
  void acquire(std::string owner, std::function<void(result<storage::epoch>)> on_held) override {
    if (hold) {
      held_back.emplace_back(
        [this, owner, on_held = std::move(on_held)] { acquire(owner, on_held); });
      return;
    }
    if (refusal)
      return on_held(*refusal);
    held[owner] = ++last;
    on_held(last);
  }
  void release(const std::string& owner, storage::epoch epoch) override {
    if (const auto at = held.find(owner); at != held.end() && at->second == epoch)
      held.erase(at);
  }

  std::map<std::string, storage::epoch> held;
  storage::epoch last = 0;
  std::optional<error> refusal;
  bool hold = false; ///< Answers wait for let_go().
  std::vector<std::function<void()>> held_back;
  void let_go() {
    hold = false;
    for (auto& each : std::exchange(held_back, {}))
      each();
  }
};

} // namespace insula::test
