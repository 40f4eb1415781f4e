#include "runtime/broker/exchange.hpp"

#include <boost/asio/experimental/awaitable_operators.hpp>

#include <array>
#include <string>

namespace insula::runtime::broker {

namespace {

using namespace boost::asio::experimental::awaitable_operators;

constexpr std::size_t tunnel_bytes = 64u << 10;

/// True: all of it.
task<bool> pass(message_source& from, message_sink& to) {
  for (;;) {
    const auto next = co_await from.body();
    if (!next)
      co_return false;
    if (!*next)
      co_return static_cast<bool>(co_await to.end(from.trailers()));
    const auto sent = co_await to.send(**next);
    if (!sent)
      co_return false;
  }
}

/// One way of a tunnel, until it ends. If it does so badly, the other way ends as well.
task<void> pump(stream& from, std::string_view early, stream& to) {
  bool good = static_cast<bool>(co_await to.write(early));
  std::string room(tunnel_bytes, '\0');
  while (good) {
    const auto size = co_await from.read(room.data(), room.size());
    if (size && *size == 0)
      break;
    good = static_cast<bool>(size);
    if (good)
      good = static_cast<bool>(co_await to.write({room.data(), *size}));
  }
  if (good) {
    co_await to.end();
  } else {
    from.cut();
    to.cut();
  }
}

/// The answer, when it comes. What was not asked for to the end does not matter then.
struct progress {
  bool sent = false, answered = false;
};

task<void> send_request(incoming& in, outgoing& out, progress& now) {
  now.sent = co_await pass(in, out);
  if (!now.sent && !now.answered && !in.head.expects_continue)
    out.cut(); // There will be no answer to half a request.
}

} // namespace

task<exchanged> answer(incoming& in, response_head head, std::string_view body) {
  const bool has_none = in.head.method == "HEAD" || head.status == 204 || head.status == 304;
  head.body_bytes = body.size();
  const unsigned status = head.status;
  auto ok = co_await in.answer(head);
  if (ok && !has_none && !body.empty())
    ok = co_await in.send(body);
  if (ok)
    ok = co_await in.end({});
  co_return exchanged{status, static_cast<bool>(ok)};
}

task<exchanged> refuse(incoming& in, unsigned status, std::string_view why) {
  response_head head;
  head.status = status;
  head.rest = {{"content-type", "text/plain; charset=utf-8"}, {"cache-control", "no-store"}};
  std::string text{why};
  text += '\n';
  co_return co_await answer(in, std::move(head), text);
}

task<result<exchanged>> exchange(incoming& in, const request_head& head, outgoing& out) {
  const auto begun = co_await out.begin(head);
  if (!begun)
    co_return begun.reason();
  progress now;
  exchanged outcome;
  std::optional<error> failed;
  bool tunnels = false;
  const auto take_answer = [&]() -> task<void> {
    for (;;) {
      auto said = co_await out.answer();
      if (!said) {
        failed = said.reason();
        in.cut_reading();
        co_return;
      }
      now.answered = said->status >= 200 || said->status == 101;
      if (now.answered)
        outcome.status = said->status;
      const auto told = co_await in.answer(*said);
      if (!told) {
        out.cut();
        co_return;
      }
      if (said->status == 101) {
        tunnels = true;
        co_return;
      }
      if (said->status >= 200)
        break;
    }
    outcome.whole = co_await pass(out, in);
    if (!outcome.whole) {
      in.cut();
      out.cut();
    } else if (!now.sent) {
      in.cut_reading(); // The server has answered before it has had all.
    }
  };
  co_await (send_request(in, out, now) && take_answer());
  if (tunnels && in.tunnel() != nullptr && out.tunnel() != nullptr) {
    const std::string from_client{in.early()}, from_server{out.early()};
    co_await (pump(*in.tunnel(), from_client, *out.tunnel()) &&
              pump(*out.tunnel(), from_server, *in.tunnel()));
    outcome.whole = false; // The connection is used up.
    co_return outcome;
  }
  if (failed && outcome.status == 0)
    co_return *failed;
  outcome.whole = outcome.whole && now.sent;
  co_return outcome;
}

} // namespace insula::runtime::broker
