#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace insula::actors::snapshots {

/// What a snapshot is counted as. `hidden`: nobody sees it, but it has bytes.
/// `deleted`: nobody can begin with it, and a sandbox stands on its bytes. `failed`: its bytes are
/// lost.
enum class counted_as : std::uint8_t { created, hidden, deleted, failed };
inline constexpr std::size_t counted_states = 4;

/// The snapshots of a node, by what has become of them: some 100 bytes for each.
///
/// Threads: any.
class census {
public:
  struct figures {
    std::array<std::uint64_t, counted_states> many{};
    std::uint64_t bytes = 0; ///< That their disks have; what several share counts for each.
  };

  /// From now until end_sweep(), learn() tells of what earlier servers have left, in any order with
  /// what happens meanwhile.
  void begin_sweep() {
    const std::lock_guard lock{guard_};
    ++sweeps_;
  }
  void end_sweep() {
    const std::lock_guard lock{guard_};
    if (--sweeps_ == 0)
      gone_.clear();
  }
  void learn(const std::string& id, counted_as what, std::uint64_t bytes) {
    const std::lock_guard lock{guard_};
    if (!all_.contains(id) && !gone_.contains(id))
      enter(id, what, bytes);
  }

  void put(const std::string& id, counted_as what, std::uint64_t bytes) {
    const std::lock_guard lock{guard_};
    leave(id);
    enter(id, what, bytes);
  }
  void remove(const std::string& id) {
    const std::lock_guard lock{guard_};
    leave(id);
    if (sweeps_ > 0)
      gone_.insert(id);
  }

  figures count() const {
    const std::lock_guard lock{guard_};
    return sum_;
  }

private:
  struct entry {
    counted_as what;
    std::uint64_t bytes;
  };
  void enter(const std::string& id, counted_as what, std::uint64_t bytes) {
    const entry is{what, what == counted_as::failed ? 0 : bytes};
    all_.emplace(id, is);
    ++sum_.many[static_cast<std::size_t>(what)];
    sum_.bytes += is.bytes;
  }
  void leave(const std::string& id) {
    const auto found = all_.extract(id);
    if (!found)
      return;
    --sum_.many[static_cast<std::size_t>(found.mapped().what)];
    sum_.bytes -= found.mapped().bytes;
  }

  mutable std::mutex guard_; ///< For what follows.
  std::unordered_map<std::string, entry> all_;
  std::unordered_set<std::string> gone_; ///< While a sweep is under way.
  figures sum_;
  unsigned sweeps_ = 0;
};

} // namespace insula::actors::snapshots
