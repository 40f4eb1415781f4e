#pragma once

#include "actors/object.hpp"
#include "base/log.hpp"

#include <caf/all.hpp>

namespace insula::test {

using add_atom = caf::atom_constant<caf::atom("add")>;
using get_atom = caf::atom_constant<caf::atom("count")>;
using set_atom = caf::atom_constant<caf::atom("setalarm")>;
using cancel_atom = caf::atom_constant<caf::atom("cancel")>;
using clear_atom = caf::atom_constant<caf::atom("clear")>;
using destroy_atom = caf::atom_constant<caf::atom("destroy")>;
using renew_atom = caf::atom_constant<caf::atom("renew")>;

/// A small object: it counts, and what it has counted is durable before anybody hears of it.
struct counter_state {
  static inline const char* name = "counter";
  std::optional<actors::object_storage> kept;
  std::int64_t rung = 0;
  std::optional<error> alarm_error; ///< What it says to its alarm instead of doing its work.

  std::int64_t count() const {
    const auto text = kept->value("count");
    return text.empty() ? 0 : std::stoll(text);
  }
};

using counter_pointer = caf::stateful_actor<counter_state>*;

/// With a lease of its own, or the owner's. A prefix is for objects inside of an owner.
inline caf::behavior counter(counter_pointer self, std::shared_ptr<const actors::keepers> keep,
                             storage::epoch lease, std::string owner, std::string prefix,
                             kept_in where) {
  self->state.kept.emplace(self, std::move(keep), where, std::move(owner), std::move(prefix));
  self->state.kept->write_at(lease);
  self->state.kept->load([] {}, [self](const error&) { self->quit(); });
  return {
    [self](add_atom, std::int64_t more) -> caf::result<std::int64_t> {
      auto& kept = *self->state.kept;
      const auto sum = self->state.count() + more;
      kept.write({{"count", std::to_string(sum)}, {"seen/" + std::to_string(sum), "x"}});
      auto reply = self->make_response_promise<std::int64_t>();
      kept.answer(reply, sum);
      return reply;
    },
    [self](add_atom, const std::string& key,
           const std::string& value) -> caf::result<caf::ok_atom> {
      self->state.kept->write({{key, value}});
      auto reply = self->make_response_promise<caf::ok_atom>();
      self->state.kept->answer(reply, caf::ok_atom::value);
      return reply;
    },
    // Ahead of the gate: what the object itself sees.
    [self](get_atom) -> caf::result<std::int64_t> { return self->state.count(); },
    [self](set_atom, std::int64_t delay_ms) -> caf::result<caf::ok_atom> {
      self->state.kept->set_alarm(std::chrono::milliseconds{delay_ms});
      auto reply = self->make_response_promise<caf::ok_atom>();
      self->state.kept->answer(reply, caf::ok_atom::value);
      return reply;
    },
    [self](cancel_atom) -> caf::result<caf::ok_atom> {
      self->state.kept->cancel_alarm();
      auto reply = self->make_response_promise<caf::ok_atom>();
      self->state.kept->answer(reply, caf::ok_atom::value);
      return reply;
    },
    [self](clear_atom, const std::string& which) -> caf::result<caf::ok_atom> {
      self->state.kept->write({}, {which});
      auto reply = self->make_response_promise<caf::ok_atom>();
      self->state.kept->answer(reply, caf::ok_atom::value);
      return reply;
    },
    [self](destroy_atom) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      self->state.kept->destroy([reply]() mutable { reply.deliver(caf::ok_atom::value); },
                                [reply](const error& why) mutable { reply.deliver(to_caf(why)); });
      return reply;
    },
    [self](renew_atom, storage::epoch next) { self->state.kept->write_at(next); },
    [self](const alarm_due& due) -> caf::result<caf::ok_atom> {
      auto& st = self->state;
      if (st.alarm_error)
        return to_caf(*st.alarm_error);
      if (!st.kept->is_set(due))
        return caf::ok_atom::value;
      ++st.rung;
      const auto times = std::stoll("0" + st.kept->value("rung")) + 1;
      st.kept->alarm_over(due, {{"rung", std::to_string(times)}});
      auto reply = self->make_response_promise<caf::ok_atom>();
      st.kept->answer(reply, caf::ok_atom::value);
      return reply;
    },
  };
}

} // namespace insula::test
