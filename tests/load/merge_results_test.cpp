#include "benchmarks/load/reports.hpp"
#include "tests/load/made_run.hpp"
#include "tests/support/catch.hpp"

using namespace insula;
using namespace insula::test;

namespace {

load::run_result merged(std::vector<load::run_result> clients) {
  auto all = load::merge(std::move(clients));
  REQUIRE(all);
  return *all;
}

std::string refusal(load::run_result first, load::run_result second) {
  const auto all = load::merge({std::move(first), std::move(second)});
  REQUIRE_FALSE(all);
  CHECK(all.reason().code == errc::invalid_request);
  return all.reason().message;
}

} // namespace

TEST_CASE("one client is the run", "[load]") {
  CHECK(merged({made_run()}) == made_run());
  CHECK_FALSE(load::merge({}));
  CHECK_FALSE(load::merge(std::vector<load::run_result>(1025)));
}

TEST_CASE("what clients have counted is added", "[load]") {
  auto second = made_run();
  second.started_at = "2026-11-22T02:59:59Z";
  second.client["kernel"] = "6.6.0";
  auto& other = second.scenarios[0];
  other.seconds = 3;
  other.operations[0] = made_operation("exec", {20, 30});
  other.operations[0].seconds = {
    {1, 1, 0, 0, 20'000, 20'000}, {1, 0, 2, 3, 0, 0}, {0, 1, 0, 0, 5, 5}};
  other.operations[0].failures = {{"timeout", 2}};
  other.operations[0].dropped = 3;
  other.operations[0].late = 1;
  other.operations[0].bytes = 500;
  other.operations.push_back(made_operation("delete", {1}));
  other.values = {{"wall clock", 400, "ms", false},
                  {"sandboxes live", 50, "", true},
                  {"exec rate", 10, "1/s", true}};
  const auto all = merged({made_run(), second});
  CHECK(all.clients == 2);
  CHECK(all.started_at == "2026-11-22T02:59:59Z");
  CHECK(all.client.at("kernel") == "6.1.0; 6.6.0");
  CHECK(all.client.at("cpus") == "2");
  REQUIRE(all.scenarios.size() == 1);
  const auto& of = all.scenarios[0];
  CHECK(of.seconds == 3);
  REQUIRE(of.operations.size() == 2);
  const auto& exec = of.operations[0];
  CHECK(exec.latency == made_operation("", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30}).latency);
  CHECK(exec.failures == std::map<std::string, std::uint64_t>{{"timeout", 2}});
  CHECK(exec.attempts() == 17);
  CHECK(exec.late == 1);
  CHECK(exec.bytes == 1'000'500);
  CHECK(exec.samples_ms.size() == 12);
  CHECK(exec.seconds == std::vector<load::second_point>{{7, 6, 0, 0, 35'000, 20'000},
                                                        {5, 5, 2, 3, 40'000, 10'000},
                                                        {0, 1, 0, 0, 5, 5}});
  CHECK(of.values == std::vector<load::named_value>{{"wall clock", 512.25, "ms", false},
                                                    {"sandboxes live", 150, "", true},
                                                    {"exec rate", 10, "1/s", true}});
  CHECK(of.notes.size() == 1);
  CHECK(of.client.cpu_seconds == 0.5);
  CHECK(of.client.timer_lateness.count() == 2000);
}

TEST_CASE("a value that is no good to be added is that of the worse client", "[load]") {
  auto first = made_run(), second = made_run();
  first.scenarios[0].values = {{"score", 90, "points", true}, {"memory", 10, "MiB", false}};
  second.scenarios[0].values = {{"score", 80, "points", true}, {"memory", 12, "MiB", false}};
  const auto all = merged({first, second});
  CHECK(all.scenarios[0].values[0].value == 80);
  CHECK(all.scenarios[0].values[1].value == 12);
}

TEST_CASE("what is void, partial or skipped for one client stays so", "[load]") {
  auto first = made_run(), second = made_run();
  first.scenarios[0].void_reasons = {"its timers were late"};
  second.scenarios[0].void_reasons = {"its timers were late", "no files were left"};
  second.scenarios[0].partial = "the server is gone";
  const auto both = merged({first, second}).scenarios[0];
  CHECK(both.void_reasons ==
        std::vector<std::string>{"its timers were late", "no files were left"});
  CHECK(both.partial == "the server is gone");

  first = made_run();
  first.scenarios[0].operations.clear();
  first.scenarios[0].method.clear();
  first.scenarios[0].skipped = "it has no files left";
  const auto one = merged({first, made_run()}).scenarios[0];
  CHECK(one.skipped.empty());
  CHECK(one.partial == "a client has skipped it: it has no files left");
  CHECK(one.method == "open loop, Poisson, 5/s");
  CHECK(one.operations.size() == 1);
  CHECK(merged({first, first}).scenarios[0].skipped == "it has no files left");
}

TEST_CASE("the order of the scenarios does not matter", "[load]") {
  auto first = made_run(), second = made_run();
  first.scenarios = {made_scenario("a"), made_scenario("b")};
  second.scenarios = {made_scenario("b"), made_scenario("a")};
  const auto all = merged({first, second});
  CHECK(all.scenarios[0].name == "a");
  CHECK(all.scenarios[1].operations[0].latency.count() == 20);
}

TEST_CASE("clients of different runs are told apart", "[load]") {
  const std::string start = "client 2 is not of the same run as client 1: ";
  auto other = made_run();
  other.target = "http://[::1]:1";
  CHECK(refusal(made_run(), other) ==
        start + "its target is http://[::1]:1, not http://127.0.0.1:8787");
  other = made_run();
  other.scenarios[0].parameters["rate"] = "6";
  CHECK(refusal(made_run(), other) ==
        start + "it has no scenario exec-open (command = echo \"hi\", rate = 5)");
  other = made_run();
  other.scenarios[0].method = "closed loop, 8 at once";
  CHECK(refusal(made_run(), other).find("its method of exec-open") != std::string::npos);
  other = made_run();
  other.scenarios.push_back(made_scenario("burst"));
  CHECK(refusal(made_run(), other).starts_with(start + "it has a scenario more, burst"));
}
