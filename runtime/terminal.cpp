#include "runtime/terminal.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"
#include "runtime/descriptors.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace insula::runtime {

namespace {

using std::chrono::steady_clock;

/// What is read before others get their turn, in pieces of what a terminal gives at once.
constexpr int reads_per_turn = 16;
constexpr std::size_t read_bytes = 16 * 1024;

/// At the end: the kernel keeps less than this for a terminal, and who goes on printing is not
/// waited for.
constexpr int last_reads = 64;

/// Until a look at whether somebody has opened the terminal again.
constexpr auto empty_terminal_pause = std::chrono::milliseconds{100};

/// The descriptor that a message brings; none, if it brings none. The message stays: whoever is
/// killed before the descriptor is held elsewhere has lost nothing.
unique_fd receive_descriptor(int channel) {
  char byte = 0;
  int fds[1] = {-1}, count = 0;
  receive_packet(channel, {&byte, 1}, fds, count, MSG_DONTWAIT | MSG_PEEK);
  return unique_fd{count > 0 ? fds[0] : -1};
}

} // namespace

native_terminal::native_terminal(boost::asio::io_context& io, unique_fd channel,
                                 process_listener listener, links to, reader_pace pace)
    : io_(io)
    , channel_(std::move(channel))
    , listener_(std::move(listener))
    , to_(std::move(to))
    , master_(io_)
    , pause_(io_)
    , log_(limits::terminal_log_bytes)
    , pace_(pace) {}

native_terminal::~native_terminal() {
  if (to_.forgotten)
    to_.forgotten();
}

template <class Step>
void native_terminal::on_io(Step step) {
  boost::asio::post(io_,
                    [self = shared_from_this(), step = std::move(step)]() mutable { step(*self); });
}

void native_terminal::read(std::uint64_t offset, std::size_t max_bytes, bool,
                           std::function<void(log_chunk)> on_output) {
  read_for(0, offset, max_bytes, std::move(on_output));
}

void native_terminal::read_for(std::uint64_t reader, std::uint64_t offset, std::size_t max_bytes,
                               std::function<void(log_chunk)> on_output) {
  on_io([asked = question{reader, offset, max_bytes, std::move(on_output)}](
          native_terminal& self) mutable {
    self.note_reader(asked.offset);
    self.questions_.push_back(std::move(asked));
    self.answer_questions();
  });
}

void native_terminal::forget(std::uint64_t reader) {
  on_io([reader](native_terminal& self) {
    std::erase_if(self.questions_, [&](const auto& each) { return each.reader == reader; });
    self.pace_.reader_has_gone();
    if (!self.pace_.waits(self.log_.end(), steady_clock::now()))
      self.pause_.cancel();
  });
}

void native_terminal::signal(int number) {
  to_.signal(number);
}

void native_terminal::write(std::string bytes, std::function<void(bool)> taken) {
  on_io([next = input{std::move(bytes), 0, std::move(taken)}](native_terminal& self) mutable {
    self.inputs_.push_back(std::move(next));
    self.feed();
  });
}

void native_terminal::resize(terminal_size size) {
  on_io([size](native_terminal& self) {
    winsize window{};
    window.ws_col = size.columns;
    window.ws_row = size.rows;
    if (self.master_.is_open())
      ::ioctl(self.master_.native_handle(), TIOCSWINSZ, &window);
  });
}

void native_terminal::measure(std::function<void(log_extent)> tell) {
  on_io([tell = std::move(tell)](const native_terminal& self) {
    tell({self.log_.begin(), self.log_.end()});
  });
}

/// It comes from inside, so that it is a terminal at all has to be seen.
bool native_terminal::take_master() {
  auto master = receive_descriptor(channel_.get());
  channel_.reset();
  unsigned number = 0;
  return master && ::ioctl(master.get(), TIOCGPTN, &number) == 0 && use_master(std::move(master));
}

bool native_terminal::use_master(unique_fd master) {
  if (::fcntl(master.get(), F_SETFL, O_RDWR | O_NONBLOCK) != 0)
    return false;
  if (const int log = log_.file(); log >= 0)
    to_.hold(std::array{master.get(), log});
  master_.assign(master.release());
  return true;
}

void native_terminal::resume(unique_fd master, unique_fd log) {
  log_ = terminal_log{std::move(log), limits::terminal_log_bytes};
  resumed_ = use_master(std::move(master));
}

void native_terminal::started() {
  if (started_ || over_)
    return;
  if (!resumed_ && !take_master()) {
    to_.signal(SIGKILL);
    return failed({errc::launch_failed, "its terminal has not come"});
  }
  started_ = true;
  watch_output();
  if (listener_.on_started)
    listener_.on_started();
  feed();
}

void native_terminal::failed(error why) {
  if (started_ || over_)
    return;
  exit_ = process_exit{};
  if (listener_.on_failed)
    listener_.on_failed(std::move(why));
  listener_ = {};
  finish();
}

void native_terminal::ended(process_exit how) {
  if (over_)
    return;
  if (!started_)
    return failed({errc::sandbox_not_running, "the sandbox ended before the terminal was opened"});
  for (int i = 0; i < last_reads && pace_.has_room(log_.end(), read_bytes) && empty(); ++i) {
  }
  exit_ = how;
  if (listener_.on_ended)
    listener_.on_ended(how);
  finish();
}

void native_terminal::fall_silent() {
  listener_ = {};
  questions_.clear();
  inputs_.clear();
  over_ = true;
  pause_.cancel();
  boost::system::error_code ignored;
  master_.close(ignored);
}

void native_terminal::watch_output() {
  master_.async_wait(master_.wait_read,
                     [self = shared_from_this()](const boost::system::error_code& stopped) {
                       if (stopped || self->over_)
                         return;
                       if (self->pace_.waits(self->log_.end(), steady_clock::now()))
                         return self->rest(self->pace_.until());
                       int left = reads_per_turn;
                       while (left > 0 && self->empty())
                         --left;
                       const bool closed = left > 0 && errno == EIO;
                       self->answer_questions();
                       // Nobody inside has it open, which it would say without end. The
                       // process that was started lives, and can open it again.
                       if (closed)
                         self->rest(steady_clock::now() + empty_terminal_pause);
                       else
                         self->watch_output();
                     });
}

/// Until then, or until whoever reads has come closer.
void native_terminal::rest(steady_clock::time_point until) {
  pause_.expires_at(until);
  pause_.async_wait([self = shared_from_this()](const boost::system::error_code&) {
    if (self->over_)
      return;
    self->watch_output();
    self->feed();
  });
}

void native_terminal::note_reader(std::uint64_t offset) {
  const auto now = steady_clock::now();
  pace_.has_read_to(std::min(offset, log_.end()), now);
  if (!pace_.waits(log_.end(), now))
    pause_.cancel();
}

/// True: there may be more. False with errno.
bool native_terminal::empty() {
  std::array<char, read_bytes> bytes;
  const ssize_t n = ::read(master_.native_handle(), bytes.data(), bytes.size());
  if (n == 0)
    errno = EIO;
  if (n <= 0)
    return n < 0 && errno == EINTR;
  if (!log_.append({bytes.data(), static_cast<std::size_t>(n)})) {
    if (discarded_ == 0)
      log::error("terminal.log_failed", {{"reason", std::strerror(errno)}});
    discarded_ += static_cast<std::uint64_t>(n);
  }
  return true;
}

void native_terminal::watch_input() {
  if (std::exchange(waiting_for_room_, true))
    return;
  master_.async_wait(master_.wait_write,
                     [self = shared_from_this()](const boost::system::error_code& stopped) {
                       self->waiting_for_room_ = false;
                       if (!stopped && !self->over_)
                         self->feed();
                     });
}

/// Hands over what is typed, as far as the terminal takes it.
void native_terminal::feed() {
  while (!inputs_.empty()) {
    auto& next = inputs_.front();
    if (over_) {
      next.taken(false);
      inputs_.pop_front();
      continue;
    }
    if (!started_)
      return;
    if (next.done < next.bytes.size()) {
      const ssize_t n = ::write(master_.native_handle(), next.bytes.data() + next.done,
                                next.bytes.size() - next.done);
      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0 && errno == EIO)
        return; // Nobody inside has it open, as rest() knows, after which this is tried again.
      if (n <= 0)
        return watch_input();
      next.done += static_cast<std::size_t>(n);
      continue;
    }
    next.taken(true);
    inputs_.pop_front();
  }
}

void native_terminal::answer_questions() {
  for (std::size_t i = 0; i < questions_.size();) {
    if (!exit_ && log_.end() <= questions_[i].offset && discarded_ == 0) {
      ++i;
      continue;
    }
    const auto asked = std::move(questions_[i]);
    questions_.erase(questions_.begin() + static_cast<std::ptrdiff_t>(i));
    log_chunk chunk;
    const auto from = std::clamp(asked.offset, log_.begin(), log_.end());
    chunk.lost_bytes =
      (from > asked.offset ? from - asked.offset : 0) + std::exchange(discarded_, 0);
    auto bytes = log_.read(from, asked.max_bytes);
    chunk.next_offset = from + bytes.size();
    if (!bytes.empty())
      chunk.frames.push_back({output_stream::out, std::move(bytes)});
    if (exit_ && chunk.next_offset == log_.end())
      chunk.ended = exit_;
    asked.on_output(std::move(chunk));
  }
}

void native_terminal::finish() {
  over_ = true;
  channel_.reset(); // With a master that may still be in there.
  pause_.cancel();
  boost::system::error_code ignored;
  master_.close(ignored); // Whoever is left inside is told (SIGHUP).
  feed();
  answer_questions();
  if (const auto forgotten = std::exchange(to_.forgotten, nullptr))
    forgotten();
  if (const auto tell = std::exchange(listener_, {}).on_complete)
    tell();
}

} // namespace insula::runtime
