#include "benchmarks/closed_loop.hpp"

#include "benchmarks/clock.hpp"
#include "benchmarks/http_client.hpp"
#include "benchmarks/load/interrupt.hpp"

#include <array>
#include <cerrno>
#include <stdexcept>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <system_error>

namespace insula::bench {

namespace {

constexpr int look_every_ms = 200;
constexpr double patience_ms = 30'000;

[[noreturn]] void fail(const char* what) {
  throw std::system_error{errno, std::generic_category(), what};
}

} // namespace

closed_loop::closed_loop(std::uint16_t port, std::size_t connections)
    : port_(port)
    , events_(::epoll_create1(EPOLL_CLOEXEC))
    , all_(connections) {
  if (!events_)
    fail("epoll");
  for (auto& each : all_)
    connect(each);
}

void closed_loop::connect(connection& each) {
  each.socket = connect_to(port_);
  epoll_event wanted{};
  wanted.events = EPOLLIN;
  wanted.data.ptr = &each;
  if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, each.socket.get(), &wanted) != 0)
    fail("epoll");
}

void closed_loop::ask(connection& each, std::string_view text) {
  each.body.clear();
  each.reader.start([&each](std::string_view piece) { each.body.append(piece); });
  // A request is small and the connection has nothing else under way: it fits.
  if (::send(each.socket.get(), text.data(), text.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(text.size()))
    fail("send");
}

closed_loop::outcome closed_loop::run(const traffic& what, std::chrono::milliseconds length) {
  outcome sum;
  const auto began = clock::now();
  const auto until = began + length;
  std::size_t open = all_.size();
  const auto failed = [&sum](std::string why) {
    if (sum.failures++ == 0)
      sum.first_failure = std::move(why);
  };
  // A broken connection is one failed request; another connection takes its place.
  const auto go_on = [&](connection& each) {
    try {
      if (!each.socket)
        connect(each);
      if (clock::now() < until)
        return ask(each, what.next());
    } catch (const std::system_error& why) {
      failed(why.what());
      each.socket.reset();
    }
    --open;
  };
  for (auto& each : all_)
    go_on(each);

  std::array<epoll_event, 64> ready{};
  std::array<char, 65'536> bytes{};
  while (open > 0) {
    const int count = ::epoll_wait(events_.get(), ready.data(), ready.size(), look_every_ms);
    load::throw_if_interrupted();
    if (ms_between(until, clock::now()) > patience_ms)
      throw std::runtime_error("requests without an answer: " + std::to_string(open));
    for (int i = 0; i < count; ++i) {
      auto& each = *static_cast<connection*>(ready[static_cast<std::size_t>(i)].data.ptr);
      const auto got = ::recv(each.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR))
        continue;
      const bool idle = each.reader.done();
      if (got > 0)
        each.reader.feed({bytes.data(), static_cast<std::size_t>(got)});
      else
        each.socket.reset();
      if (idle)
        continue; // Closed when its last question had been answered.
      if (got <= 0)
        failed("the connection broke");
      else if (!each.reader.done())
        continue;
      else if (what.expected(each.reader.status(), each.body))
        ++sum.requests;
      else
        failed(std::to_string(each.reader.status()) + " " + each.body.substr(0, 100));
      if (!each.reader.keeps_alive())
        each.socket.reset();
      go_on(each);
    }
  }
  sum.seconds = ms_since(began) / 1000;
  return sum;
}

} // namespace insula::bench
