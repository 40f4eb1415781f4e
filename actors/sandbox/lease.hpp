#pragma once

#include "actors/sandbox/core.hpp"

namespace insula::actors::inside_sandbox {

/// The right to be the sandbox's activation, and to write its records.
class lease final : public part {
public:
  using part::part;

  /// One of the two is called: now if the lease is held, else once it has been asked for.
  void acquire(then_function then, otherwise_function otherwise);
  bool held() const { return epoch_ != 0; }
  storage::epoch epoch() const { return epoch_; }
  bool asked_for() const { return !waiting_.empty(); }
  void release();
  /// The sandbox is at rest. A lease that was never taken is given back as well: a sandbox without
  /// a record needs no owner.
  void give_back();
  /// The lease is given out no more; requests that wait for it are refused.
  void close(const error& why);

  void ends(const error&) override { release(); }

private:
  struct waiter {
    then_function then;
    otherwise_function otherwise;
  };

  void on_settled(std::uint64_t number, const result<storage::epoch>& outcome);

  storage::epoch epoch_ = 0;    ///< 0: it is not held.
  std::uint64_t number_ = 0;    ///< Counts the askings for it.
  std::vector<waiter> waiting_; ///< Not empty: it has been asked for.
  std::optional<error> closed_;
};

} // namespace insula::actors::inside_sandbox
