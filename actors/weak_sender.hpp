#pragma once

#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>
#include <caf/send.hpp>

#include <utility>

namespace insula::actors {

/// Carries facts of another thread into an actor's mailbox. The address is weak: a callback that
/// the runtime holds must not keep its actor alive, with all that the actor has. False: the actor
/// has ended, and nobody hears it.
template <class Handle, class... Facts>
bool post_to(const caf::actor_addr& whom, Facts... facts) {
  const auto target = caf::actor_cast<Handle>(whom);
  if (target)
    caf::anon_send(target, std::move(facts)...);
  return static_cast<bool>(target);
}

} // namespace insula::actors
