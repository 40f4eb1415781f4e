#include "benchmarks/load/scenarios/scenarios.hpp"

namespace insula::load {

namespace {

constexpr std::uint64_t file_bytes = 4096;
constexpr std::uint64_t names = 64; ///< Of files that are written, over and over.

std::string path_of(std::uint64_t number) {
  return "/workspace/mixed-" + std::to_string(number);
}

} // namespace

task<> run_mixed(scenario_context& in) {
  const auto sandboxes = co_await in.live_sandboxes(in.part("sandboxes"));
  if (sandboxes.empty())
    throw scenario_skipped("there are fewer sandboxes than clients");
  // One file in each that stays as it is, for the readers.
  const pattern steady{in.with.seed, file_bytes};
  for (const auto& each : sandboxes) {
    const auto written = co_await in.with.api.write_file(each, "/workspace/steady", steady);
    if (!written.ok())
      throw scenario_failed("a file to read could not be written: " + written.failure);
  }

  auto& deletes = in.operation("delete");
  const auto any = [&in, &sandboxes]() -> const std::string& {
    return sandboxes[in.random() % sandboxes.size()];
  };
  const auto read = [&in, &any, steady] {
    return in.with.api.read_file(any(), "/workspace/steady", steady);
  };
  const auto write = [&in, &any] {
    const auto number = in.random() % names;
    return in.with.api.write_file(any(), path_of(number), {number, file_bytes});
  };
  const auto create = [&in, &deletes]() -> task<ending> {
    const auto made = co_await in.with.api.create();
    if (!made.ok())
      co_return made;
    const auto ran = co_await in.with.api.exec(made.id, echo_hi(in));
    const auto began = clock::now();
    deletes.started(began, began);
    const auto gone = co_await in.with.api.remove(made.id);
    deletes.ended(began, began, gone);
    co_return ran;
  };
  const std::vector<activity> what{
    exec_on_any(in, sandboxes, in.operation("exec"), in.number("exec")),
    {&in.operation("read"), read, in.number("read")},
    {&in.operation("write"), write, in.number("write")},
    {&in.operation("create"), create, in.number("create")}};
  co_await drive(in, what);
}

namespace {

std::vector<parameter> parameters(const char* duration) {
  return {rate_parameter("50", "20"),
          duration_parameter(duration, "2s"),
          warm_up_parameter(),
          {"sandboxes", parameter_kind::count, "10", "3", "how many live all the time"},
          {"exec", parameter_kind::number, "70", "70", "weight of `echo hi` on any of them"},
          {"read", parameter_kind::number, "15", "15", "weight of reading 4 KiB"},
          {"write", parameter_kind::number, "10", "10", "weight of writing 4 KiB"},
          {"create", parameter_kind::number, "5", "5",
           "weight of a new sandbox with one command, which is deleted"}};
}

task<> run_soak(scenario_context& in) {
  constexpr const char* memory = "process_resident_memory_bytes";
  constexpr double mib = 1 << 20;
  const auto before = co_await in.with.api.metric(memory);
  co_await run_mixed(in);
  const auto after = co_await in.with.api.metric(memory);
  if (in.with.part.index > 0)
    co_return; // One of those that share it is enough.
  if (!before || !after) {
    in.found.notes.push_back("the server does not tell its memory (GET /metrics)");
    co_return;
  }
  in.value("server memory at the beginning", *before / mib, "MiB");
  in.value("server memory at the end", *after / mib, "MiB");
  in.value("server memory growth", (*after - *before) / mib, "MiB");
}

} // namespace

scenario mixed() {
  return {
    "mixed",
    "A bit of everything at one rate: commands, reads, writes, and sandboxes that come and go "
    "(`create`: until the exit of their one command; `delete` from its own beginning).",
    parameters("20s"),
    true,
    false,
    run_mixed};
}

scenario soak() {
  return {"soak",
          "The mixed load for a long time, with the server's own memory before and after it.",
          parameters("10m"),
          true,
          false,
          run_soak};
}

} // namespace insula::load
