#include "benchmarks/load/interrupt.hpp"
#include "benchmarks/load/process_stats.hpp"
#include "benchmarks/scenario.hpp"

#include <algorithm>
#include <thread>

namespace insula::bench {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t at_once = 8;

/// Until the kernel has freed what ended processes had, as it does in the background.
constexpr auto settling = 2s;

/// All in KiB.
struct memory {
  double available = 0;
  double server = 0, spawner = 0, agents = 0; ///< Proportional: shared pages by their share.
  double slab = 0, tables = 0, stacks = 0, per_cpu = 0;
};

/// What the machine has less after so many sandboxes have been made and do nothing.
class idle_memory : public scenario {
public:
  std::string name() const override { return "memory per idle sandbox"; }
  std::string about() const override {
    return "200 sandboxes that have run `true`: what the machine has less";
  }

  void measure(bench& with) override {
    const auto server = with.start_insula();
    const auto count = with.repeat(200, 80);
    make_sandboxes(*server, at_once);
    const auto before = look(*server);
    make_sandboxes(*server, count);
    const auto after = look(*server);
    const auto each = [count](double now, double then) {
      return (now - then) / static_cast<double>(count);
    };
    for (auto* values : {&machine_, &processes_, &server_, &spawner_, &agents_, &slab_, &tables_,
                         &stacks_, &per_cpu_})
      values->next_round();
    machine_.add(each(before.available, after.available));
    server_.add(each(after.server, before.server));
    spawner_.add(each(after.spawner, before.spawner));
    agents_.add(each(after.agents, before.agents));
    processes_.add(each(after.server + after.spawner + after.agents,
                        before.server + before.spawner + before.agents));
    slab_.add(each(after.slab, before.slab));
    tables_.add(each(after.tables, before.tables));
    stacks_.add(each(after.stacks, before.stacks));
    per_cpu_.add(each(after.per_cpu, before.per_cpu));
    server->stop();
  }

  void tell(const bench&, report& all) const override {
    auto machine = make_row("whole machine (MemAvailable)", "KiB", machine_);
    machine.wanted = {1536, {}, {}};
    machine.failures = failed_.failures();
    machine.first_failure = failed_.first_failure();
    all.rows.push_back(machine);
    all.rows.push_back(make_row("server, spawner and agents (PSS)", "KiB", processes_));
    all.rows.push_back(make_row("- of it the server", "KiB", server_));
    all.rows.push_back(make_row("- of it the spawner", "KiB", spawner_));
    all.rows.push_back(make_row("- of it the agent", "KiB", agents_));
    all.rows.push_back(make_row("kernel: slab that stays", "KiB", slab_));
    all.rows.push_back(make_row("kernel: page tables", "KiB", tables_));
    all.rows.push_back(make_row("kernel: stacks", "KiB", stacks_));
    all.rows.push_back(make_row("kernel: per CPU", "KiB", per_cpu_));
  }

private:
  void make_sandboxes(const insula_server& server, std::size_t count) {
    std::vector<std::unique_ptr<bridge_client>> clients(at_once);
    run_at_once(
      at_once, nullptr,
      [&](std::size_t i) {
        bridge_client client{server.port(), server.key()};
        for (auto made = i; made < count; made += at_once)
          client.exec(client.create(), true_command(), clock::now());
      },
      failed_);
  }

  static memory look(const insula_server& server) {
    std::this_thread::sleep_for(settling);
    load::throw_if_interrupted();
    memory now;
    now.server = static_cast<double>(load::pss_kib(server.pid()));
    for (const auto spawner : server.spawners())
      for (const auto each : load::family_of(spawner))
        (each == spawner ? now.spawner : now.agents) += static_cast<double>(load::pss_kib(each));
    std::vector<double> available;
    for (int i = 0; i < 5; ++i) {
      available.push_back(static_cast<double>(load::memory_of_machine()["MemAvailable"]));
      std::this_thread::sleep_for(100ms);
    }
    now.available = quantile(available, 0.5);
    auto machine = load::memory_of_machine();
    now.slab = static_cast<double>(machine["SUnreclaim"]);
    now.tables = static_cast<double>(machine["PageTables"]);
    now.stacks = static_cast<double>(machine["KernelStack"]);
    now.per_cpu = static_cast<double>(machine["Percpu"]);
    return now;
  }

  series machine_, processes_, server_, spawner_, agents_, slab_, tables_, stacks_, per_cpu_,
    failed_;
};

} // namespace

std::unique_ptr<scenario> make_idle_memory() {
  return std::make_unique<idle_memory>();
}

} // namespace insula::bench
