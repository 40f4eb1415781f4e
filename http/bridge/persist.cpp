#include "http/bridge/archives.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"
#include "base/stream_frames.hpp"
#include "http/bridge/error_response.hpp"
#include "http/sandboxes/tar_encoder.hpp"
#include "http/transport/watchdog.hpp"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>

namespace insula::http::bridge {

namespace {

namespace asio = boost::asio;
using error_code = boost::system::error_code;

const error too_late{errc::deadline_exceeded, "the sandbox did not answer in time"};

class persist : public std::enable_shared_from_this<persist> {
public:
  persist(strand_handle strand, file_channel channel, archive_wish wish, reply to)
      : strand_(std::move(strand))
      , use_(std::move(channel.use))
      , channel_(strand_.executor(), asio::local::stream_protocol{}, channel.socket->release())
      , silence_(strand_.executor(), [this] { channel_.cancel(); })
      , wish_(wish)
      , to_(std::move(to))
      , encoder_(wish == archive_wish::hydrating) {}

  void start() {
    // Before it says anything, the sandbox looks at every file.
    to_->answer_within(limits::tree_check_patience + limits::reader_patience,
                       error_response(step::read_tree, too_late));
    read(
      asio::buffer(&result_, sizeof result_), asio::transfer_all(),
      [](persist& self, std::size_t) { self.read_text(); }, limits::tree_check_patience);
  }

private:
  template <class Enough, class Then>
  void read(asio::mutable_buffer into, Enough enough, Then then,
            std::chrono::milliseconds patience = limits::reader_patience) {
    silence_.expires_after(patience);
    asio::async_read(channel_, into, enough,
                     [self = shared_from_this(), then](const error_code& ec, std::size_t count) {
                       self->silence_.disarm();
                       if (ec)
                         self->cut_off(ec);
                       else
                         then(*self, count);
                     });
  }

  void read_text() {
    if (result_.text_bytes > max_tree_text)
      return cut_off(asio::error::invalid_argument);
    bytes_.resize(result_.text_bytes);
    read(asio::buffer(bytes_), asio::transfer_all(),
         [](persist& self, std::size_t) { self.judge(); });
  }

  void judge() {
    if (result_.exit_code != 0)
      return to_->respond(tar_failure(step::read_tree, result_.exit_code, bytes_));
    read(asio::buffer(&first_, sizeof first_), asio::transfer_all(),
         [](persist& self, std::size_t) { self.begin(); });
  }

  /// Says how large the archive becomes before any of it, if the client wants to know. An agent
  /// that is older than this server does not measure, and does not look for links and holes: its
  /// first entry is one of the tree already.
  void begin() {
    const bool measured = first_.kind == entry_kind::measure;
    const bool too_large = measured && first_.size > limits::archive_body_bytes;
    if (!measured && wish_ != archive_wish::nothing)
      return to_->respond(error_response(
        step::read_tree,
        {errc::io_failed, "the sandbox was made by an older version, which cannot "
                          "tell how large its archive becomes; ask for a plain one"}));
    if (too_large && wish_ == archive_wish::hydrating)
      return to_->respond(
        error_response(step::request, {errc::payload_too_large,
                                       "the archive would have " + std::to_string(first_.size) +
                                         " bytes, and hydrate takes " +
                                         std::to_string(limits::archive_body_bytes)}));
    stream_head head{"application/octet-stream"};
    if (too_large && wish_ == archive_wish::warning)
      head.fields.push_back({"Insula-Too-Large-To-Hydrate", std::to_string(first_.size)});
    stream_ = to_->stream(std::move(head));
    to_.reset();
    if (!stream_)
      return;
    if (measured)
      return read_more();
    bytes_.assign(reinterpret_cast<const char*>(&first_), sizeof first_);
    pass_on(bytes_.size());
  }

  void read_more() {
    bytes_.resize(max_frame_bytes);
    read(asio::buffer(bytes_), asio::transfer_at_least(1),
         [](persist& self, std::size_t count) { self.pass_on(count); });
  }

  /// Dropping the stream cuts the connection, so that half an archive never looks whole.
  void pass_on(std::size_t count) {
    if (const auto ok = encoder_.feed(std::string_view{bytes_}.substr(0, count)); !ok) {
      log::warning("persist.cut", {{"reason", ok.reason().message}});
      return;
    }
    auto made = encoder_.take();
    if (encoder_.done())
      return stream_->finish(std::move(made));
    if (made.empty())
      return read_more();
    stream_->write(std::move(made), [self = shared_from_this()](bool taken) {
      if (taken)
        self->read_more();
    });
  }

  void cut_off(const error_code& ec) {
    if (to_ == nullptr)
      return log::warning("persist.cut", {{"reason", ec.message()}});
    to_->respond(error_response(step::read_tree,
                                ec == asio::error::operation_aborted
                                  ? too_late
                                  : error{errc::io_failed, "the sandbox ended the transfer"}));
  }

  const strand_handle strand_; // Before everything that runs there.
  std::shared_ptr<void> use_;  ///< Keeps the sandbox awake.
  asio::local::stream_protocol::socket channel_;
  watchdog silence_;
  const archive_wish wish_;
  reply to_; ///< Until the answer has begun.
  std::shared_ptr<answer_stream> stream_;
  tree_result result_{};
  entry_head first_{};
  std::string bytes_;
  tar_encoder encoder_;
};

} // namespace

void start_persist(file_channel channel, archive_wish wish, reply to) {
  const auto strand = to->strand();
  asio::dispatch(
    strand.executor(), [strand, channel = std::move(channel), wish, to = std::move(to)]() mutable {
      std::make_shared<persist>(strand, std::move(channel), wish, std::move(to))->start();
    });
}

} // namespace insula::http::bridge
