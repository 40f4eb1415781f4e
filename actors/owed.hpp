#pragma once

#include "actors/protocol/errors.hpp"

#include <caf/typed_response_promise.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

namespace insula::actors {

/// An answer that an actor owes. Copies are of the same answer, and the first one counts.
///
/// Threads: its actor's.
template <class T>
class owed {
public:
  using book = std::map<std::uint64_t, std::function<void(const caf::error&)>>;

  owed(std::shared_ptr<book> open, std::uint64_t number, caf::typed_response_promise<T> to)
      : open_(std::move(open))
      , number_(number)
      , to_(std::move(to)) {}

  void deliver(T answer) const {
    if (open_->erase(number_) != 0)
      caf::typed_response_promise<T>{to_}.deliver(std::move(answer));
  }
  void deliver(caf::error why) const {
    if (open_->erase(number_) != 0)
      caf::typed_response_promise<T>{to_}.deliver(std::move(why));
  }

private:
  std::shared_ptr<book> open_;
  std::uint64_t number_;
  caf::typed_response_promise<T> to_;
};

/// All that an actor owes: a member of its state. CAF answers nobody whose promise is let go of,
/// and an asker that waits for ever keeps the actor system from ending; so what is open when the
/// actor ends is answered then. CAF destroys the state before it runs what was attached to the
/// actor: this is where an end can be told.
class owed_answers {
public:
  /// `why`: what is said then.
  explicit owed_answers(error why = {errc::sandbox_not_running, "the node is going down"})
      : why_(std::move(why)) {}
  owed_answers(const owed_answers&) = delete;
  owed_answers& operator=(const owed_answers&) = delete;
  ~owed_answers() {
    const auto why = to_caf(why_);
    for (const auto& [number, fail] : std::exchange(*open_, {}))
      fail(why);
  }

  template <class T>
  owed<T> owe(const caf::typed_response_promise<T>& to) {
    const auto number = ++last_;
    open_->emplace(number, [to](const caf::error& why) {
      caf::typed_response_promise<T>{to}.deliver(caf::error{why});
    });
    return {open_, number, to};
  }

private:
  std::shared_ptr<std::map<std::uint64_t, std::function<void(const caf::error&)>>> open_ =
    std::make_shared<std::map<std::uint64_t, std::function<void(const caf::error&)>>>();
  std::uint64_t last_ = 0;
  const error why_;
};

} // namespace insula::actors
