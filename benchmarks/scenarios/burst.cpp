#include "benchmarks/host_command.hpp"
#include "benchmarks/scenario.hpp"

#include <algorithm>

namespace insula::bench {

namespace {

constexpr std::size_t crowd = 100;

/// A hundred clients that each want a sandbox and one command in it, all at the same moment.
class burst : public scenario {
public:
  std::string name() const override { return "burst of 100 sandboxes, one command each"; }
  std::string about() const override {
    return "100 x POST /v1/sandbox and exec `true` at once: wall clock";
  }

  void measure(bench& with) override {
    const auto server = with.start_insula();
    bridge_client client{server->port(), server->key()};
    client.remove(first_sandbox(client));
    for (auto* each : {&wall_, &first_, &each_, &host_, &bwrap_})
      each->next_round();
    for (std::size_t i = 0; i < with.repeat(3, 1); ++i) {
      std::vector<step> steps{
        {&wall_, [&] { sandboxes(*server); }},
        {&host_, [&] { host_.add(commands(shell_command(true_command()), host_)); }}};
      if (!with.bwrap.empty())
        steps.push_back({&bwrap_, [&] {
                           bwrap_.add(commands(in_bwrap(shell_command(true_command())), bwrap_));
                         }});
      run_in_random_order(with, std::move(steps));
    }
    server->stop();
  }

  void tell(const bench&, report& all) const override {
    const auto host = make_row("on the host: 100 x bash -c true, last exit", "ms", host_);
    const auto bwrap = make_row("in bubblewrap: 100 x bash -c true, last exit", "ms", bwrap_);
    auto wall = make_row("last exit (wall clock)", "ms", wall_);
    wall.wanted = {600, {}, {}};
    wall.floors = {{"host", host.measured.p50}, {"bwrap", bwrap.measured.p50}};
    all.rows.push_back(wall);
    all.rows.push_back(make_row("first sandbox ready", "ms", first_));
    all.rows.push_back(make_row("each: from the start to its exit", "ms", each_));
    all.rows.push_back(host);
    if (bwrap.measured.n > 0 || bwrap.failures > 0)
      all.rows.push_back(bwrap);
  }

private:
  static std::string first_sandbox(bridge_client& client) {
    auto id = client.create();
    client.exec(id, true_command(), clock::now());
    return id;
  }

  void sandboxes(const insula_server& server) {
    std::vector<std::unique_ptr<bridge_client>> clients(crowd);
    std::vector<std::string> ids(crowd);
    std::vector<clock::time_point> first(crowd, clock::time_point::max()),
      exit(crowd, clock::time_point::min());
    const auto ms = [](double value) {
      return std::chrono::duration_cast<clock::duration>(
        std::chrono::duration<double, std::milli>{value});
    };
    const auto began = run_at_once(
      crowd,
      [&](std::size_t i) {
        clients[i] = std::make_unique<bridge_client>(server.port(), server.key());
        clients[i]->ready();
      },
      [&](std::size_t i) {
        const auto since = clock::now();
        ids[i] = clients[i]->create();
        const auto times = clients[i]->exec(ids[i], true_command(), since);
        first[i] = since + ms(times.first_ms);
        exit[i] = since + ms(times.exit_ms);
      },
      wall_);
    wall_.add(ms_between(began, *std::max_element(exit.begin(), exit.end())));
    first_.add(ms_between(began, *std::min_element(first.begin(), first.end())));
    for (const auto& each : exit)
      if (each != clock::time_point::min())
        each_.add(ms_between(began, each));
    for (std::size_t i = 0; i < crowd; ++i)
      if (!ids[i].empty())
        clients[i]->remove(ids[i]);
  }

  static double commands(const std::vector<std::string>& argv, series& fails) {
    const auto began = run_at_once(
      crowd, nullptr, [&](std::size_t) { run_on_host(argv); }, fails);
    return ms_since(began);
  }

  series wall_, first_, each_, host_, bwrap_;
};

} // namespace

std::unique_ptr<scenario> make_burst() {
  return std::make_unique<burst>();
}

} // namespace insula::bench
