#pragma once

#include "runtime/engine.hpp"
#include "tests/simulation/open_answers.hpp"
#include "tests/support/fake_engine.hpp"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace insula::simulation {

class snapshot_book;
class played_engine;

/// Its disk has a text. One without a name is the node's own: it reads and writes other disks.
class played_sandbox final : public test::fake_sandbox {
public:
  played_sandbox(played_engine& of, std::string its_name, std::string on_its_disk)
      : name(std::move(its_name))
      , text(std::move(on_its_disk))
      , engine_(of) {}

  void take_snapshot(const std::string& as,
                     std::function<void(result<runtime::disk_snapshot>)> on_taken) override;
  void open_disk(const std::string& snapshot, std::function<void(result<unique_fd>)> tell) override;
  result<unique_fd> open_tree(const runtime::tree_request&, runtime::sandbox_user) override;

  const std::string name;
  std::string text;
  unique_fd written; ///< In place of that.

private:
  played_engine& engine_;
};

/// The sandboxes of one machine, which outlive its servers, and the snapshots on its disk, which
/// outlive those as well. To start one takes time, or fails.
class played_engine final : public runtime::engine {
public:
  played_engine(world& in, snapshot_book& book)
      : world_(in)
      , book_(book)
      , open_(in) {}
  ~played_engine() override { *alive_ = false; }

  /// From now on another server asks: what there is has been left by the one before.
  void next_server();
  /// One that is killed asks for nothing in its last moments.
  void server_ends(bool is_killed) { is_deaf_ = is_killed; }
  void server_has_ended() { open_.drop(); }

  bool has(const std::string& name) const {
    const auto at = places_.find(name);
    return at != places_.end() && at->second->destroys == 0;
  }
  bool has_any() const;
  void end_all() {
    places_.clear();
    left_.clear();
  }
  /// Of one that is there.
  void write(const std::string& name, const std::string& text);
  const std::map<std::string, std::string>& disk_snapshots() const { return *snapshots_; }
  void lose_disk();

  void create(runtime::sandbox_spec spec, runtime::sandbox_listener listener) override;
  std::vector<std::string> survivors() const override { return {left_.begin(), left_.end()}; }
  bool survives(const std::string& name) const override { return left_.contains(name); }
  void adopt(const runtime::sandbox_spec& spec, runtime::sandbox_listener listener) override;
  void disown(const std::string& name, std::function<void()> on_gone) override {
    left_.erase(name);
    places_.erase(name);
    on_gone();
  }
  void drop_snapshot(const std::string& name,
                     std::function<void(result<void>)> on_dropped) override;
  bool keeps_snapshots() const override { return true; }
  void list_snapshots(std::function<void(result<std::vector<std::string>>)> tell) override;
  std::vector<std::string> ailments() const override { return {}; }

private:
  friend class played_sandbox;
  using texts = std::map<std::string, std::string>;

  void on_disk(nanoseconds before, std::function<void()> what);
  void take(const std::shared_ptr<played_sandbox>& of, const std::string& name,
            std::function<void(result<runtime::disk_snapshot>)> on_taken);

  world& world_;
  snapshot_book& book_;
  open_answers open_;
  std::uint64_t server_ = 0;
  bool is_deaf_ = false;
  std::map<std::string, std::shared_ptr<played_sandbox>> places_;
  std::set<std::string> left_;
  std::shared_ptr<texts> snapshots_ = std::make_shared<texts>();
  nanoseconds busy_until_{0}; ///< What waits for the disk is done in its order.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

} // namespace insula::simulation
