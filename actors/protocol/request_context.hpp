#pragma once

#include "base/privileges.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace insula {

/// The parts of a sandbox's start, in the order in which they are told. The record is written while
/// the sandbox is made; the others follow each other.
enum class start_phase : std::uint8_t {
  lease,      ///< The right to be the activation.
  record,     ///< Until the record would survive a crash.
  slot,       ///< From asking for the sandbox until the spawner begins with it.
  cgroup,     ///< Its cgroups.
  disk,       ///< Where its files go.
  namespaces, ///< The namespaces with their id maps.
  layers,     ///< The image's layers, with mapped ids.
  mounts, ///< What the new process makes of them: its root, /proc, /sys, /dev, and no more rights.
  agent,  ///< Until the server has heard of the agent.
  claim,  ///< In place of those from slot on: until a warm sandbox was this one.
  ready,  ///< The whole start.
};
inline constexpr std::size_t start_phases = 11;

constexpr std::string_view name_of(start_phase phase) {
  switch (phase) {
    case start_phase::lease: return "lease";
    case start_phase::record: return "record";
    case start_phase::slot: return "slot";
    case start_phase::cgroup: return "cgroup";
    case start_phase::disk: return "disk";
    case start_phase::namespaces: return "namespaces";
    case start_phase::layers: return "layers";
    case start_phase::mounts: return "mounts";
    case start_phase::agent: return "agent";
    case start_phase::claim: return "claim";
    case start_phase::ready: return "ready";
  }
  return "?";
}

/// How long each of them took. Negative: it was not needed.
using start_times = std::array<std::chrono::nanoseconds, start_phases>;

/// Where the time of one request goes, for a caller who wants to know. Whoever has the request at
/// the time writes here; it is read once, for the answer. Any thread.
class request_times {
public:
  using clock = std::chrono::steady_clock;

  /// Stages of a request, one after the other.
  enum class stage : std::uint8_t {
    queue,   ///< Until the sandbox had been found, without its start.
    sandbox, ///< That start, or waiting for it.
    start,   ///< Until the command ran, or the file operation had begun.
    first,   ///< Until its first bytes.
  };
  static constexpr std::size_t stages = 4;

  explicit request_times(clock::time_point received)
      : received_(received)
      , last_(received.time_since_epoch().count()) {}

  /// One has ended now: it took what has passed since the one before ended. What has been waited
  /// for the sandbox belongs to none but `sandbox`.
  void reached(stage end) {
    const auto now = clock::now().time_since_epoch().count();
    put(end, now - last_.exchange(now) - waited_.exchange(0));
  }

  /// The sandbox ran only after so long.
  void waited(std::chrono::nanoseconds for_start) {
    put(stage::sandbox, for_start.count());
    waited_ = for_start.count();
  }
  /// This request has started it.
  void started(const start_times& parts) {
    for (std::size_t i = 0; i < parts.size(); ++i)
      parts_[i] = parts[i].count();
    has_parts_ = true;
  }

  /// Negative: not known.
  std::chrono::nanoseconds took(stage what) const {
    return std::chrono::nanoseconds{stages_[static_cast<std::size_t>(what)]};
  }
  bool started_it() const { return has_parts_; }
  std::chrono::nanoseconds took(start_phase what) const {
    return std::chrono::nanoseconds{parts_[static_cast<std::size_t>(what)]};
  }
  std::chrono::nanoseconds so_far() const { return clock::now() - received_; }

private:
  void put(stage what, std::int64_t ns) { stages_[static_cast<std::size_t>(what)] = ns; }

  const clock::time_point received_;
  std::atomic<std::int64_t> last_;
  std::atomic<std::int64_t> waited_ = 0;
  std::array<std::atomic<std::int64_t>, stages> stages_{-1, -1, -1, -1};
  std::array<std::atomic<std::int64_t>, start_phases> parts_{};
  std::atomic<bool> has_parts_ = false;
};

/// A sandbox has its files from a snapshot, and the first answer after that says so. Any thread.
class recovery {
public:
  /// Unix time of the moment as of which the files are.
  explicit recovery(std::int64_t as_of_ms)
      : as_of_ms_(as_of_ms) {}

  /// That moment, to whoever asks first.
  std::optional<std::int64_t> tell() {
    const auto as_of = as_of_ms_.exchange(0);
    return as_of == 0 ? std::nullopt : std::optional{as_of};
  }
  bool told() const { return as_of_ms_ == 0; }

private:
  std::atomic<std::int64_t> as_of_ms_;
};

/// Where a request's answer finds what the request met. Any thread.
class recovery_place {
public:
  void put(std::shared_ptr<recovery> what) {
    const std::lock_guard hold{guard_};
    what_ = std::move(what);
  }
  std::optional<std::int64_t> tell() {
    const std::lock_guard hold{guard_};
    return what_ ? what_->tell() : std::nullopt;
  }

private:
  std::mutex guard_;
  std::shared_ptr<recovery> what_;
};

/// What every message about a request carries: whose it is.
struct request_context {
  std::string id;                                 ///< For the log. Empty: nobody's.
  std::shared_ptr<request_times> times = nullptr; ///< Null: nobody has asked.
  /// Null: nobody is told.
  std::shared_ptr<recovery_place> recovered = nullptr;
  bool persistent = false; ///< It asks for its sandbox's files to outlive their node.
  /// It asks for a sandbox with these: a new one gets them, another one is not to be served. None:
  /// any will do.
  std::optional<privileges> gains = {};
  /// The same for the image: a name of the node's, or a reference of a registry's. Empty: any.
  std::string image = {};
  /// It is for this run of a sandbox that has runs, and for no other. 0: any.
  std::uint64_t run = 0;
  /// The name of the API key that it has shown. A sandbox that it makes counts for that key's
  /// ceilings. Empty: the main key, or none.
  std::string key = {};
};

} // namespace insula
