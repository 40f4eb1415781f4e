#include "benchmarks/load/run.hpp"

#include "benchmarks/load/interrupt.hpp"
#include "benchmarks/load/progress.hpp"
#include "benchmarks/load/reports.hpp"
#include "benchmarks/load/rules.hpp"

#include <boost/asio/detached.hpp>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <numeric>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

namespace insula::load {

namespace {

using namespace std::chrono_literals;
using endpoints = std::vector<asio::ip::tcp::endpoint>;

/// What is under way when a run ends early may take that much longer.
constexpr auto let_go_patience = 5s;
constexpr auto look_at_deadlines_every = 50ms;
constexpr auto look_at_run_every = 100ms;
constexpr auto probe_every = 500ms;
/// So often, and the server has gone: one that is started again is back between two.
constexpr unsigned refused_in_a_row = 2;
/// A server that is killed closes its connections before it closes its port: a probe may be cut.
constexpr unsigned most_cut_probes = 10;
constexpr std::size_t most_in_flight = 4096;
/// Files beside the connections: the program's own, and those of reports.
constexpr std::uint64_t other_files = 64;

struct limits_of_files {
  std::uint64_t allowed = 0;
};

limits_of_files raise_open_files() {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  ::getrlimit(RLIMIT_NOFILE, &files);
  return {files.rlim_cur};
}

std::uint64_t open_files() {
  std::error_code gone;
  const std::filesystem::directory_iterator all{"/proc/self/fd", gone};
  return static_cast<std::uint64_t>(std::distance(begin(all), end(all)));
}

/// The largest number of a parameter; 0 if the scenario has none of that name.
std::uint64_t largest(const settings& set, const char* name) {
  std::uint64_t most = 0;
  if (const auto found = set.find(name); found != set.end())
    for (std::size_t at = 0; at < found->second.size();
         at = std::min(found->second.find(',', at), found->second.size() - 1) + 1)
      most = std::max<std::uint64_t>(most, std::strtoull(found->second.c_str() + at, nullptr, 10));
  return most;
}

/// How many connections a scenario opens at once at most, as far as its settings say.
std::uint64_t crowd_of(const scenario& what, const settings& set) {
  const bool burst = std::string_view{what.name}.starts_with("burst");
  std::uint64_t most = largest(set, "terminals") + largest(set, "others");
  for (const auto* name :
       {"clients", "concurrent", "parallel", "staggered", "idle", burst ? "sandboxes" : "clients"})
    most = std::max(most, largest(set, name));
  return most;
}

// ---- One thread's part of one scenario

class worker {
public:
  struct task_of {
    const scenario* what;
    settings set;
    const run_options* options;
    const endpoints* where;
    control* steering;
    load_shape shape;
    unsigned thread = 0;
    unsigned threads = 1;
  };

  explicit worker(task_of from)
      : from_(std::move(from))
      , watch_(from_.thread == 0)
      , http_(io_, from_.options->server, *from_.where)
      , api_(http_, from_.options->patience)
      , context_({io_, http_, api_, *from_.steering, watch_, from_.shape,
                  from_.options->part.inside({from_.thread, from_.threads}),
                  from_.options->part.of > 1, from_.options->seed,
                  from_.options->server.url.is_loopback()},
                 from_.set) {}

  /// In a thread of its own. `result` is there afterwards.
  void run() {
    asio::co_spawn(io_, whole(), asio::detached);
    asio::co_spawn(io_, tick(), asio::detached);
    if (from_.thread == 0)
      asio::co_spawn(io_, watch_server(), asio::detached);
    io_.run();
  }

  scenario_result result;

private:
  task<> whole() {
    auto& found = context_.found;
    const auto began = clock::now();
    try {
      co_await from_.what->run(context_);
    } catch (const scenario_skipped& why) {
      found.skipped = why.what();
    } catch (const std::exception& why) {
      found.partial = why.what();
    }
    if (!found.partial.empty())
      co_await look_whether_gone();
    const auto now = clock::now();
    from_.steering->leave(now, context_.with.other_processes);
    if (from_.steering->ending() && found.skipped.empty())
      found.partial = from_.steering->why();
    const auto from = std::min(std::max(context_.measured_from, began), now);
    found.seconds = std::chrono::duration<double>(now - from).count();
    found.client = watch_.end(now);
    cleaning_up_ = true;
    const auto left = co_await api_.remove_all();
    if (left > 0)
      found.notes.push_back(std::to_string(left) + " sandboxes could not be deleted");
    fill();
    over_ = true;
    next_probe_.cancel();
  }

  /// Of all reasons for which a scenario cannot go on, this one is told.
  task<> look_whether_gone() {
    error_code ignored;
    for (unsigned gone = 0, cut = 0; gone < refused_in_a_row && cut < most_cut_probes;) {
      if (from_.steering->ending())
        co_return; // For another reason, which may be this scenario's alone.
      const auto answer = co_await api_.health();
      if (answer.failure == failure::refused)
        ++gone;
      else if (answer.failure == failure::cut)
        ++cut;
      else
        co_return;
      asio::steady_timer pause{io_, probe_every};
      co_await pause.async_wait(into(ignored));
    }
    from_.steering->end_run("the server has gone: " + http_.last_trouble());
  }

  void fill() {
    auto& found = context_.found;
    found.name = from_.what->name;
    found.parameters = context_.all_settings();
    std::uint64_t let_go = 0;
    std::map<std::string, std::uint64_t> early;
    for (const auto& each : context_.operations) {
      found.operations.push_back(each.result());
      let_go += each.let_go();
      for (const auto& [kind, count] : each.warm_up_failures())
        early[kind] += count;
    }
    if (let_go > 0)
      found.notes.push_back(std::to_string(let_go) +
                            " were under way when it was ended; they are not counted");
    for (const auto& [kind, count] : early)
      found.notes.push_back(std::to_string(count) + " failed while warming up: " + kind);
    ran_out_of_files = http_.ran_out_of_files();
    open_loop = context_.open_loop;
    lateness = watch_.lateness();
    result = std::move(found);
  }

  /// The timer that shows how late timers are, and what has to be looked at now and then.
  task<> tick() {
    asio::steady_timer timer{io_};
    error_code ignored;
    auto next = clock::now();
    auto look = next;
    bool told = false;
    while (!over_ || probing_) { // A probe has a deadline as well.
      next += tick_length;
      timer.expires_at(next);
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      const auto now = clock::now();
      watch_.tick(next, now);
      if (now < look)
        continue;
      look = now + look_at_deadlines_every;
      if (from_.steering->ending() && !told) {
        http_.let_go_at(now + let_go_patience);
        told = true;
      }
      http_.look_at_deadlines(now);
    }
  }

  /// Whether there is still somebody to talk to, once things fail.
  task<> watch_server() {
    std::uint64_t seen = 0;
    unsigned gone = 0;
    error_code ignored;
    while (!over_) {
      next_probe_.expires_after(probe_every);
      co_await next_probe_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      const auto failed = from_.steering->so_far.failed.load();
      if (cleaning_up_ || from_.steering->ending() || (failed == seen && gone == 0))
        continue;
      seen = failed;
      probing_ = true;
      const auto answer = co_await api_.health();
      probing_ = false;
      gone = answer.failure == failure::refused ? gone + 1 : 0;
      if (gone >= refused_in_a_row)
        from_.steering->end_run("the server has gone: " + http_.last_trouble());
    }
  }

  const task_of from_;
  asio::io_context io_{1};
  asio::steady_timer next_probe_{io_};
  self_watch watch_;
  http_client http_;
  bridge api_;
  scenario_context context_;
  bool cleaning_up_ = false, over_ = false, probing_ = false;

public:
  bool ran_out_of_files = false;
  bool open_loop = false;
  std::map<std::string, histogram> lateness;
};

// ---- Before the first scenario

/// Asks one thing in an io_context of its own.
template <class T>
T ask_now(const run_options& options, const endpoints& where,
          const std::function<task<T>(http_client&, bridge&)>& question) {
  asio::io_context io{1};
  http_client http{io, options.server, where};
  bridge api{http, 10s};
  std::optional<T> answer;
  bool over = false;
  asio::co_spawn(io, question(http, api), [&](const std::exception_ptr& thrown, T got) {
    over = true;
    if (thrown)
      std::rethrow_exception(thrown);
    answer = std::move(got);
  });
  // Until it is over, also when it is not wanted any more: it stands on what is in here.
  while (!over) { // NOLINT(bugprone-infinite-loop): what runs in here ends it.
    io.run_for(look_at_deadlines_every);
    if (interrupts() > 0)
      http.let_go_at(clock::now());
    http.look_at_deadlines(clock::now());
  }
  throw_if_interrupted();
  return std::move(*answer);
}

struct looked_at {
  std::optional<error> wrong;
  std::map<std::string, std::string> server;
  std::vector<std::string> notes;
};

task<looked_at> look_at_server(http_client& http, bridge& api, const run_options& options) {
  looked_at found;
  const auto url = options.server.url.text();
  const auto health = co_await api.health();
  if (!health.failure.empty()) {
    found.wrong = error{errc::io_failed,
                        "nobody answers at " + url + ": " + health.failure +
                          (http.last_trouble().empty() ? "" : " (" + http.last_trouble() + ")")};
    co_return found;
  }
  if (health.status == 503) {
    found.wrong =
      error{errc::io_failed,
            "the server at " + url + " says that it is not well: " + health.body.substr(0, 200)};
    co_return found;
  }
  // An id costs nothing, and starts nothing: the cheapest thing that needs the key.
  const auto made = co_await api.create();
  if (made.failure == "status 401") {
    found.wrong = error{errc::unauthorized,
                        options.server.key.empty()
                          ? "the server at " + url + " wants a key: --key, or SANDBOX_API_KEY"
                          : "the server at " + url + " refuses this key"};
    co_return found;
  }
  if (!made.ok()) {
    found.wrong =
      error{errc::io_failed, "what answers at " + url +
                               " is no sandbox bridge: POST /v1/sandbox says " + made.failure};
    co_return found;
  }
  co_await api.remove_all();
  found.server = co_await api.build_info();
  co_return found;
}

void sleep_till(std::chrono::system_clock::time_point when) {
  while (std::chrono::system_clock::now() < when && interrupts() == 0)
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(
      look_at_run_every, when - std::chrono::system_clock::now()));
}

// ---- One scenario

struct conditions {
  const run_options& options;
  const endpoints& where;
  std::uint64_t files_allowed;
  load_shape shape;
};

/// Looks after the threads until they have ended.
void look_after(std::vector<std::unique_ptr<worker>>& workers, control& steering, progress& line,
                std::chrono::duration<double> ceiling, std::uint64_t& files) {
  std::atomic<std::size_t> running{workers.size()};
  std::vector<std::jthread> threads;
  threads.reserve(workers.size());
  for (auto& each : workers)
    threads.emplace_back([&running, &each] {
      each->run();
      --running;
    });
  const auto until = clock::now() + std::chrono::duration_cast<clock::duration>(ceiling);
  auto count_files = clock::now();
  while (running > 0) {
    std::this_thread::sleep_for(running > 0 ? 20ms : 0ms);
    if (interrupts() >= 2) {
      std::fputs("\ninsula: ended at once; sandboxes may have stayed\n", stderr);
      std::_Exit(130);
    }
    if (interrupts() == 1)
      steering.end_run("interrupted");
    if (clock::now() > until)
      steering.end_scenario("it took longer than it may (--max-time)");
    if (clock::now() >= count_files) {
      files = std::max(files, open_files());
      count_files = clock::now() + 1s;
    }
    line.show(steering);
  }
}

scenario_result run_scenario(const scenario& what, const settings& set, const conditions& with,
                             control& steering, progress& line) {
  steering.reset();
  line.begin(what.name);
  const unsigned threads = what.shared ? with.options.threads : 1;
  std::vector<std::unique_ptr<worker>> workers;
  for (unsigned i = 0; i < threads; ++i)
    workers.push_back(std::make_unique<worker>(
      worker::task_of{&what, set, &with.options, &with.where, &steering, with.shape, i, threads}));
  for (unsigned i = threads; i < with.options.threads; ++i)
    steering.leave(clock::now(), false);

  std::chrono::duration<double> ceiling = with.options.scenario_patience;
  for (const auto* name : {"warm-up", "duration", "hold"})
    if (const auto found = set.find(name); found != set.end())
      ceiling += std::chrono::duration<double>{*parse_seconds(found->second)};
  std::uint64_t files = 0;
  look_after(workers, steering, line, ceiling, files);
  line.clear();

  std::vector<run_result> parts;
  for (const auto& each : workers) {
    auto& found = each->result;
    found.client.open_files_max = files;
    found.client.open_files_limit = with.files_allowed;
    const client_conditions client{each->open_loop, each->ran_out_of_files,
                                   with.options.server.url.is_loopback(),
                                   std::move(each->lateness)};
    found.void_reasons = void_reasons(found, client);
    parts.emplace_back().scenarios.push_back(std::move(found));
  }
  if (parts.size() == 1)
    return std::move(parts.front().scenarios.front());
  auto all = merge(std::move(parts));
  if (all)
    return std::move(all->scenarios.front());
  scenario_result broken;
  broken.name = what.name;
  broken.parameters = set;
  broken.partial = "the threads' results do not fit together: " + all.reason().message;
  return broken;
}

} // namespace

std::string iso_time(std::chrono::system_clock::time_point when) {
  const auto time = std::chrono::system_clock::to_time_t(when);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::optional<std::chrono::system_clock::time_point> parse_start(std::string_view text) {
  const auto now = std::chrono::system_clock::now();
  if (text.starts_with('+')) {
    const auto seconds = parse_seconds(text.substr(1));
    if (!seconds)
      return std::nullopt;
    return now + std::chrono::duration_cast<std::chrono::system_clock::duration>(
                   std::chrono::duration<double>{*seconds});
  }
  std::tm parts{};
  const std::string copy{text};
  const char* const end = ::strptime(copy.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (end == nullptr || (*end != '\0' && std::string_view{end} != "Z"))
    return std::nullopt;
  return std::chrono::system_clock::from_time_t(::timegm(&parts));
}

result<void> check(const run_options& options) {
  const auto wrong = [](const std::string& why) { return error{errc::invalid_request, why}; };
  if (options.scenarios.empty())
    return wrong("there is no scenario to run");
  for (const auto& name : options.scenarios) {
    const auto* what = find_scenario(name);
    if (what == nullptr)
      return wrong("there is no scenario '" + name + "'; --list names those that there are");
    if (!what->shared && options.part.of > 1)
      return wrong("'" + name + "' runs in one process only: it cannot be shared");
    if (auto set = settings_of(*what, options.quick, options.set); !set)
      return set.reason();
  }
  for (const auto& each : options.set) {
    const auto& name = each.first;
    const auto known = std::any_of(
      options.scenarios.begin(), options.scenarios.end(), [&name](const std::string& scenario) {
        const auto& all = find_scenario(scenario)->parameters;
        return std::any_of(all.begin(), all.end(), [&](const parameter& one) {
          return name == one.name || name == scenario + "." + one.name;
        });
      });
    if (!known)
      return wrong("none of these scenarios has a parameter '" + name + "'");
  }
  return {};
}

result<run_result> run(const run_options& options) {
  if (auto good = check(options); !good)
    return good.reason();
  const auto allowed = raise_open_files().allowed;
  const auto rest = allowed > other_files ? allowed - other_files : 0;
  load_shape shape{options.kind, options.max_in_flight, options.closed};
  if (shape.max_in_flight == 0)
    shape.max_in_flight = std::min<std::uint64_t>(most_in_flight, rest * options.part.of) / 10 * 10;
  std::uint64_t wanted =
    std::max<std::uint64_t>(options.max_in_flight, options.closed) / options.part.of;
  for (const auto& name : options.scenarios) {
    const auto& what = *find_scenario(name);
    const auto crowd = crowd_of(what, *settings_of(what, options.quick, options.set));
    wanted = std::max(wanted, crowd / options.part.of);
  }
  if (wanted > rest)
    return error{errc::limit_reached, "it may want " + std::to_string(wanted) +
                                        " connections, and this process may open " +
                                        std::to_string(allowed) + " files (ulimit -n)"};

  auto where = look_up(options.server.url);
  if (!where)
    return where.reason();
  run_result all;
  all.target = options.server.url.text();
  all.seed = options.seed;
  all.client = describe_machine();
  try {
    auto seen = ask_now<looked_at>(options, *where, [&options](http_client& http, bridge& api) {
      return look_at_server(http, api, options);
    });
    if (seen.wrong)
      return *seen.wrong;
    all.server = std::move(seen.server);
  } catch (const boost::system::system_error& why) {
    return error{errc::invalid_request, std::string{"TLS: "} + why.what()};
  } catch (const interrupted& why) {
    return error{errc::io_failed, why.what()};
  }
  if (options.start_at)
    sleep_till(*options.start_at);
  all.started_at = iso_time(std::chrono::system_clock::now());

  control steering{options.threads};
  progress line{options.show_progress};
  for (const auto& name : options.scenarios) {
    const auto& what = *find_scenario(name);
    const auto set = settings_of(what, options.quick, options.set);
    if (interrupts() > 0)
      steering.end_run("interrupted");
    if (steering.run_is_over()) {
      auto& left_out = all.scenarios.emplace_back();
      left_out.name = name;
      left_out.parameters = *set;
      left_out.skipped = steering.why();
      continue;
    }
    all.scenarios.push_back(
      run_scenario(what, *set, {options, *where, allowed, shape}, steering, line));
  }
  return all;
}

} // namespace insula::load
