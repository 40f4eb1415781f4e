#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

using SSL = struct ssl_st;
using SSL_CTX = struct ssl_ctx_st;

namespace insula::runtime::broker {

template <class T>
using task = boost::asio::awaitable<T>;

/// One connection, with TLS or without. One task reads and one writes at a time. The thread is that
/// of the io_context. Errors are io_failed: the connection has ended where it should not, or was
/// cut. SIGPIPE has to be ignored: OpenSSL writes without asking for that.
class stream {
public:
  /// `socket` is connected, and not blocking.
  stream(boost::asio::io_context& io, unique_fd socket);
  ~stream();
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;

  /// TLS with a client. Errors also: deadline_exceeded.
  task<result<void>> accept_tls(SSL_CTX& with, std::chrono::milliseconds patience);
  /// TLS with the server of that name, whose certificate is verified. The error says what was wrong
  /// with that. `offers_http2`: beside HTTP/1.1. Errors also: deadline_exceeded.
  task<result<void>> connect_tls(SSL_CTX& with, const std::string& name,
                                 std::chrono::milliseconds patience, bool offers_http2);
  /// That both have agreed on: "h2", "http/1.1"; empty: none.
  const std::string& protocol() const { return protocol_; }
  /// That the client has asked for by SNI; empty: none.
  const std::string& server_name() const { return server_name_; }

  /// At least one byte; 0: the other end has said that no more comes.
  task<result<std::size_t>> read(char* into, std::size_t room);
  /// The stream is cut if nothing can be written for longest_stall().
  task<result<void>> write(std::string_view all);
  void longest_stall(std::chrono::milliseconds is) { longest_stall_ = is; }
  /// Says that no more comes.
  task<void> end();
  /// Whoever reads or writes is told that it was cut.
  void cut();
  /// A task that waits for something to read has an error, and the connection goes on.
  void interrupt_reading();
  /// Nothing has come that was not read, and the connection has not ended.
  bool is_quiet();

  boost::asio::posix::stream_descriptor::executor_type executor() { return socket_.get_executor(); }
  std::uint64_t bytes_read() const { return read_; }
  std::uint64_t bytes_written() const { return written_; }

private:
  enum class next : std::uint8_t { done, read, write, ended, failed };

  struct frees {
    void operator()(SSL* what) const;
  };

  next judge(int outcome) const;
  task<bool> wait(next for_what);
  task<bool> wait_to_read(next for_what);
  task<result<void>> shake_hands(std::chrono::milliseconds longest);
  error broken() const;

  boost::asio::posix::stream_descriptor socket_;
  std::unique_ptr<SSL, frees> tls_;
  std::string protocol_, server_name_;
  boost::asio::cancellation_signal interrupts_;
  std::uint64_t read_ = 0, written_ = 0;
  std::chrono::milliseconds longest_stall_ = std::chrono::minutes{5};
  bool cut_ = false, read_waits_ = false;
};

/// Cuts a stream if it is there for too long.
class patience {
public:
  patience(stream& with, std::chrono::milliseconds longest);
  ~patience();
  patience(const patience&) = delete;
  patience& operator=(const patience&) = delete;

  bool is_over() const;

private:
  struct shared;
  std::shared_ptr<shared> shared_;
};

/// For connections to servers: certificates are verified against those that the machine trusts, or
/// against the PEM text if there is one. Errors: invalid_request, internal.
result<std::shared_ptr<SSL_CTX>> make_client_context(const std::string& trusted_pem);

} // namespace insula::runtime::broker
