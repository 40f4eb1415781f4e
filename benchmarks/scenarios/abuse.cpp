#include "benchmarks/load/interrupt.hpp"
#include "benchmarks/load/process_stats.hpp"
#include "benchmarks/scenario.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <stdexcept>
#include <thread>

namespace insula::bench {

namespace {

using namespace std::chrono_literals;

/// An attack that has not begun by then is measured all the same: it is on its way.
constexpr auto start_patience = 10s;

/// Modest, so that each attack reaches its limit within seconds.
constexpr const char* ceilings =
  "sandbox: {limits: {memory: 512MiB, disk: 1GiB, shm: 128MiB, processes: 512}}";

struct attack {
  const char* name;
  std::string command; ///< For insula_attack, as bash reads it.
  std::size_t sandboxes = 1;
  bool neighbour_too = false;
  bool read = true; ///< Is somebody there for its output?
};

const std::vector<attack>& all_attacks() {
  static const std::vector<attack> all{
    {"fork bomb", "fork_bomb"},
    {"100,000 threads", "threads 100000"},
    {"zombie storm", "zombies"},
    {"memory hog, again and again", "again memory"},
    {"twenty hogs", "again hogs 20 64"},
    {"disk fill", "bytes ."},
    {"inode fill", "inodes ."},
    {"/dev/shm fill", "bytes /dev/shm"},
    {"/dev/shm inodes", "inodes /dev/shm"},
    {"open files, 16 processes", "descriptors files 16"},
    {"sockets, 16 processes", "descriptors unix 16"},
    {"descriptors in flight", "descriptors rights 16"},
    {"terminals", "terminals"},
    {"output, with a reader", "flood 1000"},
    {"output, without a reader", "flood 1000", 1, false, false},
    {"CPU burn in four sandboxes", "burn 4", 4},
    {"CPU burn in every sandbox", "burn 4", 4, true},
    {"SIGSTOP to everybody", "stop"},
  };
  return all;
}

/// One command that means harm, from its first output until its sandbox is deleted.
class running_attack {
public:
  running_attack(const insula_server& server, std::string id, const attack& what)
      : id_(std::move(id))
      , client_([this, &server, &what] { run(server, what); }) {
    begun_.get_future().wait_for(start_patience);
  }
  /// Its sandbox has been deleted.
  ~running_attack() { client_.join(); }
  running_attack(const running_attack&) = delete;
  running_attack& operator=(const running_attack&) = delete;

private:
  void run(const insula_server& server, const attack& what) {
    bool told = false;
    try {
      http_client http{server.port(), server.key()};
      http.ask("POST", "/v1/sandbox/" + id_ + "/exec",
               exec_body({"bash", "-c", "./attack " + what.command}), [&](std::string_view) {
                 if (!std::exchange(told, true))
                   begun_.set_value();
                 if (!what.read)
                   throw std::runtime_error("has seen enough");
               });
    } catch (const std::exception&) {
      // It is cut off in the middle, by us or by the DELETE.
    }
    if (!told)
      begun_.set_value();
  }

  const std::string id_;
  std::promise<void> begun_;
  std::thread client_;
};

/// A neighbour's `echo hi` while another sandbox misbehaves, beside the same while nothing does.
class abuse : public scenario {
public:
  std::string name() const override { return "abuse: a neighbour's exec"; }
  std::string about() const override {
    return "exec of `echo hi` while another sandbox is attacked from inside, for each attack";
  }

  void measure(bench& with) override {
    const auto server = with.start_insula(ceilings);
    bridge_client client{server->port(), server->key()};
    const auto neighbour = client.create();
    put_program(client, neighbour);
    for (auto* each : {&idle_, &growth_})
      each->next_round();
    const auto count = with.repeat(400, 60);
    run_execs(client, neighbour, count / 4, nullptr);
    for (const auto& each : all_attacks()) {
      auto& its = results_[each.name];
      for (auto* values : {&its.exec, &its.removal})
        values->next_round();
      run_execs(client, neighbour, count / 4, &idle_);
      load::reset_peak(server->pid());
      const auto before = load::status_kib(server->pid(), "VmRSS");
      under_attack(*server, client, neighbour, each, count, its);
      const auto peak = load::status_kib(server->pid(), "VmHWM");
      growth_.add(peak > before ? static_cast<double>(peak - before) / 1024 : 0);
    }
    server->stop();
  }

  void tell(const bench&, report& all) const override {
    const auto idle = make_row("nothing else runs: exec, exit", "ms", idle_);
    all.rows.push_back(idle);
    for (const auto& each : all_attacks()) {
      const auto its = results_.find(each.name);
      if (its == results_.end())
        continue;
      auto exec = make_row(std::string{each.name} + ": exec, exit", "ms", its->second.exec);
      exec.wanted.p99 = 5 * idle.measured.p99;
      exec.floors = {{"idle", idle.measured.p50}};
      all.rows.push_back(exec);
      auto removal = make_row("- its DELETE", "ms", its->second.removal);
      removal.wanted.p99 = 1000;
      all.rows.push_back(removal);
    }
    auto growth = make_row("server memory, peak of an attack over before it", "MiB", growth_);
    growth.wanted = {8, {}, {}};
    all.rows.push_back(growth);
  }

private:
  struct result {
    series exec, removal;
  };

  static void put_program(bridge_client& client, const std::string& id) {
    std::ifstream file{INSULA_ATTACK, std::ios::binary};
    client.write_file(id, "/workspace/attack",
                      std::string{std::istreambuf_iterator<char>{file}, {}});
    client.exec(id, {{"chmod", "755", "attack"}, {}}, clock::now());
  }

  static void run_execs(bridge_client& client, const std::string& id, std::size_t count,
                        series* into) {
    for (std::size_t i = 0; i < count; ++i) {
      load::throw_if_interrupted();
      client.ready();
      const auto times = client.exec(id, echo_hi(), clock::now());
      if (into != nullptr)
        into->add(times.exit_ms);
    }
  }

  static void under_attack(const insula_server& server, bridge_client& client,
                           const std::string& neighbour, const attack& what, std::size_t count,
                           result& its) {
    std::vector<std::string> ids;
    for (std::size_t i = 0; i < what.sandboxes; ++i) {
      ids.push_back(client.create());
      put_program(client, ids.back());
    }
    std::vector<std::unique_ptr<running_attack>> running;
    running.reserve(ids.size());
    for (const auto& id : ids)
      running.push_back(std::make_unique<running_attack>(server, id, what));
    if (what.neighbour_too)
      client.exec(neighbour,
                  {{"bash", "-c", "./attack " + what.command + " >/dev/null 2>&1 &"}, {}},
                  clock::now());
    const auto remove = [&](const std::string& id) {
      const auto began = clock::now();
      client.ready();
      client.remove(id);
      its.removal.add(ms_since(began));
    };
    try {
      run_execs(client, neighbour, count, &its.exec);
    } catch (const load::interrupted&) {
      for (const auto& id : ids) // Else nobody would ever end those who read along.
        remove(id);
      throw;
    } catch (const std::exception& why) {
      its.exec.fail(why.what());
    }
    for (const auto& id : ids)
      remove(id);
    if (what.neighbour_too)
      client.exec(neighbour, {{"pkill", "-x", "attack"}, {}}, clock::now());
  }

  series idle_, growth_;
  std::map<std::string, result> results_;
};

} // namespace

std::unique_ptr<scenario> make_abuse() {
  return std::make_unique<abuse>();
}

} // namespace insula::bench
