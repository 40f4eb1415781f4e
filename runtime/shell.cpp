#include "runtime/shell.hpp"

#include "base/failpoint.hpp"
#include "base/limits.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace insula::runtime {

namespace {

constexpr int killed = SIGKILL; ///< As a wait status.

/// More than a keeper has to say. What has taken its place inside might go on for ever.
constexpr int last_words = 64;

const error no_shell{errc::sandbox_not_running, "the shell has ended"};
const error too_much{errc::limit_reached, "the shell exports too much"};

error said_by(const char* what) {
  return {errc::limit_reached, std::string{what} + ": " + std::strerror(errno)};
}

/// Both ends of a pipe that is opened by its name in /proc, by a user who did not make it.
bool open_pipe(unique_fd& read, unique_fd& write) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return false;
  read.reset(ends[0]);
  write.reset(ends[1]);
  return ::fchmod(ends[1], 0666) == 0 && ::fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
}

/// A command of our own that says where the shell is and what it exports. Who asked does not wait
/// for long, and the shell is not to be hurt by it: what is late is interrupted, and gets force
/// only when it has kept the shell from everything else for a while.
class look : public std::enable_shared_from_this<look> {
public:
  look(boost::asio::io_context& io, std::function<void(result<shell_surroundings>)> tell)
      : tell_(std::move(tell))
      , patience_(io) {}

  void begin(const std::shared_ptr<native_shell>& in, std::chrono::milliseconds patience) {
    process_listener listener;
    listener.on_failed = [self = shared_from_this()](const error& why) { self->end(why); };
    process_ = in->run_as({"\\builtin pwd -P; \\builtin printf '\\0'; \\command -p env -0", {}},
                          std::move(listener), true);
    patience_.expires_after(patience);
    patience_.async_wait(
      [self = shared_from_this(), weak = std::weak_ptr{in}](const auto& stopped) {
        const auto shell = weak.lock();
        if (stopped || !shell)
          return;
        shell->give_up_look();
        self->process_->signal(SIGTERM);
        self->patience_.expires_after(limits::late_look_patience);
        self->patience_.async_wait([self](const auto& again) {
          if (!again)
            self->process_->signal(SIGKILL);
        });
        self->answer(error{errc::deadline_exceeded, "the shell did not say where it is in time"});
      });
    read();
  }

private:
  void read() {
    process_->read(offset_, 64 * 1024, true,
                   [self = shared_from_this()](const log_chunk& chunk) { self->take(chunk); });
  }

  void take(const log_chunk& chunk) {
    offset_ = chunk.next_offset;
    for (const auto& each : chunk.frames)
      if (each.stream == output_stream::out && text_.size() <= limits::surroundings_bytes)
        text_ += each.bytes;
    if (!chunk.ended)
      return read();
    if (chunk.lost_bytes > 0 || text_.size() > limits::surroundings_bytes)
      return end(too_much);
    if (chunk.ended->lost)
      return end(no_shell);
    end(parsed());
  }

  result<shell_surroundings> parsed() const {
    const auto end = text_.find('\0');
    if (end == std::string::npos || end == 0 || text_[end - 1] != '\n' || text_[0] != '/')
      return error{errc::io_failed, "the shell did not say where it is"};
    shell_surroundings found;
    found.cwd = text_.substr(0, end - 1);
    for (std::size_t at = end + 1; at < text_.size();) {
      const auto next = std::min(text_.find('\0', at), text_.size());
      found.env.push_back(text_.substr(at, next - at));
      at = next + 1;
    }
    if (found.env.size() > limits::surroundings_variables)
      return too_much;
    return found;
  }

  void answer(result<shell_surroundings> what) {
    if (const auto tell = std::exchange(tell_, nullptr))
      tell(std::move(what));
  }

  void end(result<shell_surroundings> what) {
    patience_.cancel();
    answer(std::move(what));
    process_.reset();
  }

  std::function<void(result<shell_surroundings>)> tell_;
  boost::asio::steady_timer patience_;
  std::shared_ptr<process> process_;
  std::uint64_t offset_ = 0;
  std::string text_;
};

} // namespace

native_shell::native_shell(boost::asio::io_context& io, options with, shell_listener listener,
                           links to)
    : io_(io)
    , options_(std::move(with))
    , listener_(std::move(listener))
    , to_(std::move(to))
    , deadline_(io)
    , kill_(io)
    , pulse_(io) {}

native_shell::~native_shell() {
  if (channel_)
    channel_->close();
  if (to_.forgotten)
    to_.forgotten();
}

void native_shell::open_channel(unique_fd channel) {
  channel_ = std::make_shared<packet_socket>(io_, std::move(channel));
  channel_->open(
    [weak = weak_from_this()](std::string_view bytes, const std::vector<unique_fd>&) {
      agent::shell_notice said{};
      if (const auto self = weak.lock(); self && from_bytes(bytes, said))
        self->heard(said);
    },
    [weak = weak_from_this()] {
      if (const auto self = weak.lock())
        self->unheard();
    });
}

void native_shell::attach(unique_fd channel, std::uint64_t name) {
  name_ = name;
  open_channel(std::move(channel));
  boost::asio::post(io_, [self = shared_from_this()] { self->await_start(); });
}

/// One that stands still has its time once it goes on.
void native_shell::await_start() {
  deadline_.expires_after(limits::start_patience);
  deadline_.async_wait([weak = weak_from_this()](const auto& stopped) {
    const auto self = weak.lock();
    if (!self || stopped)
      return;
    if (!self->ready_ && self->to_.frozen())
      return self->await_start();
    self->failed({errc::launch_failed, "the shell was not ready in time"});
  });
}

void native_shell::resume(unique_fd channel, std::uint64_t name, std::uint64_t first_number,
                          bool has_command) {
  last_number_ = report_ = first_number;
  attach(std::move(channel), name);
  if (!has_command)
    ask_for_report();
}

void native_shell::ask_for_report() {
  boost::asio::post(io_, [self = shared_from_this()] {
    self->resuming_ = true;
    self->tell_keeper(agent::shell_op::report, 0);
    self->tell_keeper(agent::shell_op::ping, self->report_);
  });
}

/// False: it does not listen, or it could never be started.
bool native_shell::tell_keeper(agent::shell_op what, std::uint64_t number) {
  agent::shell_request wanted{};
  wanted.what = what;
  wanted.number = number;
  wanted.patience_ms = static_cast<std::uint32_t>(options_.patience.grace.count());
  return channel_ && channel_->send(as_bytes(wanted));
}

/// `name`: under which it is kept, once it is.
std::shared_ptr<native_process>
native_shell::make_process(output_log log, std::shared_ptr<void> counted, process_listener listener,
                           const std::shared_ptr<std::uint64_t>& name, std::uint64_t number,
                           std::optional<std::uint64_t> memory_kills) {
  native_process::links to;
  to.share = std::move(counted);
  to.signal = [weak = weak_from_this(), number](int signal) {
    if (const auto self = weak.lock())
      self->signal(number, signal);
  };
  if (to_.last_words && memory_kills)
    to.last_words = [ask = to_.last_words, memory_kills = *memory_kills](const process_exit& how) {
      return ask(how, memory_kills);
    };
  to.forgotten = [release = to_.release, name] {
    if (release && *name != 0)
      release(*name);
  };
  return std::make_shared<native_process>(io_, std::move(log), std::move(listener), std::move(to),
                                          options_.reader_patience);
}

native_process::keeping native_shell::keeping_of(const held_head& head, std::string label,
                                                 std::uint64_t name) {
  native_process::keeping how{head, std::move(label), {}};
  how.put_down = [relabel = to_.relabel, name](const std::string& now, std::span<const int> fds) {
    relabel(name, now, fds);
  };
  return how;
}

std::shared_ptr<process> native_shell::run(shell_command what, process_listener listener) {
  return run_as(std::move(what), std::move(listener), false);
}

std::shared_ptr<process> native_shell::run_as(shell_command what, process_listener listener,
                                              bool internal) {
  std::uint64_t number = 0;
  {
    const std::lock_guard hold{guard_};
    number = ++last_number_;
  }
  const auto share = to_.share_log();
  const auto name = std::make_shared<std::uint64_t>(0);
  const auto memory_kills = to_.memory_kills ? to_.memory_kills() : 0;
  auto made = make_process({options_.log_directory, share.bytes, share.account}, share.counted,
                           std::move(listener), name, number,
                           internal ? std::nullopt : std::optional{memory_kills});
  if (what.awaits_reader)
    made->await_reader();
  const auto refuse = [&](error why) {
    boost::asio::post(io_, [made, why = std::move(why)] { made->failed(why); });
    return made;
  };
  if (what.cwd.size() > agent::max_shell_text)
    return refuse({errc::invalid_request, "the directory's name is too long"});
  waiting_command next;
  next.what.script = script_file{what.script};
  unique_fd out, err;
  if (!next.what.script || !open_pipe(out, next.out) || !open_pipe(err, next.err))
    return refuse(said_by("pipe"));
  next.what.number = number;
  next.what.process = made;
  next.what.memory_kills = memory_kills;
  next.cwd = std::move(what.cwd);
  if (const int log = made->log_file(); to_.hold && log >= 0) {
    auto& head = next.what.head;
    head.kind = held_kind::shell_command;
    head.internal = internal;
    head.kept = what.kept;
    head.log_bytes = share.bytes;
    head.memory_kills = next.what.memory_kills;
    head.shell = name_;
    head.number = number;
    next.what.label = std::move(what.label);
    *name = next.what.name =
      to_.hold(held_label(next.what.head, next.what.label),
               std::array{out.get(), err.get(), log, next.what.script.get()});
  }
  if (what.kept && *name == 0)
    return refuse({errc::limit_reached, "what is to be kept of it could not be handed over"});
  if (what.kept)
    made->keep(keeping_of(next.what.head, next.what.label, *name));
  failpoint("command.held");
  if (to_.make_room)
    to_.make_room();
  const std::lock_guard hold{guard_};
  const bool waits = now_.given_up && !next_;
  if (over_ || ending_ || !channel_ || (now_.number != 0 && !waits))
    return refuse(no_shell);
  made->attach(std::move(out), std::move(err));
  if (waits)
    next_ = std::move(next);
  else if (!hand_over(next))
    return refuse(no_shell);
  return made;
}

std::shared_ptr<process> native_shell::resume_command(held_descriptors kept,
                                                      process_listener listener) {
  const auto head = *head_of(kept.label);
  const auto share = to_.share_log();
  const auto made = make_process(
    {std::move(kept.fds[2]), head.log_bytes, share.account}, share.counted, std::move(listener),
    std::make_shared<std::uint64_t>(kept.name), head.number, head.memory_kills);
  made->attach(std::move(kept.fds[0]), std::move(kept.fds[1]));
  {
    const std::lock_guard hold{guard_};
    now_ = {};
    now_.number = resumed_ = head.number;
    now_.process = made;
    now_.memory_kills = head.memory_kills;
    now_.script = script_file{std::move(kept.fds[3])};
    now_.head = head;
    now_.label = text_of(kept.label);
    now_.name = kept.name;
    now_.resumed = true;
  }
  if (head.kept != 0)
    made->keep(keeping_of(head, text_of(kept.label), kept.name));
  boost::asio::post(io_, [made] { made->resume(); });
  ask_for_report();
  return made;
}

/// With guard_ held.
bool native_shell::hand_over(waiting_command& next) {
  agent::shell_request wanted{};
  wanted.what = agent::shell_op::run;
  wanted.number = next.what.number;
  wanted.text_bytes = static_cast<std::uint32_t>(next.cwd.size());
  const std::array<int, 3> theirs{next.what.script.get(), next.out.get(), next.err.get()};
  if (!channel_->send(as_bytes(wanted), next.cwd, theirs))
    return false;
  now_ = std::move(next.what);
  return true;
}

void native_shell::begin_next() {
  std::shared_ptr<native_process> refused;
  std::uint64_t number = 0;
  int signalled = 0;
  {
    const std::lock_guard hold{guard_};
    if (over_ || now_.number != 0 || !next_)
      return;
    auto next = std::exchange(next_, std::nullopt);
    number = next->what.number;
    signalled = next->signal;
    if (!hand_over(*next))
      refused = next->what.process;
  }
  if (refused)
    refused->failed(no_shell);
  else if (signalled != 0)
    signal(number, signalled);
}

void native_shell::give_up_look() {
  const std::lock_guard hold{guard_};
  now_.given_up = now_.number != 0;
}

void native_shell::look_around(std::function<void(result<shell_surroundings>)> tell) {
  boost::asio::post(io_, [self = shared_from_this(), tell = std::move(tell)] {
    std::make_shared<look>(self->io_, tell)->begin(self, self->options_.patience.look);
  });
}

bool native_shell::runs(std::uint64_t number) {
  const std::lock_guard hold{guard_};
  return number != 0 && now_.number == number;
}

native_shell::command native_shell::take(std::uint64_t number) {
  const std::lock_guard hold{guard_};
  return number != 0 && now_.number == number ? std::exchange(now_, {}) : command{};
}

void native_shell::heard(const agent::shell_notice& said) {
  switch (said.what) {
    case agent::shell_event::ready: return ready();
    case agent::shell_event::failed:
      return failed(
        {errc::launch_failed, std::string{"running the shell: "} + std::strerror(said.value)});
    case agent::shell_event::started: {
      std::shared_ptr<native_process> started;
      if (resuming_ && !runs(said.number))
        return unknown_command(said.number);
      {
        const std::lock_guard hold{guard_};
        if (said.number == 0 || said.number != now_.number)
          return;
        now_.started = true;
        started = now_.process;
      }
      return started ? started->started() : void();
    }
    case agent::shell_event::finished: {
      if (said.number == unknown_)
        unknown_ = 0;
      if (!runs(said.number))
        return;
      auto done = take(said.number);
      kill_.cancel();
      if (done.process)
        finish(done, {(said.value & 0xff) << 8, false, false});
      return begin_next();
    }
    case agent::shell_event::ended: return over({said.value, false, false});
    case agent::shell_event::pong:
      answered_ = true;
      if (said.number == report_ && std::exchange(resuming_, false))
        all_reported();
      return;
  }
}

/// It runs something that nobody has taken over. What comes next waits for its end.
void native_shell::unknown_command(std::uint64_t number) {
  const std::lock_guard hold{guard_};
  unknown_ = number;
  if (now_.process)
    return; // Which has never come there, as all_reported() finds.
  now_ = {};
  now_.number = number;
  now_.given_up = true;
}

/// A command that the keeper has not spoken of has never come to it.
void native_shell::all_reported() {
  command lost;
  {
    const std::lock_guard hold{guard_};
    // Not one that came as soon as the shell was known to be ready.
    if (now_.process && !now_.started && now_.number == resumed_) {
      lost = std::exchange(now_, {});
      now_.number = unknown_;
      now_.given_up = unknown_ != 0;
    }
  }
  if (!lost.process)
    return;
  if (lost.process->kept()) // Or has ended before it could be put down how: nobody can say.
    finish(lost, {0, true, false});
  else
    lost.process->failed(no_shell);
}

void native_shell::ready() {
  if (std::exchange(ready_, true))
    return;
  deadline_.cancel();
  pulse();
  if (const auto tell = std::exchange(listener_.on_ready, nullptr))
    tell();
}

/// Its pipes are emptied; what the command has left behind may go on writing to them.
void native_shell::finish(command& done, process_exit how) {
  done.process->started();
  how.out_of_memory =
    !how.lost && to_.memory_ran_out && to_.memory_ran_out(how.status, done.memory_kills);
  done.process->settle([late = to_.late](unique_fd pipe) { late->add(std::move(pipe)); });
  done.process->ended(how);
  if (done.name != 0 && to_.relabel && !how.lost && !done.process->complete() &&
      !done.process->kept()) {
    done.head.exited = 1; // Somebody reads it slowly; the keeper will not speak of it again.
    done.head.status = how.status;
    to_.relabel(done.name, held_label(done.head, done.label), {});
  }
  done.script = {}; // Whoever has kept it has nothing any more.
}

void native_shell::signal(std::uint64_t number, int signal) {
  {
    const std::lock_guard hold{guard_};
    if (next_ && next_->what.number == number && next_->signal != SIGKILL)
      next_->signal = signal;
  }
  if (!runs(number))
    return;
  if (signal != SIGKILL) {
    tell_keeper(agent::shell_op::interrupt, number);
    return;
  }
  tell_keeper(agent::shell_op::kill, number);
  boost::asio::post(io_, [self = shared_from_this(), number] { self->watch_kill(number); });
}

/// If the keeper does not do it, the agent does; and if nothing is heard of that either, it counts
/// as done.
void native_shell::watch_kill(std::uint64_t number) {
  kill_.expires_after(options_.patience.kill);
  kill_.async_wait([self = shared_from_this(), number](const auto& stopped) {
    if (stopped || !self->runs(number))
      return;
    self->to_.kill();
    self->kill_.expires_after(self->options_.patience.kill / 2);
    self->kill_.async_wait([self, number](const auto& again) {
      if (!again && self->runs(number))
        self->over({killed, false, false});
    });
  });
}

void native_shell::pulse() {
  pulse_.expires_after(limits::shell_pulse);
  pulse_.async_wait([weak = weak_from_this()](const auto& stopped) {
    const auto self = weak.lock();
    if (!self || stopped)
      return;
    std::uint64_t number = 0;
    {
      const std::lock_guard hold{self->guard_};
      number = self->now_.number;
    }
    const bool frozen = self->to_.frozen();
    if (number != 0 && !self->answered_ && !frozen) {
      self->to_.kill();
      return self->watch_kill(number);
    }
    self->answered_ = number == 0 || frozen;
    if (!self->answered_)
      self->tell_keeper(agent::shell_op::ping, 0);
    self->pulse();
  });
}

void native_shell::end() {
  {
    const std::lock_guard hold{guard_};
    if (std::exchange(ending_, true) || over_)
      return;
  }
  const bool told = tell_keeper(agent::shell_op::end, 0);
  boost::asio::post(io_, [self = shared_from_this(), told] {
    if (!told)
      self->to_.kill();
    self->deadline_.expires_after(limits::shell_end_patience);
    self->deadline_.async_wait([self](const auto& stopped) {
      if (stopped)
        return;
      self->to_.kill();
      self->deadline_.expires_after(limits::shell_end_patience);
      self->deadline_.async_wait([self](const auto& again) {
        if (!again)
          self->over({killed, false, false});
      });
    });
  });
}

void native_shell::failed(error why) {
  if (ready_)
    return;
  ready_ = true;
  const auto tell = std::exchange(listener_, {}).on_failed;
  to_.kill();
  over({killed, false, false});
  if (tell)
    tell(std::move(why));
}

/// The channel has closed without a word: the keeper has ended, or has no more use. The agent says
/// which, or the sandbox ends.
void native_shell::unheard() {
  to_.kill();
  deadline_.expires_after(limits::destroy_patience);
  deadline_.async_wait([weak = weak_from_this()](const auto& stopped) {
    if (const auto self = weak.lock(); self && !stopped)
      self->over({killed, false, false});
  });
}

void native_shell::doomed() {
  const std::lock_guard hold{guard_};
  doomed_ = true;
}

void native_shell::gone(bool lost, const std::string& why) {
  if (channel_)
    channel_->drain(last_words);
  over({killed, lost, false, why});
}

/// The shell is no more, or nobody waits for it any longer.
void native_shell::over(process_exit how) {
  command last;
  std::optional<waiting_command> next;
  bool asked = false;
  {
    const std::lock_guard hold{guard_};
    if (std::exchange(over_, true))
      return;
    last = std::exchange(now_, {});
    next = std::exchange(next_, std::nullopt);
    asked = ending_;
    how.lost = how.lost || doomed_;
  }
  for (auto* timer : {&deadline_, &kill_, &pulse_})
    timer->cancel();
  if (channel_)
    channel_->close(); // A keeper that still lives ends everything then.
  if (const auto forgotten = std::exchange(to_.forgotten, nullptr))
    forgotten();
  const auto heard_by = std::exchange(listener_, {});
  if (!ready_ && heard_by.on_failed)
    heard_by.on_failed({how.lost ? errc::sandbox_not_running : errc::launch_failed,
                        "the shell ended before it was ready"});
  else if (heard_by.on_ended)
    heard_by.on_ended(how);
  const auto settle = [&](command& each) {
    const bool may_have_run =
      each.started || (each.resumed && each.process && each.process->kept());
    if (each.process && each.started && !how.ended_for.empty())
      finish(each, end_with_sandbox(how.ended_for));
    else if (each.process && (may_have_run || asked || how.lost))
      finish(each, {how.status, how.lost || asked || !each.started, false});
    else if (each.process) // It was on its way: another shell can run it.
      each.process->failed(no_shell);
  };
  settle(last);
  if (next)
    settle(next->what);
}

void native_shell::fall_silent() {
  listener_ = {};
  command last;
  std::optional<waiting_command> next;
  {
    const std::lock_guard hold{guard_};
    over_ = true;
    last = std::exchange(now_, {});
    next = std::exchange(next_, std::nullopt);
  }
  for (auto* timer : {&deadline_, &kill_, &pulse_})
    timer->cancel();
  if (channel_)
    channel_->close();
  if (last.process)
    last.process->fall_silent();
  if (next)
    next->what.process->fall_silent();
}

} // namespace insula::runtime
