#include "actors/sandbox/lease.hpp"

#include <utility>

namespace insula::actors::inside_sandbox {

void lease::acquire(then_function then, otherwise_function otherwise) {
  if (closed_)
    return otherwise(*closed_);
  if (held())
    return then();
  waiting_.push_back({std::move(then), std::move(otherwise)});
  if (waiting_.size() > 1)
    return;
  options().leases->acquire(core_.id(), [this, number = ++number_, post = core_.post()](
                                          const result<storage::epoch>& outcome) {
    post([=, this] { on_settled(number, outcome); });
  });
}

void lease::on_settled(std::uint64_t number, const result<storage::epoch>& outcome) {
  if (number != number_)
    return;
  if (outcome) {
    epoch_ = *outcome;
    record().write_at(epoch_);
    local().write_at(epoch_);
    core_.run_clock().write_at(epoch_);
  }
  for (const auto& each : std::exchange(waiting_, {}))
    outcome ? each.then() : each.otherwise(outcome.reason());
}

void lease::release() {
  if (held())
    options().leases->release(core_.id(), std::exchange(epoch_, 0));
}

void lease::give_back() {
  if (!held())
    options().leases->release(core_.id(), 0);
  release();
}

void lease::close(const error& why) {
  closed_ = why;
  for (const auto& each : std::exchange(waiting_, {}))
    each.otherwise(why);
}

} // namespace insula::actors::inside_sandbox
