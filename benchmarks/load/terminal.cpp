#include "benchmarks/load/terminal.hpp"

#include <boost/asio/detached.hpp>
#include <rapidjson/document.h>

namespace insula::load {

namespace {

/// A control message has a few words; an error's text may be longer.
constexpr std::size_t longest_message = 64 * 1024;

} // namespace

std::optional<terminal_message> parse_terminal_message(std::string_view text) {
  rapidjson::Document said;
  said.Parse<rapidjson::kParseIterativeFlag>(text.data(), text.size());
  if (said.HasParseError() || !said.IsObject())
    return std::nullopt;
  const auto type = said.FindMember("type");
  if (type == said.MemberEnd() || !type->value.IsString())
    return std::nullopt;
  const std::string_view name{type->value.GetString(), type->value.GetStringLength()};
  terminal_message made;
  if (name == "ready") {
    made.what = terminal_message::kind::ready;
  } else if (name == "error") {
    made.what = terminal_message::kind::error;
  } else if (name == "exit") {
    const auto code = said.FindMember("code");
    if (code == said.MemberEnd() || !code->value.IsInt())
      return std::nullopt;
    made.what = terminal_message::kind::exit;
    made.code = code->value.GetInt();
  }
  return made;
}

/// Shared by the one who has the terminal and by the coroutine that reads, which may go last.
struct terminal::state {
  state(asio::io_context& io, std::unique_ptr<web_socket> over)
      : socket(std::move(over))
      , news(io, clock::time_point::max()) {}

  /// In a coroutine of its own until the socket ends.
  static task<> read_all(std::shared_ptr<state> it) {
    while (it->why.empty() && !it->stalled) {
      const auto part = co_await it->socket->read();
      if (!part)
        break;
      if (part->text)
        it->take_text(*part);
      else
        it->take_output(part->bytes);
    }
    if (it->stalled && it->why.empty())
      co_return; // Whoever has it will end it.
    it->end(it->socket->failure());
  }

  void take_text(const message_part& part) {
    if (message.size() + part.bytes.size() > longest_message)
      return end(failure::malformed);
    message += part.bytes;
    if (!part.last)
      return;
    const auto said = parse_terminal_message(message);
    message.clear();
    if (!said)
      return end(failure::malformed);
    switch (said->what) {
      case terminal_message::kind::ready: ready = true; break;
      case terminal_message::kind::exit: return end("exit " + std::to_string(said->code));
      case terminal_message::kind::error:
        if (!ready)
          return end("error message");
        break;
      case terminal_message::kind::other: break;
    }
    news.cancel();
  }

  void take_output(std::string_view bytes) {
    printed += bytes.size();
    if (!wanted.empty()) {
      tail += bytes;
      if (tail.find(wanted) != std::string::npos) {
        wanted.clear();
        tail.clear();
        news.cancel();
      } else if (tail.size() >= wanted.size()) {
        tail.erase(0, tail.size() - wanted.size() + 1);
      }
    }
    if (on_output)
      on_output(bytes);
  }

  /// The first reason stands.
  void end(const std::string& reason) {
    if (why.empty())
      why = reason.empty() ? failure::cut : reason;
    socket->end();
    news.cancel();
  }

  /// Until that is so, or it has ended.
  template <class Holds>
  task<> wait(Holds holds) {
    while (why.empty() && !holds()) {
      error_code ignored;
      co_await news.async_wait(into(ignored));
    }
  }

  const std::unique_ptr<web_socket> socket;
  asio::steady_timer news; ///< Is cancelled whenever there are some.
  printed_fn on_output;
  std::string message;
  std::string wanted, tail; ///< What somebody waits for, and where it could begin.
  std::string why;
  std::uint64_t printed = 0;
  bool ready = false, stalled = false;
};

task<terminal::opened> terminal::open(http_client& by, std::string sandbox, std::string session,
                                      std::chrono::milliseconds patience) {
  const auto until = clock::now() + patience;
  opened made;
  auto got = co_await web_socket::open(
    by, "/v1/sandbox/" + sandbox + "/pty?cols=80&rows=24&session=" + session, patience);
  if (!got.failure.empty()) {
    made.failure = std::move(got.failure);
    co_return made;
  }
  const auto executor = co_await asio::this_coro::executor;
  auto& io = static_cast<asio::io_context&>(executor.context());
  const auto it = std::make_shared<state>(io, std::move(got.socket));
  made.is.reset(new terminal{it});
  it->socket->expect_by(until);
  asio::co_spawn(io, state::read_all(it), asio::detached);
  co_await it->wait([&it] { return it->ready; });
  if (it->why.empty()) {
    made.is->expect_nothing();
  } else {
    made.failure = it->why;
    made.is.reset();
  }
  co_return made;
}

terminal::~terminal() {
  state_->on_output = nullptr;
  state_->end(failure::let_go);
}

void terminal::on_output(printed_fn what) {
  state_->on_output = std::move(what);
}

task<bool> terminal::type(std::string_view bytes) {
  if (!state_->why.empty())
    co_return false;
  const bool done = co_await state_->socket->write(bytes, false);
  co_return done;
}

task<std::string> terminal::type_until(std::string bytes, std::string printed,
                                       std::chrono::milliseconds patience) {
  state_->wanted = std::move(printed);
  state_->tail.clear();
  expect_by(clock::now() + patience);
  const bool typed = co_await type(bytes);
  if (typed)
    co_await state_->wait([this] { return state_->wanted.empty(); });
  expect_nothing();
  if (state_->wanted.empty())
    co_return std::string{};
  state_->wanted.clear();
  co_return state_->why.empty() ? std::string{failure::cut} : state_->why;
}

void terminal::stall() {
  state_->stalled = true;
}

void terminal::expect_by(clock::time_point when) {
  state_->socket->expect_by(when);
}

const std::string& terminal::ended() const {
  return state_->why;
}

std::uint64_t terminal::printed_bytes() const {
  return state_->printed;
}

} // namespace insula::load
