#include "benchmarks/load/reports.hpp"
#include "tests/e2e/node.hpp"
#include "tests/load/scripted_server.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/small_disk.hpp"

#include <csignal>
#include <fstream>
#include <sstream>
#include <sys/wait.h>

using namespace insula;
using namespace insula::test;
using load::run_result;
using load::scenario_result;

namespace {

constexpr std::chrono::minutes patience{3};

struct outcome {
  int status = -1;
  std::string out, errors;
};

/// `insula bench` beside a test.
class bench {
public:
  explicit bench(std::vector<std::string> words)
      : program_(whole(std::move(words)), {.error_file = (where_ / "errors").string()}) {}

  outcome wait() {
    outcome end;
    end.out = program_.read_all(patience);
    const auto status = program_.wait(patience);
    if (!status)
      throw std::runtime_error("insula bench does not end");
    end.status = WIFEXITED(*status) ? WEXITSTATUS(*status) : -WTERMSIG(*status);
    std::ifstream file{where_ / "errors"};
    end.errors.assign(std::istreambuf_iterator<char>{file}, {});
    return end;
  }
  void signal(int number) { program_.signal(number); }
  bool running() { return program_.running(); }

private:
  static std::vector<std::string> whole(std::vector<std::string> words) {
    words.insert(words.begin(), {INSULA_PROGRAM, "bench"});
    return words;
  }

  temp_dir where_;
  child_program program_;
};

outcome run_bench(std::vector<std::string> words) {
  return bench{std::move(words)}.wait();
}

std::string url_of(const node& it) {
  return "http://127.0.0.1:" + std::to_string(it.port());
}

run_result result_in(const std::string& file) {
  auto read = load::read_json(file);
  if (!read)
    throw std::runtime_error(read.reason().message);
  return std::move(*read);
}

const scenario_result& find(const run_result& all, const std::string& name) {
  for (const auto& each : all.scenarios)
    if (each.name == name)
      return each;
  throw std::runtime_error("no scenario " + name);
}

std::uint64_t good(const scenario_result& in, const std::string& operation) {
  for (const auto& each : in.operations)
    if (each.name == operation)
      return each.latency.count();
  throw std::runtime_error("no operation " + operation + " in " + in.name);
}

double value(const scenario_result& in, const std::string& name) {
  for (const auto& each : in.values)
    if (each.name == name)
      return each.value;
  throw std::runtime_error("no value " + name + " in " + in.name);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("every scenario runs against a real server, and leaves nothing behind", "[load][e2e]") {
  const node it;
  const temp_dir where;
  const auto file = (where / "run.json").string();
  const auto end = run_bench({"--url",      url_of(it),
                              "--scenario", "quick",
                              "--seed",     "7",
                              "--json",     file,
                              "--duration", "700ms",
                              "--warm-up",  "100ms",
                              "--set",      "tti-cold.command=true",
                              "--set",      "step=300ms",
                              "--set",      "hold=100ms",
                              "--set",      "length=200ms",
                              "--set",      "growth.live=1,5",
                              "--set",      "iterations=3",
                              "--set",      "stagger=20ms",
                              "--set",      "pty-echo.samples=16",
                              "--set",      "pty-echo.others=0,2",
                              "--set",      "stalled-bytes=100000"});
  INFO(end.out << end.errors);
  // A machine that is busy may make it void: that is a finding, and no fault of the program's.
  CHECK((end.status == 0 || end.status == 4));
  CHECK(has(end.out, "exec-open"));

  const auto all = result_in(file);
  CHECK(all.target == url_of(it));
  CHECK(all.seed == 7);
  CHECK(all.clients == 1);
  CHECK(has(all.command, "insula bench --url"));
  CHECK(all.scenarios.size() == 16);
  for (const auto& each : all.scenarios) {
    CAPTURE(each.name);
    CHECK(each.partial.empty());
    CHECK_FALSE(each.parameters.empty());
    if (each.skipped.empty()) {
      CHECK_FALSE(each.method.empty());
      CHECK(each.seconds > 0);
      CHECK(each.client.timer_lateness.count() > 0);
      CHECK(each.client.open_files_limit > 0);
      CHECK(each.client.cpu_seconds > 0);
    }
    if (each.name != "cliff")
      for (const auto& one : each.operations)
        CHECK(one.failures == std::map<std::string, std::uint64_t>{});
  }

  const auto& cold = find(all, "tti-cold");
  CHECK(good(cold, "tti") == 3);
  CHECK(cold.operations[0].samples_ms.size() == 3);
  CHECK(good(cold, "tti concurrent") == 5);
  CHECK(good(cold, "tti staggered") == 5);
  CHECK(good(find(all, "burst"), "create to exit") == 10);
  CHECK(value(find(all, "burst"), "wall clock") >= value(find(all, "burst"), "first ready"));
  CHECK(good(find(all, "exec-loop"), "exec in turn") == 10);
  CHECK(good(find(all, "exec-loop"), "exec in parallel") == 5);
  CHECK(has(find(all, "exec-open").method, "open loop, Poisson, 20/s"));
  CHECK(good(find(all, "exec-open"), "exec") > 0);
  CHECK_FALSE(find(all, "exec-open").operations[0].seconds.empty());
  const auto& stream = find(all, "stream-first-byte").operations[0];
  CHECK(stream.latency.count() > 0);
  for (const auto* each : {"write 1 KB", "read 64 KB", "read 1 MiB", "write 32 MiB", "read 32 MiB"})
    CHECK(good(find(all, "file-rw"), each) > 0);
  CHECK(find(all, "file-rw").operations.back().bytes == 2 * (32u << 20));
  CHECK(good(find(all, "persist-hydrate"), "hydrate") == 2);
  CHECK(find(all, "mixed").operations.size() == 5);
  CHECK(value(find(all, "hold"), "fine") == 10);
  CHECK(value(find(all, "hold"), "lost files") == 0);
  CHECK(good(find(all, "growth"), "exec, 5 live") == 10);
  CHECK(good(find(all, "growth"), "exec, 4 clients") > 0);
  CHECK(find(all, "cliff").operations[0].name == "exec at 20/s");
  const auto& sessions = find(all, "session-loop");
  CHECK(good(sessions, "builtin") == 20);
  CHECK(good(sessions, "builtin with output") == 20);
  CHECK(good(sessions, "state") == 5);
  CHECK(good(sessions, "delete session") == 1);
  CHECK_NOTHROW(value(sessions, "machine memory per idle session"));
  CHECK_NOTHROW(value(sessions, "server memory per idle session"));
  const auto& echo = find(all, "pty-echo");
  CHECK(good(echo, "echo, 0 others") == 16);
  CHECK(good(echo, "echo, 2 others") == 16);
  CHECK(good(echo, "output past a stalled client") == 1);
  CHECK(value(echo, "lines printed, 2 others") > 0);
  CHECK_NOTHROW(value(echo, "server memory per idle terminal"));
  CHECK_NOTHROW(value(echo, "server memory growth, stalled client"));
  CHECK(eventually([&it] { return it.sandbox_groups().empty(); }));
}

TEST_CASE("the warm scenarios wait for the server's pool, and are skipped where there is none",
          "[load][e2e]") {
  const bool pool = GENERATE(true, false);
  const node it{pool ? "pool: {target: 10}" : ""};
  const temp_dir where;
  const auto file = (where / "run.json").string();
  const auto end =
    run_bench({"--url", url_of(it), "--scenario", "tti-warm,burst-warm,tti-cold", "--quick",
               "--set", "command=true", "--set", "stagger=20ms", "--json", file});
  INFO(end.out << end.errors);
  CHECK((end.status == 0 || end.status == 4));
  const auto all = result_in(file);
  const auto &tti = find(all, "tti-warm"), &burst = find(all, "burst-warm");
  CHECK(tti.skipped.empty() == pool);
  CHECK(burst.skipped.empty() == pool);
  CHECK(find(all, "tti-cold").notes.empty() != pool); // It says that they are not all cold.
  if (!pool)
    return;
  CHECK(good(tti, "tti") == 5);
  CHECK(good(tti, "tti concurrent") == 5);
  CHECK(good(tti, "create to output") == 20);
  CHECK(good(burst, "create to exit") == 10);
  CHECK(value(burst, "wall clock") > 0);
}

TEST_CASE("several processes and threads share a run", "[load][e2e]") {
  const node it;
  const temp_dir where;
  const auto file = (where / "run.json").string(), twice = (where / "twice.json").string();
  const auto end = run_bench(
    {"run",         "--url",       url_of(it), "--scenario", "exec-open",  "--duration", "1s",
     "--warm-up",   "0",           "--rate",   "40",         "--arrivals", "fixed",      "--set",
     "sandboxes=4", "--processes", "2",        "--threads",  "2",          "--json",     file});
  INFO(end.out << end.errors);
  CHECK((end.status == 0 || end.status == 4));
  const auto all = result_in(file);
  CHECK(all.clients == 2);
  REQUIRE(all.scenarios.size() == 1);
  CHECK(all.scenarios[0].operations[0].attempts() == 40); // Of all four together.

  const auto merged = run_bench({"merge", file, file, "-o", twice});
  INFO(merged.out << merged.errors);
  CHECK(merged.status == 0);
  CHECK(result_in(twice).clients == 4);
  CHECK(result_in(twice).scenarios[0].operations[0].attempts() == 80);
  CHECK(run_bench({"report", twice}).out == merged.out);
}

TEST_CASE("a closed loop says that it is one", "[load][e2e]") {
  const node it;
  const temp_dir where;
  const auto file = (where / "run.json").string();
  const auto end =
    run_bench({"--url", url_of(it), "--scenario", "exec-open", "--duration", "500ms", "--warm-up",
               "0", "--closed", "3", "--set", "sandboxes=1", "--json", file});
  INFO(end.out << end.errors);
  CHECK((end.status == 0 || end.status == 4));
  CHECK(result_in(file).scenarios[0].method == "closed loop, 3 at once");
}

TEST_CASE("a schedule that cannot be met is not hidden", "[load][e2e]") {
  const node it;
  const temp_dir where;
  const auto file = (where / "run.json").string();
  const auto end = run_bench({"--url", url_of(it), "--scenario", "exec-open", "--duration", "500ms",
                              "--warm-up", "0", "--rate", "1000000", "--arrivals", "fixed",
                              "--max-in-flight", "20", "--set", "sandboxes=1", "--json", file});
  INFO(end.out << end.errors);
  CHECK((end.status == 3 || end.status == 4));
  const auto told = result_in(file);
  const auto& exec = told.scenarios[0].operations[0];
  CHECK(exec.attempts() == 500'000);
  CHECK(exec.dropped > 400'000);
}

TEST_CASE("a server that goes ends the run, and what was measured stays", "[load][e2e]") {
  node it;
  const temp_dir where;
  const auto file = (where / "run.json").string();
  bench running{{"--url", url_of(it), "--scenario", "exec-open,burst", "--duration", "1h",
                 "--warm-up", "0", "--rate", "50", "--set", "exec-open.sandboxes=1", "--json",
                 file}};
  // It has its sandbox, and commands run there.
  REQUIRE(eventually([&it] {
    std::istringstream lines{it.ask("GET", "/metrics").body};
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("insula_exec_phase_seconds_count") && !line.ends_with(" 0"))
        return true;
    return false;
  }));
  it.crash_both();
  const auto end = running.wait();
  INFO(end.out << end.errors);
  CHECK(end.status == 3);
  const auto all = result_in(file);
  REQUIRE(all.scenarios.size() == 2);
  CHECK(has(all.scenarios[0].partial, "the server has gone"));
  CHECK(has(all.scenarios[1].skipped, "the server has gone"));
  CHECK(has(end.out, "the server has gone"));
  it.start(); // It clears what the other one has left.
}

TEST_CASE("a server that closes its connections before its port has gone as well", "[load]") {
  const std::string body = R"({"id":"abcdefghijklmnop"})";
  // It is looked at with four requests. The first of the scenario is cut, and two probes.
  const scripted_server it{"HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) +
                             "\r\n\r\n" + body,
                           scripted_server::afterwards::dies,
                           {.answered = 4, .cut = 3}};
  const temp_dir where;
  const auto file = (where / "run.json").string();
  const auto end = run_bench({"--url", "http://127.0.0.1:" + std::to_string(it.port()),
                              "--scenario", "exec-open,burst", "--duration", "1h", "--json", file});
  INFO(end.out << end.errors);
  CHECK(end.status == 3);
  const auto all = result_in(file);
  REQUIRE(all.scenarios.size() == 2);
  CHECK(has(all.scenarios[0].partial, "the server has gone"));
  CHECK(has(all.scenarios[1].skipped, "the server has gone"));
}

TEST_CASE("Ctrl-C ends a run in order, and deletes its sandboxes", "[load][e2e]") {
  const node it;
  const temp_dir where;
  const auto file = (where / "run.json").string();
  bench running{{"--url", url_of(it), "--scenario", "exec-open", "--duration", "1h", "--warm-up",
                 "0", "--rate", "50", "--set", "sandboxes=2", "--json", file}};
  REQUIRE(eventually([&it] { return it.sandbox_groups().size() >= 2; }));
  running.signal(SIGINT);
  const auto end = running.wait();
  INFO(end.out << end.errors);
  CHECK(end.status == 130);
  CHECK(result_in(file).scenarios.at(0).partial == "interrupted");
  CHECK(eventually([&it] { return it.sandbox_groups().empty(); }));
}

TEST_CASE("what cannot run says why, and measures nothing", "[load][e2e]") {
  const node it{"server: {api_key: right}"};
  const auto url = url_of(it);
  const auto complaint = [](const std::vector<std::string>& words) {
    const auto end = run_bench(words);
    CAPTURE(words, end.out, end.errors);
    CHECK(end.status == 1);
    return end.errors;
  };
  CHECK(has(complaint({"--url", url, "--key", "wrong"}), "refuses this key"));
  CHECK(has(complaint({"--url", url}), "wants a key"));
  CHECK(has(complaint({"--url", "http://127.0.0.1:1"}), "nobody answers at http://127.0.0.1:1"));
  CHECK(has(complaint({"--url", "127.0.0.1"}), "is no base URL"));
  CHECK(has(complaint({}), "--url is missing"));
  CHECK(has(complaint({"--url", url, "--scenario", "nothing"}), "no scenario 'nothing'"));
  CHECK(has(complaint({"--url", url, "--scenario", ","}), "no scenario to run"));
  CHECK(has(complaint({"--url", url, "--rate", "fast"}), "has to be a number"));
  CHECK(has(complaint({"--url", url, "--scenario", "exec-open", "--set", "files=1"}),
            "has a parameter 'files'"));
  CHECK(has(complaint({"--url", url, "--set", "rate"}), "NAME=VALUE"));
  CHECK(has(complaint({"--url", url, "--arrivals", "sometimes"}), "sometimes"));
  CHECK(
    has(complaint({"--url", url, "--scenario", "mixed", "--share", "3/2", "--seed", "1"}), "I/N"));
  CHECK(has(complaint({"--url", url, "--scenario", "mixed", "--share", "1/2"}), "--seed"));
  CHECK(
    has(complaint({"--url", url, "--scenario", "cliff", "--processes", "2"}), "cannot be shared"));
  CHECK(has(complaint({"--url", url, "--max-in-flight", "1000000", "--scenario", "mixed"}),
            "ulimit -n"));
  CHECK(has(complaint({"--url", url, "--scenario", "pty-echo", "--set", "others=1000000"}),
            "ulimit -n"));
  CHECK(has(complaint({"--url", url, "--start-at", "tomorrow"}), "--start-at"));
  CHECK(has(complaint({"report", "/nowhere/run.json"}), "/nowhere/run.json"));
  CHECK_FALSE(complaint({"--nonsense"}).empty());
  CHECK(it.sandbox_groups().empty());
}

TEST_CASE("the key stays out of everything that is written", "[load][e2e]") {
  const node it{"server: {api_key: not-to-be-seen}"};
  const temp_dir where;
  const auto file = (where / "run.json").string();
  const auto end = run_bench({"--url", url_of(it), "--key", "not-to-be-seen", "--scenario",
                              "exec-loop", "--quick", "--json", file});
  INFO(end.out << end.errors);
  CHECK((end.status == 0 || end.status == 4));
  std::ifstream written{file};
  const std::string text{std::istreambuf_iterator<char>{written}, {}};
  CHECK(has(text, "--key ***"));
  CHECK_FALSE(has(text + end.out + end.errors, "not-to-be-seen"));
}

TEST_CASE("a full disk for reports is said, and the table is shown all the same", "[load][e2e]") {
  const node it;
  const small_disk full{4096};
  auto disk = full.path();
  disk.replace(disk.find("self"), 4, std::to_string(::getpid()));
  std::ofstream{disk + "/full"} << std::string(4096, 'x');
  const auto end = run_bench(
    {"--url", url_of(it), "--scenario", "exec-loop", "--quick", "--json", disk + "/run.json"});
  INFO(end.out << end.errors);
  CHECK((end.status == 5 || end.status == 4));
  CHECK(has(end.out, "exec in turn"));
  CHECK(has(end.errors, "could not be written"));
  CHECK(has(end.errors, "No space left on device"));
}

TEST_CASE("a server with a certificate is measured as well", "[load][e2e]") {
  const temp_dir where;
  const auto certificate = (where / "cert.pem").string(), key = (where / "key.pem").string();
  output_of({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
             "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
             "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate});
  const node it{"server: {tls: {certificate: " + certificate + ", key: " + key + "}}"};
  const auto url = "https://127.0.0.1:" + std::to_string(it.port());
  const auto measure = [&url](const std::vector<std::string>& more) {
    std::vector<std::string> words{"--url", url, "--scenario", "exec-loop,file-rw,pty-echo",
                                   "--quick"};
    words.insert(words.end(), more.begin(), more.end());
    return run_bench(words);
  };
  for (const auto& end : {measure({"--insecure"}), measure({"--ca", certificate})}) {
    INFO(end.out << end.errors);
    CHECK((end.status == 0 || end.status == 4));
  }
  const auto refused = measure({});
  CHECK(refused.status == 1);
  CHECK(has(refused.errors, "no TLS"));
}

TEST_CASE("help and the list of scenarios need no server", "[load][e2e]") {
  const auto help = run_bench({"--help"});
  CHECK(help.status == 0);
  for (const auto* part : {"Examples:", "What the numbers mean:", "Exit status", "--max-in-flight"})
    CHECK(has(help.out, part));
  const auto list = run_bench({"--list"});
  CHECK(list.status == 0);
  for (const auto* part : {"tti-cold", "session-loop", "pty-echo", "soak", "warm-up=2s"})
    CHECK(has(list.out, part));
}
