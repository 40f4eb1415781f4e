#include "runtime/input_pipe.hpp"

#include "base/failpoint.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace insula::runtime {

using std::chrono::steady_clock;

unique_fd input_pipe::make_segment() {
  return unique_fd{::memfd_create("stdin", MFD_CLOEXEC)};
}

input_pipe::input_pipe(boost::asio::io_context& io, const held_head& head, unique_fd end,
                       unique_fd segment, keeper with)
    : end_(io)
    , patience_(io)
    , head_(head)
    , segment_(std::move(segment))
    , with_(std::move(with)) {
  if (end)
    end_.assign(end.release());
  if (head_.complete != 0) {
    segment_.reset(); // It stands for nothing.
    with_.share.reset();
    return;
  }
  struct stat is {};
  if (::fstat(segment_.get(), &is) == 0)
    length_ = static_cast<std::uint64_t>(is.st_size);
  if (const off_t at = ::lseek(segment_.get(), 0, SEEK_CUR); at > 0)
    moved_ = std::min(static_cast<std::uint64_t>(at), length_);
}

void input_pipe::write(input_piece what, std::function<void(input_progress)> tell) {
  if (what.bytes.empty() && !what.closes) {
    const bool ahead = what.offset.value_or(0) > taken();
    return tell({taken(), ahead ? input_state::ahead : input_state::taken});
  }
  if (waiting_.size() >= max_waiting)
    return tell({taken(), input_state::crowded});
  const auto until = steady_clock::now() + what.patience;
  waiting_.push_back({std::move(what), std::move(tell), until});
  advance();
}

void input_pipe::finish() {
  take_no_more();
  advance();
}

void input_pipe::fall_silent() {
  with_ = {};
  waiting_.clear();
  patience_.cancel();
  boost::system::error_code ignored;
  end_.close(ignored);
  segment_.reset();
}

void input_pipe::forget() {
  const auto release = std::exchange(with_.release, nullptr);
  fall_silent();
  if (release)
    release();
}

void input_pipe::advance() {
  const auto self = shared_from_this(); // Whoever is told may let go of it.
  do {
    move();
  } while (take());
  if (end_.is_open() && head_.exited != 0 && moved_ == length_)
    shut();
  watch();
  set_patience();
}

/// Into the pipe, as far as that has room.
void input_pipe::move() {
  while (end_.is_open() && moved_ < length_) {
    const ssize_t n = ::splice(segment_.get(), nullptr, end_.native_handle(), nullptr,
                               length_ - moved_, SPLICE_F_NONBLOCK);
    if (n > 0) {
      failpoint("input.moved");
      moved_ += static_cast<std::uint64_t>(n);
    } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
      shut(); // Nobody reads it any more.
    } else if (errno == EAGAIN) {
      return;
    }
  }
}

/// As much of the waiting pieces as the segment has room for. True: there is something to be moved.
bool input_pipe::take() {
  while (!waiting_.empty()) {
    auto& piece = waiting_.front().what;
    const auto now = taken();
    const auto from = piece.offset ? *piece.offset : piece.offset.emplace(now);
    const auto known = from < now ? std::min<std::uint64_t>(now - from, piece.bytes.size()) : 0;
    const auto left = piece.bytes.size() - known;
    if (from <= now && left == 0) {
      if (piece.closes)
        take_no_more();
      answer(input_state::taken);
      continue;
    }
    if (head_.exited != 0 || !has_reader()) {
      answer(input_state::over);
      continue;
    }
    if (from > now) {
      answer(input_state::ahead);
      continue;
    }
    if (length_ == segment_bytes && !next_segment())
      return false;
    const auto room = std::min<std::uint64_t>(segment_bytes - length_, left);
    const ssize_t n =
      ::pwrite(segment_.get(), piece.bytes.data() + known, room, static_cast<off_t>(length_));
    if (n <= 0)
      return false; // The machine has no memory: as if the command were slow.
    failpoint("input.taken");
    length_ += static_cast<std::uint64_t>(n);
    return true;
  }
  return false;
}

/// Once the pipe has had all of the last one.
bool input_pipe::next_segment() {
  if (moved_ < length_)
    return false;
  auto next = make_segment();
  if (!next)
    return false;
  segment_ = std::move(next);
  head_.number += std::exchange(length_, 0);
  moved_ = 0;
  put_down(std::array{end_.native_handle(), segment_.get()});
  failpoint("input.next");
  return true;
}

bool input_pipe::has_reader() {
  if (!end_.is_open())
    return false;
  pollfd pipe{end_.native_handle(), POLLOUT, 0};
  if (::poll(&pipe, 1, 0) < 0 || (pipe.revents & POLLERR) == 0)
    return true;
  shut();
  return false;
}

void input_pipe::answer(input_state state) {
  const auto tell = std::move(waiting_.front().tell);
  waiting_.pop_front();
  tell({taken(), state});
}

/// The next server does not, either.
void input_pipe::take_no_more() {
  if (std::exchange(head_.exited, 1) == 0 && end_.is_open() && moved_ < length_)
    put_down({});
  if (end_.is_open() && moved_ == length_)
    shut();
}

/// Whoever still reads it comes to its end. Nothing of it is left but how much there was: a file of
/// no length stands for that.
void input_pipe::shut() {
  boost::system::error_code ignored;
  end_.close(ignored);
  head_.exited = head_.complete = 1;
  head_.number += std::exchange(length_, 0);
  moved_ = 0;
  const unique_fd nothing{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  const int kept = nothing ? nothing.get() : segment_.get();
  put_down({&kept, 1});
  failpoint("input.closed");
  segment_.reset();
  with_.share.reset();
}

void input_pipe::put_down(std::span<const int> fds) {
  if (with_.put_down)
    with_.put_down(held_label(head_), fds);
}

void input_pipe::watch() {
  if (watching_ || !end_.is_open() || moved_ == length_)
    return;
  watching_ = true;
  end_.async_wait(end_.wait_write,
                  [self = shared_from_this()](const boost::system::error_code& stopped) {
                    self->watching_ = false;
                    if (!stopped)
                      self->advance();
                  });
}

void input_pipe::set_patience() {
  if (waiting_.empty()) {
    patience_.cancel();
    return;
  }
  if (patience_.expiry() == waiting_.front().until)
    return;
  patience_.expires_at(waiting_.front().until);
  patience_.async_wait([weak = weak_from_this()](const boost::system::error_code& stopped) {
    if (const auto self = weak.lock(); self && !stopped)
      self->expire();
  });
}

void input_pipe::expire() {
  const auto now = steady_clock::now();
  while (!waiting_.empty() && waiting_.front().until <= now)
    answer(input_state::slow);
  advance();
}

} // namespace insula::runtime
