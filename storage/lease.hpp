#pragma once

#include "base/error.hpp"
#include "storage/store.hpp"

#include <functional>
#include <string>

namespace insula::storage {

/// Who owns an object: at most one activation in the whole cluster at a time.
///
/// Threads: any; the callback runs on a thread of the implementation: be quick there.
/// Errors:  limit_reached when somebody else holds it, node_unreachable, io_failed.
class lease_service {
public:
  virtual ~lease_service() = default;

  /// Takes the lease of `owner`. Success carries an epoch larger than every one handed out for this owner before,
  /// also before a restart.
  virtual void acquire(std::string owner, std::function<void(result<epoch>)> on_held) = 0;

  /// Gives it back. Releasing what is not held, or with another epoch, does nothing.
  virtual void release(const std::string& owner, epoch held) = 0;
};

} // namespace insula::storage
