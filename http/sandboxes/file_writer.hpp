#pragma once

#include "actors/protocol/messages.hpp"
#include "base/error.hpp"
#include "base/stream_frames.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/transport/exchange.hpp"
#include "http/transport/watchdog.hpp"

#include <boost/asio/local/stream_protocol.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace insula::http {

/// Writes one file of a sandbox as its bytes come. While the sandbox is being found, and whenever
/// the channel is full, what has been written so far waits here. On its strand, all of it. Dropped
/// before its end, it leaves the file as it was.
class file_writer : public std::enable_shared_from_this<file_writer> {
public:
  /// How it went, and at which stage. Without an error, the file is in place; with one, `head` is
  /// what the sandbox has said, if it has said anything.
  struct outcome {
    question_stage at;
    std::optional<error> why = {};
    file_head head = {};
  };
  using opened = std::function<void(const file_channel&)>;
  using not_opened = std::function<void(question_stage, const error&)>;

  /// `on_room`: more may be written. `on_done`: once. Neither is called any more once the writer is
  /// gone.
  file_writer(strand_handle strand, std::function<void()> on_room,
              std::function<void(const outcome&)> on_done);

  /// `ask` asks for the channel, and calls one of the two from any thread.
  void open(const std::function<void(opened, not_opened)>& ask);

  /// False: nothing more before on_room.
  bool write(std::string_view bytes);

  /// That was all; on_done follows.
  void finish();

  bool is_open() const { return channel_.has_value(); }

private:
  void take(const file_channel& channel);
  void judge(const boost::system::error_code& ec, const file_head& head);
  void send_frame(std::string_view bytes);
  void wait_for_room();
  void flush();
  void settle(const outcome& how);

  const strand_handle strand_; // Before everything that runs there.
  std::function<void()> on_room_;
  std::function<void(const outcome&)> on_done_;
  watchdog patience_;         ///< With the sandbox, not with the client.
  std::shared_ptr<void> use_; ///< Keeps the sandbox awake.
  std::optional<boost::asio::local::stream_protocol::socket> channel_;
  std::string held_;
  bool waiting_ = false;   ///< For room in the channel.
  bool ended_ = false;     ///< All has been written.
  bool committed_ = false; ///< The last frame has been sent, or is the last of what is held.
  bool done_ = false;
};

} // namespace insula::http
