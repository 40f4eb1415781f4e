#pragma once

#include "benchmarks/load/bridge.hpp"

#include <chrono>
#include <optional>

namespace insula::test {

/// A client of the load generator with a loop of its own, which turns while something is waited
/// for.
class test_client {
public:
  explicit test_client(std::uint16_t port,
                       std::chrono::milliseconds patience = std::chrono::seconds{60})
      : http(io, options(port), *load::look_up(options(port).url))
      , api(http, patience) {}

  template <class T>
  T get(load::task<T> what) {
    std::optional<T> answer;
    load::asio::co_spawn(io, std::move(what), [&answer](const std::exception_ptr& thrown, T got) {
      if (thrown)
        std::rethrow_exception(thrown);
      answer.emplace(std::move(got));
    });
    io.restart();
    while (!answer) {
      io.run_for(std::chrono::milliseconds{5});
      http.look_at_deadlines(load::clock::now());
    }
    return std::move(*answer);
  }

  load::exec_ending exec(std::chrono::milliseconds patience = std::chrono::seconds{60}) {
    return get(api.exec("abc", {{"echo", "hi"}, "hi\n", patience}));
  }

  load::asio::io_context io{1};
  load::http_client http;
  load::bridge api;

private:
  static load::client_options options(std::uint16_t port) {
    load::client_options made;
    made.url.host = "127.0.0.1";
    made.url.port = port;
    made.key = "secret";
    return made;
  }
};

} // namespace insula::test
