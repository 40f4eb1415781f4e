#include "benchmarks/scenario.hpp"

#include <chrono>
#include <stdexcept>
#include <thread>

namespace insula::bench {

namespace {

using namespace std::chrono_literals;

/// A server's figures, as it is asked for them. Asking starts and thaws nothing.
class figures_reader {
public:
  explicit figures_reader(const insula_server& server)
      : http_(server.port(), server.key()) {}

  double value(const std::string& sample) {
    http_.ready();
    std::string text;
    http_.ask("GET", "/metrics", {}, text);
    const auto at = text.find("\n" + sample + " ");
    if (at == std::string::npos)
      throw std::runtime_error("/metrics has no " + sample);
    return std::stod(text.substr(at + sample.size() + 2));
  }

  void wait_for_a_frozen_one() {
    const auto until = clock::now() + 30s;
    while (value("insula_sandboxes{state=\"frozen\"}") < 1) {
      if (clock::now() > until)
        throw std::runtime_error("the idle sandbox was not frozen");
      std::this_thread::sleep_for(5ms);
    }
  }

private:
  http_client http_;
};

/// The first command on a frozen sandbox, beside the same on one that runs and has rested as long.
class thaw : public scenario {
public:
  std::string name() const override { return "thaw of a frozen sandbox"; }
  std::string about() const override {
    return "POST exec of `true` on a frozen sandbox and on one that runs, and the thaw alone";
  }

  void measure(bench& with) override {
    const auto server = with.start_insula("sandbox: {freeze_after: 30ms}");
    bridge_client client{server->port(), server->key()};
    figures_reader figures{*server};
    const auto frozen = client.create(), awake = client.create();
    client.exec(awake, true_command(), clock::now());
    std::thread keeper{[&] { // A command that runs keeps that one awake.
      try {
        bridge_client other{server->port(), server->key()};
        other.exec(awake, {{"sleep", "100000"}, {}}, clock::now());
      } catch (const std::exception&) { // It ends with its sandbox.
      }
    }};
    for (auto* each : {&thaw_, &on_frozen_, &on_running_})
      each->next_round();
    try {
      client.exec(frozen, true_command(), clock::now());
      for (std::size_t i = 0; i < with.repeat(400, 40); ++i)
        one_of_each(with, client, figures, frozen, awake);
    } catch (...) {
      end(client, awake, keeper);
      throw;
    }
    end(client, awake, keeper);
    server->stop();
  }

  void tell(const bench&, report& all) const override {
    auto alone = make_row("the thaw, as the server counts it", "ms", thaw_);
    auto on_frozen = make_row("exit of `true` on a frozen sandbox", "ms", on_frozen_);
    const auto on_running = make_row("exit of `true` on a running sandbox", "ms", on_running_);
    alone.wanted = {1, 1, {}};
    on_frozen.floors = {{"running", on_running.measured.p50}};
    for (const auto& each : {alone, on_frozen, on_running})
      all.rows.push_back(each);
  }

private:
  static void end(bridge_client& client, const std::string& awake, std::thread& keeper) {
    try {
      client.remove(awake);
    } catch (const std::exception&) { // Then the server is gone, and the command with it.
    }
    keeper.join();
  }

  void one_of_each(bench& with, bridge_client& client, figures_reader& figures,
                   const std::string& frozen, const std::string& awake) {
    constexpr auto sum = "insula_sandbox_thaw_seconds_sum";
    constexpr auto count = "insula_sandbox_thaw_seconds_count";
    figures.wait_for_a_frozen_one();
    const auto so_far = figures.value(sum), times = figures.value(count);
    run_in_random_order(
      with, {{&on_frozen_,
              [&] {
                client.ready();
                on_frozen_.add(client.exec(frozen, true_command(), clock::now()).exit_ms);
              }},
             {&on_running_, [&] {
                client.ready();
                on_running_.add(client.exec(awake, true_command(), clock::now()).exit_ms);
              }}});
    if (figures.value(count) == times + 1)
      thaw_.add((figures.value(sum) - so_far) * 1000);
    else
      thaw_.fail("it was not thawed just once");
  }

  series thaw_, on_frozen_, on_running_;
};

} // namespace

std::unique_ptr<scenario> make_thaw() {
  return std::make_unique<thaw>();
}

} // namespace insula::bench
