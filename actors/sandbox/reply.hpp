#pragma once

#include "actors/protocol/errors.hpp"
#include "base/error.hpp"

#include <caf/typed_response_promise.hpp>

#include <functional>
#include <tuple>
#include <utility>
#include <variant>

namespace insula::actors::inside_sandbox {

using then_function = std::function<void()>;
using otherwise_function = std::function<void(const error&)>;

/// An answer that is owed, and is given once: to the sender of a message, or to a function. A copy
/// owes the same answer.
///
/// Threads: the sandbox's mailbox.
template <class... Ts>
class reply {
public:
  /// One value, or several as a tuple.
  using value = std::conditional_t<sizeof...(Ts) == 1, std::tuple_element_t<0, std::tuple<Ts...>>,
                                   std::tuple<Ts...>>;
  using promise = caf::typed_response_promise<Ts...>;
  using function = std::function<void(result<value>)>;

  reply(promise to)
      : to_(std::move(to)) {}
  reply(function to)
      : to_(std::move(to)) {}

  void deliver(Ts... values) const {
    if (const auto* to = sender())
      promise{*to}.deliver(std::move(values)...);
    else
      std::get<function>(to_)(value{std::move(values)...});
  }
  void fail(const error& why) const {
    if (const auto* to = sender())
      promise{*to}.deliver(to_caf(why));
    else
      std::get<function>(to_)(why);
  }
  /// Of one value.
  void give(result<value> outcome) const {
    outcome ? deliver(std::move(*outcome)) : fail(outcome.reason());
  }

  otherwise_function otherwise() const {
    return [mine = *this](const error& why) { mine.fail(why); };
  }

  /// Null: a function is told. A question to another actor can be delegated to a sender's promise:
  /// its answer then makes no stop here.
  const promise* sender() const { return std::get_if<promise>(&to_); }

private:
  std::variant<promise, function> to_;
};

} // namespace insula::actors::inside_sandbox
