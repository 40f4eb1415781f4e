#include "http/bridge/file_download.hpp"

#include "base/limits.hpp"
#include "base/stream_frames.hpp"
#include "http/bridge/error_response.hpp"
#include "http/watchdog.hpp"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace insula::http::bridge {

namespace {

namespace asio = boost::asio;
using error_code = boost::system::error_code;

class download : public std::enable_shared_from_this<download> {
public:
  download(strand_handle strand, file_channel channel, std::string path, reply to)
      : strand_(std::move(strand))
      , use_(std::move(channel.use))
      , channel_(strand_.executor(), asio::local::stream_protocol{}, channel.socket->release())
      , silence_(strand_.executor(), [this] { channel_.cancel(); })
      , path_(std::move(path))
      , to_(std::move(to)) {}

  void start() {
    read(asio::buffer(&head_, sizeof head_), [](download& self) { self.judge_head(); });
  }

private:
  /// Reads until `into` is full, then goes on with `then`.
  template <class Then>
  void read(asio::mutable_buffer into, Then then) {
    silence_.expires_after(limits::reader_patience);
    asio::async_read(channel_, into,
                     [self = shared_from_this(), then](const error_code& ec, std::size_t) {
                       self->silence_.disarm();
                       if (ec)
                         self->cut_off(ec);
                       else
                         then(*self);
                     });
  }

  void judge_head() {
    const int code = head_.error;
    if (code == ENOENT || code == ENOTDIR || code == EISDIR || head_.kind == file_kind::directory)
      return refuse({errc::not_found, "File not found: " + path_});
    if (code != 0)
      return refuse({errc::io_failed, std::generic_category().message(code)});
    if (head_.kind != file_kind::regular)
      return refuse({errc::io_failed, "not a regular file"});
    read(asio::buffer(&next_, sizeof next_), [](download& self) { self.take_frame(); });
  }

  /// Reads the frame that next_ announces together with the head of the one behind it.
  void take_frame() {
    if (next_.bytes > max_frame_bytes)
      return cut_off(asio::error::invalid_argument);
    if (next_.bytes == 0) {
      if (begin_answer())
        stream_->finish({});
      return;
    }
    bytes_.resize(next_.bytes + sizeof next_);
    read(asio::buffer(bytes_), [](download& self) { self.pass_on(); });
  }

  /// False: there is nothing to stream to, because only the head was asked for.
  bool begin_answer() {
    if (!stream_ && to_) {
      stream_ = to_->stream("application/octet-stream", {}, false);
      to_.reset();
    }
    return stream_ != nullptr;
  }

  void pass_on() {
    const std::size_t size = bytes_.size() - sizeof next_;
    std::memcpy(&next_, bytes_.data() + size, sizeof next_);
    bytes_.resize(size);
    if (!begin_answer())
      return;
    if (next_.bytes == 0)
      return stream_->finish(std::move(bytes_));
    stream_->write(std::move(bytes_), [self = shared_from_this()](bool taken) {
      if (taken)
        self->take_frame();
    });
    bytes_ = {};
  }

  void refuse(const error& why) { to_->respond(error_response(step::read_file, why)); }

  /// Once something has been sent, dropping the stream cuts the connection.
  void cut_off(const error_code& ec) {
    if (to_ == nullptr)
      return;
    refuse(ec == asio::error::operation_aborted
             ? error{errc::deadline_exceeded, "the sandbox did not answer in time"}
             : error{errc::io_failed, "the sandbox ended the transfer"});
  }

  const strand_handle strand_; // Before everything that runs there.
  std::shared_ptr<void> use_;  ///< Keeps the sandbox awake.
  asio::local::stream_protocol::socket channel_;
  watchdog silence_;
  const std::string path_;
  reply to_; ///< Until the answer has begun.
  std::shared_ptr<answer_stream> stream_;
  file_head head_{};
  frame_head next_{};
  std::string bytes_;
};

} // namespace

void start_download(file_channel channel, std::string path, reply to) {
  const auto strand = to->strand();
  asio::dispatch(strand.executor(), [strand, channel = std::move(channel), path = std::move(path),
                                     to = std::move(to)]() mutable {
    std::make_shared<download>(strand, std::move(channel), std::move(path), std::move(to))->start();
  });
}

} // namespace insula::http::bridge
