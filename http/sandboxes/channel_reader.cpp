#include "http/sandboxes/channel_reader.hpp"

#include "http/transport/watchdog.hpp"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>

#include <cstring>
#include <utility>

namespace insula::http {

namespace {

namespace asio = boost::asio;
using error_code = boost::system::error_code;

class reader : public std::enable_shared_from_this<reader> {
public:
  reader(strand_handle strand, const file_channel& channel,
         std::shared_ptr<channel_listener> listener, std::chrono::milliseconds longest_silence)
      : strand_(std::move(strand))
      , use_(channel.use)
      , channel_(strand_.executor(), asio::local::stream_protocol{}, channel.socket->release())
      , silence_(strand_.executor(), [this] { channel_.cancel(); })
      , longest_silence_(longest_silence)
      , listener_(std::move(listener)) {}

  void start() {
    read(asio::buffer(&head_, sizeof head_), [](reader& self) {
      if (self.listener_->begin(self.head_))
        self.read(asio::buffer(&self.next_, sizeof self.next_),
                  [](reader& again) { again.take_frame(); });
    });
  }

private:
  /// Reads until `into` is full, then goes on with `then`.
  template <class Then>
  void read(asio::mutable_buffer into, Then then) {
    silence_.expires_after(longest_silence_);
    asio::async_read(channel_, into,
                     [self = shared_from_this(), then](const error_code& ec, std::size_t) {
                       self->silence_.disarm();
                       if (ec)
                         self->cut(ec);
                       else
                         then(*self);
                     });
  }

  /// Reads the frame that next_ announces together with the head of the one behind it.
  void take_frame() {
    if (next_.bytes > max_frame_bytes)
      return cut(asio::error::invalid_argument);
    if (next_.bytes == 0)
      return listener_->take({}, true, {});
    bytes_.resize(next_.bytes + sizeof next_);
    read(asio::buffer(bytes_), [](reader& self) { self.pass_on(); });
  }

  void pass_on() {
    const std::size_t size = bytes_.size() - sizeof next_;
    std::memcpy(&next_, bytes_.data() + size, sizeof next_);
    bytes_.resize(size);
    listener_->take(std::exchange(bytes_, {}), next_.bytes == 0,
                    [self = shared_from_this()] { self->take_frame(); });
  }

  void cut(const error_code& ec) {
    listener_->cut(ec == asio::error::operation_aborted
                     ? error{errc::deadline_exceeded, "the sandbox did not answer in time"}
                     : error{errc::io_failed, "the sandbox ended the transfer"});
  }

  const strand_handle strand_; // Before everything that runs there.
  std::shared_ptr<void> use_;  ///< Keeps the sandbox awake.
  asio::local::stream_protocol::socket channel_;
  watchdog silence_;
  const std::chrono::milliseconds longest_silence_;
  const std::shared_ptr<channel_listener> listener_;
  file_head head_{};
  frame_head next_{};
  std::string bytes_;
};

} // namespace

void read_channel(file_channel channel, const strand_handle& strand,
                  std::shared_ptr<channel_listener> listener,
                  std::chrono::milliseconds longest_silence) {
  asio::dispatch(strand.executor(), [strand, channel = std::move(channel),
                                     listener = std::move(listener), longest_silence]() mutable {
    std::make_shared<reader>(strand, channel, std::move(listener), longest_silence)->start();
  });
}

} // namespace insula::http
