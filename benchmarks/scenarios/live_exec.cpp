#include "benchmarks/host_command.hpp"
#include "benchmarks/scenario.hpp"

#include <mutex>

namespace insula::bench {

namespace {

constexpr std::size_t at_once = 5;

/// `echo hi` in a sandbox that lives: one after the other, and by five clients at once.
class live_exec : public scenario {
public:
  std::string name() const override { return "exec of echo on a live sandbox"; }
  std::string about() const override {
    return "POST exec of `echo hi`, sequential and five at once";
  }

  void measure(bench& with) override {
    const auto server = with.start_insula();
    bridge_client client{server->port(), server->key()};
    const auto id = client.create();
    for (std::size_t i = 0; i < with.repeat(100, 20); ++i) {
      client.exec(id, echo_hi(), clock::now());
      run_on_host(shell_command(echo_hi()));
    }
    for (auto* each :
         {&first_, &exit_, &host_, &bwrap_, &first_of_five_, &exit_of_five_, &host_of_five_})
      each->next_round();
    for (std::size_t i = 0; i < with.repeat(400, 60); ++i)
      one_of_each(with, client, id);
    for (std::size_t i = 0; i < with.repeat(10, 3); ++i)
      block_of_each(with, *server, id);
    server->stop();
  }

  void tell(const bench&, report& all) const override {
    const auto host = make_row("on the host: bash -c 'echo hi'", "ms", host_);
    const auto bwrap = make_row("in bubblewrap: bash -c 'echo hi'", "ms", bwrap_);
    const auto host_of_five = make_row("5 at once, on the host", "ms", host_of_five_);
    auto first = make_row("first event", "ms", first_);
    auto exit = make_row("exit", "ms", exit_);
    auto first_of_five = make_row("5 at once, first event", "ms", first_of_five_);
    auto exit_of_five = make_row("5 at once, exit", "ms", exit_of_five_);
    first.floors = exit.floors = {{"host", host.measured.p50}, {"bwrap", bwrap.measured.p50}};
    first_of_five.floors = exit_of_five.floors = {{"host", host_of_five.measured.p50}};
    exit.wanted = {1.5, 5, {}};
    for (const auto& each : {first, exit, host, bwrap, first_of_five, exit_of_five, host_of_five})
      if (each.measured.n > 0 || each.failures > 0)
        all.rows.push_back(each);
  }

private:
  void one_of_each(bench& with, bridge_client& client, const std::string& id) {
    std::vector<step> steps{
      {&exit_,
       [&] {
         client.ready();
         const auto times = client.exec(id, echo_hi(), clock::now());
         first_.add(times.first_ms);
         exit_.add(times.exit_ms);
       }},
      {&host_, [&] { host_.add(run_on_host(shell_command(echo_hi())).exit_ms); }}};
    if (!with.bwrap.empty())
      steps.push_back(
        {&bwrap_, [&] { bwrap_.add(run_on_host(in_bwrap(shell_command(echo_hi()))).exit_ms); }});
    run_in_random_order(with, std::move(steps));
  }

  void block_of_each(bench& with, const insula_server& server, const std::string& id) {
    const auto per_client = with.repeat(40, 20);
    run_in_random_order(with, {{&exit_of_five_, [&] { five_clients(server, id, per_client); }},
                               {&host_of_five_, [&] { five_shells(per_client); }}});
  }

  void five_clients(const insula_server& server, const std::string& id, std::size_t each_runs) {
    std::vector<std::unique_ptr<bridge_client>> clients(at_once);
    std::mutex mutex;
    run_at_once(
      at_once,
      [&](std::size_t i) {
        clients[i] = std::make_unique<bridge_client>(server.port(), server.key());
        clients[i]->exec(id, echo_hi(), clock::now());
      },
      [&](std::size_t i) {
        for (std::size_t n = 0; n < each_runs; ++n) {
          const auto times = clients[i]->exec(id, echo_hi(), clock::now());
          const std::lock_guard lock{mutex};
          first_of_five_.add(times.first_ms);
          exit_of_five_.add(times.exit_ms);
        }
      },
      exit_of_five_);
  }

  void five_shells(std::size_t each_runs) {
    std::mutex mutex;
    run_at_once(
      at_once, nullptr,
      [&](std::size_t) {
        for (std::size_t n = 0; n < each_runs; ++n) {
          const auto times = run_on_host(shell_command(echo_hi()));
          const std::lock_guard lock{mutex};
          host_of_five_.add(times.exit_ms);
        }
      },
      host_of_five_);
  }

  series first_, exit_, host_, bwrap_, first_of_five_, exit_of_five_, host_of_five_;
};

} // namespace

std::unique_ptr<scenario> make_live_exec() {
  return std::make_unique<live_exec>();
}

} // namespace insula::bench
