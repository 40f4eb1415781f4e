#pragma once

#include "actors/protocol/messages.hpp"
#include "http/transport/exchange.hpp"
#include "tests/fuzz/bytes.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <fcntl.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

namespace insula::fuzz {

/// What a client would have got.
struct played_answer {
  bool answered = false; ///< Whole, or a stream was begun.
  int status = 0;
  std::optional<std::uint64_t> length; ///< Of what is streamed, where that was told.
  std::string streamed;                ///< No more than that.
  bool finished = false;               ///< The stream ended as a whole one.
};

class played_stream final : public http::answer_stream {
public:
  played_stream(boost::asio::io_context& io, played_answer& into)
      : io_(io)
      , into_(into) {}

  void write(std::string bytes, std::function<void(bool)> taken) override {
    must(!into_.finished, "nothing comes after the end");
    put(bytes);
    boost::asio::post(io_, [taken = std::move(taken)] { taken(true); });
  }
  void finish(std::string bytes) override {
    must(!into_.finished, "there is one end");
    put(bytes);
    into_.finished = !into_.length || into_.streamed.size() == *into_.length;
  }
  void on_gone(std::function<void()>) override {}
  void fill_silence(std::string, std::chrono::milliseconds) override {}

private:
  void put(std::string_view bytes) {
    into_.streamed += into_.length ? bytes.substr(0, *into_.length - into_.streamed.size()) : bytes;
  }

  boost::asio::io_context& io_;
  played_answer& into_;
};

class played_exchange final : public http::exchange {
public:
  played_exchange(boost::asio::io_context& io, played_answer& into)
      : io_(io)
      , into_(into) {}

  void respond(http::response answer) override {
    if (!std::exchange(into_.answered, true))
      into_.status = answer.status;
  }
  std::shared_ptr<http::answer_stream> stream(http::stream_head how) override {
    if (std::exchange(into_.answered, true))
      return nullptr;
    into_.status = how.status;
    into_.length = how.length;
    return std::make_shared<played_stream>(io_, into_);
  }
  void upgrade(http::web_socket_offer,
               std::function<void(std::shared_ptr<http::web_socket>)>) override {
    must(false, "nothing here becomes a WebSocket");
  }
  void answer_within(std::chrono::milliseconds, http::response) override {}
  http::strand_handle strand() const override { return {nullptr, io_.get_executor()}; }
  const request_context& context() const override { return context_; }

private:
  boost::asio::io_context& io_;
  played_answer& into_;
  const request_context context_;
};

/// Runs `start` with an exchange, and all that follows from it, on this thread.
template <class Start>
played_answer play(Start start) {
  played_answer got;
  boost::asio::io_context io{1};
  start(std::make_shared<played_exchange>(io, got));
  io.run();
  return got;
}

/// The socket to an operation that has said `bytes` and is gone.
inline file_channel channel_with(std::string_view bytes) {
  int ends[2];
  must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "there are sockets");
  must(::send(ends[1], bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size()),
       "an input fits into a socket");
  ::close(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {std::make_shared<unique_fd>(ends[0])};
}

} // namespace insula::fuzz
