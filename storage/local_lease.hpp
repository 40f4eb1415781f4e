#pragma once

#include "storage/lease.hpp"

#include <memory>

namespace insula::storage {

/// The leases of a single node. Who holds what is known only to this process, since no holder
/// outlives it; what must survive is that epochs grow. One counter serves all owners, and the store
/// remembers up to where it was given away: block_size at a time and half a block ahead, so that
/// acquire() answers at once while a disk syncs. A restart skips what is left of a block.
///
/// Owner: the store must outlive every acquire(), and there is one local_lease per store at a time.
/// End:   the destructor answers what still waits with io_failed. Not to be called from on_held.
class local_lease final : public lease_service {
public:
  static constexpr epoch block_size = 1'000;

  /// More than there are ranges of uids on one kernel, and each held lease is a live sandbox.
  static constexpr std::size_t max_held = 65'536;

  /// Reads how far the counter is, and asks the store for the first block without waiting for it.
  static result<std::unique_ptr<local_lease>> open(store& where);

  ~local_lease() override;
  void acquire(std::string owner, std::function<void(result<epoch>)> on_held) override;
  void release(const std::string& owner, epoch held) override;

private:
  struct book;
  explicit local_lease(std::shared_ptr<book> kept)
      : book_(std::move(kept)) {}

  std::shared_ptr<book> book_; ///< Shared with the store's answer to a reservation under way.
};

} // namespace insula::storage
