#pragma once

#include "actors/sandbox/parts.hpp"
#include "tests/actors/fake_leases.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/fake_engine.hpp"
#include "tests/support/manual_clock.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

/// Parts of a sandbox without an actor system: the test is the mailbox, the stores, the clock and
/// the children.
namespace insula::test {

using namespace actors::inside_sandbox;
using actors::phase;

/// A record that is durable at once, unless the test holds it back or spoils it.
class fake_record final : public kept_record {
public:
  void load(then_function then, otherwise_function otherwise, request_context) override {
    ++loads;
    read_error ? otherwise(*read_error) : then();
  }
  bool loaded() const override { return true; }
  const entry_map& entries() const override { return kept; }
  void write_at(storage::epoch now) override { epoch = now; }
  void write(std::vector<storage::change> changes, request_context) override {
    for (auto& [key, value] : changes)
      if (value)
        kept[key] = std::move(*value);
      else
        kept.erase(key);
  }
  bool is_settled() const override { return held.empty(); }
  void when_durable(then_function then, otherwise_function otherwise) override {
    const auto settle = [this, then = std::move(then), otherwise = std::move(otherwise)] {
      write_error ? otherwise(*write_error) : then();
    };
    hold ? held.push_back(settle) : settle();
  }
  void answer(const reply<caf::ok_atom>& to) override {
    when_durable([to] { to.deliver(caf::ok_atom::value); }, to.otherwise());
  }
  void answer(const reply<write_once_answer>& to, write_once_answer what) override {
    when_durable([=] { to.deliver(what); }, to.otherwise());
  }
  void set_alarm(std::chrono::milliseconds delay, std::vector<storage::change> changes) override {
    alarm = delay;
    if (counts_by != nullptr)
      set_at = counts_by->now();
    write(std::move(changes), {});
  }
  bool is_set(const alarm_due&) const override { return alarm.has_value(); }
  std::optional<std::chrono::milliseconds> alarm_left() const override {
    if (!alarm || counts_by == nullptr)
      return alarm;
    return *alarm -
           std::chrono::duration_cast<std::chrono::milliseconds>(counts_by->now() - set_at);
  }
  void alarm_over(const alarm_due&, std::vector<storage::change> changes) override {
    alarm.reset();
    write(std::move(changes), {});
  }
  void destroy(then_function then, otherwise_function otherwise, request_context) override {
    kept.clear();
    when_durable(std::move(then), std::move(otherwise));
  }
  void abandon(const error& why) override { abandoned = why; }

  void let_go() {
    hold = false;
    for (const auto& each : std::exchange(held, {}))
      each();
  }

  entry_map kept;
  storage::epoch epoch = 0;
  int loads = 0;
  bool hold = false; ///< Until let_go().
  std::vector<std::function<void()>> held;
  std::optional<error> read_error, write_error, abandoned;
  std::optional<std::chrono::milliseconds> alarm;
  const insula::clock* counts_by = nullptr; ///< Null: the alarm does not come nearer.
  std::chrono::steady_clock::time_point set_at{};
};

/// An answer that a part owes to the test.
template <class... Ts>
struct owed {
  using value = typename reply<Ts...>::value;
  std::shared_ptr<std::vector<result<value>>> given =
    std::make_shared<std::vector<result<value>>>();

  operator reply<Ts...>() const {
    return typename reply<Ts...>::function{
      [all = given](result<value> outcome) { all->push_back(std::move(outcome)); }};
  }
  bool open() const { return given->empty(); }
  value got() const {
    REQUIRE(given->size() == 1);
    if (!given->front())
      FAIL("an error instead of a value: " << given->front().reason().message);
    return *given->front();
  }
  errc code() const {
    REQUIRE(given->size() == 1);
    REQUIRE_FALSE(given->front());
    return given->front().reason().code;
  }
};

struct fake_child_process final : child_process {
  process_actor handle() const override { return {}; }
  void start(const reply<process_actor>& to) override { starting.emplace_back(to); }
  void start() override { started = true; }
  void probe(const reply<bool>& to) override { to.deliver(true); }
  void status(const reply<process_status>& to) override { to.deliver(now); }
  void measure(const reply<std::uint64_t, std::uint64_t>& to) override { to.deliver(2, 5); }
  void open_log(const reply<log_file>& to) override {
    if (holds_log)
      held_log.push_back(to);
    else
      to.deliver({log});
  }
  void interrupt(const reply<caf::ok_atom>& to) override {
    interrupted = true;
    if (ends_when_asked)
      be_over();
    to.deliver(caf::ok_atom::value);
  }
  /// It ends, with all that it has said.
  void be_over(process_end how = {}) {
    now = {true, how};
    if (const auto tell = std::exchange(options.on_over, nullptr))
      tell();
  }
  void write_input(input_piece piece, const reply<input_progress>& to) override {
    input += piece.bytes;
    to.deliver({input.size(), input_state::taken});
  }
  void signal(int number) override { signals.push_back(number); }
  void kill() override { killed = true; }

  actors::process_options options;
  std::vector<int> signals;
  std::string input;
  std::vector<reply<process_actor>> starting;
  process_status now;
  std::shared_ptr<unique_fd> log; ///< Null: there is none.
  bool holds_log = false;         ///< Who asks for it has to wait.
  std::vector<reply<log_file>> held_log;
  bool started = false, interrupted = false, killed = false;
  bool ends_when_asked = true;
};

struct fake_child_session final : child_session {
  void open(const reply<caf::ok_atom>& to) override { opening.emplace_back(to); }
  void run(session_command what, const reply<process_actor>& to) override {
    commands.push_back(std::move(what));
    to.deliver({});
  }
  void look_around(const reply<runtime::shell_surroundings>& to) override {
    to.deliver({"/there", {"A=1"}});
  }
  void end(error why, const reply<caf::ok_atom>& to) override {
    end(std::move(why));
    to.deliver(caf::ok_atom::value);
  }
  void end(error why) override { ended = std::move(why); }
  void kill() override { killed = true; }

  actors::session_options options;
  std::function<void(const child_session&)> on_gone;
  std::vector<reply<caf::ok_atom>> opening;
  std::vector<session_command> commands;
  std::optional<error> ended;
  bool killed = false;
};

struct fake_child_terminal final : child_terminal {
  void join(const join_reply& to) override {
    ++joins;
    to.deliver({}, 0, 0);
  }
  void join(bool, const join_reply& to) override { join(to); }
  void measure(const reply<std::uint64_t, std::uint64_t>& to) override { to.deliver(0, 9); }
  void is_quiet(const std::vector<std::int32_t>& quiet, const reply<bool>& to) override {
    to.deliver(std::find(quiet.begin(), quiet.end(), number) != quiet.end());
  }
  void signal(int which) override { signals.push_back(which); }
  void end() override { ended = true; }
  void kill() override { killed = true; }

  actors::terminal_options options;
  std::int32_t number = 0; ///< As which its shell runs.
  int joins = 0;
  std::vector<int> signals;
  bool ended = false, killed = false;
};

/// Facts that wait, of any thread.
class fake_mailbox {
public:
  void push(std::function<void()> go) {
    const std::lock_guard hold{guard_};
    waiting_.push_back(std::move(go));
    filled_.notify_all();
  }
  /// False: there is none for so long.
  bool wait() {
    std::unique_lock hold{guard_};
    return filled_.wait_for(hold, std::chrono::seconds{30}, [this] { return !waiting_.empty(); });
  }
  /// Null: there is none.
  std::function<void()> take() {
    const std::lock_guard hold{guard_};
    if (waiting_.empty())
      return nullptr;
    auto next = std::move(waiting_.front());
    waiting_.pop_front();
    return next;
  }

private:
  std::mutex guard_;
  std::condition_variable filled_;
  std::deque<std::function<void()>> waiting_;
};

/// What options and the like a core begins with. Outlives it.
struct fake_world {
  manual_clock time;
  fake_engine engine;
  fake_leases leases;
  std::shared_ptr<actors::sandbox_options> options = std::make_shared<actors::sandbox_options>();

  fake_world() {
    options->engine = &engine;
    options->leases = &leases;
    options->time = &time;
    options->instances = std::make_shared<actors::instance_count>(10);
    options->images->put("host", {{"host", true}, {}, "/bin/bash"});
    options->profile.env = {{"HOME", "/home/sandbox"}};
  }
};

/// The object of one sandbox. Requests are served at once when it runs, and kept else; the lease is
/// held unless it is refused.
class fake_core : public fake_world, public core {
public:
  fake_core()
      : core("abc", fake_world::options) {
    clock.counts_by = &time;
  }
  /// What a child has to answer may hold the child itself.
  ~fake_core() override {
    for (const auto& each : sessions)
      each->opening.clear();
    for (const auto& each : processes)
      each->starting.clear();
  }

  using core::options;

  /// The parts of the test, in the order in which they are told.
  void have(std::vector<part*> all) { parts_ = std::move(all); }
  void have_image(actors::sandbox_image is) {
    options().images->put("host", std::move(is));
    if (runs())
      set_image(options().images->find("host"));
  }
  void be_running() {
    cluster.kept["created_ms"] = "1";
    cluster.kept["started_ms"] = "7";
    become(phase::starting);
    next_start();
    set_image(options().images->find("host"));
    set_engine_sandbox(place);
    become(phase::running);
  }
  void stops(const error& why = has_ended) {
    next_start();
    set_engine_sandbox(nullptr);
    become(phase::asleep);
    each_part([&](part& one) { one.stopped(why); });
  }
  void ends(const error& why = {errc::sandbox_not_running, "the node is going down"}) {
    each_part([&](part& one) { one.ends(why); });
  }

  /// Until nothing is left to be done.
  void run() {
    while (const auto next = mailbox->take())
      next();
  }
  void advance(std::chrono::nanoseconds by) {
    const auto end = time.now() + by;
    for (auto next = timers.begin(); next != timers.end() && next->first <= end;
         next = timers.begin()) {
      time.advance(next->first - time.now());
      const auto go = std::move(next->second);
      timers.erase(next);
      go();
      run();
    }
    time.advance(end - time.now());
  }

  kept_record& record() const override { return cluster; }
  kept_record& local() const override { return node; }
  kept_record& run_clock() const override { return clock; }
  void with_lease(then_function then, otherwise_function otherwise) override {
    const auto settle = [this, then = std::move(then), otherwise = std::move(otherwise)] {
      lease_error ? otherwise(*lease_error) : then();
    };
    hold_lease ? want_lease.push_back(settle) : settle();
  }
  void let_lease_go() {
    hold_lease = false;
    for (const auto& each : std::exchange(want_lease, {}))
      each();
  }
  storage::epoch epoch() const override { return 3; }
  using core::when_running;
  void when_running(waiting_request request) override {
    now() == phase::running ? request.go() : waiting.push_back(std::move(request));
  }
  result<void> thaw() override {
    ++thaws;
    return {};
  }
  void ask_snapshot(find_snapshot what, const reply<snapshot_description>& to) override {
    const auto found = snapshots.find(what.id);
    if (found == snapshots.end())
      return to.fail({errc::not_found, "Snapshot " + what.id + " not found."});
    to.deliver(found->second);
  }
  void ask_drive(const std::string& drive, attach_drive what,
                 const reply<attached_drive>& to) override {
    drives_asked.emplace_back(drive, what);
    if (drive_error)
      return to.fail(*drive_error);
    to.deliver({drive_place, what.mode == drive_mode::snapshot ? "drive-1" : "", drive_use});
  }
  std::vector<std::pair<std::string, attach_drive>> drives_asked;
  std::optional<error> drive_error;
  std::shared_ptr<runtime::sandbox> drive_place;
  std::shared_ptr<void> drive_use = std::make_shared<int>();

  void ask_snapshot(define_snapshot what, const reply<snapshot_description>& to) override {
    snapshots[what.is.id] = what.is;
    to.deliver(what.is);
  }
  void ask_snapshot(hold_snapshot what, const reply<snapshot_description>& to) override {
    const auto found = snapshots.find(what.id);
    if (found == snapshots.end() || found->second.state == snapshot_state::deleted)
      return to.fail({errc::not_found, "Snapshot " + what.id + " not found."});
    ++found->second.sandboxes;
    to.deliver(found->second);
  }
  void release_snapshot(const std::string& which, then_function then) override {
    released.push_back(which);
    if (then)
      then();
  }
  void evict_snapshots(const snapshot_retention& as) override { evictions.push_back(as); }
  void hibernate_if_idle() override { ++rests; }
  poster post() const override {
    return [all = mailbox](std::function<void()> go) {
      all->push(std::move(go));
      return true;
    };
  }
  void after(std::chrono::nanoseconds delay, std::function<void()> go) override {
    CHECK(delay <= std::chrono::seconds{30});
    timers.emplace(time.now() + delay, std::move(go));
  }
  std::shared_ptr<child_process> start_process(actors::process_options what) override {
    processes.push_back(std::make_shared<fake_child_process>());
    processes.back()->options = std::move(what);
    return processes.back();
  }
  std::shared_ptr<child_process> process_of(const process_actor&) override {
    return processes.back();
  }
  process_actor start_log_reader(actors::kept_log_options what) override {
    log_readers.push_back(std::move(what));
    return {};
  }
  std::shared_ptr<child_session>
  start_session(actors::session_options what,
                std::function<void(const child_session&)> on_gone) override {
    sessions.push_back(std::make_shared<fake_child_session>());
    sessions.back()->options = std::move(what);
    sessions.back()->on_gone = std::move(on_gone);
    return sessions.back();
  }
  std::shared_ptr<child_terminal> start_terminal(actors::terminal_options what) override {
    terminals.push_back(std::make_shared<fake_child_terminal>());
    terminals.back()->options = std::move(what);
    return terminals.back();
  }

  mutable fake_record cluster, node, clock;
  std::shared_ptr<fake_sandbox> place = std::make_shared<fake_sandbox>();
  std::vector<waiting_request> waiting;
  std::optional<error> lease_error;
  bool hold_lease = false; ///< Until let_lease_go().
  std::vector<std::function<void()>> want_lease;
  int thaws = 0;
  std::map<std::string, snapshot_description> snapshots;
  std::vector<snapshot_retention> evictions;
  std::vector<std::string> released; ///< Snapshots.
  int rests = 0;                     ///< How often it was to hibernate if it was idle.
  std::vector<std::shared_ptr<fake_child_process>> processes;
  std::vector<actors::kept_log_options> log_readers;
  std::vector<std::shared_ptr<fake_child_session>> sessions;
  std::vector<std::shared_ptr<fake_child_terminal>> terminals;
  std::shared_ptr<fake_mailbox> mailbox = std::make_shared<fake_mailbox>();
  std::multimap<std::chrono::steady_clock::time_point, std::function<void()>> timers;
};

/// All parts of one sandbox together, over fakes of all that they need.
class whole_sandbox final : public fake_core {
public:
  whole_sandbox()
      : parts(*this, nullptr, [this] { ++quits; }) {
    have(parts.table());
  }

  void with_lease(then_function then, otherwise_function otherwise) override {
    parts.lease_.acquire(std::move(then), std::move(otherwise));
  }
  storage::epoch epoch() const override { return parts.lease_.epoch(); }
  using fake_core::when_running;
  void when_running(waiting_request request) override {
    parts.gate_.when_running(std::move(request));
  }
  result<void> thaw() override { return parts.idle_.thaw(); }
  void hibernate_if_idle() override {
    fake_core::hibernate_if_idle();
    if (now() == phase::asleep && operations() == 0)
      parts.lease_.give_back();
  }

  /// A request that needs it running.
  owed<caf::ok_atom> use(request_context context = {}) {
    owed<caf::ok_atom> told;
    const reply<caf::ok_atom> to = told;
    when_running(to, context, [to] { to.deliver(caf::ok_atom::value); });
    run();
    return told;
  }
  /// The place of the newest engine's sandbox.
  fake_sandbox& newest() { return *engine.creations.back().place; }

  int quits = 0;
  actors::inside_sandbox::all_parts parts;
};

} // namespace insula::test
