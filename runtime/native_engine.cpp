#include "runtime/native_engine.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"
#include "runtime/agent/protocol.hpp"
#include "runtime/late_output.hpp"
#include "runtime/packet_socket.hpp"
#include "runtime/process.hpp"
#include "runtime/script_file.hpp"
#include "runtime/shell.hpp"
#include "runtime/spawner_client.hpp"
#include "runtime/terminal.hpp"

#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace insula::runtime {

class native_sandbox;

/// What the engine's sandboxes share and may outlive the engine's own object with.
struct native_engine_core {
  native_engine_core(io_pool& threads, native_options given, unique_fd socket)
      : options(std::move(given))
      , pool(threads)
      , spawner(pool.context(0), std::move(socket))
      , cgroups(cgroup_tree::of_this_process(options.key)) {
    for (std::uint32_t i = 0; i < options.slots; ++i)
      free_slots.push_back(options.first_slot + i);
  }

  std::optional<std::uint32_t> take_slot() {
    const std::lock_guard hold{guard};
    if (free_slots.empty())
      return std::nullopt;
    const auto slot = free_slots.front();
    free_slots.pop_front();
    return slot;
  }

  /// Only once the spawner has said that nothing of it is left. The longest unused goes first.
  void give_back(std::uint32_t slot) {
    const std::lock_guard hold{guard};
    free_slots.push_back(slot);
    sandboxes.erase(slot);
  }

  void know(std::uint32_t slot, std::weak_ptr<native_sandbox> box) {
    const std::lock_guard hold{guard};
    sandboxes[slot] = std::move(box);
  }

  std::vector<std::shared_ptr<native_sandbox>> all() {
    std::vector<std::shared_ptr<native_sandbox>> alive;
    const std::lock_guard hold{guard};
    for (const auto& [slot, box] : sandboxes)
      if (auto held = box.lock())
        alive.push_back(std::move(held));
    return alive;
  }

  native_options options;
  io_pool& pool;
  spawner_client spawner;
  cgroup_tree cgroups;
  std::mutex guard;
  std::deque<std::uint32_t> free_slots;
  std::map<std::uint32_t, std::weak_ptr<native_sandbox>> sandboxes; ///< By slot.
};

namespace {

std::string reason_of(const agent::notice& said) {
  const char* what = "starting it";
  switch (static_cast<agent::exec_step>(said.step)) {
    case agent::exec_step::none: break;
    case agent::exec_step::fork: what = "making a process"; break;
    case agent::exec_step::cgroup: what = "entering the cgroups"; break;
    case agent::exec_step::limits: what = "setting limits"; break;
    case agent::exec_step::user: what = "becoming the user"; break;
    case agent::exec_step::stdio: what = "attaching the output"; break;
    case agent::exec_step::cwd: what = "entering the working directory"; break;
    case agent::exec_step::exec: what = "running the program"; break;
    case agent::exec_step::full: what = "finding room for another command"; break;
    case agent::exec_step::terminal: what = "opening a terminal"; break;
  }
  return std::string{what} + ": " + std::strerror(said.value);
}

std::string joined(const std::string& cwd, const std::vector<std::string>& argv,
                   const std::vector<std::string>& env) {
  std::string text = cwd;
  text += '\0';
  for (const auto* list : {&argv, &env})
    for (const auto& each : *list) {
      text += each;
      text += '\0';
    }
  return text;
}

/// A request to start something, and its text.
struct start_request {
  start_request(agent::op what, std::uint64_t id, const std::string& cwd,
                const std::vector<std::string>& argv, const std::vector<std::string>& env,
                sandbox_user user)
      : text(joined(cwd, argv, env))
      , fits(text.size() <= agent::max_text_bytes &&
             1 + argv.size() + env.size() <= agent::max_strings) {
    head.what = what;
    head.id = id;
    head.argc = static_cast<std::uint32_t>(argv.size());
    head.envc = static_cast<std::uint32_t>(env.size());
    head.uid = user.uid;
    head.gid = user.gid;
    head.text_bytes = static_cast<std::uint32_t>(text.size());
  }

  agent::request head{};
  std::string text;
  bool fits;
};

error no_room(const char* what) {
  return {errc::limit_reached, std::string{what} + ": " + std::strerror(errno)};
}

const error has_ended{errc::sandbox_not_running, "the sandbox has ended"};
const error takes_no_more{errc::launch_failed, "the sandbox takes no more commands"};

std::chrono::nanoseconds between(std::uint64_t from, std::uint64_t until) {
  return std::chrono::nanoseconds{until > from ? until - from : 0};
}

} // namespace

/// One sandbox that is on its way or lives.
class native_sandbox final : public sandbox, public std::enable_shared_from_this<native_sandbox> {
public:
  native_sandbox(std::shared_ptr<native_engine_core> engine, std::uint32_t slot, std::string name,
                 sandbox_limits limits, sandbox_listener listener)
      : engine_(std::move(engine))
      , io_(engine_->pool.here())
      , slot_(slot)
      , name_(std::move(name))
      , limits_(limits)
      , listener_(std::move(listener))
      , deadline_(io_)
      , still_later_(io_)
      , late_(std::make_shared<late_output>(io_)) {}

  void launch(const sandbox_spec& spec);
  void fall_silent(); ///< Nothing is heard or told any more. Any thread.

  const creation_times& creation() const override { return creation_; }
  std::shared_ptr<process> start(process_spec spec, process_listener listener) override;
  std::shared_ptr<terminal> open_terminal(process_spec spec, terminal_size size,
                                          process_listener listener) override;
  std::shared_ptr<shell> open_shell(shell_spec spec, shell_listener listener) override;
  std::optional<sandbox_usage> usage() const override;
  result<unique_fd> open_file(file_operation what, const std::string& path,
                              sandbox_user user) override;
  result<unique_fd> open_tree(const tree_request& wanted, sandbox_user user) override;
  void freeze(std::function<void(bool)> on_still) override;
  result<void> thaw() override;
  void destroy(std::function<void()> on_gone) override;

private:
  /// A freezing that is under way.
  struct freezing {
    std::uint64_t number;
    std::function<void(bool)> on_still;
    std::chrono::steady_clock::time_point deadline;
    std::chrono::milliseconds pause;
  };
  enum class stillness : std::uint8_t { not_yet, still, given_up };

  void await_stillness(freezing wanted);
  stillness look_at(const freezing& wanted);
  bool let_go_on();
  void created(result<spawner_client::launched> way);
  void heard(const agent::notice& said);
  void note_launch(const spawner::launch_clock& done);
  void note_agent(std::uint64_t launched_ns);
  void give_up(error why);
  void gone();
  bool tell_agent(agent::op what, std::uint64_t id, std::int32_t value);
  result<unique_fd> open_channel(agent::op what, const std::vector<std::string>& words,
                                 sandbox_user user);
  struct started_process {
    std::weak_ptr<agent_job> process;
    std::uint64_t memory_kills = 0; ///< Of the sandbox, before it began.
    script_file script;             ///< Until it has ended.
  };

  std::shared_ptr<agent_job> known(std::uint64_t id);
  std::shared_ptr<native_shell> known_shell(std::uint64_t id);
  std::function<void(int)> signal_link(std::uint64_t id);
  std::function<void()> forget_link(std::uint64_t id);
  template <class Job>
  auto refuse(const std::shared_ptr<Job>& made, error why);
  std::uint64_t next_id();
  bool request_start(const start_request& wanted, std::span<const int> fds);
  native_shell::log_share share_log();
  native_shell::links shell_links(std::uint64_t id);
  std::shared_ptr<packet_socket> connection();
  std::uint64_t memory_kills() const;
  std::uint64_t kills_before(std::uint64_t id);
  void drop_script(std::uint64_t id);
  bool memory_ran_out(int status, std::uint64_t kills_before);

  std::shared_ptr<native_engine_core> engine_;
  boost::asio::io_context& io_; ///< Whose thread hears of everything in here.
  const std::uint32_t slot_;
  const std::string name_; ///< For the log.
  const sandbox_limits limits_;
  sandbox_listener listener_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer still_later_; ///< The next look whether it stands still.
  std::uint64_t asked_ns_ = 0;            ///< When the spawner was asked,
  std::uint64_t layered_ns_ = 0;          ///< and when it had done its part.
  creation_times creation_;               ///< Written before on_ready.
  std::string why_not_ = "the sandbox ended before it was ready"; ///< What is said if it does.
  const std::shared_ptr<late_output> late_;                       ///< Of all of its shells.
  std::shared_ptr<std::atomic<std::size_t>> full_logs_ =
    std::make_shared<std::atomic<std::size_t>>(0);

  mutable std::mutex guard_; ///< For what follows.
  std::shared_ptr<packet_socket> agent_;
  std::map<std::uint64_t, started_process> processes_;
  std::map<std::uint64_t, std::weak_ptr<native_shell>> shells_; ///< By the id of their keepers.
  std::uint64_t last_id_ = 0;
  unique_fd freezer_;
  std::uint64_t last_freezing_ = 0;
  bool frozen_ = false; ///< Or it is on its way to that.
  bool ending_ = false; ///< It is to be destroyed, so nothing in it may stand still.
  bool over_ = false;
};

void native_sandbox::launch(const sandbox_spec& spec) {
  spawner::request wanted{};
  wanted.what = spawner::op::create;
  wanted.slot = slot_;
  wanted.ceilings.memory_bytes = limits_.memory_bytes;
  wanted.ceilings.disk_bytes = limits_.disk_bytes;
  wanted.ceilings.shm_bytes = limits_.shm_bytes;
  wanted.ceilings.cpu_percent = limits_.cpu_percent;
  wanted.ceilings.processes = limits_.processes;
  wanted.ceilings.open_files = limits_.open_files;
  const auto fits =
    spec.host_name.copy(wanted.host_name, spawner::max_host_name - 1) == spec.host_name.size() &&
    spec.image.root.copy(wanted.root_layer, spawner::max_path - 1) == spec.image.root.size() &&
    spec.image.usr.copy(wanted.usr_layer, spawner::max_path - 1) == spec.image.usr.size();
  assert(fits);
  static_cast<void>(fits);
  auto self = shared_from_this();
  deadline_.expires_after(limits::create_patience);
  boost::asio::post(io_, [self] {
    self->deadline_.async_wait([self](const boost::system::error_code& stopped) {
      if (!stopped)
        self->give_up({errc::launch_failed, "the sandbox was not ready in time"});
    });
  });
  asked_ns_ = spawner::monotonic_ns();
  engine_->spawner.create(
    wanted,
    [self](result<spawner_client::launched> way) {
      boost::asio::post(self->io_,
                        [self, way = std::move(way)]() mutable { self->created(std::move(way)); });
    },
    [self] { boost::asio::post(self->io_, [self] { self->gone(); }); });
}

/// On the sandbox's thread, as all that follows up to start().
void native_sandbox::created(result<spawner_client::launched> way) {
  if (!way) {
    // The spawner has nothing of it any more.
    deadline_.cancel();
    {
      const std::lock_guard hold{guard_};
      over_ = true; // Else a destroy() that is under way would give the slot back once more.
    }
    engine_->give_back(slot_);
    if (const auto tell = std::exchange(listener_, {}).on_failed)
      tell(way.reason());
    return;
  }
  note_launch(way->done);
  auto socket = std::make_shared<packet_socket>(io_, std::move(way->control));
  socket->open(
    [weak = weak_from_this()](std::string_view bytes, std::vector<unique_fd>) {
      agent::notice said{};
      if (const auto self = weak.lock(); self && from_bytes(bytes, said))
        self->heard(said);
    },
    [weak = weak_from_this()] {
      // The spawner says it when PID 1 is gone, which in v1 is not before all others could die.
      if (const auto self = weak.lock()) {
        const std::lock_guard hold{self->guard_};
        self->ending_ = true;
        self->let_go_on();
      }
    });
  const std::lock_guard hold{guard_};
  freezer_ = std::move(way->freezer);
  if (over_)
    socket->close();
  else
    agent_ = std::move(socket);
}

void native_sandbox::note_launch(const spawner::launch_clock& done) {
  creation_.slot = between(asked_ns_, done.begun);
  creation_.cgroup = between(done.begun, done.cgroup);
  creation_.disk = between(done.cgroup, done.disk);
  creation_.namespaces = between(done.disk, done.namespaces);
  creation_.layers = between(done.namespaces, done.layers);
  layered_ns_ = done.layers;
}

/// What an agent says is untrusted: it decides how this time is divided, and nothing more.
void native_sandbox::note_agent(std::uint64_t launched_ns) {
  const auto now = spawner::monotonic_ns();
  const auto launched = std::clamp(launched_ns, std::min(layered_ns_, now), now);
  creation_.mounts = between(layered_ns_, launched);
  creation_.agent = between(launched, now);
}

void native_sandbox::heard(const agent::notice& said) {
  switch (said.what) {
    case agent::event::ready: {
      if (!listener_.on_ready)
        return; // Said before; or the sandbox is being removed.
      if (said.value != static_cast<std::int32_t>(agent::version))
        return give_up({errc::launch_failed, "the agent speaks another version"});
      deadline_.cancel();
      note_agent(said.id);
      if (const auto tell = std::exchange(listener_.on_ready, nullptr)) {
        listener_.on_failed = nullptr;
        tell(shared_from_this());
      }
      return;
    }
    case agent::event::launch_failed: // PID 1 ends with it, and the spawner will say so once all is
                                      // removed.
      why_not_ = std::string{name_of(static_cast<spawner::launch_step>(said.step))} + ": " +
                 std::strerror(said.value);
      return;
    case agent::event::started:
      if (const auto at = known(said.id))
        at->started();
      return;
    case agent::event::failed:
      if (const auto at = known(said.id))
        at->failed(
          {said.value == EAGAIN ? errc::limit_reached : errc::launch_failed, reason_of(said)});
      if (const auto at = known_shell(said.id))
        at->failed({errc::launch_failed, reason_of(said)});
      return;
    case agent::event::exited: {
      tell_agent(agent::op::forget, said.id, 0);
      if (const auto at = known(said.id)) {
        drop_script(said.id);
        at->started(); // A full socket may have swallowed that: what has ended ran.
        process_exit how;
        how.status = said.value;
        how.out_of_memory = memory_ran_out(said.value, kills_before(said.id));
        at->ended(how);
      }
      if (const auto at = known_shell(said.id))
        at->gone(false);
      return;
    }
    case agent::event::pong: return;
  }
}

void native_sandbox::drop_script(std::uint64_t id) {
  const std::lock_guard hold{guard_};
  if (const auto at = processes_.find(id); at != processes_.end())
    at->second.script = {};
}

std::uint64_t native_sandbox::memory_kills() const {
  return engine_->cgroups.out_of_memory_kills(slot_).value_or(0);
}

std::uint64_t native_sandbox::kills_before(std::uint64_t id) {
  const std::lock_guard hold{guard_};
  const auto at = processes_.find(id);
  return at == processes_.end() ? 0 : at->second.memory_kills;
}

/// The kernel counts whom it kills, and does not say who it was: a command that was killed while
/// the count grew.
bool native_sandbox::memory_ran_out(int status, std::uint64_t kills_before) {
  const bool killed = (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
                      (WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
  if (!killed || memory_kills() <= kills_before)
    return false;
  log::warning("command.out_of_memory",
               {{"sandbox", name_}, {"limit_bytes", limits_.memory_bytes}});
  return true;
}

std::shared_ptr<agent_job> native_sandbox::known(std::uint64_t id) {
  const std::lock_guard hold{guard_};
  const auto at = processes_.find(id);
  return at == processes_.end() ? nullptr : at->second.process.lock();
}

std::shared_ptr<native_shell> native_sandbox::known_shell(std::uint64_t id) {
  const std::lock_guard hold{guard_};
  const auto at = shells_.find(id);
  return at == shells_.end() ? nullptr : at->second.lock();
}

std::shared_ptr<packet_socket> native_sandbox::connection() {
  const std::lock_guard hold{guard_};
  return agent_;
}

void native_sandbox::give_up(error why) {
  deadline_.cancel();
  const auto tell = std::exchange(listener_, {}).on_failed;
  destroy([tell, why] {
    if (tell)
      tell(why);
  });
}

/// PID 1 has ended, and the spawner has removed what there was.
void native_sandbox::gone() {
  deadline_.cancel();
  still_later_.cancel();
  if (const auto agent = connection())
    agent->drain(std::numeric_limits<int>::max()); // Its last words may still be on their way; no
                                                   // more will come.
  std::map<std::uint64_t, started_process> orphans;
  std::map<std::uint64_t, std::weak_ptr<native_shell>> shells;
  {
    const std::lock_guard hold{guard_};
    over_ = true;
    let_go_on(); // If it is the spawner that has gone, nobody else has them die.
    freezer_.reset();
    orphans.swap(processes_);
    shells.swap(shells_);
    if (agent_)
      agent_->close();
  }
  for (const auto& [id, orphan] : orphans)
    if (const auto each = orphan.process.lock())
      each->ended({.status = 0, .lost = true, .out_of_memory = false});
  for (const auto& [id, shell] : shells)
    if (const auto each = shell.lock())
      each->gone(true);
  late_->close();
  engine_->give_back(slot_);
  const auto heard_by = std::exchange(listener_, {});
  if (heard_by.on_failed)
    heard_by.on_failed({errc::launch_failed, why_not_});
  else if (heard_by.on_ended)
    heard_by.on_ended();
}

void native_sandbox::fall_silent() {
  boost::asio::post(io_, [self = shared_from_this()] {
    self->deadline_.cancel();
    self->still_later_.cancel();
    self->listener_ = {};
    std::map<std::uint64_t, started_process> mine;
    std::map<std::uint64_t, std::weak_ptr<native_shell>> shells;
    {
      const std::lock_guard hold{self->guard_};
      self->over_ = true;
      mine.swap(self->processes_);
      shells.swap(self->shells_);
      self->freezer_.reset();
      if (self->agent_)
        self->agent_->close();
    }
    for (const auto& [id, each] : mine)
      if (const auto one = each.process.lock())
        one->fall_silent();
    for (const auto& [id, each] : shells)
      if (const auto one = each.lock())
        one->fall_silent();
    self->late_->close();
  });
}

bool native_sandbox::tell_agent(agent::op what, std::uint64_t id, std::int32_t value) {
  agent::request wanted{};
  wanted.what = what;
  wanted.id = id;
  wanted.value = value;
  const std::lock_guard hold{guard_};
  return agent_ && agent_->send(as_bytes(wanted));
}

std::function<void(int)> native_sandbox::signal_link(std::uint64_t id) {
  return [weak = weak_from_this(), id](int number) {
    if (const auto self = weak.lock())
      self->tell_agent(agent::op::signal, id, number);
  };
}

std::function<void()> native_sandbox::forget_link(std::uint64_t id) {
  return [weak = weak_from_this(), id] {
    const auto self = weak.lock();
    if (!self)
      return;
    const std::lock_guard hold{self->guard_};
    self->processes_.erase(id);
    if (!self->over_) // Else the slot may be another's by now.
      self->engine_->spawner.release(self->slot_, id);
  };
}

template <class Job>
auto native_sandbox::refuse(const std::shared_ptr<Job>& made, error why) {
  boost::asio::post(io_, [made, why = std::move(why)] { made->failed(why); });
  return made;
}

std::uint64_t native_sandbox::next_id() {
  const std::lock_guard hold{guard_};
  return ++last_id_;
}

/// With guard_ held.
bool native_sandbox::request_start(const start_request& wanted, std::span<const int> fds) {
  return agent_->send(as_bytes(wanted.head), wanted.text, fds);
}

native_shell::log_share native_sandbox::share_log() {
  std::shared_ptr<void> counted{nullptr, [all = full_logs_](void*) { --*all; }};
  if ((*full_logs_)++ < limits::full_logs_per_sandbox)
    return {limits_.log_bytes, std::move(counted)};
  return {};
}

std::shared_ptr<process> native_sandbox::start(process_spec spec, process_listener listener) {
  const auto id = next_id();
  const auto share = share_log();
  native_process::links to{signal_link(id), forget_link(id)};
  to.signal = [signal = std::move(to.signal), counted = share.counted](int number) {
    signal(number);
  };
  const auto made = std::make_shared<native_process>(
    io_, engine_->options.log_directory, share.bytes, std::move(listener), std::move(to),
    engine_->options.reader_patience);
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0)
    return refuse(made, no_room("pipe"));
  unique_fd out_read{out[0]}, out_write{out[1]};
  if (::pipe2(err, O_CLOEXEC) != 0)
    return refuse(made, no_room("pipe"));
  unique_fd err_read{err[0]}, err_write{err[1]};
  const unique_fd nothing{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  if (!nothing)
    return refuse(made, no_room("/dev/null"));
  script_file script;
  if (!spec.script.empty()) {
    script = script_file{spec.script};
    if (!script)
      return refuse(made, no_room("memfd"));
  }
  const std::array<int, 4> theirs{nothing.get(), out_write.get(), err_write.get(), script.get()};
  for (const int end : {out_read.get(), err_read.get()})
    ::fcntl(end, F_SETFL, O_NONBLOCK);
  const start_request wanted{agent::op::exec, id, spec.cwd, spec.argv, spec.env, spec.user};
  if (!wanted.fits)
    return refuse(made, {errc::invalid_request, "the command is too large"});

  const auto kills = memory_kills();
  const std::lock_guard hold{guard_};
  if (over_ || !agent_)
    return refuse(made, has_ended);
  const std::array<int, 2> ours{out_read.get(), err_read.get()};
  engine_->spawner.hold(slot_, id, ours);
  made->attach(std::move(out_read), std::move(err_read));
  const std::size_t count = script ? 4 : 3;
  processes_[id] = {made, kills, std::move(script)};
  if (!request_start(wanted, {theirs.data(), count})) {
    processes_.erase(id);
    return refuse(made, takes_no_more);
  }
  return made;
}

std::shared_ptr<terminal> native_sandbox::open_terminal(process_spec spec, terminal_size size,
                                                        process_listener listener) {
  const auto id = next_id();
  native_terminal::links to{signal_link(id), {}, forget_link(id)};
  to.hold = [weak = weak_from_this(), id](int master) {
    const auto self = weak.lock();
    if (!self)
      return;
    const std::lock_guard hold{self->guard_};
    if (!self->over_)
      self->engine_->spawner.hold(self->slot_, id, {&master, 1});
  };
  int ends[2] = {-1, -1};
  const bool paired =
    ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0;
  auto unpaired = no_room("socketpair");
  const unique_fd theirs{ends[1]};
  const auto made =
    std::make_shared<native_terminal>(io_, unique_fd{ends[0]}, std::move(listener), std::move(to));
  if (!paired)
    return refuse(made, std::move(unpaired));
  start_request wanted{agent::op::open_terminal, id, spec.cwd, spec.argv, spec.env, spec.user};
  wanted.head.value = static_cast<std::int32_t>(size.columns | std::uint32_t{size.rows} << 16);
  if (!wanted.fits)
    return refuse(made, {errc::invalid_request, "the command is too large"});

  const auto kills = memory_kills();
  const int channel = theirs.get();
  const std::lock_guard hold{guard_};
  if (over_ || !agent_)
    return refuse(made, has_ended);
  processes_[id] = {made, kills, {}};
  if (!request_start(wanted, {&channel, 1})) {
    processes_.erase(id);
    return refuse(made, takes_no_more);
  }
  return made;
}

native_shell::links native_sandbox::shell_links(std::uint64_t id) {
  native_shell::links to;
  to.kill = [signal = signal_link(id)] { signal(SIGKILL); };
  to.forgotten = [weak = weak_from_this(), id] {
    if (const auto self = weak.lock()) {
      const std::lock_guard hold{self->guard_};
      self->shells_.erase(id);
    }
  };
  to.memory_kills = [weak = weak_from_this()] {
    const auto self = weak.lock();
    return self ? self->memory_kills() : 0;
  };
  to.memory_ran_out = [weak = weak_from_this()](int status, std::uint64_t before) {
    const auto self = weak.lock();
    return self && self->memory_ran_out(status, before);
  };
  to.share_log = [weak = weak_from_this()] {
    const auto self = weak.lock();
    return self ? self->share_log() : native_shell::log_share{};
  };
  to.late = late_;
  return to;
}

std::shared_ptr<shell> native_sandbox::open_shell(shell_spec spec, shell_listener listener) {
  const auto id = next_id();
  const auto& options = engine_->options;
  const auto made = std::make_shared<native_shell>(
    io_, native_shell::options{options.log_directory, options.reader_patience, options.shells},
    std::move(listener), shell_links(id));
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return refuse(made, no_room("socketpair"));
  const unique_fd theirs{ends[1]};
  made->attach(unique_fd{ends[0]});
  const unique_fd nothing{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  if (!nothing)
    return refuse(made, no_room("/dev/null"));
  const start_request wanted{
    agent::op::open_shell, id, spec.cwd, {agent::keeper_name, spec.program}, spec.env, spec.user};
  if (!wanted.fits)
    return refuse(made, {errc::invalid_request, "the environment is too large"});
  const std::array<int, 4> fds{nothing.get(), nothing.get(), nothing.get(), theirs.get()};
  const std::lock_guard hold{guard_};
  if (over_ || !agent_)
    return refuse(made, has_ended);
  shells_[id] = made;
  if (!request_start(wanted, fds)) {
    shells_.erase(id);
    return refuse(made, takes_no_more);
  }
  return made;
}

std::optional<sandbox_usage> native_sandbox::usage() const {
  const std::lock_guard ours{guard_}; // As in destroy(): the slot is ours until over_ is set.
  if (over_)
    return std::nullopt;
  const auto read = engine_->cgroups.usage(slot_);
  sandbox_usage now;
  now.memory_bytes = read.memory_bytes;
  if (read.cpu_us)
    now.cpu = std::chrono::microseconds{*read.cpu_us};
  if (read.processes) // The starter is there as well, and nobody's command.
    now.processes = *read.processes - std::min(*read.processes, 1u);
  return now;
}

// ---- Standing still

void native_sandbox::freeze(std::function<void(bool)> on_still) {
  freezing wanted{0, std::move(on_still), {}, std::chrono::milliseconds{1}};
  {
    const std::lock_guard hold{guard_};
    if (!over_ && !ending_ && freezer_ && engine_->cgroups.freeze(freezer_.get())) {
      frozen_ = true;
      wanted.number = ++last_freezing_;
      wanted.deadline = std::chrono::steady_clock::now() + limits::freeze_patience;
    }
  }
  boost::asio::post(io_, [self = shared_from_this(), wanted = std::move(wanted)]() mutable {
    self->await_stillness(std::move(wanted));
  });
}

/// The kernel is asked again and again, at growing distances: it stands still after microseconds,
/// unless something in it waits for a disk.
void native_sandbox::await_stillness(freezing wanted) {
  constexpr std::chrono::milliseconds longest_pause{50};
  const auto found = look_at(wanted);
  if (found != stillness::not_yet)
    return wanted.on_still(found == stillness::still);
  still_later_.expires_after(wanted.pause);
  wanted.pause = std::min(2 * wanted.pause, longest_pause);
  still_later_.async_wait([weak = weak_from_this(), wanted = std::move(wanted)](auto) mutable {
    if (const auto self = weak.lock())
      self->await_stillness(std::move(wanted));
  });
}

native_sandbox::stillness native_sandbox::look_at(const freezing& wanted) {
  const std::lock_guard ours{guard_}; // As in usage().
  if (over_ || ending_ || !frozen_ || wanted.number != last_freezing_)
    return stillness::given_up;
  if (engine_->cgroups.is_frozen(slot_))
    return stillness::still;
  if (std::chrono::steady_clock::now() < wanted.deadline) {
    engine_->cgroups.freeze(freezer_.get()); // Which v1 needs.
    return stillness::not_yet;
  }
  let_go_on();
  return stillness::given_up;
}

/// With guard_ held. True: nothing stands still, nor will.
bool native_sandbox::let_go_on() {
  if (frozen_ && !engine_->cgroups.thaw(freezer_.get()))
    return false;
  frozen_ = false;
  return true;
}

result<void> native_sandbox::thaw() {
  const std::lock_guard hold{guard_};
  if (over_)
    return has_ended;
  if (!let_go_on())
    return error{errc::io_failed, std::string{"thawing the sandbox: "} + std::strerror(errno)};
  return {};
}

result<unique_fd> native_sandbox::open_file(file_operation what, const std::string& path,
                                            sandbox_user user) {
  return open_channel(what == file_operation::read ? agent::op::read_file : agent::op::write_file,
                      {path}, user);
}

result<unique_fd> native_sandbox::open_tree(const tree_request& wanted, sandbox_user user) {
  std::vector<std::string> words{wanted.path};
  words.insert(words.end(), wanted.excludes.begin(), wanted.excludes.end());
  return open_channel(wanted.what == file_operation::read ? agent::op::read_tree
                                                          : agent::op::write_tree,
                      words, user);
}

/// A socket whose other end a child of the agent has; `words` are what it is told.
result<unique_fd> native_sandbox::open_channel(agent::op what,
                                               const std::vector<std::string>& words,
                                               sandbox_user user) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return error{errc::launch_failed, std::string{"socketpair: "} + std::strerror(errno)};
  unique_fd ours{ends[0]}, theirs{ends[1]};
  // As much as the system allows: fewer turns for a large file.
  constexpr int buffer = 1 << 20;
  for (const int end : ends)
    ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
  ::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  agent::request wanted{};
  wanted.what = what;
  wanted.argc = static_cast<std::uint32_t>(words.size());
  wanted.uid = user.uid;
  wanted.gid = user.gid;
  std::string text;
  for (const auto& each : words)
    (text += each) += '\0';
  if (text.size() > agent::max_text_bytes || words.size() > agent::max_strings)
    return error{errc::invalid_request, "too many patterns"};
  wanted.text_bytes = static_cast<std::uint32_t>(text.size());
  const int fd = theirs.get();
  const std::lock_guard hold{guard_};
  if (over_ || !agent_ || !agent_->send(as_bytes(wanted), text, {&fd, 1}))
    return error{errc::sandbox_not_running, "the sandbox takes no more requests"};
  return ours;
}

void native_sandbox::destroy(std::function<void()> on_gone) {
  std::vector<std::shared_ptr<native_shell>> shells; // They may go with us, and not under the lock.
  // The slot is ours exactly as long as over_ is not set: afterwards another sandbox may have it.
  const std::lock_guard ours{guard_};
  if (over_)
    return boost::asio::post(io_, std::move(on_gone));
  ending_ = true;
  for (const auto& [id, each] : shells_)
    if (const auto& shell = shells.emplace_back(each.lock()))
      shell->doomed();
  engine_->spawner.destroy(slot_, [self = shared_from_this(), on_gone = std::move(on_gone)] {
    boost::asio::post(self->io_, [self, on_gone] {
      bool first = false;
      {
        const std::lock_guard hold{self->guard_};
        first = !self->over_;
      }
      if (first) {
        self->listener_ = {};
        self->gone();
      }
      on_gone();
    });
  });
}

native_engine::native_engine(io_pool& pool, native_options options, unique_fd spawner)
    : core_(std::make_shared<native_engine_core>(pool, std::move(options), std::move(spawner))) {}

/// Nobody is called back any more once this has gone.
native_engine::~native_engine() {
  core_->spawner.let_go();
  core_->pool.settle(); // What the spawner has said last has been passed on.
  for (const auto& each : core_->all())
    each->fall_silent();
  core_->pool.settle();
}

void native_engine::create(sandbox_spec spec, sandbox_listener listener) {
  const auto slot = core_->take_slot();
  if (!slot) {
    boost::asio::post(core_->pool.here(), [tell = std::move(listener.on_failed)] {
      tell({errc::capacity_exceeded, "every range of user ids of this node is in use"});
    });
    return;
  }
  const auto made = std::make_shared<native_sandbox>(core_, *slot, spec.host_name, spec.limits,
                                                     std::move(listener));
  core_->know(*slot, made);
  made->launch(spec);
}

std::vector<std::string> native_engine::ailments() const {
  if (core_->spawner.connected())
    return {};
  return {"the spawner is gone; restart the server"};
}

void native_engine::shut_down(std::chrono::milliseconds patience) {
  core_->spawner.shut_down(patience);
}

} // namespace insula::runtime
