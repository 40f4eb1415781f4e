#include "benchmarks/child.hpp"
#include "benchmarks/host_command.hpp"
#include "benchmarks/http_client.hpp"
#include "benchmarks/scenario.hpp"

#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <unistd.h>

namespace insula::bench {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr const char* key = "INSULABENCHKEY000001";
constexpr const char* secret = "BenchSecret00000000000000000000000000001";
constexpr double megabytes = 100;

/// An S3 service on the loopback, in a directory of its own: s3rver, as the tests use it.
class s3_service {
public:
  explicit s3_service(std::string directory)
      : directory_(std::move(directory)) {
    const std::string clients = INSULA_CLIENTS_DIR;
    if (::access((clients + "/node").c_str(), X_OK) != 0)
      throw std::runtime_error("there is no S3 service in " + clients + " (./dev bench brings it)");
    fs::create_directories(directory_);
    process_ = std::make_unique<child>(child::options{
      {clients + "/node", clients + "/s3_server.mjs", directory_, "0", key, secret, "data"},
      plain_environment(),
      directory_ + "/log"});
    constexpr std::string_view before = "ready on ";
    port_ = process_->read_line(30s).substr(before.size());
  }
  ~s3_service() {
    ::kill(process_->pid(), SIGCONT);
    process_.reset();
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }
  s3_service(const s3_service&) = delete;
  s3_service& operator=(const s3_service&) = delete;

  std::string endpoint() const { return "http://127.0.0.1:" + port_; }
  void stand_still() const { ::kill(process_->pid(), SIGSTOP); }
  void go_on() const { ::kill(process_->pid(), SIGCONT); }

  /// A plain client, told what to do by its arguments.
  double curl(std::vector<std::string> words, const std::string& object) const {
    std::vector<std::string> argv{find_program("curl"),
                                  "-sSf",
                                  "--aws-sigv4",
                                  "aws:amz:us-east-1:s3",
                                  "-H",
                                  "x-amz-content-sha256: UNSIGNED-PAYLOAD",
                                  "--user",
                                  std::string{key} + ":" + secret};
    argv.insert(argv.end(), words.begin(), words.end());
    argv.push_back(endpoint() + "/data/" + object);
    return run_on_host(argv).exit_ms;
  }

private:
  std::string directory_, port_;
  std::unique_ptr<child> process_;
};

class mounts : public scenario {
public:
  std::string name() const override { return "mounts"; }
  std::string about() const override {
    return "a bucket in a sandbox: until it can be used, 100 MB out and in, a service that hangs";
  }

  void measure(bench& with) override {
    for (auto* each : {&ready_, &gone_, &write_, &read_, &put_, &get_, &stalled_})
      each->next_round();
    const s3_service service{with.scratch + "/s3"};
    const auto file = with.scratch + "/mounts-100MB";
    run_on_host(
      {"/usr/bin/dd", "if=/dev/urandom", "of=" + file, "bs=1M", "count=100", "status=none"});
    const auto server = with.start_insula("network: {allow_private: [127.0.0.1/32]}");
    {
      http_client http{server->port(), server->key()};
      bridge_client bridge{server->port(), server->key()};
      const auto id = bridge.create();
      bridge.exec(id, true_command(), clock::now());
      for (std::size_t i = 0; i < with.repeat(40, 5); ++i) {
        mount(http, service, id, true);
        unmount(http, id, true);
      }
      for (std::size_t i = 0; i < with.repeat(5, 1); ++i)
        copy(with, http, bridge, service, id, file);
      bridge.remove(id);
      for (std::size_t i = 0; i < with.repeat(5, 1); ++i)
        destroy_stalled(http, bridge, service);
    }
    server->stop();
    fs::remove(file);
  }

  void tell(const bench&, report& all) const override {
    auto ready = make_row("POST /mount, until it can be used", "ms", ready_);
    ready.wanted = {60, {}, {}};
    const auto put =
      make_row("a plain S3 client: 100 MB to the bucket", "MB/s", put_, better::higher);
    const auto get = make_row("a plain S3 client: 100 MB from it", "MB/s", get_, better::higher);
    auto write =
      make_row("100 MB written to the mount, until it is closed", "MB/s", write_, better::higher);
    auto read = make_row("100 MB read from the mount, which has not seen them", "MB/s", read_,
                         better::higher);
    write.floors = {{"plain client", put.measured.p50}};
    read.floors = {{"plain client", get.measured.p50}};
    auto stalled =
      make_row("DELETE of a sandbox that waits for a service that hangs", "ms", stalled_);
    stalled.wanted = {2000, 2000, {}};
    for (const auto& each :
         {ready, make_row("POST /unmount", "ms", gone_), write, put, read, get, stalled})
      all.rows.push_back(each);
  }

private:
  static void ask(series& to, http_client& http, const std::string& target, const std::string& body,
                  bool counts) {
    std::string answer;
    http.ready();
    const auto began = clock::now();
    const auto status = http.ask("POST", target, body, answer);
    const auto took = ms_since(began);
    if (status != 200)
      throw std::runtime_error(target + " answered with " + std::to_string(status) + ": " + answer);
    if (counts)
      to.add(took);
  }
  void mount(http_client& http, const s3_service& service, const std::string& id, bool counts) {
    ask(ready_, http, "/v1/sandbox/" + id + "/mount",
        R"({"bucket":"data","mountPath":"/mnt/data","options":{"endpoint":")" + service.endpoint() +
          R"(","credentials":{"accessKeyId":")" + key + R"(","secretAccessKey":")" + secret +
          R"("}}})",
        counts);
  }
  void unmount(http_client& http, const std::string& id, bool counts) {
    ask(gone_, http, "/v1/sandbox/" + id + "/unmount", R"({"mountPath":"/mnt/data"})", counts);
  }

  static double rate(double ms) { return megabytes * 1.048576 / (ms / 1000); }

  void copy(bench& with, http_client& http, bridge_client& bridge, const s3_service& service,
            const std::string& id, const std::string& file) {
    const auto in_sandbox = [&](series& to, const char* line) {
      bridge.ready();
      to.add(rate(bridge.exec(id, {{"sh", "-c", line}, ""}, clock::now()).exit_ms));
    };
    mount(http, service, id, false);
    bridge.exec(id, {{"sh", "-c", "head -c 104857600 /dev/urandom > /workspace/out"}, ""},
                clock::now());
    run_in_random_order(
      with, {{&write_, [&] { in_sandbox(write_, "cat /workspace/out > /mnt/data/by-mount"); }},
             {&put_, [&] {
                put_.add(rate(service.curl({"-T", file}, "by-client")));
              }}});
    unmount(http, id, false);
    mount(http, service, id, false); // Nothing of it is in memory.
    run_in_random_order(with,
                        {{&read_, [&] { in_sandbox(read_, "cat /mnt/data/by-mount > /dev/null"); }},
                         {&get_, [&] {
                            get_.add(rate(service.curl({"-o", "/dev/null"}, "by-client")));
                          }}});
    unmount(http, id, false);
  }

  void destroy_stalled(http_client& http, bridge_client& bridge, const s3_service& service) {
    const auto id = bridge.create();
    mount(http, service, id, false);
    service.stand_still();
    bridge.exec(
      id,
      {{"sh", "-c",
        "(cat /dev/zero | head -c 1000000 > /mnt/data/never) > /dev/null 2>&1 & sleep 0.3"},
       ""},
      clock::now());
    const auto began = clock::now();
    bridge.remove(id);
    stalled_.add(ms_since(began));
    service.go_on();
  }

  series ready_, gone_, write_, read_, put_, get_, stalled_;
};

} // namespace

std::unique_ptr<scenario> make_mounts() {
  return std::make_unique<mounts>();
}

} // namespace insula::bench
