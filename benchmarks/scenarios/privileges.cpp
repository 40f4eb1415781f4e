#include "benchmarks/scenario.hpp"

#include <string_view>

namespace insula::bench {

namespace {

/// A sandbox with the privileges `sudo` beside one with `none`, in pairs on the same server.
class privileges : public scenario {
public:
  std::string name() const override { return "create with privileges"; }
  std::string about() const override {
    return "create + true with Insula-Privileges: sudo, beside the same with none, in pairs";
  }

  void measure(bench& with) override {
    const auto server = with.start_insula();
    bridge_client client{server->port(), server->key()};
    compared warming; // The first sandbox with sudo makes what all others share.
    for (std::size_t i = 0; i < with.repeat(10, 3); ++i)
      one_pair(with, client, warming);
    if (warming.sudo.failures() > 0)
      measured_.sudo.fail(warming.sudo.first_failure());
    measured_.sudo.next_round();
    measured_.none.next_round();
    for (std::size_t i = 0; i < with.repeat(200, 20); ++i)
      one_pair(with, client, measured_);
    server->stop();
  }

  void tell(const bench&, report& all) const override {
    auto sudo = make_row("create + true, exit: privileges sudo", "ms", measured_.sudo);
    const auto none = make_row("create + true, exit: privileges none", "ms", measured_.none);
    sudo.wanted = {{}, {}, 1.03};
    sudo.floors = {{"none", none.measured.p50}};
    all.rows.push_back(sudo);
    all.rows.push_back(none);
  }

private:
  struct compared {
    series sudo, none;
  };

  static void one_pair(bench& with, bridge_client& client, compared& to) {
    run_in_random_order(
      with, {{&to.sudo, [&] { create_one(client, to.sudo, "Insula-Privileges: sudo\r\n"); }},
             {&to.none, [&] { create_one(client, to.none, "Insula-Privileges: none\r\n"); }}});
  }

  static void create_one(bridge_client& client, series& to, std::string_view fields) {
    client.ready();
    const auto since = clock::now();
    const auto id = client.create();
    to.add(client.exec(id, true_command(), since, fields).exit_ms);
    client.remove(id);
  }

  compared measured_;
};

} // namespace

std::unique_ptr<scenario> make_privileges() {
  return std::make_unique<privileges>();
}

} // namespace insula::bench
