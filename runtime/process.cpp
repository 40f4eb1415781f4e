#include "runtime/process.hpp"

#include "base/failpoint.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

namespace insula::runtime {

namespace {

/// Frames taken from one pipe before others get their turn.
constexpr int frames_per_turn = 16;

/// That wait for output; four times as many as those who ask keep open.
constexpr std::size_t max_questions = 1024;

} // namespace

native_process::native_process(boost::asio::io_context& io, output_log log,
                               process_listener listener, links to,
                               std::chrono::milliseconds reader_patience)
    : io_(io)
    , listener_(std::move(listener))
    , to_(std::move(to))
    , log_(std::move(log))
    , pipes_{pipe{output_stream::out, boost::asio::posix::stream_descriptor{io_}},
             pipe{output_stream::err, boost::asio::posix::stream_descriptor{io_}}}
    , reader_patience_(reader_patience)
    , patience_(io_) {}

native_process::~native_process() {
  if (input_)
    boost::asio::post(io_, [input = input_] { input->forget(); });
  if (to_.forgotten)
    to_.forgotten();
}

void native_process::attach(unique_fd out, unique_fd err) {
  if (out)
    pipes_[0].end.assign(out.release());
  if (err)
    pipes_[1].end.assign(err.release());
}

void native_process::on_io(void (native_process::*step)()) {
  boost::asio::post(io_, [self = shared_from_this(), step] { ((*self).*step)(); });
}

void native_process::read(std::uint64_t offset, std::size_t max_bytes, bool attached,
                          std::function<void(log_chunk)> on_output) {
  boost::asio::post(
    io_, [self = shared_from_this(),
          asked = question{offset, max_bytes, attached, std::move(on_output)}]() mutable {
      if (asked.attached && !self->reader_dropped_) {
        self->attached_ = true;
        self->awaits_reader_ = false;
        self->reader_offset_ = asked.offset;
        self->patience_.cancel();
      }
      if (self->questions_.size() >= max_questions)
        self->give_up_oldest();
      self->questions_.push_back(std::move(asked));
      self->advance();
    });
}

/// Of a reader that has gone, most likely; else it may ask again.
void native_process::give_up_oldest() {
  const auto oldest = std::move(questions_.front());
  questions_.pop_front();
  log_chunk chunk;
  chunk.reader_dropped = true;
  oldest.on_output(std::move(chunk));
}

void native_process::detach() {
  boost::asio::post(io_, [self = shared_from_this()] {
    self->attached_ = self->awaits_reader_ = false;
    self->reader_dropped_ = false;
    std::erase_if(self->questions_, [](const question& each) { return each.attached; });
    self->patience_.cancel();
    self->advance();
  });
}

void native_process::measure(std::function<void(log_extent)> tell) {
  boost::asio::post(io_, [self = shared_from_this(), tell = std::move(tell)] {
    tell({self->log_.begin(), self->log_.end()});
  });
}

void native_process::open_log(std::function<void(unique_fd)> tell) {
  boost::asio::post(io_, [self = shared_from_this(), tell = std::move(tell)] {
    const int file = self->log_.file();
    tell(unique_fd{file < 0 ? -1 : ::fcntl(file, F_DUPFD_CLOEXEC, 0)});
  });
}

void native_process::write_input(input_piece what, std::function<void(input_progress)> tell) {
  boost::asio::post(
    io_, [self = shared_from_this(), what = std::move(what), tell = std::move(tell)]() mutable {
      if (self->input_)
        self->input_->write(std::move(what), std::move(tell));
      else
        tell({0, input_state::over});
    });
}

void native_process::resume() {
  log_.recover();
  if (input_)
    input_->resume();
}

/// Nobody can ask for it any more.
void native_process::drop_input() {
  if (const auto input = std::exchange(input_, nullptr)) {
    input->finish(); // Whoever waits is told.
    input->forget();
  }
}

void native_process::relabel(const std::string& label) {
  boost::asio::post(io_, [self = shared_from_this(), label = std::string{label}]() mutable {
    if (!self->kept_)
      return;
    self->kept_->label = std::move(label);
    self->kept_->put_down(held_label(self->kept_->head, self->kept_->label), {});
  });
}

void native_process::keep(keeping how) {
  kept_ = std::move(how);
  if (kept_->head.lost != 0)
    discard(1, UINT64_MAX); // At least one, and somewhere: how much it was is not put down.
}

/// Before anybody hears of it: what has been told once will be told again.
void native_process::put_down_end(const process_exit& how) {
  if (!kept_ || how.lost)
    return;
  auto& head = kept_->head;
  head.exited = 1;
  head.status = how.status;
  head.out_of_memory = how.out_of_memory;
  failpoint("command.ended");
  kept_->put_down(held_label(head, kept_->label), {});
  failpoint("command.put_down");
}

void native_process::discard(std::uint64_t bytes, std::uint64_t offset) {
  discarded_ += bytes;
  discarded_before_ = offset;
  loss_told_ = false;
}

/// Whoever comes to where it was is told of it, and so is the next one who does: a stream that is
/// begun anew is no more whole. Nobody is woken for it twice.
bool native_process::passes_loss(std::uint64_t from, std::uint64_t to) const {
  const auto at = std::min(discarded_before_, log_.end());
  return discarded_ > 0 && from <= at && to >= at;
}

/// So that nobody takes for whole what an earlier server could not keep whole.
void native_process::put_down_loss() {
  if (kept_ && std::exchange(kept_->head.lost, 1) == 0)
    kept_->put_down(held_label(kept_->head, kept_->label), {});
}

/// Of what is complete, the log is all that is left. A small one is no more than what each command
/// may have, so others can have its share of the large ones.
void native_process::settle_keeping() {
  if (log_.end() - log_.begin() <= output_log::min_ceiling)
    to_.share.reset();
  if (kept_->head.complete != 0 || exit_->lost)
    return;
  if (const int file = log_.file(); file >= 0) {
    kept_->head.complete = 1;
    kept_->put_down(held_label(kept_->head, kept_->label), {&file, 1});
  }
}

void native_process::signal(int number) {
  to_.signal(number);
}

void native_process::cut_output() {
  boost::asio::post(io_, [self = shared_from_this()] {
    for (auto& each : self->pipes_) {
      // Up to what is in there now: whoever goes on writing must not keep us.
      for (int i = 0; each.end.is_open() && i < frames_per_turn; ++i)
        if (self->log_.append_from(each.end.native_handle(), each.stream) <= 0)
          break;
      boost::system::error_code ignored;
      each.end.close(ignored);
      each.waiting = false;
    }
    self->advance();
  });
}

void native_process::leave_output() {
  boost::asio::post(io_, [self = shared_from_this()] {
    if (self->complete())
      return;
    self->settle(self->to_.late);
    self->advance();
  });
}

void native_process::started() {
  if (std::exchange(started_, true) || exit_)
    return;
  if (awaits_reader_)
    watch_reader();
  for (auto& each : pipes_)
    watch(each);
  if (listener_.on_started)
    listener_.on_started();
}

void native_process::failed(error why) {
  if (started_ || exit_)
    return;
  exit_ = process_exit{};
  kept_.reset(); // There is nothing to be kept.
  drop_input();
  to_.last_words = nullptr;
  boost::system::error_code ignored;
  for (auto& each : pipes_)
    each.end.close(ignored);
  if (listener_.on_failed)
    listener_.on_failed(std::move(why));
  listener_ = {};
  advance();
}

void native_process::ended(process_exit how) {
  if (exit_)
    return;
  if (!started_) {
    if (log_.end() == 0)
      return failed(
        {errc::sandbox_not_running, "the sandbox ended before the command was started"});
    started(); // It has written, so it ran; the word of it got lost with the sandbox.
  }
  exit_ = how;
  if (!how.ended_for.empty())
    last_line_ = how.ended_for + "\n";
  put_down_end(how);
  if (input_)
    input_->finish();
  if (listener_.on_ended)
    listener_.on_ended(how);
  advance();
}

void native_process::settle(std::function<void(unique_fd)> hand_on) {
  hand_on_ = std::move(hand_on);
  for (auto& each : pipes_) {
    if (!each.end.is_open())
      continue;
    int held = 0;
    if (::ioctl(each.end.native_handle(), FIONREAD, &held) != 0)
      held = 0;
    each.left = static_cast<std::size_t>(held);
    empty(each);
  }
}

/// Everything of it that was to be taken has been.
void native_process::let_go(pipe& from) {
  unique_fd end{from.end.release()};
  from.waiting = false;
  if (hand_on_)
    hand_on_(std::move(end));
}

void native_process::fall_silent() {
  if (const auto input = std::exchange(input_, nullptr))
    input->fall_silent();
  listener_ = {};
  questions_.clear();
  patience_.cancel();
  boost::system::error_code ignored;
  for (auto& each : pipes_)
    each.end.close(ignored);
}

void native_process::watch(pipe& from) {
  if (from.waiting || !from.end.is_open() || !may_grow())
    return;
  from.waiting = true;
  from.end.async_wait(from.end.wait_read,
                      [self = shared_from_this(), &from](const boost::system::error_code& stopped) {
                        if (stopped)
                          return;
                        from.waiting = false;
                        self->empty(from);
                        self->advance();
                      });
}

void native_process::empty(pipe& from) {
  for (int i = 0; i < frames_per_turn && may_grow(); ++i) {
    if (from.left == std::size_t{0})
      return; // advance() lets go of it.
    const auto most = from.left.value_or(output_log::max_frame_bytes);
    const ssize_t n = log_.append_from(from.end.native_handle(), from.stream, most);
    if (n > 0) {
      if (from.left)
        *from.left -= static_cast<std::size_t>(n);
      continue;
    }
    boost::system::error_code ignored;
    if (n == 0) {
      from.end.close(ignored);
    } else if (errno != EAGAIN) {
      // The disk refuses. The command goes on, its output is lost, and whoever reads is told.
      const int why = errno;
      std::array<char, 16 * 1024> nowhere;
      const ssize_t lost =
        ::read(from.end.native_handle(), nowhere.data(), std::min(nowhere.size(), most));
      if (lost == 0)
        from.end.close(ignored);
      if (lost > 0) {
        if (discarded_ == 0)
          log::error("process.log_failed", {{"reason", std::strerror(why)}});
        discard(static_cast<std::uint64_t>(lost), log_.end());
        put_down_loss();
        if (from.left)
          *from.left -= static_cast<std::size_t>(lost);
      }
    }
    return;
  }
}

/// With an attached reader the log's ceiling stays ahead of what it has taken; without one the
/// oldest output goes.
bool native_process::may_grow() const {
  return !attached_ || log_.has_room_before(reader_offset_);
}

bool native_process::complete() const {
  return is_silent() && !to_.last_words && last_line_.empty();
}

/// It has ended, and its pipes are empty.
bool native_process::is_silent() const {
  return exit_ && !pipes_[0].end.is_open() && !pipes_[1].end.is_open();
}

/// A disk that refuses takes it as little as the rest.
void native_process::say_last_line() {
  const auto line = std::exchange(last_line_, {});
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return;
  const unique_fd from{ends[0]}, to{ends[1]};
  if (::write(to.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()))
    log_.append_from(from.get(), output_stream::err);
}

void native_process::answer(question& asked) {
  log_chunk chunk;
  if (asked.attached && reader_dropped_) {
    chunk.reader_dropped = true;
    return asked.on_output(std::move(chunk));
  }
  auto piece = log_.read(asked.offset, asked.max_bytes);
  chunk.frames = std::move(piece.frames);
  chunk.next_offset = piece.next_offset;
  chunk.lost_bytes = piece.lost_bytes;
  if (passes_loss(asked.offset, chunk.next_offset)) {
    chunk.lost_bytes += discarded_;
    loss_told_ = true;
  }
  if (complete() && chunk.next_offset == log_.end())
    chunk.ended = exit_;
  asked.on_output(std::move(chunk));
  if (asked.attached && !complete())
    watch_reader();
}

void native_process::watch_reader() {
  patience_.expires_after(reader_patience_);
  patience_.async_wait([weak = weak_from_this()](const boost::system::error_code& stopped) {
    if (const auto self = weak.lock(); self && !stopped)
      self->drop_reader();
  });
}

/// The reader has had an answer and asked for nothing more. One that has nothing to ask for is not
/// late.
void native_process::drop_reader() {
  if (std::exchange(awaits_reader_, false)) { // None has come, and one that does is told nothing.
    attached_ = false;
    return advance();
  }
  const bool asking =
    std::any_of(questions_.begin(), questions_.end(), [](auto& each) { return each.attached; });
  if (!attached_ || asking || log_.end() == reader_offset_)
    return;
  attached_ = false;
  reader_dropped_ = true;
  advance();
}

void native_process::advance() {
  for (auto& each : pipes_)
    if (each.end.is_open() && each.left == std::size_t{0})
      let_go(each);
  if (is_silent() && to_.last_words)
    last_line_.insert(0, std::exchange(to_.last_words, nullptr)(*exit_));
  if (is_silent() && !last_line_.empty() && may_grow())
    say_last_line();
  for (std::size_t i = 0; i < questions_.size();) {
    const bool ready = complete() || log_.end() > questions_[i].offset ||
                       (!loss_told_ && passes_loss(questions_[i].offset, log_.end())) ||
                       (questions_[i].attached && reader_dropped_);
    if (!ready) {
      ++i;
      continue;
    }
    auto asked = std::move(questions_[i]);
    questions_.erase(questions_.begin() + static_cast<std::ptrdiff_t>(i));
    answer(asked);
  }
  for (auto& each : pipes_)
    watch(each);
  if (!complete())
    return;
  if (kept_) {
    settle_keeping();
  } else {
    drop_input();
    if (const auto forgotten = std::exchange(to_.forgotten, nullptr))
      forgotten();
  }
  if (const auto tell = std::exchange(listener_, {}).on_complete)
    tell();
}

} // namespace insula::runtime
