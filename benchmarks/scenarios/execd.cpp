#include "benchmarks/host_command.hpp"
#include "benchmarks/http_client.hpp"
#include "benchmarks/load/process_stats.hpp"
#include "benchmarks/scenario.hpp"

#include <stdexcept>

namespace insula::bench {

namespace {

constexpr std::size_t many = 1000;

/// A text member of a line of JSON that has no escapes.
std::string member(const std::string& json, const std::string& name) {
  const auto mark = "\"" + name + "\":\"";
  const auto at = json.find(mark);
  return at == std::string::npos
           ? std::string{}
           : json.substr(at + mark.size(), json.find('"', at + mark.size()) - at - mark.size());
}

/// OpenSandbox's execd: commands, their status, their logs.
class execd : public scenario {
public:
  std::string name() const override { return "execd"; }
  std::string about() const override {
    return "OpenSandbox's commands: echo, status, 100 MB of output, 1,000 in the background";
  }

  void measure(bench& with) override {
    for (auto* each : {&echo_, &bridge_, &host_, &status_, &output_, &memory_, &starts_, &polls_})
      each->next_round();
    const auto server = with.start_insula();
    {
      bridge_client bridge{server->port(), server->key()};
      const auto id = bridge.create();
      bridge.exec(id, true_command(), clock::now());
      http_client client{server->port(), server->key()};
      const auto base = "/sandboxes/" + id + "/proxy/44772";
      for (std::size_t i = 0; i < with.repeat(300, 40); ++i)
        run_in_random_order(
          with, {{&echo_, [&] { echo(client, base, true); }},
                 {&bridge_,
                  [&] {
                    bridge.ready();
                    bridge_.add(bridge.exec(id, echo_hi(), clock::now()).exit_ms);
                  }},
                 {&host_, [&] { host_.add(run_on_host(shell_command(echo_hi())).exit_ms); }}});
      const auto last = echo(client, base, false);
      for (std::size_t i = 0; i < with.repeat(2000, 100); ++i)
        ask(status_, client, base + "/command/status/" + last);
      for (std::size_t i = 0; i < with.repeat(3, 1); ++i)
        print(client, base, server->pid(), with.repeat(100, 10) * 1'000'000);
      in_the_background(client, base, with.repeat(many, 50));
      bridge.remove(id);
    }
    server->stop();
  }

  void tell(const bench&, report& all) const override {
    auto echoed = make_row("POST /command with echo, whole stream", "ms", echo_);
    const auto bridge = make_row("the same by the bridge", "ms", bridge_);
    const auto host = make_row("on the host: bash -c 'echo hi'", "ms", host_);
    echoed.floors = {{"host", host.measured.p50}, {"bridge", bridge.measured.p50}};
    echoed.wanted = {1.5, {}, {}};
    auto status = make_row("GET /command/status", "ms", status_);
    status.wanted = {0.3, {}, {}};
    auto output = make_row("100 MB of output in one command", "MB/s", output_, better::higher);
    output.wanted = {200, {}, {}};
    const auto memory = make_row("the server's memory grows by", "MiB", memory_);
    const auto starts = make_row("1,000 in the background: each start", "ms", starts_);
    const auto polls = make_row("1,000 in the background: each poll of a log", "ms", polls_);
    for (const auto& each : {echoed, bridge, host, status, output, memory, starts, polls})
      all.rows.push_back(each);
  }

private:
  /// Its id.
  std::string echo(http_client& client, const std::string& base, bool counts) {
    client.ready();
    std::string events;
    const auto began = clock::now();
    const auto status = client.ask("POST", base + "/command", R"({"command":"echo hi"})", events);
    const auto took = ms_since(began);
    const bool good = status == 200 && events.find(R"("text":"hi\n")") != std::string::npos &&
                      events.find("execution_complete") != std::string::npos;
    if (!good)
      echo_.fail("answered with " + std::to_string(status) + ": " + events);
    else if (counts)
      echo_.add(took);
    return member(events, "text");
  }

  static std::string ask(series& to, http_client& client, const std::string& path) {
    std::string answer;
    const auto began = clock::now();
    const auto status = client.ask("GET", path, {}, answer);
    const auto took = ms_since(began);
    if (status == 200)
      to.add(took);
    else
      to.fail("answered with " + std::to_string(status) + ": " + answer);
    return answer;
  }

  /// Lines of a hundred bytes.
  void print(http_client& client, const std::string& base, pid_t server, std::size_t bytes) {
    const auto line = std::string(99, 'x');
    const auto command =
      R"({"command":"yes )" + line + " | head -c " + std::to_string(bytes) + R"("})";
    load::reset_peak(server);
    const auto before = load::status_kib(server, "VmRSS");
    std::uint64_t events = 0;
    const auto began = clock::now();
    const auto status = client.ask("POST", base + "/command", command,
                                   [&](std::string_view piece) { events += piece.size(); });
    const auto took = ms_since(began);
    if (status != 200 || events < bytes)
      return output_.fail("answered with " + std::to_string(status) + " and " +
                          std::to_string(events) + " bytes");
    output_.add(static_cast<double>(bytes) / 1000 / took);
    memory_.add(static_cast<double>(load::status_kib(server, "VmHWM") - before) / 1024);
  }

  void in_the_background(http_client& client, const std::string& base, std::size_t count) {
    std::vector<std::string> ids;
    for (std::size_t i = 0; i < count; ++i) {
      std::string events;
      const auto began = clock::now();
      const auto status = client.ask(
        "POST", base + "/command", R"({"command":"echo one; echo two","background":true})", events);
      const auto took = ms_since(began);
      ids.push_back(member(events, "text"));
      if (status == 200 && !ids.back().empty())
        starts_.add(took);
      else
        starts_.fail("answered with " + std::to_string(status) + ": " + events);
    }
    for (int round = 0; round < 2; ++round)
      for (const auto& id : ids)
        ask(polls_, client, base + "/command/" + id + "/logs?cursor=" + (round == 0 ? "-1" : "1"));
  }

  series echo_, bridge_, host_, status_, output_, memory_, starts_, polls_;
};

} // namespace

std::unique_ptr<scenario> make_execd() {
  return std::make_unique<execd>();
}

} // namespace insula::bench
