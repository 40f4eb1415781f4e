#pragma once

#include "actors/protocol/errors.hpp"
#include "actors/protocol/interfaces.hpp"
#include "http/sandboxes/services.hpp"

#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>

#include <functional>
#include <utility>

namespace insula::http {

/// Asks the node's directory. One of the two is called, on a CAF worker; time limits are the
/// exchange's.
template <class Answer, class Message>
void ask_directory(const services& with, Message question,
                   std::function<void(const Answer&)> answered,
                   std::function<void(const error&)> failed) {
  const auto ask = [question = std::move(question), answered = std::move(answered),
                    failed = std::move(failed)](caf::event_based_actor* self,
                                                const directory_actor& directory) {
    self->request(directory, caf::infinite, question)
      .then([answered](const Answer& told) { answered(told); },
            [failed](const caf::error& why) { failed(from_caf(why)); });
  };
  with.system->spawn(ask, with.directory);
}

} // namespace insula::http
