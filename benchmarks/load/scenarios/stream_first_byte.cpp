#include "benchmarks/load/scenarios/scenarios.hpp"

namespace insula::load {

namespace {

task<> run(scenario_context& in) {
  const auto sandboxes = co_await in.live_sandboxes(in.part("sandboxes"));
  if (sandboxes.empty())
    throw scenario_skipped("there are fewer sandboxes than clients");
  const auto script = "echo first; sleep " + in.words("goes-on").front();
  const auto until_first = [&in, &sandboxes, &script]() -> task<ending> {
    const auto& id = sandboxes[in.random() % sandboxes.size()];
    command what{{"sh", "-c", script}, "first\n", in.with.api.patience()};
    const auto ran = co_await in.with.api.exec(id, std::move(what));
    ending end = ran;
    if (ran.ok())
      end.at = ran.first_output;
    co_return end;
  };
  const std::vector<activity> what{{&in.operation("first byte"), until_first}};
  co_await drive(in, what);
}

} // namespace

scenario stream_first_byte() {
  return {"stream-first-byte",
          "A command that prints a line and goes on: until the event with that line. It counts "
          "only if the stream also ends as it should.",
          {rate_parameter("20", "10"),
           duration_parameter("15s", "2s"),
           warm_up_parameter(),
           {"sandboxes", parameter_kind::count, "10", "3", "how many there are"},
           {"goes-on", parameter_kind::words, "0.2", "0.1", "seconds that the command goes on"}},
          true,
          false,
          run};
}

} // namespace insula::load
