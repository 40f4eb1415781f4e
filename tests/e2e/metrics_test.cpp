#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/metrics_text.hpp"

#include <csignal>
#include <fstream>
#include <sstream>

using namespace insula::test;

namespace {

const std::string exec_row = "/v1/sandbox/:id/exec";
const std::string asks_timing = "X-Server-Timing: 1\r\n";

metrics_page scrape(const node& it) {
  const auto got = it.ask("GET", "/metrics");
  REQUIRE(got.status == 200);
  return metrics_page{got.body};
}

double answered(const metrics_page& page, const std::string& route, const std::string& method,
                const std::string& status) {
  return page.value("insula_http_requests_total",
                    {{"api", route == "unmatched" ? "none" : "bridge"},
                     {"route", route},
                     {"method", method},
                     {"status", status}});
}

/// What another program's reader of this format understands.
std::string read_by_another(const node& it, const std::string& text) {
  const auto path = it.scratch() + "/metrics.txt";
  std::ofstream{path} << text;
  return output_of({"/usr/bin/python3", INSULA_METRICS_READER, path});
}

/// The entries of a Server-Timing field, in milliseconds.
std::map<std::string, double> timings(const http_answer& head) {
  std::map<std::string, double> found;
  std::istringstream field{head.fields.at("server-timing")};
  for (std::string entry; std::getline(field >> std::ws, entry, ',');) {
    const auto name = entry.substr(0, entry.find(';'));
    const auto at = entry.find("dur=");
    REQUIRE(at != std::string::npos);
    found[name] = std::stod(entry.substr(at + 4));
  }
  return found;
}

/// The first word of every line that is about this request.
std::vector<std::string> events_of(const node& it, const std::string& request) {
  std::vector<std::string> events;
  std::istringstream lines{it.log()};
  for (std::string line; std::getline(lines, line);) {
    if (!line.ends_with(" request=" + request))
      continue;
    std::istringstream words{line};
    std::string time, level, event;
    words >> time >> level >> event;
    events.push_back(event);
  }
  return events;
}

bool has(const std::vector<std::string>& events, const std::string& one) {
  return std::find(events.begin(), events.end(), one) != events.end();
}

} // namespace

TEST_CASE("what was done is what the figures say", "[metrics]") {
  const node it{"sandbox: {max_instances: 1}"};
  REQUIRE(it.ask("POST", "/v1/sandbox").status == 200);
  REQUIRE(it.sh("a", "echo one").exit_code == 0);
  REQUIRE(it.sh("a", "exit 3").exit_code == 3);
  REQUIRE(it.exec("b", {"true"}).status == 503);
  auto running = it.open("a", {"sh", "-c", "echo up; exec sleep 1000"});
  REQUIRE(running.next());
  {
    const auto page = scrape(it);
    CHECK(page.value("insula_sandboxes", {{"state", "running"}}) == 1);
    CHECK(page.value("insula_commands_running") == 1);
    CHECK(page.value("insula_http_requests_in_flight") == 2);
  }
  REQUIRE(it.remove("a") == 204);
  running.rest();
  REQUIRE(it.ask("GET", "/v1/nothing/like/that").status == 404);

  const auto text = it.ask("GET", "/metrics").body;
  const metrics_page page{text};
  CHECK(answered(page, "/v1/sandbox", "POST", "200") == 1);
  CHECK(answered(page, exec_row, "POST", "200") == 3);
  CHECK(answered(page, exec_row, "POST", "503") == 1);
  CHECK(answered(page, "/v1/sandbox/:id", "DELETE", "204") == 1);
  CHECK(answered(page, "unmatched", "GET", "404") == 1);
  CHECK(page.value("insula_sandboxes_started_total") == 1);
  CHECK(page.value("insula_sandboxes_not_started_total", {{"reason", "capacity"}}) >= 1);
  CHECK(page.value("insula_sandboxes_ended_total", {{"reason", "deleted"}}) == 1);
  CHECK(page.value("insula_sandboxes", {{"state", "running"}}) == 0);
  CHECK(page.value("insula_commands_running") == 0);
  CHECK(page.value("insula_exec_phase_seconds_count", {{"phase", "start"}}) == 3);
  CHECK(page.value("insula_exec_phase_seconds_count", {{"phase", "exit"}}) == 3);
  double parts = 0;
  for (const char* phase :
       {"lease", "slot", "cgroup", "disk", "namespaces", "layers", "mounts", "agent"}) {
    CAPTURE(phase);
    CHECK(page.value("insula_sandbox_create_phase_seconds_count", {{"phase", phase}}) == 1);
    const auto took = page.value("insula_sandbox_create_phase_seconds_sum", {{"phase", phase}});
    CHECK(took > 0);
    parts += took;
  }
  const auto ready = page.value("insula_sandbox_create_phase_seconds_sum", {{"phase", "ready"}});
  CHECK(parts <= ready); // They follow each other.
  CHECK(page.value("insula_sandbox_create_phase_seconds_sum", {{"phase", "first_byte"}}) > ready);
  CHECK(page.value("insula_store_commit_seconds_count") >= 2);
  CHECK(page.value("insula_store_waiting") == 0);
  CHECK(page.value("process_open_fds") > 10);
  CHECK(page.value("process_resident_memory_bytes") > 1e6);
  CHECK(page.value("process_threads") > 4);
  CHECK(page.value("process_start_time_seconds") > 1.7e9);
  const std::string count = std::to_string(page.samples().size());
  CHECK(read_by_another(it, text) == count + "\n");
}

TEST_CASE("Server-Timing divides a request's time, for those who ask", "[metrics]") {
  const node it;
  const auto body = exec_body({"echo", "hi"});
  exec_stream first{it.port(), "a", body, asks_timing};
  CHECK(first.rest().out == "hi\n");
  const auto cold = timings(first.head());
  exec_stream second{it.port(), "a", body, asks_timing};
  CHECK(second.rest().out == "hi\n");
  const auto warm = timings(second.head());
  exec_stream third{it.port(), "a", body};
  CHECK(third.rest().out == "hi\n");
  CHECK_FALSE(third.head().fields.contains("server-timing"));

  CHECK(cold.at("sandbox") > 0);
  for (const char* phase : {"lease", "record", "slot", "cgroup", "disk", "namespaces", "layers",
                            "mounts", "agent", "ready"}) {
    CHECK(cold.at(phase) <= cold.at("ready"));
    CHECK_FALSE(warm.contains(phase));
  }
  CHECK_FALSE(warm.contains("sandbox"));
  constexpr double rounding = 0.01;
  CHECK(cold.at("ready") <= cold.at("sandbox") + rounding);
  for (const auto* each : {&cold, &warm}) {
    const auto sandbox = each->contains("sandbox") ? each->at("sandbox") : 0;
    const auto sum = each->at("queue") + sandbox + each->at("start") + each->at("first");
    CHECK(sum <= each->at("total") + rounding);
  }
  const auto put = timings(it.ask("PUT", "/v1/sandbox/a/file/workspace/x", "x", asks_timing));
  CHECK(put.contains("queue"));
  CHECK(put.contains("start"));
  const auto get = timings(it.ask("GET", "/v1/sandbox/a/file/workspace/x", {}, asks_timing));
  CHECK(get.contains("first"));
  CHECK(timings(it.ask("POST", "/v1/sandbox", {}, asks_timing)).contains("total"));
}

TEST_CASE("one id leads through the log, from the door to the process and the store",
          "[metrics][log]") {
  const node it{"server: {api_key: not-for-the-log}\nlog: {level: debug}"};
  const std::string key = "Authorization: Bearer not-for-the-log\r\n";
  exec_stream started{it.port(), "a", exec_body({"echo", "hi"}), key + "X-Request-Id: exec-1\r\n"};
  CHECK(started.rest().out == "hi\n");
  CHECK(started.head().fields.at("x-request-id") == "exec-1");
  const auto written = it.ask("PUT", "/v1/sandbox/a/file/workspace/x", "x", key);
  const auto own = written.fields.at("x-request-id");
  CHECK(own.size() == 13);
  CHECK(it.ask("DELETE", "/v1/sandbox/a", {}, key + "X-Request-Id: delete-1\r\n").status == 204);

  const auto exec = events_of(it, "exec-1");
  for (const char* event : {"directory.find", "store.written", "sandbox.running", "sandbox.command",
                            "command.started", "command.ended", "http.request"})
    CHECK(has(exec, event));
  for (const char* event : {"directory.find", "sandbox.file", "http.request"})
    CHECK(has(events_of(it, own), event));
  for (const char* event : {"directory.delete", "store.written", "sandbox.deleted", "http.request"})
    CHECK(has(events_of(it, "delete-1"), event));
  CHECK(it.log().find("not-for-the-log") == std::string::npos);
}
