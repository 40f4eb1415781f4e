#include "benchmarks/host_command.hpp"
#include "benchmarks/scenario.hpp"

namespace insula::bench {

namespace {

/// One command, first thing in a sandbox made for it, beside the same on the machine and in
/// bubblewrap.
struct compared {
  command what;
  series first, exit, host, bwrap;

  void next_round() {
    for (auto* each : {&first, &exit, &host, &bwrap})
      each->next_round();
  }
};

class cold_create : public scenario {
public:
  std::string name() const override { return "cold create"; }
  std::string about() const override {
    return "POST /v1/sandbox, then its first command; DELETE is timed by itself";
  }

  void measure(bench& with) override {
    const auto server = with.start_insula();
    bridge_client client{server->port(), server->key()};
    std::vector<compared*> commands{&quiet_};
    if (!with.node.empty())
      commands.push_back(&node_);
    series warming;
    for (std::size_t i = 0; i < with.repeat(10, 3); ++i)
      one_of_each(with, client, commands, &warming);
    remove_.next_round();
    for (auto* each : commands)
      each->next_round();
    for (std::size_t i = 0; i < with.repeat(60, 15); ++i)
      one_of_each(with, client, commands, nullptr);
    server->stop();
  }

  void tell(const bench& with, report& all) const override {
    tell_command(all, quiet_, "true", {});
    if (with.node.empty())
      all.remarks.push_back(
        "cold create: there is no node in /usr/bin, so `node -v` is not measured");
    else
      tell_command(all, node_, "node -v", {12, 30, {}});
    all.rows.push_back(make_row("DELETE of a sandbox", "ms", remove_));
  }

private:
  void one_of_each(bench& with, bridge_client& client, const std::vector<compared*>& commands,
                   series* instead) {
    std::vector<step> steps;
    const auto keep = [instead](series& values, double ms) {
      (instead != nullptr ? *instead : values).add(ms);
    };
    for (auto* each : commands) {
      steps.push_back(
        {&each->exit, [&client, &keep, each, this] { create_one(client, *each, keep); }});
      steps.push_back({&each->host, [&keep, each] {
                         keep(each->host, run_on_host(shell_command(each->what)).exit_ms);
                       }});
      if (!with.bwrap.empty())
        steps.push_back({&each->bwrap, [&keep, each] {
                           keep(each->bwrap,
                                run_on_host(in_bwrap(shell_command(each->what))).exit_ms);
                         }});
    }
    run_in_random_order(with, std::move(steps));
  }

  template <class Keep>
  void create_one(bridge_client& client, compared& each, const Keep& keep) {
    client.ready();
    const auto since = clock::now();
    const auto id = client.create();
    const auto times = client.exec(id, each.what, since);
    keep(each.first, times.first_ms);
    keep(each.exit, times.exit_ms);
    const auto deleting = clock::now();
    client.remove(id);
    keep(remove_, ms_since(deleting));
  }

  static void tell_command(report& all, const compared& each, const std::string& name,
                           target wanted) {
    const auto host = make_row("on the host: bash -c '" + name + "'", "ms", each.host);
    const auto bwrap = make_row("in bubblewrap: bash -c '" + name + "'", "ms", each.bwrap);
    const std::vector<floor_of_row> floors{{"host", host.measured.p50},
                                           {"bwrap", bwrap.measured.p50}};
    auto first = make_row("create + " + name + ", first event", "ms", each.first);
    auto exit = make_row("create + " + name + ", exit", "ms", each.exit);
    first.floors = exit.floors = floors;
    exit.wanted = wanted;
    for (const auto& made : {first, exit, host, bwrap})
      if (made.measured.n > 0 || made.failures > 0)
        all.rows.push_back(made);
  }

  compared quiet_{true_command(), {}, {}, {}, {}};
  compared node_{node_version(), {}, {}, {}, {}};
  series remove_;
};

} // namespace

std::unique_ptr<scenario> make_cold_create() {
  return std::make_unique<cold_create>();
}

} // namespace insula::bench
