#pragma once

#include "base/clock.hpp"

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/typed_actor.hpp>

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace insula {

/// Where an object keeps something, by what may become of it. Which store that is, is nobody's
/// business but the node's.
enum class kept_in : std::uint8_t {
  cluster, ///< Outlives its node and power cuts: identity, configuration, sessions' definitions.
  node,    ///< Outlives the server, and goes with its node: processes, logs, answers to repeat.
};

/// Whose alarm it is. An object has one.
struct alarm_name {
  kept_in where = kept_in::cluster;
  std::string owner;
  std::string object; ///< The prefix of its keys; empty: the owner itself.

  // NOLINTNEXTLINE(modernize-use-nullptr): a comparison with 0 is in it.
  auto operator<=>(const alarm_name&) const = default;
};

/// An alarm as it stands in the store, in words apart by blanks.
struct alarm_record {
  std::int64_t due_unix_ms = 0;
  std::int64_t delay_ms = 0;      ///< From when it was set.
  std::int64_t due_steady_ms = 0; ///< On the steady clock of `boot`.
  std::string boot;
  std::string tag; ///< Tells it from every other one of its object.

  static alarm_record in(std::chrono::milliseconds delay, const clock& time, std::string tag);
  static std::optional<alarm_record> parse(std::string_view text);
  std::string text() const;

  /// Zero or less: it is due. As long as the machine has not been restarted, by the steady clock,
  /// so that no jump of the wall clock moves it. Later, and on another machine, by the wall clock:
  /// it is wrong by as much as that is, but no longer than its own delay from now.
  std::chrono::milliseconds left(const clock& time) const;

  bool operator==(const alarm_record&) const = default;
};

/// An alarm has been stored, in the place of the one that its object may have had.
struct alarm_set {
  alarm_name whose;
  alarm_record what;
};
/// There is none any more.
struct alarm_cancelled {
  alarm_name whose;
};
/// All whose names begin so are gone, with their objects.
struct alarms_forgotten {
  alarm_name first;
};

/// It is time. Answered when what it was for has been done, and is durable. Until then it comes
/// again; so it may come twice.
struct alarm_due {
  alarm_name whose;
  std::string record;
};

using reread_atom = caf::atom_constant<caf::atom("reread")>;
using wake_by_atom = caf::atom_constant<caf::atom("wake_by")>;

/// Wakes objects of this node when their alarms are due. Who tells it of an alarm has stored that.
using alarms_actor = caf::typed_actor<
  caf::reacts_to<alarm_set>, caf::reacts_to<alarm_cancelled>, caf::reacts_to<alarms_forgotten>,
  // From now on, by sending alarm_due to this one, which answers with ok_atom. Once.
  caf::reacts_to<wake_by_atom, caf::actor>,
  // There may be others in the stores, whose objects this node owns; or some may be another's now.
  caf::reacts_to<reread_atom>>;

namespace actors {

/// The key of an object's alarm, among those of its owner.
inline constexpr std::string_view alarm_keys = "@alarm/";

} // namespace actors
} // namespace insula

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::alarm_set)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::alarm_cancelled)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::alarms_forgotten)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::alarm_due)
