#pragma once

#include "base/metrics.hpp"

#include <caf/execution_unit.hpp>
#include <caf/invoke_message_result.hpp>
#include <caf/mailbox_element.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace insula::actors {

/// How full the mailboxes of one kind of actors are. Looked at when somebody asks: each actor only
/// counts for itself. Any thread.
class mailbox_depths {
public:
  void add(const metrics::gauge* mailbox) {
    const std::lock_guard hold{guard_};
    all_.insert(mailbox);
  }
  void remove(const metrics::gauge* mailbox) {
    const std::lock_guard hold{guard_};
    all_.erase(mailbox);
  }

  struct depths {
    std::int64_t sum = 0;
    std::int64_t largest = 0;
  };
  depths now() const {
    depths found;
    const std::lock_guard hold{guard_};
    for (const auto* each : all_) {
      found.sum += each->value();
      found.largest = std::max(found.largest, each->value());
    }
    return found;
  }

private:
  mutable std::mutex guard_;
  std::set<const metrics::gauge*> all_;
};

/// An actor that counts what has entered its mailbox and has not been handled. CAF lets nobody but
/// the actor itself look into a mailbox; every message passes through enqueue() on its way in and
/// through consume() on its way out. One that is put aside until an awaited answer has come is
/// still in.
template <class Base>
class counted_mailbox : public Base {
public:
  using Base::Base;

  ~counted_mailbox() override {
    if (depths_)
      depths_->remove(&waiting_);
  }

  /// Shows it to those who ask. By the actor itself, once.
  void count_mailbox(std::shared_ptr<mailbox_depths> in) {
    depths_ = std::move(in);
    depths_->add(&waiting_);
  }

  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit* unit) override {
    waiting_.add();
    Base::enqueue(std::move(what), unit);
  }

  using Base::consume;
  caf::invoke_message_result consume(caf::mailbox_element& what) override {
    const auto outcome = Base::consume(what);
    if (outcome != caf::invoke_message_result::skipped)
      waiting_.subtract();
    return outcome;
  }

private:
  metrics::gauge waiting_;
  std::shared_ptr<mailbox_depths> depths_;
};

/// What system.spawn() takes for a typed actor with a state: its pointer, as `Handle` would have
/// it.
template <class State, class Handle>
using counted_pointer = caf::stateful_actor<State, counted_mailbox<typename Handle::base>>*;

} // namespace insula::actors
