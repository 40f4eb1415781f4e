#pragma once

#include "runtime/engine.hpp"
#include "tests/simulation/world.hpp"
#include "tests/support/fake_engine.hpp"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace insula::simulation {

/// The sandboxes of one machine, which outlive its servers. To start one takes time, or fails.
class played_engine final : public runtime::engine {
public:
  explicit played_engine(world& in)
      : world_(in) {}
  ~played_engine() override { *alive_ = false; }

  /// From now on another server asks: what there is has been left by the one before.
  void next_server() {
    ++server_;
    left_.clear();
    for (const auto& [name, place] : places_)
      if (place->destroys == 0)
        left_.insert(name);
  }
  bool has(const std::string& name) const {
    const auto at = places_.find(name);
    return at != places_.end() && at->second->destroys == 0;
  }
  bool has_any() const {
    for (const auto& [name, place] : places_)
      if (place->destroys == 0)
        return true;
    return false;
  }
  void end_all() {
    places_.clear();
    left_.clear();
  }

  void create(runtime::sandbox_spec spec, runtime::sandbox_listener listener) override {
    const auto takes = world_.chance(0.1) ? world_.between(0ms, 3s) : world_.between(0ms, 60ms);
    world_.after(takes, [this, alive = alive_, of = server_, name = spec.name,
                         listener = std::move(listener)] {
      if (!*alive || of != server_)
        return;
      if (world_.chance(0.03))
        return listener.on_failed({errc::launch_failed, "it did not start"});
      const auto made = std::make_shared<test::fake_sandbox>();
      made->snapshots = snapshots_;
      places_[name] = made;
      listener.on_ready(made);
    });
  }
  std::vector<std::string> survivors() const override { return {left_.begin(), left_.end()}; }
  bool survives(const std::string& name) const override { return left_.contains(name); }
  void adopt(const runtime::sandbox_spec& spec, runtime::sandbox_listener listener) override {
    if (left_.erase(spec.name) == 0 || !has(spec.name))
      return listener.on_failed({errc::not_found, "nothing of that name has been left"});
    listener.on_ready(places_[spec.name]);
  }
  void disown(const std::string& name, std::function<void()> on_gone) override {
    left_.erase(name);
    places_.erase(name);
    on_gone();
  }
  /// They take their time, as all that waits for a disk.
  void drop_snapshot(const std::string& name,
                     std::function<void(result<void>)> on_dropped) override {
    world_.after(world_.between(0ms, 20ms),
                 [snapshots = snapshots_, name, tell = std::move(on_dropped)] {
                   snapshots->erase(name);
                   tell({});
                 });
  }
  bool keeps_snapshots() const override { return true; }
  void list_snapshots(std::function<void(result<std::vector<std::string>>)> tell) override {
    world_.after(world_.between(0ms, 20ms), [snapshots = snapshots_, tell = std::move(tell)] {
      tell(std::vector<std::string>{snapshots->begin(), snapshots->end()});
    });
  }
  std::vector<std::string> ailments() const override { return {}; }

private:
  world& world_;
  std::uint64_t server_ = 0;
  std::map<std::string, std::shared_ptr<test::fake_sandbox>> places_;
  std::set<std::string> left_;
  std::shared_ptr<std::set<std::string>> snapshots_ = std::make_shared<std::set<std::string>>();
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

} // namespace insula::simulation
