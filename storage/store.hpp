#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::storage {

/// The right to write for an owner: its growing number. 0 is nobody's.
using epoch = std::uint64_t;

/// One change of one key. No value: the key is removed. Keys are at most 1,024 bytes, values at most 1 MiB.
struct change {
  std::string key;
  std::optional<std::string> value;
};

/// A few changes of one owner that become durable together or not at all.
struct write_batch {
  std::string owner; ///< The object's id; every key is stored as `<owner>/<key>`. No '/' inside.
  epoch written_at;  ///< Refused with stale_epoch when the owner was already written with a larger one.
  std::vector<change> changes;
};

struct entry {
  std::string key; ///< Without the owner.
  std::string value;
};

/// What objects remember: a durable key-value store whose keys begin with their owner's id.
///
/// Threads: any. commit() may be called while others wait; the store groups what comes together into one sync.
/// Time:    read() and owners() look at the disk. on_durable runs on the store's own thread: be quick there.
/// Durable: on_durable(success) is called only once the batch would survive a power cut, in the order of commit().
/// Errors:  stale_epoch; invalid_request (a key or value over its size, a malformed owner); io_failed (the disk refused: nothing of the
///          batch is kept). After io_failed the store goes on working as far as the disk lets it.
/// Ceiling: at most max_waiting batches wait; one more is refused with limit_reached at once.
class store {
public:
  static constexpr std::size_t max_key_bytes = 1024;
  static constexpr std::size_t max_value_bytes = 1u << 20;
  static constexpr std::size_t max_waiting = 16'384;

  virtual ~store() = default;

  virtual void commit(write_batch batch, std::function<void(result<void>)> on_durable) = 0;

  /// Everything of `owner`, ordered by key. Sees every batch that was acknowledged before the call.
  virtual result<std::vector<entry>> read(std::string_view owner) = 0;

  /// Every id that owns at least one key, ordered.
  virtual result<std::vector<std::string>> owners() = 0;
};

} // namespace insula::storage
