#pragma once

#include "base/unique_fd.hpp"
#include "runtime/broker/exchange.hpp"
#include "tests/support/must.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <utility>

/// What tests of the broker talk with.
namespace insula::test {

/// Unix time.
inline std::int64_t now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
           std::chrono::system_clock::now().time_since_epoch())
    .count();
}

/// Both ends of a connection, not blocking.
inline std::array<unique_fd, 2> pair_of_sockets() {
  std::array<int, 2> both{};
  must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, both.data()) == 0);
  return {unique_fd{both[0]}, unique_fd{both[1]}};
}

/// Runs until the work is done. False: it is not done after 20 seconds.
inline bool run_until_done(boost::asio::io_context& io,
                           std::function<runtime::broker::task<void>()> work) {
  bool done = false;
  std::exception_ptr failed;
  boost::asio::co_spawn(io, std::move(work), [&](std::exception_ptr why) {
    failed = std::move(why);
    done = true;
  });
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  while (!done && std::chrono::steady_clock::now() < until)
    io.run_one_for(std::chrono::milliseconds{100});
  if (failed)
    std::rethrow_exception(failed);
  return done;
}

/// Lets other tasks go on until it holds, for at most 10 seconds.
inline runtime::broker::task<bool> until(boost::asio::io_context& io, std::function<bool()> what) {
  boost::asio::steady_timer timer{io};
  for (int i = 0; i < 5000 && !what(); ++i) {
    timer.expires_after(std::chrono::milliseconds{2});
    co_await timer.async_wait(boost::asio::use_awaitable);
  }
  co_return what();
}

/// All that an answer has.
struct told {
  unsigned status = 0;
  runtime::broker::fields head, trailers;
  std::string body;
  std::string why; ///< Not empty: it has failed.
};

/// Asks, and hears all.
inline runtime::broker::task<told> ask(runtime::broker::outgoing& to,
                                       runtime::broker::request_head head, std::string_view body,
                                       const runtime::broker::fields& trailers = {}) {
  told all;
  auto ok = co_await to.begin(head);
  if (ok && !body.empty())
    ok = co_await to.send(body);
  if (ok)
    ok = co_await to.end(trailers);
  if (!ok)
    all.why = ok.reason().message; // There may be an answer all the same.
  while (all.status < 200) {
    auto said = co_await to.answer();
    if (!said) {
      all.why = said.reason().message;
      co_return all;
    }
    all.status = said->status;
    all.head = std::move(said->rest);
  }
  for (;;) {
    auto next = co_await to.body();
    if (!next) {
      all.why = next.reason().message;
      co_return all;
    }
    if (!*next)
      break;
    all.body += **next;
  }
  all.trailers = to.trailers();
  co_return all;
}

inline runtime::broker::request_head head_of(const std::string& method, const std::string& target,
                                             std::optional<std::uint64_t> bytes = 0,
                                             runtime::broker::fields rest = {}) {
  runtime::broker::request_head head;
  head.method = method;
  head.target = target;
  head.authority = "a.example";
  head.rest = std::move(rest);
  head.body_bytes = bytes;
  return head;
}

} // namespace insula::test
