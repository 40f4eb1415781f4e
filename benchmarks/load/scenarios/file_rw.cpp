#include "benchmarks/load/scenarios/scenarios.hpp"

#include <utility>

namespace insula::load {

namespace {

struct size_class {
  const char* name;
  std::uint64_t bytes;
  const char* times;
};

constexpr size_class sizes[] = {{"1 KB", 1000, "small"},
                                {"64 KB", 64'000, "small"},
                                {"1 MiB", 1 << 20, "middle"},
                                {"32 MiB", 32 << 20, "large"}};

task<> run(scenario_context& in) {
  in.found.method = "one after the other";
  const auto sandboxes = co_await in.live_sandboxes(1);
  const auto& id = sandboxes.front();
  std::uint64_t number = 0;
  for (const auto& size : sizes) {
    auto& writes = in.operation(std::string{"write "} + size.name);
    auto& reads = in.operation(std::string{"read "} + size.name);
    // A new file each time: to replace one is more work, and one that nobody asks about.
    for (std::uint64_t i = 0; i < in.count(size.times) && !in.ending(); ++i) {
      ++number;
      const auto path = "/workspace/file-" + std::to_string(number);
      const pattern bytes{in.with.seed + number, size.bytes};
      const activity write{&writes, [&] { return in.with.api.write_file(id, path, bytes); }};
      const activity read{&reads, [&] { return in.with.api.read_file(id, path, bytes); }};
      co_await in_turn(in, 1, write);
      co_await in_turn(in, 1, read);
      command tidy{{"rm", "-f", path}, {}, in.with.api.patience()};
      co_await in.with.api.exec(id, std::move(tidy));
    }
    if (size.bytes >= 1 << 20)
      for (const auto* each : {&writes, &reads})
        if (const auto& done = each->result(); done.latency.count() > 0)
          in.value(done.name + " throughput",
                   static_cast<double>(done.bytes) / done.latency.sum_us(), "MB/s", true);
  }
}

} // namespace

scenario file_rw() {
  return {
    "file-rw",
    "`PUT` of a new file and `GET` of the same, compared byte by byte: from the request to the "
    "end of the answer, for 1 KB, 64 KB, 1 MiB and 32 MiB.",
    {{"small", parameter_kind::count, "100", "10", "files of 1 KB and of 64 KB each"},
     {"middle", parameter_kind::count, "50", "5", "files of 1 MiB"},
     {"large", parameter_kind::count, "10", "2", "files of 32 MiB"}},
    false,
    false,
    run};
}

} // namespace insula::load
