#pragma once

#include "benchmarks/load/http_client.hpp"

#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <sys/socket.h>

/// What a client's connections are made of: for the client itself, and for what becomes of one that
/// is no HTTP any more.
namespace insula::load {

struct http_client::connection {
  using buffers = std::array<asio::const_buffer, 2>;

  explicit connection(asio::io_context& io)
      : socket(io) {}

  task<std::size_t> read(error_code& failed) {
    const auto to = asio::buffer(bytes.data() + filled, bytes.size() - filled);
    std::size_t got = 0;
    if (encrypted)
      got = co_await encrypted->async_read_some(to, into(failed));
    else
      got = co_await socket.async_read_some(to, into(failed));
    filled += got;
    co_return got;
  }

  task<> write(buffers what, error_code& failed) {
    if (encrypted)
      co_await asio::async_write(*encrypted, what, into(failed));
    else
      co_await asio::async_write(socket, what, into(failed));
  }

  /// Whether the server has closed it, or says something that nobody has asked for.
  bool has_ended() {
    char one = 0;
    const auto got = ::recv(socket.native_handle(), &one, 1, MSG_PEEK | MSG_DONTWAIT);
    return got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }

  void end(const char* why) {
    ended_because = why;
    error_code ignored;
    socket.close(ignored);
  }

  asio::ip::tcp::socket socket;
  std::optional<asio::ssl::stream<asio::ip::tcp::socket&>> encrypted;
  std::vector<char> bytes; ///< Room for what is read; the client's own requests give it some.
  std::size_t filled = 0;
  clock::time_point deadline;
  bool cleaning_up = false;
  const char* ended_because = nullptr; ///< By us.
  std::size_t place = 0;               ///< Among those in use.
};

/// A connection counts as in use while this lives.
class http_client::in_use {
public:
  in_use(http_client& of, connection& which)
      : of_(of)
      , which_(which) {
    which_.place = of_.busy_.size();
    of_.busy_.push_back(&which_);
  }
  ~in_use() {
    of_.busy_.back()->place = which_.place;
    std::swap(of_.busy_[which_.place], of_.busy_.back());
    of_.busy_.pop_back();
  }
  in_use(const in_use&) = delete;
  in_use& operator=(const in_use&) = delete;

private:
  http_client& of_;
  connection& which_;
};

} // namespace insula::load
