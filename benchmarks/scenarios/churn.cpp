#include "benchmarks/host_command.hpp"
#include "benchmarks/scenario.hpp"

#include <mutex>

namespace insula::bench {

namespace {

constexpr std::size_t at_once = 8;

/// Eight clients that make a sandbox, run one command in it and delete it, again and again.
class churn : public scenario {
public:
  std::string name() const override { return "create, command, delete: 8 in parallel"; }
  std::string about() const override {
    return "sustained creates per second, each with `true` and DELETE";
  }

  void measure(bench& with) override {
    const auto server = with.start_insula();
    const double seconds = with.quick ? 2 : 5;
    series warming;
    sandboxes(*server, 0.5, warming, warming);
    for (auto* each : {&rate_, &each_, &host_, &bwrap_})
      each->next_round();
    std::vector<step> steps{
      {&rate_, [&] { rate_.add(sandboxes(*server, seconds, each_, rate_)); }},
      {&host_, [&] { host_.add(commands(shell_command(true_command()), seconds / 2, host_)); }}};
    if (!with.bwrap.empty())
      steps.push_back({&bwrap_, [&] {
                         bwrap_.add(
                           commands(in_bwrap(shell_command(true_command())), seconds / 2, bwrap_));
                       }});
    run_in_random_order(with, std::move(steps));
    server->stop();
  }

  void tell(const bench&, report& all) const override {
    const auto host = make_row("on the host: bash -c true", "per s", host_, better::higher);
    const auto bwrap = make_row("in bubblewrap: bash -c true", "per s", bwrap_, better::higher);
    auto rate = make_row("sandboxes", "per s", rate_, better::higher);
    rate.wanted = {300, {}, {}};
    rate.floors = {{"host", host.measured.p50}, {"bwrap", bwrap.measured.p50}};
    all.rows.push_back(rate);
    all.rows.push_back(make_row("one cycle", "ms", each_));
    all.rows.push_back(host);
    if (bwrap.measured.n > 0 || bwrap.failures > 0)
      all.rows.push_back(bwrap);
  }

private:
  using cycle = std::function<void(std::size_t)>;

  /// Cycles per second of all eight together.
  static double repeat(double seconds, const cycle& prepare, const cycle& go, series& latency,
                       series& fails) {
    std::mutex mutex;
    std::size_t done = 0;
    const auto until = clock::now() + std::chrono::milliseconds{static_cast<int>(seconds * 1000)};
    const auto began = run_at_once(
      at_once, prepare,
      [&](std::size_t i) {
        while (clock::now() < until) {
          const auto since = clock::now();
          go(i);
          const std::lock_guard lock{mutex};
          latency.add(ms_since(since));
          ++done;
        }
      },
      fails);
    return static_cast<double>(done) / (ms_since(began) / 1000);
  }

  static double sandboxes(const insula_server& server, double seconds, series& latency,
                          series& fails) {
    std::vector<std::unique_ptr<bridge_client>> clients(at_once);
    return repeat(
      seconds,
      [&](std::size_t i) {
        clients[i] = std::make_unique<bridge_client>(server.port(), server.key());
        clients[i]->ready();
      },
      [&](std::size_t i) {
        const auto id = clients[i]->create();
        clients[i]->exec(id, true_command(), clock::now());
        clients[i]->remove(id);
      },
      latency, fails);
  }

  static double commands(const std::vector<std::string>& argv, double seconds, series& fails) {
    series latency;
    return repeat(
      seconds, nullptr, [&](std::size_t) { run_on_host(argv); }, latency, fails);
  }

  series rate_, each_, host_, bwrap_;
};

} // namespace

std::unique_ptr<scenario> make_churn() {
  return std::make_unique<churn>();
}

} // namespace insula::bench
