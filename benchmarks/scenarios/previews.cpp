#include "benchmarks/closed_loop.hpp"
#include "benchmarks/http_client.hpp"
#include "benchmarks/scenario.hpp"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sched.h>
#include <stdexcept>
#include <thread>

namespace insula::bench {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr std::uint16_t port = 8080;
constexpr std::size_t connections = 16;

/// For a sandbox: one process, which keeps connections for ever.
constexpr std::string_view configuration =
  "daemon off; master_process off; worker_processes 1; pid /workspace/nginx.pid;\n"
  "error_log /workspace/nginx.log crit; events { worker_connections 1024; }\n"
  "http { access_log off; keepalive_requests 1000000000; keepalive_timeout 1h;\n"
  "  client_body_temp_path /workspace/t1; proxy_temp_path /workspace/t2;\n"
  "  fastcgi_temp_path /workspace/t3; uwsgi_temp_path /workspace/t4; scgi_temp_path "
  "/workspace/t5;\n"
  "  server { listen 127.0.0.1:8080;\n"
  "    location / { default_type application/json; return 200 '{\"ok\":true}'; } } }\n";

/// The network of the process with this in its command line.
unique_fd network_of(const std::string& words) {
  for (const auto& each : fs::directory_iterator{"/proc"}) {
    std::ifstream name{each.path() / "comm"}, file{each.path() / "cmdline"};
    std::string program;
    const std::string line{std::istreambuf_iterator<char>{file}, {}};
    if (std::getline(name, program) && program == "nginx" && line.find(words) != std::string::npos)
      if (unique_fd found{::open((each.path() / "ns/net").c_str(), O_RDONLY | O_CLOEXEC)})
        return found;
  }
  throw std::runtime_error("nginx does not run in the sandbox");
}

/// In a thread of that network.
void inside(const unique_fd& network, const std::function<void()>& what) {
  std::exception_ptr thrown;
  std::thread{[&] {
    try {
      if (::setns(network.get(), CLONE_NEWNET) != 0)
        throw std::runtime_error("entering the sandbox's network");
      what();
    } catch (...) {
      thrown = std::current_exception();
    }
  }}.join();
  if (thrown)
    std::rethrow_exception(thrown);
}

/// Requests to one nginx in a sandbox: through the node, and by who is in the sandbox's network.
class previews : public scenario {
public:
  std::string name() const override { return "previews"; }
  std::string about() const override {
    return "requests to nginx in a sandbox through the node, beside direct ones";
  }

  void measure(bench& with) override {
    if (with.nginx.empty())
      throw std::runtime_error("nginx is not installed (Debian: nginx-light)");
    for (auto* each : {&through_, &direct_, &through_rate_, &direct_rate_})
      each->next_round();
    const auto server = with.start_insula();
    {
      bridge_client client{server->port(), server->key()};
      const auto id = client.create();
      client.write_file(id, "/workspace/nginx.conf", configuration);
      const auto start = "setsid " + with.nginx +
                         " -p /workspace -c /workspace/nginx.conf -e /workspace/nginx.log "
                         ">/dev/null 2>&1 </dev/null & echo $$ >/dev/null";
      client.exec(id, {{"bash", "-c", start}, {}}, clock::now());
      const auto path = "/v1/sandbox/" + id + "/port/" + std::to_string(port);
      http_client asking{server->port(), server->key()};
      std::string answer;
      if (asking.ask("GET", path + "/ready", {}, answer) != 200)
        throw std::runtime_error("nginx does not listen: " + answer);
      const auto network = network_of("/workspace/nginx.conf");
      const auto times = with.repeat(5000, 300);
      const auto length = with.quick ? 500ms : 2000ms;
      const auto preview = request_text("GET", path + "/", server->key());
      const auto plain = request_text("GET", "/", {});
      run_in_random_order(
        with,
        {{&through_, [&] { ask(through_, server->port(), server->key(), path + "/", times); }},
         {&direct_, [&] { inside(network, [&] { ask(direct_, port, {}, "/", times); }); }},
         {&through_rate_, [&] { load(through_rate_, server->port(), preview, length); }},
         {&direct_rate_,
          [&] { inside(network, [&] { load(direct_rate_, port, plain, length); }); }}});
      client.remove(id);
    }
    server->stop();
  }

  void tell(const bench&, report& all) const override {
    auto through = make_row("one request", "µs", through_);
    const auto direct = make_row("the same, direct", "µs", direct_);
    through.floors = {{"direct", direct.measured.p50}};
    through.wanted.times_floor = 3;
    auto rate = make_row("16 connections", "per s", through_rate_, better::higher);
    const auto direct_rate = make_row("the same, direct", "per s", direct_rate_, better::higher);
    rate.floors = {{"direct", direct_rate.measured.p50}};
    for (const auto& each : {through, direct, rate, direct_rate})
      all.rows.push_back(each);
  }

private:
  static void ask(series& to, std::uint16_t where, const std::string& key, const std::string& path,
                  std::size_t times) {
    http_client client{where, key};
    std::string answer;
    for (std::size_t i = 0; i < times; ++i) {
      const auto began = clock::now();
      const auto status = client.ask("GET", path, {}, answer);
      const auto took = 1000 * ms_since(began);
      if (status == 200 && answer == R"({"ok":true})")
        to.add(took);
      else
        to.fail("answered with " + std::to_string(status));
    }
  }

  static void load(series& to, std::uint16_t where, const std::string& text,
                   std::chrono::milliseconds length) {
    closed_loop loop{where, connections};
    const closed_loop::traffic what{
      [&] { return std::string_view{text}; },
      [](int status, std::string_view body) { return status == 200 && body == R"({"ok":true})"; }};
    loop.run(what, 200ms);
    const auto outcome = loop.run(what, length);
    for (std::uint64_t i = 0; i < outcome.failures; ++i)
      to.fail(outcome.first_failure);
    to.add(static_cast<double>(outcome.requests) / outcome.seconds);
  }

  series through_, direct_, through_rate_, direct_rate_;
};

} // namespace

std::unique_ptr<scenario> make_previews() {
  return std::make_unique<previews>();
}

} // namespace insula::bench
