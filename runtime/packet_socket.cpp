#include "runtime/packet_socket.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/socket.h>

namespace insula::runtime {

packet_socket::packet_socket(boost::asio::io_context& io, unique_fd socket)
    : io_(io)
    , socket_(io_, socket.release()) {}

void packet_socket::open(std::function<void(std::string_view, std::vector<unique_fd>)> on_packet,
                         std::function<void()> on_closed) {
  on_packet_ = std::move(on_packet);
  on_closed_ = std::move(on_closed);
  boost::asio::post(io_, [self = shared_from_this()] { self->wait_for_packet(); });
}

bool packet_socket::send_now(std::string_view head, std::string_view tail,
                             std::span<const int> fds) {
  std::array<iovec, 2> data{
    {{const_cast<char*>(head.data()), head.size()}, {const_cast<char*>(tail.data()), tail.size()}}};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int) * max_fds)] = {};
  msghdr message{};
  message.msg_iov = data.data();
  message.msg_iovlen = data.size();
  if (!fds.empty()) {
    message.msg_control = space;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    auto* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(part), fds.data(), sizeof(int) * fds.size());
  }
  for (;;) {
    if (::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
      return true;
    if (errno != EINTR)
      return false;
  }
}

bool packet_socket::send(std::string_view head, std::string_view tail, std::span<const int> fds,
                         bool always) {
  if (fds.size() > max_fds)
    return false;
  const std::lock_guard hold{guard_};
  if (closed_)
    return false;
  if (waiting_.empty()) {
    if (send_now(head, tail, fds))
      return true;
    if (errno != EAGAIN)
      return false;
  }
  if (waiting_.size() >= max_waiting && !always)
    return false;
  packet later{std::string{head}.append(tail), {}};
  for (const int fd : fds)
    if (!later.fds.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 3)))
      return false;
  waiting_.push_back(std::move(later));
  if (waiting_.size() == 1)
    boost::asio::post(io_, [self = shared_from_this()] { self->wait_for_room(); });
  return true;
}

bool packet_socket::all_sent() {
  const std::lock_guard hold{guard_};
  return waiting_.empty();
}

void packet_socket::wait_for_room() {
  if (!socket_.is_open())
    return;
  socket_.async_wait(socket_.wait_write, [self = shared_from_this()](
                                           const boost::system::error_code& failed) {
    if (failed)
      return;
    const std::lock_guard hold{self->guard_};
    while (!self->waiting_.empty() && !self->closed_) {
      const auto& next = self->waiting_.front();
      std::vector<int> fds;
      for (const auto& fd : next.fds)
        fds.push_back(fd.get());
      if (!self->send_now(next.bytes, {}, fds) && errno == EAGAIN)
        return self->wait_for_room();
      self->waiting_.pop_front(); // Sent; or the other side is gone, and the reader hears of that.
    }
  });
}

/// Takes one packet. False: there is none; whether the connection has ended is seen by socket_.
bool packet_socket::receive() {
  std::array<char, max_received_bytes> bytes;
  iovec data{bytes.data(), bytes.size()};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int) * max_fds)];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  const ssize_t n = ::recvmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return false;
  std::vector<unique_fd> fds;
  for (auto* part = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr; part != nullptr;
       part = CMSG_NXTHDR(&message, part))
    if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
      for (std::size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
        fds.emplace_back(fd);
      }
  if (n <= 0 || (message.msg_flags & MSG_TRUNC) != 0) {
    const auto on_closed = std::move(on_closed_);
    close();
    if (on_closed)
      on_closed();
    return false;
  }
  if (on_packet_)
    on_packet_({bytes.data(), static_cast<std::size_t>(n)}, std::move(fds));
  return true;
}

void packet_socket::wait_for_packet() {
  if (!socket_.is_open())
    return;
  socket_.async_wait(
    socket_.wait_read, [self = shared_from_this()](const boost::system::error_code& failed) {
      if (failed)
        return;
      constexpr int per_turn = 64; // So that one loud agent does not keep the thread.
      self->drain(per_turn);
      self->wait_for_packet();
    });
}

void packet_socket::drain(int most) {
  for (int i = 0; i < most; ++i) {
    {
      const std::lock_guard hold{guard_};
      if (closed_)
        return;
    }
    if (!receive())
      return;
  }
}

void packet_socket::close() {
  {
    const std::lock_guard hold{guard_};
    if (closed_)
      return;
    closed_ = true;
    waiting_.clear();
  }
  boost::asio::post(io_, [self = shared_from_this()] {
    boost::system::error_code ignored;
    self->socket_.close(ignored);
    self->on_packet_ = nullptr;
    self->on_closed_ = nullptr;
  });
}

} // namespace insula::runtime
