#include "storage/snapshots/tree_channel.hpp"

#include "base/limits.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>

namespace insula::storage::snapshots {

namespace {

constexpr std::size_t buffer_bytes = 256 * 1024;

using steady = std::chrono::steady_clock;

error ended(const std::string& how) {
  return {errc::io_failed, "the sandbox " + how};
}

} // namespace

tree_channel::tree_channel(int socket, unwanted_function unwanted)
    : socket_(socket)
    , unwanted_(std::move(unwanted))
    , in_(buffer_bytes) {}

std::optional<error> tree_channel::unwanted() const {
  if (unwanted_ && unwanted_())
    return error{errc::sandbox_not_running, "nobody wants it any more"};
  return std::nullopt;
}

result<void> tree_channel::wait_for(short what, steady::time_point until) const {
  while (true) {
    if (const auto no = unwanted())
      return *no;
    pollfd look{socket_, what, 0};
    const int found = ::poll(&look, 1, static_cast<int>(limits::snapshot_glance.count()));
    if (found > 0)
      return {};
    if (found < 0 && errno != EINTR)
      return error{errc::io_failed, std::string{"poll: "} + std::strerror(errno)};
    if (steady::now() >= until)
      return ended("says nothing");
  }
}

result<std::string_view> tree_channel::read_some(std::uint64_t most,
                                                 std::chrono::milliseconds patience) {
  const auto until = steady::now() + patience;
  while (begin_ == end_) {
    if (const auto no = unwanted())
      return *no;
    const ssize_t n = ::recv(socket_, in_.data(), in_.size(), MSG_DONTWAIT);
    if (n > 0) {
      begin_ = 0;
      end_ = static_cast<std::size_t>(n);
    } else if (n == 0) {
      return ended("has ended the transfer");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (const auto there = wait_for(POLLIN, until); !there)
        return there.reason();
    } else if (errno != EINTR) {
      return ended(std::string{"has ended the transfer: "} + std::strerror(errno));
    }
  }
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(most, end_ - begin_));
  const std::string_view bytes{in_.data() + begin_, count};
  begin_ += count;
  return bytes;
}

result<void> tree_channel::read(void* into, std::size_t count, std::chrono::milliseconds patience) {
  for (auto* at = static_cast<char*>(into); count > 0;) {
    const auto some = read_some(count, patience);
    if (!some)
      return some.reason();
    std::memcpy(at, some->data(), some->size());
    at += some->size();
    count -= some->size();
  }
  return {};
}

result<std::string> tree_channel::read_text(std::size_t count, std::chrono::milliseconds patience) {
  std::string text(count, '\0');
  if (const auto good = read(text.data(), count, patience); !good)
    return good.reason();
  return text;
}

result<void> tree_channel::write(const void* bytes, std::size_t count) {
  out_.append(static_cast<const char*>(bytes), count);
  if (out_.size() >= buffer_bytes)
    return flush();
  return {};
}

result<void> tree_channel::flush() {
  std::string_view left{out_};
  auto until = steady::now() + limits::snapshot_patience;
  while (!left.empty()) {
    if (const auto no = unwanted())
      return *no;
    const ssize_t n = ::send(socket_, left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      left.remove_prefix(static_cast<std::size_t>(n));
      until = steady::now() + limits::snapshot_patience;
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (const auto room = wait_for(POLLOUT, until); !room)
        return room.reason();
    } else if (n < 0 && errno != EINTR) {
      return ended("does not take its files");
    }
  }
  out_.clear();
  return {};
}

result<void> tree_channel::read_result(std::chrono::milliseconds patience) {
  tree_result said{};
  if (auto good = read(&said, sizeof said, patience); !good)
    return good;
  if (said.text_bytes > max_tree_text)
    return ended("says what is no answer");
  const auto text = read_text(said.text_bytes, patience);
  if (!text)
    return text.reason();
  if (said.exit_code == 0)
    return {};
  auto line = text->substr(0, text->find('\n'));
  std::replace_if(
    line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
  return error{errc::io_failed, line.empty() ? "the sandbox has failed" : line};
}

} // namespace insula::storage::snapshots
