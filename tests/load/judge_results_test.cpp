#include "benchmarks/load/reports.hpp"
#include "tests/load/made_run.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <cmath>

using namespace insula;
using namespace insula::test;

namespace {

load::verdict judged(const std::string& text, const load::run_result& all = made_run()) {
  auto made = load::judge_text(text, "limits.yaml", all);
  if (!made)
    FAIL(made.reason().message);
  return *made;
}

std::string refusal(const std::string& text) {
  const auto made = load::judge_text(text, "limits.yaml", made_run());
  REQUIRE_FALSE(made);
  CHECK(made.reason().code == errc::invalid_request);
  return made.reason().message;
}

using lines = std::vector<std::string>;

} // namespace

TEST_CASE("a run that keeps its thresholds passes", "[load]") {
  const auto said =
    judged("exec-open:\n"
           "  exec: {p50_ms: 5.1, p90_ms: 9.1, p99_ms: 10.1, p999_ms: 11, max_ms: 12,\n"
           "         failed_share: 0, rate_min: 5, mb_per_s_min: 18}\n"
           "  values:\n"
           "    wall clock: {max: 600}\n"
           "    sandboxes live: {min: 100, max: 1e2}\n");
  CHECK(said.passed);
  CHECK(said.lines == lines{"met     exec-open, exec: p50 5.00 ms (at most 5.1 ms)",
                            "met     exec-open, exec: p90 9.01 ms (at most 9.1 ms)",
                            "met     exec-open, exec: p99 10.0 ms (at most 10.1 ms)",
                            "met     exec-open, exec: p99.9 10.0 ms (at most 11 ms)",
                            "met     exec-open, exec: the slowest 10.0 ms (at most 12 ms)",
                            "met     exec-open, exec: failed share 0 (at most 0)",
                            "met     exec-open, exec: successes per second 5.00 (at least 5)",
                            "met     exec-open, exec: MB/s 18.2 (at least 18)",
                            "met     exec-open, wall clock: 512 ms (at most 600 ms)",
                            "met     exec-open, sandboxes live: 100 (at least 100)",
                            "met     exec-open, sandboxes live: 100 (at most 100)"});
}

TEST_CASE("each threshold can be missed", "[load]") {
  for (const auto* one : {"p50_ms: 4.9", "p90_ms: 8.9", "p99_ms: 9.9", "p999_ms: 9.9",
                          "max_ms: 9.9", "rate_min: 5.1", "mb_per_s_min: 19"}) {
    CAPTURE(one);
    const auto missed = judged(std::string{"exec-open: {exec: {"} + one + "}}");
    CHECK_FALSE(missed.passed);
    CHECK(missed.lines.front().starts_with("MISSED  exec-open, exec: "));
  }
  CHECK_FALSE(judged("exec-open: {values: {wall clock: {max: 512}}}").passed);
  CHECK_FALSE(judged("exec-open: {values: {sandboxes live: {min: 101}}}").passed);
}

TEST_CASE("failures count against percentiles and shares", "[load]") {
  auto all = made_run();
  auto& exec = all.scenarios[0].operations[0];
  exec.failures = {{"timeout", 1}};
  exec.dropped = 1;
  const auto said = judged("exec-open: {exec: {p50_ms: 6.1, p99_ms: 1e6, failed_share: 0.1}}", all);
  CHECK_FALSE(said.passed);
  CHECK(said.lines == lines{"met     exec-open, exec: p50 6.00 ms (at most 6.1 ms)",
                            "MISSED  exec-open, exec: p99 failed (at most 1,000 s)",
                            "MISSED  exec-open, exec: failed share 0.167 (at most 0.1)"});
}

TEST_CASE("what was not measured does not pass", "[load]") {
  const std::string text = "exec-open: {exec: {p50_ms: 100}}";
  auto all = made_run();
  all.scenarios[0].void_reasons = {"its timers were late"};
  CHECK(judged(text, all).lines ==
        lines{"MISSED  exec-open: VOID, the client was the bottleneck: its timers were late",
              "met     exec-open, exec: p50 5.00 ms (at most 100 ms)"});
  CHECK_FALSE(judged(text, all).passed);

  all = made_run();
  all.scenarios[0].partial = "interrupted";
  CHECK_FALSE(judged(text, all).passed);

  all.scenarios[0] = {};
  all.scenarios[0].name = "exec-open";
  all.scenarios[0].skipped = "there is no server";
  CHECK(judged(text, all).lines == lines{"MISSED  exec-open: SKIPPED: there is no server"});
  CHECK_FALSE(judged(text, all).passed);

  const auto missing = judged("burst: {create: {p50_ms: 1}, values: {wall clock: {max: 1}}}");
  CHECK_FALSE(missing.passed);
  CHECK(missing.lines == lines{"MISSED  burst: SKIPPED: it was not run"});

  CHECK(judged("exec-open: {write: {p50_ms: 1}}").lines ==
        lines{"MISSED  exec-open, write: there is no such operation; there are: exec"});
  CHECK(judged("exec-open: {values: {wall: {max: 1}}}").lines ==
        lines{"MISSED  exec-open, wall: there is no such value; there are: wall clock, sandboxes "
              "live"});

  all = made_run();
  all.scenarios[0].operations[0] = {};
  all.scenarios[0].operations[0].name = "exec";
  CHECK_FALSE(judged("exec-open: {exec: {failed_share: 1}}", all).passed);
  all.scenarios[0].values[0].value = std::nan("");
  CHECK_FALSE(judged("exec-open: {values: {wall clock: {max: 1}}}", all).passed);
  CHECK_FALSE(judged("exec-open: {values: {wall clock: {min: 1}}}", all).passed);
}

TEST_CASE("scenarios of one name are all judged", "[load]") {
  auto all = made_run();
  all.scenarios.push_back(all.scenarios[0]);
  all.scenarios[1].operations = {made_operation("exec", {50})};
  const auto said = judged("exec-open: {exec: {p50_ms: 10}}", all);
  CHECK_FALSE(said.passed);
  CHECK(said.lines.size() == 2);
}

TEST_CASE("a bad file of thresholds names the line", "[load]") {
  CHECK(refusal("") == "limits.yaml: expected scenarios with their thresholds, got nothing");
  CHECK(refusal("{}") == "limits.yaml: expected scenarios with their thresholds, got a section");
  CHECK(refusal("- exec") == "limits.yaml: expected scenarios with their thresholds, got a list");
  CHECK(refusal("exec-open:\n  exec:\n    p50: 5\n") ==
        "limits.yaml:3: p50: no such threshold; there are p50_ms, p90_ms, p99_ms, p999_ms, max_ms, "
        "failed_share, rate_min, mb_per_s_min");
  CHECK(refusal("exec-open:\n  values:\n    wall clock: {most: 5}\n") ==
        "limits.yaml:3: most: no such threshold; there are min, max");
  for (const auto* number :
       {"fast", "5ms", "-1", "nan", "inf", "1e999", "\"\"", "[5]", "~", "0x10"}) {
    CAPTURE(number);
    CHECK(refusal(std::string{"exec-open:\n  exec:\n    p50_ms: "} + number)
            .starts_with("limits.yaml:3: p50_ms: expected a number, got "));
  }
  CHECK(refusal("exec-open:\n  exec: 5\n") == "limits.yaml:2: exec: expected a section, got \"5\"");
  CHECK(refusal("exec-open:\n  exec:\n").find("exec: expected a section, got nothing") !=
        std::string::npos);
  CHECK(refusal("exec-open: {exec: {p50_ms: 5}}\nexec-open: {exec: {p50_ms: 6}}\n") ==
        "limits.yaml:2: exec-open: given twice");
  CHECK(refusal("? [a]\n: b\n").starts_with("limits.yaml:1: expected a name, got a list"));
  CHECK(refusal("exec-open: {\n").find("limits.yaml:2: not YAML: ") == 0);
  CHECK(refusal("a: {}\n---\nb: {}\n") == "limits.yaml: expected one YAML document, got more");
  // Wrong lines of what did not run are wrong as well.
  CHECK(refusal("burst:\n  create: {p50: 1}\n").starts_with("limits.yaml:2: p50: no such"));
}

TEST_CASE("aliases stand for no more than a file may say", "[load]") {
  std::string text = "x: &limits {p50_ms: 5, p90_ms: 5, p99_ms: 5}\n"
                     "y: &many {";
  for (int i = 0; i < 500; ++i)
    text += "o" + std::to_string(i) + ": *limits, ";
  text += "}\n";
  for (int i = 0; i < 500; ++i)
    text += "s" + std::to_string(i) + ": *many\n";
  text.erase(0, text.find('\n') + 1); // The first section would be wrong by itself.
  text.replace(text.find("*limits"), 7, "&limits {p50_ms: 5, p90_ms: 5, p99_ms: 5}");
  CHECK(refusal(text).find("expected at most 10000 names") != std::string::npos);
}

TEST_CASE("the thresholds of the project are a file of thresholds", "[load]") {
  const auto made = load::judge(INSULA_SOURCE_DIR "/benchmarks/thresholds.yaml", made_run());
  if (!made)
    FAIL(made.reason().message);
  CHECK_FALSE(made->passed);
  const auto missing = load::judge("/none.yaml", made_run());
  REQUIRE_FALSE(missing);
  CHECK(missing.reason().code == errc::io_failed);
}
