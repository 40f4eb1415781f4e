#include "http/bridge/file_upload.hpp"

#include "base/stream_frames.hpp"
#include "http/bridge/ask_sandbox.hpp"
#include "http/json.hpp"
#include "http/watchdog.hpp"

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>

#include <array>
#include <cerrno>
#include <optional>
#include <sys/socket.h>
#include <sys/uio.h>
#include <system_error>

namespace insula::http::bridge {

namespace {

namespace asio = boost::asio;
using error_code = boost::system::error_code;

error write_error_of(std::string message) {
  return {errc::io_failed, std::move(message)};
}

/// While the sandbox is being found, and whenever the channel is full, one read's worth of body
/// waits in `held_` and the client's socket is not read. Once the outcome is known the rest of the
/// body is thrown away.
class upload final : public body_sink, public std::enable_shared_from_this<upload> {
public:
  upload(std::shared_ptr<const services> with, std::string id, std::string session,
         std::string path, std::uint64_t limit)
      : with_(std::move(with))
      , id_(std::move(id))
      , session_(std::move(session))
      , path_(std::move(path))
      , limit_(limit) {}

  void begin(strand_handle strand, std::function<void()> resume, request_context of) override {
    strand_ = strand;
    resume_ = std::move(resume);
    patience_ = std::make_unique<watchdog>(strand.executor(), [this] {
      settle(error_response(channel_ ? step::write_file : step::find_sandbox,
                            {errc::deadline_exceeded, "the sandbox did not answer in time"}));
    });
    patience_->expires_after(sandbox_patience);
    // The body can be gone before the channel is there; whoever holds the channel last closes it.
    const auto here = [weak = weak_from_this(), strand](auto then) {
      asio::post(strand.executor(), [weak, then = std::move(then)] {
        if (auto alive = weak.lock())
          then(*alive);
      });
    };
    ask_sandbox<write_file_request, file_channel>(
      *with_, {with_->directory, id_, write_file_request{path_, session_, std::move(of)},
               [here](const file_channel& channel) {
                 here([channel](upload& self) { self.open(channel); });
               },
               [here](step at, const error& why) {
                 here([at, why](upload& self) { self.settle(error_response(at, why)); });
               },
               step::write_file});
  }

  verdict write(std::string_view bytes) override {
    total_ += bytes.size();
    if (total_ > limit_) {
      settle(too_large(total_, limit_));
      // The client learns the whole size, unless there is no end to it.
      return total_ > 2 * limit_ ? verdict::refuse : verdict::more;
    }
    if (outcome_)
      return verdict::more;
    send_frame(bytes);
    return held_.empty() || outcome_ ? verdict::more : verdict::wait;
  }

  response refusal() override { return too_large(total_, limit_); }

  void end(reply to) override {
    to_ = std::move(to);
    if (total_ > limit_)
      outcome_ = too_large(total_, limit_);
    if (outcome_)
      return to_->respond(*outcome_);
    self_ = shared_from_this();
    ended_ = true;
    if (channel_)
      patience_->expires_after(limits::reader_patience);
    send_frame({});
  }

private:
  void open(const file_channel& channel) {
    if (outcome_)
      return;
    use_ = channel.use;
    channel_.emplace(strand_.executor(), asio::local::stream_protocol{}, channel.socket->release());
    patience_->disarm();
    if (ended_)
      patience_->expires_after(limits::reader_patience);
    // It may fail at once, so the result is listened for from the beginning.
    auto head = std::make_shared<file_head>();
    asio::async_read(*channel_, asio::buffer(head.get(), sizeof *head),
                     [weak = weak_from_this(), head](const error_code& ec, std::size_t) {
                       if (auto alive = weak.lock())
                         alive->judge(ec, *head);
                     });
    flush();
  }

  void judge(const error_code& ec, const file_head& head) {
    if (ec)
      fail("the sandbox ended the transfer");
    else if (head.error != 0)
      fail(std::generic_category().message(head.error));
    else if (!committed_)
      fail("the sandbox ended the transfer early");
    else
      settle({200, json::write_ok()});
  }

  /// Sends one frame as far as the channel takes it; the rest goes to held_. No bytes: the last
  /// frame.
  void send_frame(std::string_view bytes) {
    frame_head head{static_cast<std::uint32_t>(bytes.size())};
    std::size_t sent = 0;
    if (channel_ && held_.empty()) {
      std::array<iovec, 2> parts{
        {{&head, sizeof head}, {const_cast<char*>(bytes.data()), bytes.size()}}};
      msghdr message{};
      message.msg_iov = parts.data();
      message.msg_iovlen = parts.size();
      const auto n = ::sendmsg(channel_->native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno != EAGAIN && errno != EINTR)
        return; // The other end is closed; why, its head will say.
      sent = n < 0 ? 0 : static_cast<std::size_t>(n);
    }
    if (sent < sizeof head)
      held_.append(reinterpret_cast<const char*>(&head) + sent, sizeof head - sent);
    const std::size_t of_bytes = sent < sizeof head ? 0 : sent - sizeof head;
    held_.append(bytes.substr(of_bytes));
    committed_ = committed_ || bytes.empty();
    if (!held_.empty() && channel_)
      wait_for_room();
  }

  void wait_for_room() {
    if (waiting_)
      return;
    waiting_ = true;
    patience_->expires_after(limits::reader_patience);
    channel_->async_wait(asio::local::stream_protocol::socket::wait_write,
                         [weak = weak_from_this()](const error_code& ec) {
                           auto alive = weak.lock();
                           if (!alive || ec)
                             return;
                           alive->waiting_ = false;
                           alive->flush();
                         });
  }

  void flush() {
    if (outcome_)
      return;
    if (!held_.empty()) {
      const auto n =
        ::send(channel_->native_handle(), held_.data(), held_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno != EAGAIN && errno != EINTR)
        held_.clear(); // As above.
      else if (n > 0)
        held_.erase(0, static_cast<std::size_t>(n));
    }
    if (!held_.empty())
      return wait_for_room();
    if (!ended_)
      patience_->disarm(); // The client's slowness is the connection's business.
    resume_();
  }

  void fail(std::string message) {
    settle(error_response(step::write_file, write_error_of(std::move(message))));
  }

  /// The first outcome counts. Closing the channel without the last frame leaves the file as it
  /// was.
  void settle(response outcome) {
    if (outcome_)
      return;
    outcome_ = std::move(outcome);
    patience_->disarm();
    if (channel_) {
      error_code ignored;
      channel_->close(ignored);
    }
    held_.clear();
    resume_();
    if (to_)
      to_->respond(*outcome_);
    self_.reset(); // Perhaps the last reference: nothing may follow.
  }

  const std::shared_ptr<const services> with_;
  const std::string id_;
  const std::string session_;
  const std::string path_;
  const std::uint64_t limit_;
  strand_handle strand_;
  std::function<void()> resume_;
  std::unique_ptr<watchdog> patience_; ///< With the sandbox, not with the client.
  std::shared_ptr<void> use_;          ///< Keeps the sandbox awake.
  std::optional<asio::local::stream_protocol::socket> channel_;
  std::string held_;
  std::uint64_t total_ = 0;
  bool waiting_ = false;   ///< For room in the channel.
  bool ended_ = false;     ///< The whole body has come.
  bool committed_ = false; ///< The last frame has been sent, or is the last of what is held.
  std::optional<response> outcome_;
  reply to_; ///< Set once the body is complete.
  std::shared_ptr<upload>
    self_; ///< Keeps it while it waits for the outcome with the body complete.
};

} // namespace

std::shared_ptr<body_sink> make_upload(std::shared_ptr<const services> with, std::string id,
                                       std::string session, std::string path, std::uint64_t limit) {
  return std::make_shared<upload>(std::move(with), std::move(id), std::move(session),
                                  std::move(path), limit);
}

} // namespace insula::http::bridge
