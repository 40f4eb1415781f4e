#include "benchmarks/load/process_stats.hpp"
#include "benchmarks/scenario.hpp"

#include <algorithm>
#include <iterator>
#include <mutex>

namespace insula::bench {

namespace {

constexpr std::size_t at_once = 8;

/// A server that is killed and replaced under sandboxes that live on.
class restart : public scenario {
public:
  std::string name() const override { return "restart under 500 sandboxes"; }
  std::string about() const override {
    return "kill -9 of the server; from the start of the next until its first command has exited";
  }

  void measure(bench& with) override {
    const auto server = with.start_insula("sandbox: {max_instances: 600}");
    const auto ids = make_sandboxes(*server, with.repeat(500, 100));
    for (auto* each : {&first_, &with_none_})
      each->next_round();
    for (std::size_t i = 0; i < with.repeat(5, 2); ++i)
      replace(*server, ids, first_);
    clear(*server, ids);
    for (std::size_t i = 0; i < with.repeat(5, 2); ++i)
      replace(*server, {}, with_none_);
    server->stop();
  }

  void tell(const bench&, report& all) const override {
    auto first = make_row("start until the first command has exited", "ms", first_);
    const auto none = make_row("the same on a node with no sandbox", "ms", with_none_);
    first.wanted = {2000, {}, {}};
    first.floors = {{"no sandbox", none.measured.p50}};
    all.rows.push_back(first);
    all.rows.push_back(none);
  }

private:
  /// Each with a process that nobody waits for.
  std::vector<std::string> make_sandboxes(const insula_server& server, std::size_t count) {
    std::vector<std::string> ids;
    std::mutex mutex;
    run_at_once(
      at_once, nullptr,
      [&](std::size_t first) {
        bridge_client client{server.port(), server.key()};
        for (auto made = first; made < count; made += at_once) {
          const auto id = client.create();
          client.exec(id,
                      {{"bash", "-c", "setsid sleep 100000 > /dev/null 2>&1 < /dev/null &"}, {}},
                      clock::now());
          const std::lock_guard lock{mutex};
          ids.push_back(id);
        }
      },
      first_);
    return ids;
  }

  /// Whatever the spawner keeps, in order.
  static std::vector<pid_t> processes(const insula_server& server) {
    std::vector<pid_t> all;
    for (const auto spawner : server.spawners())
      for (const auto each : load::family_of(spawner))
        all.push_back(each);
    std::sort(all.begin(), all.end());
    return all;
  }

  void replace(insula_server& server, const std::vector<std::string>& ids, series& took) {
    const auto before = processes(server);
    if (before.size() < 2 * ids.size())
      took.fail("there are too few processes to lose");
    const auto began = server.kill_and_replace();
    bridge_client client{server.port(), server.key()};
    const auto id = ids.empty() ? client.create() : ids[ids.size() / 2];
    client.exec(id, true_command(), clock::now());
    took.add(ms_since(began));
    const auto after = processes(server);
    std::vector<pid_t> lost;
    std::set_difference(before.begin(), before.end(), after.begin(), after.end(),
                        std::back_inserter(lost));
    if (ids.empty())
      client.remove(id);
    else if (!lost.empty())
      took.fail(std::to_string(lost.size()) + " processes were lost");
  }

  void clear(const insula_server& server, const std::vector<std::string>& ids) {
    bridge_client client{server.port(), server.key()};
    for (const auto& id : ids)
      client.remove(id);
  }

  series first_, with_none_;
};

} // namespace

std::unique_ptr<scenario> make_restart() {
  return std::make_unique<restart>();
}

} // namespace insula::bench
