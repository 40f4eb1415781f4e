#include "http/sandboxes/file_writer.hpp"

#include "base/limits.hpp"
#include "http/sandboxes/ask_sandbox.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sys/socket.h>
#include <sys/uio.h>
#include <system_error>
#include <utility>

namespace insula::http {

namespace asio = boost::asio;
constexpr std::size_t longest = max_frame_bytes;
using error_code = boost::system::error_code;

file_writer::file_writer(strand_handle strand, std::function<void()> on_room,
                         std::function<void(const outcome&)> on_done)
    : strand_(std::move(strand))
    , on_room_(std::move(on_room))
    , on_done_(std::move(on_done))
    , patience_(strand_.executor(), [this] {
      settle({channel_ ? question_stage::ask : question_stage::find,
              error{errc::deadline_exceeded, "the sandbox did not answer in time"}});
    }) {}

void file_writer::open(const std::function<void(opened, not_opened)>& ask) {
  patience_.expires_after(sandbox_patience);
  // Who writes can be gone before the channel is there; whoever holds the channel last closes it.
  const auto here = [weak = weak_from_this(), strand = strand_](auto then) {
    asio::post(strand.executor(), [weak, then = std::move(then)] {
      if (auto alive = weak.lock())
        then(*alive);
    });
  };
  ask(
    [here](const file_channel& channel) {
      here([channel](file_writer& self) { self.take(channel); });
    },
    [here](question_stage at, const error& why) {
      here([at, why](file_writer& self) { self.settle({at, why}); });
    });
}

bool file_writer::write(std::string_view bytes) {
  for (; !done_ && !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), longest)))
    send_frame(bytes.substr(0, longest));
  return held_.empty();
}

void file_writer::finish() {
  if (done_)
    return;
  ended_ = true;
  if (channel_)
    patience_.expires_after(limits::reader_patience);
  send_frame({});
}

void file_writer::take(const file_channel& channel) {
  if (done_)
    return;
  use_ = channel.use;
  channel_.emplace(strand_.executor(), asio::local::stream_protocol{}, channel.socket->release());
  patience_.disarm();
  if (ended_)
    patience_.expires_after(limits::reader_patience);
  // It may fail at once, so the result is listened for from the beginning.
  auto head = std::make_shared<file_head>();
  asio::async_read(*channel_, asio::buffer(head.get(), sizeof *head),
                   [weak = weak_from_this(), head](const error_code& ec, std::size_t) {
                     if (auto alive = weak.lock())
                       alive->judge(ec, *head);
                   });
  flush();
}

void file_writer::judge(const error_code& ec, const file_head& head) {
  const auto failed = [&](std::string words) {
    settle(
      {question_stage::ask, error{errc::io_failed, std::move(words)}, ec ? file_head{} : head});
  };
  if (ec)
    failed("the sandbox ended the transfer");
  else if (head.error != 0)
    failed(std::generic_category().message(head.error));
  else if (!committed_)
    failed("the sandbox ended the transfer early");
  else
    settle({question_stage::ask, std::nullopt, head});
}

/// Sends one frame as far as the channel takes it; the rest goes to held_. No bytes: the last
/// frame.
void file_writer::send_frame(std::string_view bytes) {
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

void file_writer::wait_for_room() {
  if (waiting_)
    return;
  waiting_ = true;
  patience_.expires_after(limits::reader_patience);
  channel_->async_wait(asio::local::stream_protocol::socket::wait_write,
                       [weak = weak_from_this()](const error_code& ec) {
                         auto alive = weak.lock();
                         if (!alive || ec)
                           return;
                         alive->waiting_ = false;
                         alive->flush();
                       });
}

void file_writer::flush() {
  if (done_)
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
    patience_.disarm(); // The client's slowness is the connection's business.
  on_room_();
}

/// Closing the channel without the last frame leaves the file as it was.
void file_writer::settle(const outcome& how) {
  if (std::exchange(done_, true))
    return;
  patience_.disarm();
  if (channel_) {
    error_code ignored;
    channel_->close(ignored);
  }
  held_.clear();
  const auto keep = shared_from_this(); // Whoever hears of it may drop us.
  on_done_(how);
}

} // namespace insula::http
