#include "benchmarks/load/command.hpp"

#include "benchmarks/load/interrupt.hpp"
#include "benchmarks/load/processes.hpp"
#include "benchmarks/load/reports.hpp"
#include "benchmarks/load/run.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <random>

namespace insula::load {

namespace {

constexpr int status_good = 0, status_thresholds = 2, status_failures = 3, status_void = 4,
              status_unwritten = 5, status_interrupted = 130;

const char* const about =
  "Measures a server of the sandbox bridge API, this one or another's: load at a rate that does "
  "not "
  "wait for answers, latency from the intended start, failures never left out.";

const char* const help_text = R"(Examples:
  insula bench --url http://127.0.0.1:8787                       the quick set, about a minute
  insula bench --url http://127.0.0.1:8787 --scenario all --page docs/benchmarks
  insula bench --url https://box.example --scenario exec-open --rate 200 --duration 1m
  insula bench --url $URL --scenario mixed --rate 500 --processes 2 --json run.json
  insula bench --url $URL --scenario growth --set live=1,10,100 --set growth.clients=1,8
  insula bench --url $URL --scenario quick --thresholds limits.yaml       for a CI
  insula bench --list                            every scenario with what its clock sees

  Two hosts as one run (same options, same seed; clocks set by NTP), then one result of both:
    host1$ insula bench --url $URL --scenario mixed --share 1/2 --start-at 2026-12-01T10:00:00Z --json 1.json
    host2$ insula bench --url $URL --scenario mixed --share 2/2 --start-at 2026-12-01T10:00:00Z --json 2.json
    insula bench merge 1.json 2.json -o both.json && insula bench report both.json --page out

What the numbers mean:
  latency    from the *intended* start, by the schedule, to the end. When the server stands still,
             what should have begun meanwhile counts with all of its waiting. `service` in the
             JSON is from the moment it was really begun.
  failed     a wrong status, exit code, output or byte; refused, cut, timed out. It counts as slower than every
             success, so a percentile that falls on one is shown as none.
  dropped    never begun, because --max-in-flight were under way: a failure as well.
  late       begun more than 1 ms after its time: the client's own doing.
  void       the client was the bottleneck, so the figures say nothing about the server. They are
             shown, marked, and the exit status says so. It is void if the client's busiest thread used
             more than 90 % of a CPU in any five seconds; if its own timers, which tick every 2 ms,
             were late at the median by more than max(0.25 ms, 1/4 of an operation's p50), or at p99 by more
             than max(1 ms, 1/4 of its p99); if 90 % of its open files were in use; or if
             more than 10 % of an open loop began late. Where the URL is a loopback one, the server's
             threads delay the client's as any caller's, and 1/2 of p50, all of p99 and 25 % are allowed.
  partial    it ended early (Ctrl-C, the server has gone, --max-time): what was measured before.
  skipped    this server has not what the scenario needs.

Ctrl-C ends in order: what is under way gets 5 s, sandboxes are deleted, reports are written. A second one ends at
once. Sandboxes that the run made are deleted on every other way out, too.

Exit status (the first that holds):
  1    it could not run: bad arguments, nobody answers there, the key is refused
  130  interrupted; what was measured before is shown
  3    a scenario ended early
  4    a scenario is void
  3    more failed than --allow-failures
  2    a threshold was missed
  5    a report could not be written; the table is shown all the same
  0    everything was measured and is as it should be

The key of the server: --key, or better SANDBOX_API_KEY in the environment; it is never written down.)";

void list_scenarios(std::ostream& to) {
  for (const auto& each : all_scenarios()) {
    to << each.name << (each.shared ? "" : "  (in one thread of one process)") << "\n    "
       << each.about << '\n';
    for (const auto& one : each.parameters)
      to << "      " << one.name << '=' << one.value << "  (quick: " << one.quick << ")  "
         << one.about << '\n';
  }
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& each : words)
    text += (text.empty() ? "" : " ") + each;
  return text;
}

/// As it was typed, without the key.
std::string command_text(std::vector<std::string> words) {
  if (!words.empty())
    words.front() = words.front().substr(words.front().rfind('/') + 1);
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i] == "--key" && i + 1 < words.size())
      words[i + 1] = "***";
    else if (words[i].starts_with("--key="))
      words[i] = "--key=***";
  return join(words);
}

int complain(const std::string& why) {
  std::cerr << "insula bench: " << why << '\n';
  return bench_command::status_unusable;
}

struct outputs {
  std::string json, computesdk, plots, page, floors, thresholds;
};

/// Everything that becomes of a result. Trouble with one does not keep the others back.
verdict_inputs tell(const run_result& all, const outputs& to, bool table) {
  verdict_inputs how;
  const auto written = [&how](const char* what, const result<void>& done) {
    if (done)
      return;
    std::cerr << "insula bench: " << what << " could not be written: " << done.reason().message
              << '\n';
    how.unwritten = true;
  };
  if (table)
    print_table(std::cout, all);
  if (!to.json.empty())
    written("the result", write_json(to.json, all));
  if (!to.computesdk.empty())
    written("ComputeSDK's form", write_computesdk_json(to.computesdk, all));
  if (!to.plots.empty()) {
    const auto plots = write_plots(to.plots, all);
    written("the plots", plots ? result<void>{} : result<void>{plots.reason()});
  }
  std::optional<verdict> judged;
  if (!to.thresholds.empty()) {
    auto found = judge(to.thresholds, all);
    if (!found) {
      std::cerr << "insula bench: " << found.reason().message << '\n';
      how.thresholds_missed = true;
    } else {
      for (const auto& each : found->lines)
        std::cout << each << '\n';
      how.thresholds_missed = !found->passed;
      judged = std::move(*found);
    }
  }
  if (!to.page.empty()) {
    std::string floors;
    if (!to.floors.empty()) {
      std::ifstream file{to.floors};
      floors.assign(std::istreambuf_iterator<char>{file}, {});
      if (floors.empty())
        written("the floors in the page", error{errc::io_failed, "cannot read " + to.floors});
    }
    written("the page", write_page(to.page, all, floors, judged ? &*judged : nullptr));
  }
  if (!std::cout.flush())
    how.unwritten = true;
  return how;
}

void add_outputs(CLI::App& to, outputs& into) {
  to.add_option("--computesdk", into.computesdk,
                "Write the tti scenarios to this file in the shape of ComputeSDK's benchmarks")
    ->group("Reports");
  to.add_option("--plots", into.plots,
                "Write SVG files to this directory: latency by percentile, throughput over time")
    ->group("Reports");
  to.add_option("--page", into.page, "Write a README.md with tables and plots to this directory")
    ->group("Reports");
  to.add_option("--floors", into.floors,
                "What `insula_bench --json` has written, to stand beside the figures in the page")
    ->group("Reports");
  to.add_option("--thresholds", into.thresholds,
                "Hold the result against this file (YAML; benchmarks/README.md shows one)")
    ->group("Reports");
}

} // namespace

int status_of(const run_result& all, const verdict_inputs& how) {
  if (how.interrupted)
    return status_interrupted;
  bool failing = false, is_void = false;
  for (const auto& each : all.scenarios) {
    if (!each.partial.empty()) // A fact, whatever the client's own figures are worth.
      return status_failures;
    is_void = is_void || !each.void_reasons.empty();
    const auto* known = find_scenario(each.name);
    if (known != nullptr && known->fails_on_purpose)
      continue;
    std::uint64_t attempts = 0, missing = 0;
    for (const auto& one : each.operations) {
      attempts += one.attempts();
      missing += one.missing();
    }
    failing = failing ||
              static_cast<double>(missing) > how.allowed_failures * static_cast<double>(attempts);
  }
  if (is_void)
    return status_void;
  if (failing)
    return status_failures;
  if (how.thresholds_missed)
    return status_thresholds;
  return how.unwritten ? status_unwritten : status_good;
}

struct bench_command::impl {
  CLI::App* bench = nullptr;
  CLI::App* merging = nullptr;
  CLI::App* reporting = nullptr;

  std::string url, key, ca_file, scenarios = "quick", kind = "poisson", part, start, rate, duration,
                                 warm_up, timeout = "30s", max_time = "15m";
  std::vector<std::string> set;
  bool insecure = false, quick = false, list = false, no_progress = false, only_json = false;
  std::size_t closed = 0, max_in_flight = 0;
  std::optional<std::uint64_t> seed;
  unsigned threads = 1, processes = 1;
  double allowed_failures = 0;
  outputs run_outputs, report_outputs;
  std::vector<std::string> files;
  std::string merged, file;

  result<run_options> options() const;
  int measure(const std::vector<std::string>& words) const;
  int merge_files() const;
  int report() const;
};

result<run_options> bench_command::impl::options() const {
  const auto wrong = [](const std::string& why) { return error{errc::invalid_request, why}; };
  run_options made;
  if (url.empty())
    return wrong("--url is missing: where is the server?");
  auto where = parse_url(url);
  if (!where)
    return where.reason();
  const char* const from_environment = std::getenv("SANDBOX_API_KEY");
  made.server = {*where, !key.empty() || from_environment == nullptr ? key : from_environment,
                 insecure, ca_file};
  if (made.server.key.find_first_of("\r\n") != std::string::npos)
    return wrong("a key has no line breaks");

  made.quick = quick || scenarios == "quick";
  std::stringstream names{scenarios};
  const bool many = processes > 1 || !part.empty();
  std::vector<std::string> left_out;
  for (std::string name; std::getline(names, name, ',');)
    if (name == "all" || name == "quick") {
      for (const auto& each : all_scenarios())
        if (name == "quick" || std::string_view{each.name} != "soak")
          (each.shared || !many ? made.scenarios : left_out).emplace_back(each.name);
    } else if (!name.empty()) {
      made.scenarios.push_back(name);
    }
  if (!left_out.empty() && !only_json)
    std::cerr << "insula bench: left out, since they run in one process only: " << join(left_out)
              << '\n';
  for (const auto& each : set) {
    const auto sign = each.find('=');
    if (sign == std::string::npos || sign == 0)
      return wrong("--set wants NAME=VALUE, not '" + each + "'");
    made.set[each.substr(0, sign)] = each.substr(sign + 1);
  }
  for (const auto& [name, value] :
       {std::pair{"rate", rate}, {"duration", duration}, {"warm-up", warm_up}})
    if (!value.empty())
      made.set[name] = value;

  made.kind = kind == "fixed" ? arrivals::fixed : arrivals::poisson;
  made.closed = closed;
  made.max_in_flight = max_in_flight;
  made.seed = seed ? *seed : std::random_device{}();
  made.threads = threads;
  if (!part.empty()) {
    const auto share = parse_share(part);
    if (!share)
      return wrong("--share wants I/N with I from 1 to N, not '" + part + "'");
    if (!seed && share->of > 1)
      return wrong("clients that share a run need the same --seed");
    made.part = *share;
  }
  if (!start.empty()) {
    made.start_at = parse_start(start);
    if (!made.start_at)
      return wrong("--start-at wants 2026-12-01T10:00:00Z or +10s, not '" + start + "'");
  }
  const auto request = parse_seconds(timeout), longest = parse_seconds(max_time);
  if (!request || *request < 0.001 || !longest)
    return wrong("--timeout and --max-time want lengths of time, as 30s or 2m");
  made.patience = std::chrono::milliseconds{std::llround(*request * 1000)};
  made.scenario_patience = std::chrono::seconds{std::llround(*longest)};
  made.show_progress = !no_progress;
  if (auto good = check(made); !good)
    return good.reason();
  return made;
}

int bench_command::impl::measure(const std::vector<std::string>& words) const {
  if (list) {
    list_scenarios(std::cout);
    return status_good;
  }
  const auto wanted = options();
  if (!wanted)
    return complain(wanted.reason().message);
  watch_for_interrupts();
  auto found = processes > 1 ? run_in_processes(*wanted, processes) : load::run(*wanted);
  if (!found)
    return interrupts() > 0 ? status_interrupted : complain(found.reason().message);
  found->command = command_text(words);
  auto how = tell(*found, run_outputs, !only_json);
  how.allowed_failures = allowed_failures;
  how.interrupted = interrupts() > 0;
  return status_of(*found, how);
}

int bench_command::impl::merge_files() const {
  std::vector<run_result> all;
  for (const auto& each : files) {
    auto one = read_json(each);
    if (!one)
      return complain(one.reason().message);
    all.push_back(std::move(*one));
  }
  const auto one = merge(std::move(all));
  if (!one)
    return complain(one.reason().message);
  outputs to;
  to.json = merged;
  auto how = tell(*one, to, true);
  how.allowed_failures = 1; // What was measured has had its status before.
  return how.unwritten ? status_unwritten : status_good;
}

int bench_command::impl::report() const {
  const auto all = read_json(file);
  if (!all)
    return complain(all.reason().message);
  const auto how = tell(*all, report_outputs, true);
  if (how.thresholds_missed)
    return status_thresholds;
  return how.unwritten ? status_unwritten : status_good;
}

bench_command::bench_command(CLI::App& program)
    : impl_(std::make_unique<impl>()) {
  auto& in = *impl_;
  in.bench = program.add_subcommand("bench", "Measure a server of the sandbox bridge API");
  auto& bench = *in.bench;
  bench.description(about);
  bench.footer(help_text);
  bench.require_subcommand(0, 1);

  bench.add_option("--url", in.url, "Where the API is: http://HOST:PORT or https://HOST/PREFIX")
    ->group("The server");
  bench.add_option("--key", in.key, "Its key; default: SANDBOX_API_KEY")->group("The server");
  bench.add_flag("--insecure", in.insecure, "Any certificate will do")->group("The server");
  bench.add_option("--ca", in.ca_file, "A file with a certificate to trust")->group("The server");
  bench
    .add_option("--timeout", in.timeout,
                "For one request, the connection included; after it, it has failed. Default: 30s")
    ->group("The server");

  bench
    .add_option("--scenario", in.scenarios,
                "Names with commas between them; all, which is all but soak; or quick, which is "
                "everything with few repetitions. Default: quick")
    ->group("What is measured");
  bench.add_flag("--list", in.list, "Name the scenarios and their parameters, and end")
    ->group("What is measured");
  bench.add_flag("--quick", in.quick, "Few repetitions of those named; the numbers are rough")
    ->group("What is measured");
  bench
    .add_option(
      "--set", in.set,
      "A parameter: NAME=VALUE, or SCENARIO.NAME=VALUE for one of several; again for more")
    ->allow_extra_args(false)
    ->group("What is measured");
  bench.add_option("--rate", in.rate, "The same as --set rate=…: attempts per second")
    ->group("What is measured");
  bench.add_option("--duration", in.duration, "The same as --set duration=…: how long is measured")
    ->group("What is measured");
  bench.add_option("--warm-up", in.warm_up, "The same as --set warm-up=…: what does not count")
    ->group("What is measured");
  bench
    .add_option("--max-time", in.max_time,
                "What a scenario may take beside its duration before it is ended. Default: 15m")
    ->group("What is measured");
  bench
    .add_option("--allow-failures", in.allowed_failures,
                "Share of a scenario's attempts that may fail, 0 to 1. Default: 0")
    ->check(CLI::Range(0.0, 1.0))
    ->group("What is measured");

  bench
    .add_option("--arrivals", in.kind,
                "poisson (as independent callers come; the default) or fixed (even distances)")
    ->check(CLI::IsMember({"poisson", "fixed"}))
    ->group("How load is made");
  bench
    .add_option("--max-in-flight", in.max_in_flight,
                "What would be begun while so many are under way is dropped, and counted. Default: "
                "4096, or what the open files allow")
    ->check(CLI::Range(1u, 1'000'000u))
    ->group("How load is made");
  bench
    .add_option(
      "--closed", in.closed,
      "So many clients that wait for each answer, in place of the open loop. It hides what "
      "waiting costs, and is labelled so")
    ->check(CLI::Range(1u, 100'000u))
    ->group("How load is made");
  bench
    .add_option("--seed", in.seed, "Of the schedule and every choice; default: another each time")
    ->group("How load is made");
  bench.add_option("--threads", in.threads, "Of each process. Default: 1")
    ->check(CLI::Range(1u, 256u))
    ->group("How load is made");
  auto* processes =
    bench
      .add_option("--processes", in.processes, "So many copies of this share the run. Default: 1")
      ->check(CLI::Range(1u, 256u))
      ->group("How load is made");
  bench
    .add_option("--share", in.part,
                "I/N: this is the I-th of N clients of one run, each started by hand")
    ->excludes(processes)
    ->group("How load is made");
  bench.add_option("--start-at", in.start, "When: 2026-12-01T10:00:00Z, or +10s from now")
    ->group("How load is made");

  bench.add_option("--json", in.run_outputs.json, "Write everything that was found to this file")
    ->group("Reports");
  add_outputs(bench, in.run_outputs);
  bench.add_flag("--no-progress", in.no_progress, "Say nothing while it runs")->group("Reports");
  bench.add_flag("--only-json", in.only_json)->group(""); // For the copies of --processes.

  bench.add_subcommand("run", "Measure; the same as without this word")->fallthrough();
  in.merging = bench.add_subcommand("merge", "One result of those of several clients of one run");
  in.merging->add_option("files", in.files, "What they have written with --json")->required();
  in.merging->add_option("-o,--output", in.merged, "Where it goes to")->required();
  in.reporting = bench.add_subcommand("report", "Table, plots and page of a result, later");
  in.reporting->add_option("file", in.file, "What --json has written")->required();
  add_outputs(*in.reporting, in.report_outputs);
}

bench_command::~bench_command() = default;

bool bench_command::is_meant() const {
  return impl_->bench->count() > 0;
}

std::optional<int> bench_command::run(const std::vector<std::string>& words) {
  if (!impl_->bench->parsed())
    return std::nullopt;
  if (impl_->merging->parsed())
    return impl_->merge_files();
  if (impl_->reporting->parsed())
    return impl_->report();
  return impl_->measure(words);
}

} // namespace insula::load
