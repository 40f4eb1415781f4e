#include "benchmarks/load/echoes.hpp"
#include "benchmarks/load/scenarios/scenarios.hpp"
#include "benchmarks/load/terminal.hpp"

#include <cstdio>

namespace insula::load {

namespace {

using namespace std::chrono_literals;

/// A person's fingers.
constexpr std::chrono::microseconds shortest_gap = 80ms, longest_gap = 200ms;
/// None that the prompt or an escape sequence has.
constexpr std::string_view letters = "abcdefgijknopqrstuvwxyz";
/// A line that is not broken in 80 columns; then Ctrl-U takes it back.
constexpr unsigned longest_line = 64;
constexpr std::string_view forget_line = "\x15";
constexpr std::size_t starts_at_once = 8;
/// What another terminal prints, again and again.
constexpr std::string_view other_line = "a line of some other terminal";
constexpr auto flood_patience = 300s;
constexpr auto look_at_flood_every = 100ms;

using terminals = std::vector<std::unique_ptr<terminal>>;

/// Types in one terminal, and hears what comes back.
class typist {
public:
  typist(scenario_context& in, terminal& at)
      : in_(in)
      , at_(at)
      , random_(in.random())
      , echoes_([this](const echoes::key& key) { back(key); }) {
    at_.on_output([this](std::string_view bytes) {
      echoes_.printed(bytes);
      expect();
    });
  }
  ~typist() { at_.on_output(nullptr); }
  typist(const typist&) = delete;
  typist& operator=(const typist&) = delete;

  /// So many keys, each at its time whatever has become of those before, until all are back.
  /// `into`: null while warming up.
  task<> type(std::uint64_t count, recorder* into) {
    into_ = into;
    auto next = clock::now();
    for (; count > 0 && !in_.ending(); --count) {
      next += gap();
      co_await sleep_until(in_.with.io, next);
      co_await press(next);
    }
    while (!echoes_.waiting().empty() && at_.ended().empty())
      co_await sleep_until(in_.with.io, clock::now() + 5ms);
    give_up();
  }

  /// By kind.
  const std::map<std::string, std::uint64_t>& warm_up_failures() const { return early_; }

private:
  clock::duration gap() {
    const auto wide = static_cast<std::uint64_t>((longest_gap - shortest_gap).count());
    return shortest_gap + std::chrono::microseconds{random_() % (wide + 1)};
  }

  /// Never the same one twice in a row.
  char next_letter() {
    letter_ = (letter_ + 1 + random_() % (letters.size() - 1)) % letters.size();
    return letters[letter_];
  }

  task<> press(clock::time_point intended) {
    if (++in_line_ > longest_line && echoes_.waiting().empty()) {
      in_line_ = 1;
      co_await at_.type(forget_line);
    }
    const echoes::key key{next_letter(), clock::now()};
    if (into_ != nullptr)
      into_->started(intended, key.typed);
    echoes_.typed(key);
    expect();
    const bool typed = co_await at_.type({&key.byte, 1});
    if (!typed)
      give_up();
  }

  void back(const echoes::key& key) {
    if (into_ != nullptr)
      into_->ended(key.typed, key.typed, ending{});
  }

  void expect() {
    if (echoes_.waiting().empty())
      at_.expect_nothing();
    else
      at_.expect_by(echoes_.waiting().front().typed + in_.with.api.patience());
  }

  /// What has not come back never will.
  void give_up() {
    const ending how{at_.ended().empty() ? std::string{failure::cut} : at_.ended()};
    for (const auto& each : echoes_.waiting())
      if (into_ != nullptr)
        into_->ended(each.typed, each.typed, how);
      else
        ++early_[how.failure];
    echoes_.forget();
  }

  scenario_context& in_;
  terminal& at_;
  std::mt19937_64 random_;
  echoes echoes_;
  recorder* into_ = nullptr;
  std::map<std::string, std::uint64_t> early_;
  std::size_t letter_ = 0;
  unsigned in_line_ = 0;
};

/// What is typed first: a prompt of ours, and a word that only a shell that runs prints like that.
const std::string first_words = "PS1='> '; echo rea''dy";
const std::string first_answer = "ready";

std::string seconds_text(clock::duration length) {
  char made[64];
  std::snprintf(made, sizeof made, "%.3f", std::chrono::duration<double>(length).count());
  return made;
}

std::string nothing_more() {
  return {};
}

/// As many as so many terminals need.
task<std::vector<std::string>> sandboxes_for(scenario_context& in, std::uint64_t count) {
  const auto in_each = in.count("per-sandbox");
  auto made = co_await in.live_sandboxes((count + in_each - 1) / in_each);
  co_return made;
}

/// Opens that many, each in a session of its own. `then`: what else is typed in the first line.
task<terminals> open_terminals(scenario_context& in, std::vector<std::string> sandboxes,
                               std::string kind, std::uint64_t count,
                               std::function<std::string()> then) {
  terminals all;
  std::uint64_t next = 0;
  std::string failed;
  const auto make = [&]() -> task<> {
    const auto patience = in.with.api.patience();
    while (next < count && failed.empty() && !in.ending()) {
      const auto number = next++;
      const auto& sandbox = sandboxes[number % sandboxes.size()];
      auto made =
        co_await terminal::open(in.with.http, sandbox, kind + std::to_string(number), patience);
      if (made.failure.empty())
        made.failure =
          co_await made.is->type_until(first_words + then() + "\n", first_answer, patience);
      if (made.failure.empty())
        all.push_back(std::move(made.is));
      else
        failed = made.failure;
    }
  };
  task_group group{in.with.io};
  for (std::size_t i = 0; i < starts_at_once; ++i)
    group.start(make());
  co_await group.wait();
  if (in.ending())
    throw scenario_failed(in.with.steering.why());
  if (!failed.empty())
    throw scenario_failed("a terminal could not be opened (" + std::to_string(all.size()) + " of " +
                          std::to_string(count) + " are there): " + failed);
  co_return all;
}

/// Terminals whose shells wait at their prompts: what they cost.
task<> hold_idle(scenario_context& in, std::uint64_t count) {
  const auto sandboxes = co_await sandboxes_for(in, count);
  const auto before = co_await look_at_calm_memory(in);
  const auto all = co_await open_terminals(in, sandboxes, "idle", count, nothing_more);
  co_await tell_memory_per(in, "idle terminal", all.size(), before);
}

/// A loop that starts no process and begins at a moment of its own.
std::string print_a_line_every(clock::duration length, std::mt19937_64& random) {
  const auto first = clock::duration{static_cast<clock::rep>(
    random() % static_cast<std::uint64_t>(std::max<clock::rep>(length.count(), 1)))};
  return "; PS1=; read -t " + seconds_text(first) + "; while :; do echo '" +
         std::string{other_line} + "'; read -t " + seconds_text(length) + "; done";
}

std::uint64_t printed_by(const terminals& all) {
  std::uint64_t sum = 0;
  for (const auto& each : all)
    sum += each->printed_bytes();
  return sum;
}

/// All of them type beside each other, each its part of `count`.
task<> all_type(scenario_context& in, std::deque<typist>& typists, std::uint64_t count,
                recorder* into) {
  task_group group{in.with.io};
  share part{0, static_cast<std::uint32_t>(typists.size())};
  for (auto& each : typists) {
    group.start(each.type(part.part_of(count), into));
    ++part.index;
  }
  co_await group.wait();
}

task<> measure_echo(scenario_context& in, std::deque<typist>& typists, const terminals& others) {
  const auto step = std::to_string(others.size()) + " others";
  co_await all_type(in, typists, in.count("warm-ups"), nullptr);
  auto& into = in.operation("echo, " + step);
  const auto began = clock::now();
  if (in.measured_from == clock::time_point::max())
    in.measure_from(began);
  const auto printed = printed_by(others);
  {
    const self_watch::span measuring{in.with.watch, into.result().name};
    co_await all_type(in, typists, in.count("samples"), &into);
  }
  if (in.ending())
    co_return;
  for (const auto& each : others)
    if (!each->ended().empty())
      throw scenario_failed("one of the " + step + " has ended: " + each->ended());
  const auto lines = static_cast<double>(printed_by(others) - printed) /
                     static_cast<double>(other_line.size() + 2); // With CR and LF.
  if (!others.empty())
    in.value("lines printed, " + step,
             lines / std::chrono::duration<double>(clock::now() - began).count(), "1/s", true);
}

/// A terminal that prints very much, to a client that reads nothing: until all of it is printed,
/// which must not wait for that client. Then somebody else comes, and finds it alive.
task<ending> print_past_stalled_client(scenario_context& in, std::string sandbox,
                                       double& most_memory) {
  const auto patience = in.with.api.patience();
  const auto bytes = in.count("stalled-bytes");
  auto first = co_await terminal::open(in.with.http, sandbox, "stalled", patience);
  if (first.failure.empty())
    first.failure = co_await first.is->type_until(first_words + "\n", first_answer, patience);
  if (!first.failure.empty())
    co_return ending{first.failure};
  first.is->stall();
  const bool typed =
    co_await first.is->type("yes | head -c " + std::to_string(bytes) + "; : >/tmp/printed\n");
  if (!typed)
    co_return ending{failure::cut};

  ending end{failure::timeout};
  const auto until = clock::now() + flood_patience;
  while (clock::now() < until && !in.ending()) {
    command look{{"test", "-e", "/tmp/printed"}, {}, patience};
    const auto seen = co_await in.with.api.exec(sandbox, std::move(look));
    const auto memory = co_await look_at_memory(in);
    most_memory = std::max(most_memory, memory.server.value_or(0));
    if (seen.failure == "exit 1") {
      co_await sleep_until(in.with.io, clock::now() + look_at_flood_every);
      continue;
    }
    end = seen;
    break;
  }
  if (!end.ok())
    co_return end;
  end.bytes = bytes;
  auto second = co_await terminal::open(in.with.http, sandbox, "stalled", patience);
  if (second.failure.empty())
    second.failure = co_await second.is->type_until("echo al''ive\n", "alive", patience);
  end.failure = second.failure;
  co_return end;
}

task<> flood(scenario_context& in) {
  const auto sandboxes = co_await in.live_sandboxes(1);
  const auto before = co_await look_at_calm_memory(in);
  double most = 0;
  const activity once{&in.operation("output past a stalled client"),
                      [&] { return print_past_stalled_client(in, sandboxes.front(), most); }};
  co_await in_turn(in, 1, once);
  const auto after = co_await look_at_calm_memory(in);
  if (in.ending())
    co_return;
  if (!before.server || !after.server) {
    in.found.notes.push_back("the server does not tell its memory (GET /metrics)");
    co_return;
  }
  in.value("server memory before a stalled client", *before.server, "MiB");
  in.value("server memory after a stalled client", *after.server, "MiB");
  in.value("server memory growth, stalled client", std::max(most, *after.server) - *before.server,
           "MiB");
}

/// Throws unless the server has terminals at all.
task<> look_for_terminals(scenario_context& in) {
  const auto sandboxes = co_await in.live_sandboxes(1);
  const auto made =
    co_await terminal::open(in.with.http, sandboxes.front(), "probe", in.with.api.patience());
  if (is_missing(made.failure))
    throw scenario_skipped("the server has no terminals (GET /v1/sandbox/:id/pty: " + made.failure +
                           ")");
  if (!made.failure.empty())
    throw scenario_failed("a terminal could not be opened: " + made.failure);
}

task<> run(scenario_context& in) {
  in.found.method = "a key every 80 to 200 ms in each of " + std::to_string(in.count("terminals")) +
                    " terminals, from its sending";
  co_await look_for_terminals(in);
  if (const auto idle = in.count("idle"); idle > 0)
    co_await hold_idle(in, idle);
  const auto left = co_await in.with.api.remove_all();
  if (left > 0)
    throw scenario_failed(std::to_string(left) + " sandboxes could not be deleted");

  const auto program = in.all_settings().at("program");
  const auto start = [&program] { return program == "bash" ? "" : "; " + program; };
  const auto places = co_await sandboxes_for(in, in.count("terminals"));
  const auto typed = co_await open_terminals(in, places, "typed", in.count("terminals"), start);
  std::deque<typist> typists;
  for (const auto& each : typed)
    typists.emplace_back(in, *each);
  terminals others;
  for (const auto level : in.counts("others")) {
    if (in.ending())
      break;
    if (level > others.size()) {
      const auto more = level - others.size();
      const auto where = co_await sandboxes_for(in, more);
      const auto print = [&in] { return print_a_line_every(in.seconds("every"), in.random); };
      auto made = co_await open_terminals(in, where, "other", more, print);
      std::move(made.begin(), made.end(), std::back_inserter(others));
    }
    co_await measure_echo(in, typists, others);
  }
  std::map<std::string, std::uint64_t> early;
  for (const auto& each : typists)
    for (const auto& [kind, times] : each.warm_up_failures())
      early[kind] += times;
  note_warm_up_failures(in, early);
  others.clear();
  if (in.count("stalled-bytes") > 0 && !in.ending())
    co_await flood(in);
}

} // namespace

scenario pty_echo() {
  return {
    "pty-echo",
    "Keys in terminals: a letter at random distances of 80 to 200 ms through the WebSocket, "
    "from its sending until it has come back, while others print and are read. `0 others`: "
    "beside those that are typed in. Before, what terminals cost whose shells wait; then very "
    "much output while its client reads nothing.",
    {{"terminals", parameter_kind::count, "10", "4",
      "that are typed in: ten have 71 keys a second, so that hardly two are under way at once"},
     {"samples", parameter_kind::count, "2000", "40",
      "keys that count at each step, in all of them"},
     {"warm-ups", parameter_kind::count_or_none, "100", "8", "keys before, which do not"},
     {"others", parameter_kind::counts_or_none, "0,50,500", "0,5", "other terminals, rising"},
     {"every", parameter_kind::seconds, "1s", "200ms", "how often each of these prints a line"},
     {"program", parameter_kind::words, "bash", "bash",
      "what is typed to: bash's own prompt, or what is started there (cat: the kernel echoes)"},
     {"idle", parameter_kind::count_or_none, "100", "5", "terminals that do nothing; 0: none"},
     {"per-sandbox", parameter_kind::count, "25", "25", "terminals at most in one sandbox"},
     {"stalled-bytes", parameter_kind::count_or_none, "100000000", "1000000",
      "that are printed to a client that reads nothing; 0: none"}},
    false,
    false,
    run};
}

} // namespace insula::load
