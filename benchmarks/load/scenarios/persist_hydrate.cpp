#include "benchmarks/load/scenarios/scenarios.hpp"

namespace insula::load {

namespace {

/// What a workspace holds, in one line.
task<std::string> digest_of(scenario_context& in, std::string id) {
  command what{{"sh", "-c",
                "cd /workspace && find . -type f -exec sha256sum {} + | LC_ALL=C sort | sha256sum"},
               {},
               in.with.api.patience()};
  const auto ran = co_await in.with.api.exec(id, std::move(what));
  if (!ran.ok())
    throw scenario_failed("the files in a workspace could not be read: " + ran.failure);
  co_return ran.output;
}

task<> run(scenario_context& in) {
  in.found.method = "one after the other";
  const auto sandboxes = co_await in.live_sandboxes(1);
  const auto& from = sandboxes.front();
  const auto files = std::to_string(in.count("files"));
  command fill{{"sh", "-c",
                "mkdir -p d && i=0; while [ $i -lt " + files +
                  " ]; do echo \"file $i\" > d/f$i; i=$((i+1)); done"},
               {},
               in.with.api.patience()};
  const auto filled = co_await in.with.api.exec(from, std::move(fill));
  const pattern large{in.with.seed, in.count("large-bytes")};
  const auto written = co_await in.with.api.write_file(from, "/workspace/large", large);
  if (!filled.ok() || !written.ok())
    throw scenario_failed("the workspace could not be filled: " + filled.failure + written.failure);
  const auto wanted = co_await digest_of(in, from);

  auto& persists = in.operation("persist");
  auto& hydrates = in.operation("hydrate");
  std::string archive;
  for (std::uint64_t i = 0; i < in.count("rounds") && !in.ending(); ++i) {
    const auto targets = co_await in.live_sandboxes(1);
    const auto& to = targets.front();
    const activity pack{&persists, [&] { return in.with.api.persist(from, archive); }};
    co_await in_turn(in, 1, pack);
    const auto unpack_and_look = [&]() -> task<ending> {
      auto end = co_await in.with.api.hydrate(to, archive);
      if (!end.ok())
        co_return end;
      end.at = clock::now(); // Looking at what is there now is not in it.
      const auto there = co_await digest_of(in, to);
      if (there != wanted)
        end.failure = failure::wrong_bytes;
      co_return end;
    };
    const activity unpack{&hydrates, unpack_and_look};
    co_await in_turn(in, 1, unpack);
    co_await in.with.api.remove(to);
  }
  for (const auto* each : {&persists, &hydrates})
    if (const auto& done = each->result(); done.latency.count() > 0)
      in.value(done.name + " throughput", static_cast<double>(done.bytes) / done.latency.sum_us(),
               "MB/s", true);
}

} // namespace

scenario persist_hydrate() {
  return {
    "persist-hydrate",
    "A workspace as an archive, and that archive into a new sandbox, where every file's digest "
    "is compared: each until the end of its answer.",
    {{"rounds", parameter_kind::count, "10", "2", "how often"},
     {"files", parameter_kind::count, "200", "50", "small files in the workspace"},
     {"large-bytes", parameter_kind::count, "8388608", "1048576", "and one of that size"}},
    false,
    false,
    run};
}

} // namespace insula::load
