#include "base/io_pool.hpp"
#include "tests/support/catch.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <vector>

using insula::io_pool;

TEST_CASE("a pool's thread knows its own context, others take turns", "[io_pool]") {
  io_pool pool{3};
  REQUIRE(pool.size() == 3);
  for (std::size_t i = 0; i < pool.size(); ++i) {
    std::promise<boost::asio::io_context*> here;
    boost::asio::post(pool.context(i), [&] { here.set_value(&pool.here()); });
    CHECK(here.get_future().get() == &pool.context(i));
  }
  auto& first = pool.here();
  CHECK(&pool.here() != &first);
  CHECK(&pool.here() != &first);
  CHECK(&pool.here() == &first);
}

TEST_CASE("of two pools a thread belongs to one", "[io_pool]") {
  io_pool one{1}, other{1};
  std::promise<boost::asio::io_context*> here;
  boost::asio::post(one.context(0), [&] { here.set_value(&other.here()); });
  CHECK(here.get_future().get() == &other.context(0));
}

TEST_CASE("an exception ends no thread of a pool", "[io_pool]") {
  io_pool pool{1};
  std::promise<void> after;
  boost::asio::post(pool.context(0), [] { throw std::runtime_error{"expected by a test"}; });
  boost::asio::post(pool.context(0), [&] { after.set_value(); });
  after.get_future().get();
}

TEST_CASE("what a pool still has to do is done at its end, also what comes of it", "[io_pool]") {
  const auto done = std::make_shared<int>(0);
  {
    io_pool pool{2};
    for (std::size_t i = 0; i < 100; ++i)
      boost::asio::post(pool.context(i % 2), [&pool, done, i] {
        boost::asio::post(pool.context((i + 1) % 2), [done] {});
      });
  }
  CHECK(done.use_count() == 1);
}

TEST_CASE("what waits when a pool ends may have parts in all of its contexts", "[io_pool]") {
  struct parts {
    explicit parts(io_pool& of) {
      for (std::size_t i = 0; i < of.size(); ++i)
        timers.emplace_back(of.context(i), std::chrono::hours{1});
    }
    std::vector<boost::asio::steady_timer> timers;
  };
  /// Where it is dropped, it hands over what it has.
  struct handing_over {
    handing_over(boost::asio::io_context& context, std::shared_ptr<parts> last)
        : to(context)
        , what(std::move(last)) {}
    ~handing_over() {
      boost::asio::post(to, [last = std::move(what)] {});
    }
    boost::asio::io_context& to;
    std::shared_ptr<parts> what;
  };
  const auto held = std::make_shared<int>(0);
  {
    io_pool pool{3};
    for (std::size_t from = 0; from < pool.size(); ++from)
      for (std::size_t to = 0; to < pool.size(); ++to) {
        const auto waiting = std::make_shared<parts>(pool);
        const auto last =
          std::make_shared<handing_over>(pool.context(to), std::make_shared<parts>(pool));
        waiting->timers[from].async_wait([waiting, held, last](auto) {});
      }
  }
  CHECK(held.use_count() == 1);
}

TEST_CASE("a pool has settled when what was handed on from thread to thread is done as well",
          "[io_pool]") {
  io_pool pool{2};
  for (int run = 0; run < 200; ++run) {
    std::atomic<int> left = 20;
    std::function<void()> hand_on = [&] {
      if (--left > 0)
        boost::asio::post(pool.context(static_cast<std::size_t>(left % 2)), hand_on);
    };
    boost::asio::post(pool.context(0), hand_on);
    pool.settle();
    REQUIRE(left == 0);
  }
}

TEST_CASE("a pool has settled when each thread has done what it had been given", "[io_pool]") {
  io_pool pool{3};
  std::atomic<int> done = 0;
  for (std::size_t i = 0; i < 30; ++i)
    boost::asio::post(pool.context(i % 3), [&done] { ++done; });
  pool.settle();
  CHECK(done == 30);
}
