#include "tests/support/file_channel.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>

namespace insula::test {

namespace {

/// False: the other end has closed.
bool wait_for(const unique_fd& channel, short what) {
  pollfd ready{channel.get(), what, 0};
  if (::poll(&ready, 1, 60'000) != 1)
    throw std::runtime_error("the file channel stands still");
  return true;
}

bool receive(const unique_fd& channel, void* data, std::size_t count) {
  for (auto* at = static_cast<char*>(data); count > 0;) {
    wait_for(channel, POLLIN);
    const ssize_t n = ::recv(channel.get(), at, count, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
      continue;
    if (n <= 0)
      return false;
    at += n;
    count -= static_cast<std::size_t>(n);
  }
  return true;
}

bool send(const unique_fd& channel, const void* data, std::size_t count) {
  for (const auto* at = static_cast<const char*>(data); count > 0;) {
    wait_for(channel, POLLOUT);
    const ssize_t n = ::send(channel.get(), at, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN)
      continue;
    if (n <= 0)
      return false;
    at += n;
    count -= static_cast<std::size_t>(n);
  }
  return true;
}

unique_fd open(runtime::sandbox& in, runtime::file_operation what, const std::string& path,
               runtime::sandbox_user user) {
  auto channel = in.open_file(what, path, user);
  if (!channel)
    throw std::runtime_error(channel.reason().message);
  return std::move(*channel);
}

file_answer answer_of(const unique_fd& channel) {
  file_answer got;
  got.heard = receive(channel, &got.head, sizeof got.head);
  if (!got.heard || got.head.error != 0)
    return got;
  for (frame_head frame{}; receive(channel, &frame, sizeof frame);) {
    if (frame.bytes == 0) {
      got.whole = true;
      return got;
    }
    if (frame.bytes > max_frame_bytes)
      throw std::runtime_error("a frame that is too large");
    const auto size = got.bytes.size();
    got.bytes.resize(size + frame.bytes);
    if (!receive(channel, got.bytes.data() + size, frame.bytes))
      return got;
  }
  return got;
}

/// `cut`: without the end.
file_answer send_content(const unique_fd& channel, const std::string& content, bool cut) {
  file_answer got;
  bool sent = true;
  for (std::size_t at = 0; sent && at < content.size();) {
    const frame_head frame{
      static_cast<std::uint32_t>(std::min<std::size_t>(max_frame_bytes, content.size() - at))};
    sent = send(channel, &frame, sizeof frame) && send(channel, content.data() + at, frame.bytes);
    at += frame.bytes;
  }
  if (cut)
    return got;
  const frame_head end{0};
  sent = sent && send(channel, &end, sizeof end);
  got.heard = receive(channel, &got.head, sizeof got.head);
  got.whole = sent;
  return got;
}

} // namespace

file_answer read_file(runtime::sandbox& in, const std::string& path, runtime::sandbox_user user) {
  return answer_of(open(in, runtime::file_operation::read, path, user));
}

file_answer write_file(runtime::sandbox& in, const std::string& path, const std::string& content,
                       runtime::sandbox_user user, bool cut) {
  return send_content(open(in, runtime::file_operation::write, path, user), content, cut);
}

file_answer run_task(runtime::sandbox& in, file_task what, const std::vector<std::string>& words,
                     const std::string& content) {
  const auto channel = in.open_file_task(what, words, {});
  if (!channel)
    throw std::runtime_error(channel.reason().message);
  return what == file_task::put ? send_content(*channel, content, false) : answer_of(*channel);
}

} // namespace insula::test
