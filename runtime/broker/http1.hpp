#pragma once

#include "runtime/broker/condition.hpp"
#include "runtime/broker/exchange.hpp"
#include "runtime/broker/http1_reader.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

/// HTTP/1.1 over a connection, towards a client and towards a server.
namespace insula::runtime::broker {

/// What has come over a connection and is not used yet. Ceiling: room_bytes, or a head where that
/// is longer.
class http1_input {
public:
  static constexpr std::size_t room_bytes = 64u << 10;

  http1_input(stream& from, http1_reader::side of)
      : reader(of)
      , from_(&from)
      , interrupted_(from.executor()) {}

  /// The next thing that is read. Waits while it would be none. The error is that of the stream, or
  /// says that the connection has ended in the midst of something.
  task<result<http1_reader::step>> next();
  /// Reads before something is wanted, as far as there is room; then it waits for interrupt().
  /// False: the connection has ended, or it was interrupted. Nothing that was told is good then.
  task<bool> read_ahead();
  /// A task that waits here is told.
  void interrupt();
  /// What has come and is no part of what was told.
  bool has_some() const { return begin_ + used_ < end_; }
  std::string_view rest() const { return unread().substr(used_); }

  http1_reader reader;

private:
  std::string_view unread() const { return {room_.data() + begin_, end_ - begin_}; }
  task<result<void>> fill();

  stream* from_;
  condition interrupted_;
  std::string room_;
  std::size_t begin_ = 0, end_ = 0;
  std::size_t used_ = 0; ///< Of what was told last, which is good until now.
  bool over_ = false;
};

/// What is done with a request. Its answer has been given, or cannot be.
using request_handler = std::function<task<exchanged>(incoming& request)>;

/// One request after the other, until the connection ends. A client that says nothing for `idle` is
/// let go of, and so is one whose head takes longer than `head`.
task<void> serve_http1(stream& client, const request_handler& handle,
                       std::chrono::milliseconds idle,
                       std::chrono::milliseconds head = std::chrono::seconds{30});

/// One request after the other to a server. `server` outlives it.
std::unique_ptr<outgoing> make_http1_outgoing(stream& server);

} // namespace insula::runtime::broker
