#include "benchmarks/closed_loop.hpp"
#include "benchmarks/http_client.hpp"
#include "benchmarks/load/process_stats.hpp"
#include "benchmarks/nginx_server.hpp"
#include "benchmarks/scenario.hpp"

#include <array>
#include <stdexcept>

namespace insula::bench {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t connections = 64;

/// CPU time of a server per request, in µs, and requests per second with everything on this
/// machine.
struct cost {
  series cpu, rate;

  void next_round() {
    cpu.next_round();
    rate.next_round();
  }
};

/// A new id for every request, written into the same text.
class fresh_ids {
public:
  explicit fresh_ids(const std::string& key)
      : text_(request_text("DELETE", "/v1/sandbox/" + std::string(length, 'a'), key))
      , at_(text_.find(std::string(length, 'a'))) {}

  std::string_view next() {
    auto rest = ++count_;
    for (std::size_t i = 0; i < length; ++i, rest /= 26)
      text_[at_ + i] = static_cast<char>('a' + rest % 26);
    return text_;
  }

private:
  static constexpr std::size_t length = 26;
  std::string text_;
  std::size_t at_;
  std::uint64_t count_ = 0;
};

/// What a request costs the gateway: nothing is started, and there is nothing to wait for.
class request_cpu : public scenario {
public:
  std::string name() const override { return "server CPU per request, 64 connections"; }
  std::string about() const override {
    return "GET /health and requests that end at an actor, beside nginx";
  }

  void measure(bench& with) override {
    const auto server = with.start_insula();
    std::unique_ptr<nginx_server> nginx;
    if (!with.nginx.empty())
      nginx = std::make_unique<nginx_server>(with.nginx, with.scratch + "/nginx");
    bridge_client client{server->port(), server->key()};
    const auto id = client.create();
    client.exec(id, true_command(), clock::now());

    fresh_ids unknown{server->key()};
    const auto health = request_text("GET", "/health", {});
    // A NUL cannot be in a command: the sandbox is found, and then there is nothing to start.
    const auto refused = request_text("POST", "/v1/sandbox/" + id + "/exec", server->key(),
                                      exec_body({std::string(1, '\0')}));
    const auto health_ok = [](int status, std::string_view) { return status == 200; };
    const closed_loop::traffic plain{[&] { return std::string_view{health}; }, health_ok};
    const closed_loop::traffic missing{[&] { return unknown.next(); },
                                       [](int status, std::string_view) { return status == 204; }};
    const closed_loop::traffic found{[&] { return std::string_view{refused}; },
                                     [](int status, std::string_view body) {
                                       return status == 200 &&
                                              body.find("exec_error") != std::string_view::npos;
                                     }};
    for (auto* each : {&health_, &missing_, &found_, &nginx_})
      each->next_round();
    closed_loop to_insula{server->port(), connections};
    for (std::size_t i = 0; i < with.repeat(3, 1); ++i) {
      std::vector<step> steps{
        {&health_.cpu, [&] { run(with, to_insula, plain, server->pid(), health_); }},
        {&missing_.cpu, [&] { run(with, to_insula, missing, server->pid(), missing_); }},
        {&found_.cpu, [&] { run(with, to_insula, found, server->pid(), found_); }},
      };
      if (nginx)
        steps.push_back({&nginx_.cpu, [&] {
                           closed_loop to_nginx{nginx->port(), connections};
                           run(with, to_nginx, plain, nginx->pid(), nginx_);
                         }});
      run_in_random_order(with, std::move(steps));
    }
    server->stop();
  }

  void tell(const bench& with, report& all) const override {
    const auto floor = make_row("nginx, return 200", "µs", nginx_.cpu);
    auto health = make_row("GET /health", "µs", health_.cpu);
    auto found =
      make_row("exec that starts nothing: directory, sandbox and back", "µs", found_.cpu);
    auto missing = make_row("DELETE of an unknown id: the same, two actors made, one store read",
                            "µs", missing_.cpu);
    health.floors = found.floors = missing.floors = {{"nginx", floor.measured.p50}};
    found.wanted.times_floor = missing.wanted.times_floor = 2;
    for (const auto& each : {health, found, missing})
      all.rows.push_back(each);
    if (with.nginx.empty())
      all.remarks.push_back(
        "server CPU: nginx is not installed (Debian: nginx-light), so there is no floor");
    else
      all.rows.push_back(floor);
    const std::array<std::pair<const char*, const cost*>, 4> rates{
      {{"GET /health, rate", &health_},
       {"exec that starts nothing, rate", &found_},
       {"DELETE of an unknown id, rate", &missing_},
       {"nginx, rate", &nginx_}}};
    for (const auto& [name, which] : rates)
      if (auto rate = make_row(name, "per s", which->rate, better::higher); rate.measured.n > 0)
        all.rows.push_back(rate);
  }

private:
  static void run(const bench& with, closed_loop& loop, const closed_loop::traffic& what, pid_t pid,
                  cost& to) {
    loop.run(what, 200ms);
    const auto before = load::cpu_time(pid);
    const auto outcome = loop.run(what, with.quick ? 700ms : 2000ms);
    const auto used = load::cpu_time(pid) - before;
    for (std::uint64_t i = 0; i < outcome.failures; ++i)
      to.cpu.fail(outcome.first_failure);
    if (outcome.requests == 0)
      throw std::runtime_error("no request was answered");
    const auto requests = static_cast<double>(outcome.requests);
    to.cpu.add(std::chrono::duration<double, std::micro>(used).count() / requests);
    to.rate.add(requests / outcome.seconds);
  }

  cost health_, found_, missing_, nginx_;
};

} // namespace

std::unique_ptr<scenario> make_request_cpu() {
  return std::make_unique<request_cpu>();
}

} // namespace insula::bench
