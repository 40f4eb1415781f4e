#pragma once

#include "http/transport/front_door.hpp"
#include "tests/support/events.hpp"

#include <functional>
#include <memory>

namespace insula::test {

/// A front door behind which every request but one becomes a WebSocket.
class socket_door {
public:
  /// The address of the one: it is answered with a stream, by whoever takes that out of `streams`.
  static constexpr std::string_view slow = "/slow";

  explicit socket_door(http::front_door_options options = {})
      : counts(options.counts)
      , door_(io_, on_loopback(std::move(options)), [this](const http::request_head& head) {
        http::admission plan;
        if (head.path == slow) {
          plan.answer = [this](const std::string&, const http::reply& to) {
            streams.tell(to->stream({"text/plain", {}, true}));
          };
          return plan;
        }
        plan.answer = [this, offer = http::read_offer(head)](const std::string&,
                                                             const http::reply& to) {
          to->upgrade(offer, [this](std::shared_ptr<http::web_socket> made) {
            made->on_gone([this] { gone.tell(true); });
            opened.tell(std::move(made));
          });
        };
        return plan;
      }) {
    if (const auto started = door_.start(); !started)
      throw std::runtime_error(started.reason().message);
  }

  std::uint16_t port() const { return door_.port(); }
  void stop(std::chrono::milliseconds within) { door_.stop(within); }

  /// The next one sends back what it gets, for as long as it lives.
  std::shared_ptr<http::web_socket> echo() {
    auto made = opened.next(patience);
    answer_next(made);
    return made;
  }

  /// What the next one gets is remembered.
  std::shared_ptr<http::web_socket> listen() {
    auto made = opened.next(patience);
    hear_next(made);
    return made;
  }

  static constexpr std::chrono::seconds patience{60};

  events<std::shared_ptr<http::web_socket>> opened;
  events<std::shared_ptr<http::answer_stream>> streams;
  events<http::web_socket_message> heard;
  events<bool> gone;
  const std::shared_ptr<http::figures> counts;

private:
  static http::front_door_options on_loopback(http::front_door_options options) {
    options.address = "127.0.0.1";
    return options;
  }

  void answer_next(const std::shared_ptr<http::web_socket>& on) {
    on->receive([this, weak = std::weak_ptr{on}](http::web_socket_message message) {
      const auto to = weak.lock();
      if (!to)
        return;
      to->send(std::move(message), {});
      answer_next(to);
    });
  }
  void hear_next(const std::shared_ptr<http::web_socket>& on) {
    on->receive([this, weak = std::weak_ptr{on}](http::web_socket_message message) {
      heard.tell(std::move(message));
      if (const auto from = weak.lock())
        hear_next(from);
    });
  }

  io_pool io_{2};
  http::front_door door_;
};

} // namespace insula::test
