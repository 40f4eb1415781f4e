#pragma once

#include "actors/weak_sender.hpp"

#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>

#include <chrono>
#include <utility>

namespace insula::actors {

/// Tells an actor that its time is up, by the atom `Up`. A delayed message keeps the actor that it
/// is for until it comes, with its log, and an hour may have been given to a command that takes a
/// second. So a small actor waits in its place, and is ended when the time does not matter any
/// more.
///
/// Threads: the actor's own.
/// Owner:   the actor's state.
template <class Handle, class Up>
class deadline {
public:
  deadline() = default;
  deadline(const deadline&) = delete;
  deadline& operator=(const deadline&) = delete;
  ~deadline() { stop(); }

  /// In place of the one before.
  template <class Self>
  void set(Self* self, std::chrono::milliseconds limit) {
    stop();
    waiting_ = self->system().spawn(wait, self->address(), limit);
  }

  void stop() {
    if (const auto unwanted = std::exchange(waiting_, nullptr))
      caf::anon_send_exit(unwanted, caf::exit_reason::user_shutdown);
  }

private:
  static caf::behavior wait(caf::event_based_actor* self, const caf::actor_addr& whom,
                            std::chrono::milliseconds limit) {
    self->delayed_send(self, limit, Up::value);
    return {[self, whom](Up) {
      post_to<Handle>(whom, Up::value);
      self->quit();
    }};
  }

  caf::actor waiting_;
};

} // namespace insula::actors
