#pragma once

#include "actors/instance_count.hpp"
#include "actors/protocol/interfaces.hpp"
#include "runtime/engine.hpp"

#include <caf/fwd.hpp>

#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace insula {
namespace actors {

/// Which warm sandboxes serve whom.
struct pool_key {
  std::string image = "host";
  std::string engine = "native";
  privileges gains = privileges::none;

  bool operator==(const pool_key&) const = default;
};

/// A warm sandbox that has left the pool, with its place among the node's instances. Whoever takes
/// it makes it his own; if nobody does, it is removed.
class claimed_slot {
public:
  claimed_slot(std::shared_ptr<runtime::sandbox> it, instance_count::place instance)
      : it_(std::move(it))
      , instance_(std::move(instance)) {}
  claimed_slot(const claimed_slot&) = delete;
  claimed_slot& operator=(const claimed_slot&) = delete;
  ~claimed_slot() {
    if (it_) // It counts until it is gone.
      it_->destroy([kept = std::make_shared<instance_count::place>(std::move(instance_))] {});
  }

  std::pair<std::shared_ptr<runtime::sandbox>, instance_count::place> take() {
    return {std::move(it_), std::move(instance_)};
  }

private:
  std::shared_ptr<runtime::sandbox> it_;
  instance_count::place instance_;
};

} // namespace actors

using check_atom = caf::atom_constant<caf::atom("check")>;

/// Give me a warm sandbox.
struct claim_slot {
  actors::pool_key key;
  request_context context = {};
};

struct claim_answer {
  std::shared_ptr<actors::claimed_slot> slot = nullptr; ///< Null: make one yourself,
  bool again = false; ///< unless this is set: that one has just ended, and there may be another.
};

/// One started, empty sandbox that is nobody's.
using slot_actor = caf::typed_actor<
  // After it the handle is dead, as after delete_atom.
  caf::replies_to<claim_slot>::with<claim_answer>,
  // Answers when its agent has. Who hangs never does: the asker needs patience of his own.
  caf::replies_to<check_atom>::with<caf::ok_atom>,
  // Ends it, and answers when it is gone. One that is starting ends once it has started.
  caf::replies_to<delete_atom>::with<caf::ok_atom>>;

namespace actors {

/// What becomes of a slot. From the slot's actor.
struct slot_listener {
  std::function<void()> on_ready;
  std::function<void(error)> on_failed; ///< Those of runtime::engine::create().
  std::function<void()> on_ended;       ///< After on_ready, without having been asked to.
  std::function<void()> on_gone;        ///< It has been deleted.
};

/// Starts one. `engine` is not owned.
slot_actor spawn_slot(caf::actor_system& system, runtime::engine& engine,
                      runtime::sandbox_spec spec, instance_count::place instance,
                      slot_listener listener);

} // namespace actors
} // namespace insula

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::claim_slot)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::claim_answer)
