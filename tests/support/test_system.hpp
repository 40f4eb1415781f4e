#pragma once

#include "actors/protocol/errors.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/manual_clock.hpp"

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include <memory>
#include <optional>
#include <tuple>
#include <vector>

namespace insula::test {

/// The answer to one question: not there yet, a value, or an error.
template <class T>
struct pending {
  std::shared_ptr<std::optional<result<T>>> answer = std::make_shared<std::optional<result<T>>>();

  bool open() const { return !answer->has_value(); }
  T value() const {
    REQUIRE_FALSE(open());
    if (!**answer)
      FAIL("an error instead of a value: " << (**answer).reason().message);
    return ***answer;
  }
  error reason() const {
    REQUIRE_FALSE(open());
    REQUIRE_FALSE(**answer);
    return (**answer).reason();
  }
};

/// An actor system without threads and without a real clock: nothing moves until it is told to.
class test_system {
public:
  test_system()
      : system_(settings_) {}
  ~test_system() {
    for (auto& each : askers_)
      caf::anon_send_exit(each, caf::exit_reason::user_shutdown);
    run();
  }

  caf::actor_system& get() { return system_; }

  void run() { coordinator().run(); }

  /// Moves both clocks, and runs what is due then.
  void advance(std::chrono::nanoseconds by) {
    time.advance(by);
    coordinator().advance_time(std::chrono::duration_cast<caf::timespan>(by));
    run();
  }

  /// Sends the question and runs until nothing moves any more.
  template <class T, class Handle, class... Args>
  pending<T> ask(const Handle& whom, Args&&... question) {
    pending<T> result_of;
    askers_.push_back(system_.spawn(
      [whom, result_of, asked = std::tuple<std::decay_t<Args>...>(std::forward<Args>(question)...)](
        caf::event_based_actor* self) mutable {
        std::apply(
          [&](auto&... parts) {
            self->request(whom, caf::infinite, std::move(parts)...)
              .then([result_of](T& value) { *result_of.answer = result<T>{std::move(value)}; },
                    [result_of](caf::error& why) { *result_of.answer = result<T>{from_caf(why)}; });
          },
          asked);
      }));
    run();
    return result_of;
  }

  manual_clock time;

private:
  struct settings : caf::actor_system_config {
    settings() { set("scheduler.policy", caf::atom("testing")); }
  };

  caf::scheduler::test_coordinator& coordinator() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  }

  settings settings_;
  caf::actor_system system_;
  std::vector<caf::actor> askers_;
};

} // namespace insula::test
