#include "runtime/broker/exchange.hpp"

#include <boost/asio/experimental/awaitable_operators.hpp>

#include <cstdint>
#include <string>

namespace insula::runtime::broker {

namespace {

using namespace boost::asio::experimental::awaitable_operators;

constexpr std::size_t tunnel_bytes = 64u << 10;

enum class passed : std::uint8_t { whole, source_failed, sink_failed };

/// `took`: becomes true with the first piece. `why`: the source's error.
task<passed> pass(message_source& from, message_sink& to, bool* took = nullptr,
                  std::optional<error>* why = nullptr) {
  for (;;) {
    const auto next = co_await from.body();
    if (!next) {
      if (why != nullptr)
        *why = next.reason();
      co_return passed::source_failed;
    }
    if (!*next) {
      const auto ended = co_await to.end(from.trailers());
      co_return ended ? passed::whole : passed::sink_failed;
    }
    if (took != nullptr)
      *took = true;
    const auto sent = co_await to.send(**next);
    if (!sent)
      co_return passed::sink_failed;
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

/// Of the two tasks of an exchange: `over` when the one of the answer is.
struct progress {
  bool sent = false, answered = false, over = false;
  std::optional<error> bad_body;
};

task<void> send_request(incoming& in, outgoing& out, progress& now, attempt& how) {
  bool ended = false;
  const at_end wakes{[&] {
    if (!ended)
      out.cut(); // By an exception.
  }};
  std::optional<error> why;
  const auto came = co_await pass(in, out, &how.body_was_taken, &why);
  ended = true;
  now.sent = came == passed::whole;
  if (now.over)
    co_return;
  if (came == passed::source_failed) {
    if (why && why->code == errc::invalid_request)
      now.bad_body = why;
    else
      how.client_is_gone = true;
    if (!now.answered)
      out.cut(); // There will be no answer to half a request.
  }
  if (came != passed::whole)
    co_return; // A server that takes no more may have answered before.
  ended = false;
  const bool gone = co_await in.wait_until_gone();
  ended = true;
  if (!gone || now.over)
    co_return;
  how.client_is_gone = true;
  out.cut();
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

task<result<exchanged>> exchange(incoming& in, const request_head& head, outgoing& out,
                                 attempt* how_far) {
  attempt unused;
  auto& how = how_far != nullptr ? *how_far : unused;
  in.resume_reading();
  const auto begun = co_await out.begin(head);
  if (!begun) {
    how.was_answered = out.was_answered();
    how.was_not_begun = out.was_not_begun();
    co_return begun.reason();
  }
  progress now;
  exchanged outcome;
  std::optional<error> failed;
  bool tunnels = false;
  const auto fail = [&](error why) {
    failed = std::move(why);
    out.cut();
  };
  const auto take_answer = [&]() -> task<void> {
    const at_end wakes{[&] {
      now.over = true;
      in.cut_reading();
    }};
    for (unsigned interim = 0;;) {
      auto said = co_await out.answer();
      if (!said) {
        failed = said.reason();
        co_return;
      }
      const unsigned status = said->status;
      if (status == 101 && head.upgrade.empty())
        co_return fail(
          {errc::io_failed, "the server switches to a protocol that nobody has asked for"});
      const bool is_last = status >= 200 || status == 101;
      if (!is_last && ++interim > most_interim_answers)
        co_return fail({errc::io_failed, "the server has too much to say before it answers"});
      now.answered = is_last;
      const auto told = co_await in.answer(*said);
      if (!told && told.reason().code == errc::limit_reached)
        co_return fail({errc::io_failed, "the head of the answer is too large to be passed on"});
      if (is_last)
        outcome.status = status;
      if (!told) {
        how.client_is_gone = true;
        out.cut();
        co_return;
      }
      if (status == 101) {
        tunnels = true;
        co_return;
      }
      if (is_last)
        break;
    }
    const auto came = co_await pass(out, in);
    outcome.whole = came == passed::whole;
    if (!outcome.whole) {
      in.cut();
      out.cut();
    }
  };
  co_await (send_request(in, out, now, how) && take_answer());
  how.was_answered = out.was_answered();
  how.was_not_begun = out.was_not_begun();
  if (tunnels && in.tunnel() != nullptr && out.tunnel() != nullptr) {
    const std::string from_client{in.early()}, from_server{out.early()};
    co_await (pump(*in.tunnel(), from_client, *out.tunnel()) &&
              pump(*out.tunnel(), from_server, *in.tunnel()));
    outcome.whole = false; // The connection is used up.
    co_return outcome;
  }
  if (failed && outcome.status == 0)
    co_return now.bad_body ? *now.bad_body : *failed;
  outcome.whole = outcome.whole && now.sent;
  co_return outcome;
}

} // namespace insula::runtime::broker
