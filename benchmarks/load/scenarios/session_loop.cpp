#include "benchmarks/load/scenarios/scenarios.hpp"

#include <array>

namespace insula::load {

namespace {

constexpr std::size_t starts_at_once = 8;
/// Where a command finds itself: of every image.
constexpr std::array<const char*, 4> directories{"/", "/tmp", "/usr", "/workspace"};

std::string session_name(const char* kind, std::uint64_t number) {
  return kind + std::to_string(number);
}

/// One live shell in a sandbox, and what is asked of it.
class live_session {
public:
  live_session(scenario_context& in, std::string sandbox, std::string name)
      : in_(in)
      , sandbox_(std::move(sandbox))
      , name_(std::move(name)) {}

  task<ending> create() { return in_.with.api.create_session(sandbox_, name_); }
  task<ending> remove() { return in_.with.api.remove_session(sandbox_, name_); }

  task<ending> run(std::vector<std::string> argv, std::string output) {
    command what{std::move(argv), std::move(output), in_.with.api.patience(), name_};
    ending end = co_await in_.with.api.exec(sandbox_, std::move(what));
    co_return end;
  }
  task<ending> builtin() { return run({":"}, ""); }
  task<ending> builtin_with_output() { return run({"echo", "hi"}, "hi\n"); }

  /// Goes somewhere else, sets a variable, and asks a program where it is and what it has been
  /// given: an answer of an earlier round is a wrong one.
  task<ending> state() {
    const auto number = std::to_string(++round_);
    const std::string where = directories[round_ % directories.size()];
    const std::vector<std::string> go{"cd", where}, set{"export", "ROUND=" + number},
      tell{"sh", "-c", "pwd; echo $ROUND"};
    auto end = co_await run(go, "");
    if (end.ok())
      end = co_await run(set, "");
    if (end.ok())
      end = co_await run(tell, where + "\n" + number + "\n");
    co_return end;
  }

private:
  scenario_context& in_;
  const std::string sandbox_, name_;
  std::uint64_t round_ = 0;
};

/// Each of them does it in turn, beside the others.
task<> in_each(scenario_context& in, std::vector<live_session>& all, std::uint64_t count,
               const std::string& operation, task<ending> (live_session::*what)()) {
  auto& into = in.operation(operation);
  const auto one = [](scenario_context& inside, live_session& session, std::uint64_t times,
                      recorder& to, task<ending> (live_session::*call)()) -> task<> {
    const activity again{&to, [&session, call] { return (session.*call)(); }};
    co_await in_turn(inside, times, again);
  };
  task_group group{in.with.io};
  for (auto& each : all)
    group.start(one(in, each, count, into, what));
  co_await group.wait();
}

/// Sessions that do nothing, in sandboxes of their own: what they cost.
task<> hold_idle(scenario_context& in, std::uint64_t count, const std::string& busy) {
  const auto in_each_sandbox = in.count("per-sandbox");
  const auto sandboxes =
    co_await in.live_sandboxes((count + in_each_sandbox - 1) / in_each_sandbox);
  const auto before = co_await look_at_calm_memory(in);
  std::uint64_t next = 0;
  std::string failed;
  const auto make = [&]() -> task<> {
    while (next < count && failed.empty() && !in.ending()) {
      const auto number = next++;
      live_session one{in, sandboxes[number % sandboxes.size()], session_name("idle", number)};
      const auto made = co_await one.create();
      // Its first command: what a shell needs only once is there then.
      auto ran = made;
      if (made.ok())
        ran = co_await one.builtin_with_output();
      if (!ran.ok())
        failed = ran.failure;
    }
  };
  task_group group{in.with.io};
  for (std::size_t i = 0; i < starts_at_once; ++i)
    group.start(make());
  co_await group.wait();
  if (in.ending())
    co_return;
  if (!failed.empty())
    throw scenario_failed("an idle session could not be made: " + failed);
  co_await tell_memory_per(in, "idle session", count, before);
  std::set<std::string> kept{busy};
  const auto left = co_await in.with.api.remove_all(std::move(kept));
  if (left > 0)
    throw scenario_failed(std::to_string(left) + " sandboxes could not be deleted");
}

task<> run(scenario_context& in) {
  in.found.method = "one after the other in each session";
  const auto sandboxes = co_await in.live_sandboxes(1);
  const auto& id = sandboxes.front();
  live_session probe{in, id, "probe"};
  const auto there = co_await probe.create();
  if (is_missing(there.failure))
    throw scenario_skipped(
      "the server has no sessions (POST /v1/sandbox/:id/session: " + there.failure + ")");
  if (!there.ok())
    throw scenario_failed("a session could not be made: " + there.failure);

  std::vector<live_session> all;
  for (std::uint64_t i = 0; i < in.count("sessions"); ++i)
    all.emplace_back(in, id, session_name("busy", i));
  co_await in_each(in, all, 1, "create session", &live_session::create);
  for (auto& each : all)
    co_await warm_up(in, in.count("warm-ups"), [&each] { return each.builtin_with_output(); });
  co_await in_each(in, all, in.count("commands"), "builtin", &live_session::builtin);
  co_await in_each(in, all, in.count("commands"), "builtin with output",
                   &live_session::builtin_with_output);
  co_await in_each(in, all, in.count("rounds"), "state", &live_session::state);
  co_await in_each(in, all, 1, "delete session", &live_session::remove);
  if (const auto idle = in.count("idle"); idle > 0 && !in.ending())
    co_await hold_idle(in, idle, id);
}

} // namespace

scenario session_loop() {
  return {
    "session-loop",
    "Commands in live sessions, in turn in each: `:` (`builtin`) and `echo hi` (`builtin with "
    "output`), each until its exit event; `state` is a `cd`, an `export` and a program that "
    "tells both again, the right ones. Then what sessions cost that do nothing.",
    {{"sessions", parameter_kind::count, "1", "1", "how many at once, in one sandbox"},
     {"commands", parameter_kind::count, "1000", "20", "of each kind in each session"},
     {"warm-ups", parameter_kind::count_or_none, "100", "5", "commands before, which do not count"},
     {"rounds", parameter_kind::count, "100", "5", "of `state` in each session"},
     {"idle", parameter_kind::count_or_none, "100", "5", "then so many that do nothing; 0: none"},
     {"per-sandbox", parameter_kind::count, "50", "50", "of these at most in one sandbox"}},
    false,
    false,
    run};
}

} // namespace insula::load
