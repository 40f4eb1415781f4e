#pragma once

#include "actors/sandbox/kept_record.hpp"

#include <utility>

namespace insula::actors::inside_sandbox {

/// A record in a store of the node.
class stored_record final : public kept_record {
public:
  stored_record(caf::scheduled_actor* self, std::shared_ptr<const keepers> with, kept_in where,
                const std::string& owner)
      : in_(self, std::move(with), where, owner) {}

  void load(then_function then, otherwise_function otherwise, request_context context) override {
    in_.load(std::move(then), std::move(otherwise), std::move(context));
  }
  bool loaded() const override { return in_.loaded(); }
  const entry_map& entries() const override { return in_.entries(); }
  void write_at(storage::epoch now) override { in_.write_at(now); }
  void write(std::vector<storage::change> changes, request_context context) override {
    in_.write(std::move(changes), {}, std::move(context));
  }
  void when_durable(then_function then, otherwise_function otherwise) override {
    in_.when_durable(std::move(then), std::move(otherwise));
  }
  void answer(const reply<caf::ok_atom>& to) override { answer_with(to, caf::ok_atom::value); }
  void answer(const reply<write_once_answer>& to, write_once_answer what) override {
    answer_with(to, std::move(what));
  }
  void set_alarm(std::chrono::milliseconds delay, std::vector<storage::change> changes) override {
    in_.set_alarm(delay, std::move(changes));
  }
  bool is_set(const alarm_due& due) const override { return in_.is_set(due); }
  void alarm_over(const alarm_due& due, std::vector<storage::change> changes) override {
    in_.alarm_over(due, std::move(changes));
  }
  void destroy(then_function then, otherwise_function otherwise, request_context context) override {
    in_.destroy(std::move(then), std::move(otherwise), std::move(context));
  }
  void abandon(const error& why) override { in_.abandon(why); }

private:
  template <class T>
  void answer_with(const reply<T>& to, T what) {
    if (const auto* sender = to.sender())
      in_.answer(*sender, std::move(what));
    else
      in_.when_durable([=] { to.deliver(what); }, to.otherwise());
  }

  object_storage in_;
};

} // namespace insula::actors::inside_sandbox
