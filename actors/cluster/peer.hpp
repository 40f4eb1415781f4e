#pragma once

#include "actors/cluster/links.hpp"
#include "base/unique_fd.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/atom.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

/// One actor for each peer: all that this peer can see of the node, and the only one that speaks to
/// it.
namespace insula::actors::cluster {

/// A question to a peer. Whatever becomes of it, it is answered once.
struct call {
  std::string what;
  std::string text;
  std::chrono::milliseconds patience{};
  std::function<void(result<std::string>)> then;

  void answer(result<std::string> how) {
    if (const auto to = std::exchange(then, nullptr))
      to(std::move(how));
  }
  ~call() { answer(error{errc::node_unreachable, "the node is going down"}); }
};
using call_pointer = std::shared_ptr<call>;

/// A connection that is authenticated, and carries frames. Shared by who runs it and the peer.
struct passage {
  std::uint64_t number = 0; ///< Later ones have larger numbers.
  bool dialled = false;     ///< By this node.
  std::atomic<bool> up = false;
};

struct passage_open {
  std::shared_ptr<passage> which;
  std::shared_ptr<unique_fd> socket; ///< Non-blocking; frames go through it.
};
/// Nothing comes through it any more.
struct passage_gone {
  std::uint64_t number = 0;
  std::string why;
};

/// Which peers there are links to. Any thread.
class linked_names {
public:
  void set(const std::string& name, bool up) {
    const std::lock_guard hold{guard_};
    if (up)
      names_.insert(name);
    else
      names_.erase(name);
  }
  std::vector<std::string> all() const {
    const std::lock_guard hold{guard_};
    return {names_.begin(), names_.end()};
  }

private:
  mutable std::mutex guard_;
  std::set<std::string> names_;
};

struct peer_options {
  std::string name;
  std::uint16_t port = 0; ///< A number of this peer's own, above 0.
  caf::actor broker;
  std::shared_ptr<linked_names> linked;
  answer_fn answers;
  std::function<void(const std::string& name, bool up)> changed;
};

using end_peer_atom = caf::atom_constant<caf::atom("endpeer")>;

/// Takes call_pointer, passage_open, passage_gone and end_peer_atom.
caf::actor spawn_peer(caf::actor_system& system, peer_options options);

} // namespace insula::actors::cluster

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::cluster::call_pointer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::cluster::passage_open)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::cluster::passage_gone)
