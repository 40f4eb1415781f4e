#pragma once

#include "actors/protocol/errors.hpp"
#include "actors/protocol/interfaces.hpp"
#include "base/limits.hpp"
#include "http/sandboxes/services.hpp"
#include "http/transport/exchange.hpp"

#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

namespace insula::http {

/// What a request may wait for a sandbox to start and to answer. A little longer than the start
/// itself may take, so that its own error is heard first.
inline constexpr auto sandbox_patience =
  std::chrono::milliseconds{limits::create_patience} + std::chrono::seconds{10};

inline const error sandbox_ended{errc::sandbox_not_running, "the sandbox has ended"};

/// How far a question has come when it fails.
enum class question_stage : std::uint8_t {
  find, ///< No sandbox was found to ask.
  ask,  ///< The sandbox was asked.
};

/// How often a sandbox is looked for once more, since a question to it has failed. A handle is
/// stale when its sandbox has hibernated: among many questions that may happen several times.
class second_tries {
public:
  /// The sandbox is to be looked for again.
  bool take(const caf::error& failure) {
    if (came_too_late(failure))
      return unseen_++ < most_unseen;
    return from_caf(failure).code == errc::sandbox_not_running && take_other();
  }
  /// The same after a failure of another kind: once.
  bool take_other() { return !std::exchange(other_, true); }

private:
  static constexpr unsigned most_unseen = 8;
  unsigned unseen_ = 0;
  bool other_ = false;
};

/// A question to a sandbox that is found, or started, first.
template <class Message, class Answer>
struct sandbox_question {
  directory_actor directory;
  std::string id;
  Message message; ///< With the context of the request.
  std::function<void(const Answer&)> answered;
  std::function<void(question_stage, const error&)> failed;
  std::function<void()> found = {}; ///< Called when there is a sandbox to ask.
  caf::actor_addr awaited = {};     ///< The sandbox that has been asked.
  bool starts_it = true;            ///< The sandbox runs when it is asked.
  bool may_repeat = true;           ///< As `tries` says.
  second_tries tries = {};
};

/// Said to oneself when a monitored actor has gone: a question that it never saw comes back at
/// about the same time and counts for more, since it may be asked again.
using ended_atom = caf::atom_constant<caf::atom("ended")>;

template <class Message, class Answer>
void ask_now(caf::event_based_actor* self,
             std::shared_ptr<sandbox_question<Message, Answer>> question) {
  // Time limits are the exchange's; here everything ends with the answer or with the asked one.
  const auto give_up = [=](question_stage at, const error& why) {
    question->failed(at, why);
    self->quit();
  };
  self->set_down_handler(
    [=](const caf::down_msg& gone) { self->send(self, ended_atom::value, gone.source); });
  self->become([=](ended_atom, const caf::actor_addr& who) {
    if (who == question->awaited)
      give_up(question_stage::ask, sandbox_ended);
  });
  const auto found = [=](const sandbox_actor& box) {
    self->monitor(box);
    question->awaited = box.address();
    if (const auto& times = question->message.context.times)
      times->reached(request_times::stage::queue);
    if (question->found)
      question->found();
    self->request(box, caf::infinite, question->message)
      .then(
        [=](const Answer& answer) {
          if (const auto& times = question->message.context.times)
            times->reached(request_times::stage::start);
          question->answered(answer);
          self->quit();
        },
        [=](const caf::error& failure) {
          if (!question->may_repeat || !question->tries.take(failure))
            return give_up(question_stage::ask, from_caf(failure));
          question->awaited = nullptr;
          ask_now(self, question);
        });
  };
  const auto not_found = [=](const caf::error& failure) {
    give_up(question_stage::find, from_caf(failure));
  };
  const auto& [directory, id, context] =
    std::tie(question->directory, question->id, question->message.context);
  if (question->starts_it)
    self->request(directory, caf::infinite, find_atom::value, id, context).then(found, not_found);
  else
    self->request(directory, caf::infinite, reach_atom::value, id, context).then(found, not_found);
}

/// Asks; one of the two functions of `question` is called, on a CAF worker.
template <class Message, class Answer>
void ask_sandbox(const services& with, sandbox_question<Message, Answer> question) {
  using shared_question = std::shared_ptr<sandbox_question<Message, Answer>>;
  with.system->spawn(
    [](caf::event_based_actor* self, const shared_question& asked) { ask_now(self, asked); },
    std::make_shared<sandbox_question<Message, Answer>>(std::move(question)));
}

/// A question to a sandbox for which a request waits, in the words of an API:
///   question{with, id, message, to}.or_else(refusal).then<Answer>(answered);
/// `then` asks, after or_else(). Threads: `answered` and `refusal` run on a CAF worker.
template <class Message>
class question {
public:
  using refusal_fn = std::function<response(question_stage, const error&)>;

  question(const services& with, std::string id, Message message, reply to)
      : with_(with)
      , id_(std::move(id))
      , message_(std::move(message))
      , to_(std::move(to)) {
    message_.context = to_->context();
  }

  /// If nothing else has been answered by then, `late` is.
  question& within(std::chrono::milliseconds patience, response late) {
    to_->answer_within(patience, std::move(late));
    return *this;
  }
  /// Unless it is said otherwise, a sandbox that does not run is started.
  question& starts(bool it_does) {
    starts_ = it_does;
    return *this;
  }
  question& when_found(std::function<void()> found) {
    found_ = std::move(found);
    return *this;
  }
  question& or_else(refusal_fn refusal) {
    refusal_ = std::move(refusal);
    return *this;
  }
  question& or_else(response (*refusal)(const error&)) {
    return or_else([refusal](question_stage, const error& why) { return refusal(why); });
  }

  template <class Answer>
  void then(std::function<void(const Answer&)> answered) {
    sandbox_question<Message, Answer> asked{
      with_.directory, std::move(id_), std::move(message_), std::move(answered),
      [to = to_, refusal = std::move(refusal_)](question_stage at, const error& why) {
        to->respond(refusal(at, why));
      }};
    asked.found = std::move(found_);
    asked.starts_it = starts_;
    ask_sandbox(with_, std::move(asked));
  }

private:
  const services& with_; ///< Only until `then`.
  std::string id_;
  Message message_;
  reply to_;
  bool starts_ = true;
  std::function<void()> found_;
  refusal_fn refusal_;
};

} // namespace insula::http
