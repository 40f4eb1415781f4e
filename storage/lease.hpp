#pragma once

#include "base/error.hpp"
#include "storage/store.hpp"

#include <functional>
#include <string>

namespace insula::storage {

/// Who owns an object: at most one activation in the whole cluster at a time.
///
/// Threads: any; on_held runs on a thread of the implementation, or inside acquire() when the
/// answer
///          is known at once: be quick there, and hold no lock while acquiring that it takes.
/// Errors:  limit_reached when somebody holds it, or when too many are held or wait;
///          invalid_request for an owner that no store would take; node_unreachable; those of the
///          store; io_failed when the node shuts down.
class lease_service {
public:
  virtual ~lease_service() = default;

  /// Takes the lease of `owner`. Success carries an epoch larger than every one handed out for this
  /// owner before, also before a restart.
  virtual void acquire(std::string owner, std::function<void(result<epoch>)> on_held) = 0;

  /// Gives it back. Releasing what is not held, or with another epoch, does nothing; in a cluster 0
  /// says that nobody has come to hold it, and what has nothing written need not be this node's.
  virtual void release(const std::string& owner, epoch held) = 0;
};

} // namespace insula::storage
