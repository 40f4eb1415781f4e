#pragma once

#include "storage/etcd/client.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace insula::storage::etcd {

struct membership_options {
  std::string prefix; ///< Of all keys, with a '/' at its end.
  std::string self;   ///< The node's name.
  std::string record; ///< What the others read of it.
  /// The lease of the server before this one on the same state, if its sandboxes are still there:
  /// if it lives, the node goes on as the same member. 0: none.
  lease_id resumed = 0;
  /// Of all that is stored below the prefix. A node raises the number that stands in the key
  /// `format`, and is no member where a later one stands: it would misread what is there.
  std::uint32_t format = 1;

  std::chrono::milliseconds lives{3'000}; ///< Whole seconds.
  std::chrono::milliseconds renewal{500};
  /// So much earlier than etcd could think so the node itself holds that its lease is over.
  std::chrono::milliseconds margin{500};
};

/// A node as a member of its cluster: a lease of etcd's, which it renews, and with which go its own
/// record and all it owns. A renewal counts only with a read of that record in the same term of
/// etcd's, and from when the two were *sent*: by its own clock a node knows that its lease is over
/// before anybody else can.
///
/// Threads: any; what is told comes on the client's thread.
/// Owner:   the client must outlive it. It does not end on the client's thread.
class membership {
public:
  struct listener {
    /// Asked before it becomes one, with the records of the others by their names: an error is why
    /// it cannot be among those. It waits then.
    std::function<result<void>(const std::map<std::string, std::string>& others)> fits =
      [](const auto&) { return result<void>{}; };
    /// It is a member from now on. `resumed`: as the one that the server before was.
    std::function<void(bool resumed)> joined = [](bool) {};
    /// Another has its name, or is none that it could be among, or etcd does not answer: it goes on
    /// trying. Told once for each reason.
    std::function<void(const error&)> waits = [](const error&) {};
    /// The lease is over, or may be: whatever this node owned is not its own any more. It joins
    /// anew once `gone` has been called, by any thread: when nothing of that runs.
    std::function<void(std::function<void()> gone)> lost = [](auto gone) { gone(); };
    /// It is a member until then, by client::now(); after each renewal.
    std::function<void(std::chrono::nanoseconds until)> renewed = [](auto) {};
  };

  membership(client& with, membership_options options, listener tell);
  ~membership(); ///< Leaves the lease as it is.

  void start();

  /// Asks once whether a node with these options could be a member now, as far as the others and
  /// what is stored are concerned; `tell.fits` says the former. Changes nothing. `then` is called
  /// once, on the client's thread. Errors: those of `fits`; invalid_request: what is stored is of a
  /// later version; those of the client.
  static void check(client& with, membership_options options, listener tell,
                    std::function<void(result<void>)> then);

  /// Nothing is renewed any more. `end_lease`: what the node owns is free at once.
  void leave(bool end_lease, std::function<void()> then);

  /// Is this node sure to be a member now? To be asked before every effect.
  bool good() const;
  /// The revision at which it has become what it is, good() or not; 0: it is none.
  revision since() const;
  lease_id lease() const;
  const std::string& self() const;

  /// There is a reason to ask etcd at once whether it still is one.
  void look();
  /// Somebody has seen that it is none any more.
  void doubt();

private:
  struct state;
  std::shared_ptr<state> state_;
};

} // namespace insula::storage::etcd
