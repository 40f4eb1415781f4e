#pragma once

#include "runtime/spawner/protocol.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>

namespace insula::runtime::spawner {

/// What some creates need, and others do not. Is it there?
struct at_hand {
  bool machines_usr;  ///< All of it has been looked at.
  bool package_lists; ///< They have been copied.
};

/// Is it for a sandbox of the machine's image in which packages can be installed?
bool needs_package_lists(const request& create);

/// The creates that wait until there is nothing else to do, in their order. Those that need what is
/// not at hand wait for that as well; the others pass them.
///
/// Single-threaded. Ceiling: `most`.
class create_queue {
public:
  static constexpr std::size_t most = 4096;

  /// Only if it is not full.
  void add(const request& wanted) { waiting_.push_back(wanted); }
  void clear() { waiting_.clear(); }
  bool empty() const { return waiting_.empty(); }
  bool full() const { return waiting_.size() >= most; }

  /// The one of that slot; null: there is none. Valid until the queue is changed.
  const request* of(std::uint32_t slot) const;
  /// Of those of that tag; 0: there are none.
  std::uint64_t newest_epoch(std::string_view tag) const;

  /// Is there one for take_next()?
  bool has_next(const at_hand& there) const;
  /// The first that does not have to wait.
  std::optional<request> take_next(const at_hand& there);
  /// The one of that slot, if it does not have to wait.
  std::optional<request> take(std::uint32_t slot, const at_hand& there);
  /// The one of that slot is not made.
  void drop(std::uint32_t slot);

private:
  template <class Is>
  std::optional<request> take_if(Is is);

  std::deque<request> waiting_;
};

} // namespace insula::runtime::spawner
