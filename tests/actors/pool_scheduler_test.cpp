// Actors on the threads of a pool: real threads, real time.
#include "actors/pool_scheduler.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/events.hpp"

#include <boost/asio/post.hpp>
#include <caf/all.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

using again_atom = caf::atom_constant<caf::atom("again")>;
using tick_atom = caf::atom_constant<caf::atom("tick")>;

struct pooled_system {
  explicit pooled_system(unsigned threads)
      : pool(threads) {
    actors::run_actors_on(pool, settings);
    system.emplace(settings);
  }

  io_pool pool;
  caf::actor_system_config settings;
  std::optional<caf::actor_system> system;
};

} // namespace

TEST_CASE("what actors send each other on one thread stays on it", "[actors][pool]") {
  pooled_system on{2};
  const auto heard = std::make_shared<events<std::thread::id>>();
  auto& system = *on.system;
  // Lazily: else their first turn, which may be on the other thread, would take the message along.
  const auto last =
    system.spawn<caf::lazy_init>([heard](caf::event_based_actor* self) -> caf::behavior {
      return {[=](int) {
        heard->tell(std::this_thread::get_id());
        self->quit();
      }};
    });
  const auto first =
    system.spawn<caf::lazy_init>([=](caf::event_based_actor* self) -> caf::behavior {
      return {[=](int number) {
        heard->tell(std::this_thread::get_id());
        self->send(last, number);
        self->quit();
      }};
    });
  std::promise<std::thread::id> where;
  boost::asio::post(on.pool.context(1), [&] {
    caf::anon_send(first, 1);
    where.set_value(std::this_thread::get_id());
  });
  const auto there = where.get_future().get();
  CHECK(heard->next() == there);
  CHECK(heard->next() == there);
}

TEST_CASE("delayed messages come by their time, not by their order", "[actors][pool]") {
  pooled_system on{2};
  const auto heard = std::make_shared<events<int>>();
  on.system->spawn([heard](caf::event_based_actor* self) -> caf::behavior {
    self->delayed_send(self, 60ms, 3);
    self->delayed_send(self, 40ms, 2);
    self->delayed_send(self, 20ms, 1);
    return {[=](int number) {
      heard->tell(number);
      if (number == 3)
        self->quit();
    }};
  });
  CHECK(heard->next() == 1);
  CHECK(heard->next() == 2);
  CHECK(heard->next() == 3);
}

TEST_CASE("a request that is not answered in time fails", "[actors][pool]") {
  pooled_system on{1};
  const auto heard = std::make_shared<events<bool>>();
  auto& system = *on.system;
  const auto silent = system.spawn([](caf::event_based_actor* self) -> caf::behavior {
    auto kept = std::make_shared<caf::response_promise>();
    return {[=](int) -> caf::result<int> {
      *kept = self->make_response_promise();
      return caf::delegated<int>{};
    }};
  });
  system.spawn([=](caf::event_based_actor* self) {
    self->request(silent, 20ms, 1)
      .then([=](int) { heard->tell(false); },
            [=](const caf::error& why) {
              heard->tell(why == caf::sec::request_timeout);
              self->send_exit(silent, caf::exit_reason::kill);
            });
  });
  CHECK(heard->next());
}

TEST_CASE("an actor that never rests lets sockets and others have their turn", "[actors][pool]") {
  pooled_system on{1};
  const auto heard = std::make_shared<events<int>>();
  auto& system = *on.system;
  const auto busy = system.spawn([](caf::event_based_actor* self) -> caf::behavior {
    self->send(self, again_atom::value);
    return {[=](again_atom) { self->send(self, again_atom::value); }};
  });
  for (int i = 0; i < 10; ++i) {
    boost::asio::post(on.pool.context(0), [heard] { heard->tell(1); });
    CHECK(heard->next() == 1);
    system.spawn([heard](caf::event_based_actor*) { heard->tell(2); });
    CHECK(heard->next() == 2);
  }
  caf::anon_send_exit(busy, caf::exit_reason::kill);
}

TEST_CASE("many actors on several threads lose no message", "[actors][pool]") {
  constexpr int rounds = 200;
  constexpr int each = 50;
  pooled_system on{4};
  auto& system = *on.system;
  std::atomic<int> seen = 0;
  std::promise<void> all;
  for (int i = 0; i < each; ++i) {
    const auto echo = system.spawn(
      [](caf::event_based_actor*) -> caf::behavior { return {[](int left) { return left - 1; }}; });
    system.spawn([&, echo](caf::event_based_actor* self) -> caf::behavior {
      self->send(self, rounds);
      return {[&, echo, self](int left) {
        if (left > 0)
          return static_cast<void>(
            self->request(echo, caf::infinite, left).then([self](int answer) {
              self->send(self, answer);
            }));
        self->send_exit(echo, caf::exit_reason::user_shutdown);
        self->quit();
        if (++seen == each)
          all.set_value();
      }};
    });
  }
  all.get_future().get();
  CHECK(seen == each);
}

TEST_CASE("a system ends with messages that are still to come, and with what they keep",
          "[actors][pool]") {
  const auto kept = std::make_shared<int>(1);
  {
    pooled_system on{2};
    const auto waits = on.system->spawn([kept](caf::event_based_actor* self) -> caf::behavior {
      self->delayed_send(self, 1h, tick_atom::value);
      return {[kept](tick_atom) {}};
    });
    caf::anon_send_exit(waits, caf::exit_reason::user_shutdown);
    on.system.reset();
  }
  CHECK(kept.use_count() == 1);
}
