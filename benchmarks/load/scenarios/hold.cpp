#include "benchmarks/load/scenarios/scenarios.hpp"

#include <map>

namespace insula::load {

namespace {

const std::string marker = "/workspace/marker";
constexpr std::uint64_t marker_bytes = 200;
constexpr std::size_t at_the_same_time = 16;

struct held {
  std::string id;
  pattern wanted;
};

task<> run(scenario_context& in) {
  in.found.method = "create, hold, check again";
  auto& creates = in.operation("create");
  auto& checks = in.operation("check");
  // The classes stand in the result even if nobody is in them.
  std::map<std::string, std::uint64_t> classes{
    {"fine", 0}, {"refused", 0}, {"lost files", 0}, {"dead", 0}, {"timed out", 0}};
  std::vector<held> all;
  auto left = in.part("sandboxes");

  const auto make = [&]() -> task<ending> {
    const auto made = co_await in.with.api.create();
    if (!made.ok()) {
      ++classes["refused"];
      co_return made;
    }
    held one{made.id, pattern{in.random(), marker_bytes}};
    const auto written = co_await in.with.api.write_file(one.id, marker, one.wanted);
    if (written.ok())
      all.push_back(std::move(one));
    else
      ++classes["refused"];
    co_return written;
  };
  const auto check = [&](const held& one) -> task<ending> {
    const auto ran = co_await in.with.api.exec(one.id, echo_hi(in));
    if (!ran.ok()) {
      ++classes[ran.failure == failure::timeout ? "timed out" : "dead"];
      co_return ran;
    }
    const auto read = co_await in.with.api.read_file(one.id, marker, one.wanted);
    const bool lost = read.failure == "status 404" || read.failure == failure::wrong_bytes;
    ++classes[read.ok()                          ? "fine"
              : read.failure == failure::timeout ? "timed out"
              : lost                             ? "lost files"
                                                 : "dead"];
    co_return read;
  };

  const activity create{&creates, make};
  const auto makers = [&]() -> task<> {
    while (left > 0 && !in.ending()) {
      --left;
      co_await in_turn(in, 1, create);
    }
  };
  task_group making{in.with.io};
  for (std::size_t i = 0; i < at_the_same_time; ++i)
    making.start(makers());
  co_await making.wait();

  const auto until = clock::now() + in.seconds("hold");
  while (clock::now() < until && !in.ending())
    co_await sleep_until(in.with.io,
                         std::min(until, clock::now() + std::chrono::milliseconds{100}));

  std::size_t next = 0;
  const auto checkers = [&]() -> task<> {
    while (next < all.size() && !in.ending()) {
      const auto& one = all[next++];
      const activity look{&checks, [&] { return check(one); }};
      co_await in_turn(in, 1, look);
    }
  };
  task_group checking{in.with.io};
  for (std::size_t i = 0; i < at_the_same_time; ++i)
    checking.start(checkers());
  co_await checking.wait();
  for (const auto& [name, count] : classes)
    in.value(name, static_cast<double>(count), "", name == "fine");
}

} // namespace

scenario hold() {
  return {
    "hold",
    "Creates that many with a file in each, holds them, and looks at each again: fine; refused "
    "when it was made; lost files (it answers, but the file is gone: it has ended and begun "
    "anew); dead; timed out.",
    {{"sandboxes", parameter_kind::count, "100", "10", "how many"},
     {"hold", parameter_kind::seconds, "15s", "1s", "how long nobody asks them anything"}},
    true,
    false,
    run};
}

} // namespace insula::load
