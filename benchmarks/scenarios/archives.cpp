#include "benchmarks/host_command.hpp"
#include "benchmarks/load/process_stats.hpp"
#include "benchmarks/scenario.hpp"

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace insula::bench {

namespace {

namespace fs = std::filesystem;

constexpr double mega = 1e6;

/// One workspace, persisted and hydrated through the API, beside `tar` on the machine with the same
/// files.
struct workspace {
  std::string name;
  std::size_t files;
  std::size_t bytes_each;
  series persist, hydrate, create_floor, extract_floor;

  void next_round() {
    for (auto* each : {&persist, &hydrate, &create_floor, &extract_floor})
      each->next_round();
  }
};

class archives : public scenario {
public:
  std::string name() const override { return "archives"; }
  std::string about() const override {
    return "persist and hydrate of one file of 32 MB and of 5,000 small ones; tar on the machine";
  }

  void measure(bench& with) override {
    for (auto* each : {&large_, &many_}) {
      each->next_round();
      measure_one(with, *each);
    }
  }

  void tell(const bench&, report& all) const override {
    tell_one(all, large_, "MB/s", "32 MB");
    tell_one(all, many_, "files/s", "5,000 files");
    all.rows.push_back(make_row("server memory's growth at the peak", "MiB", peak_));
  }

private:
  static std::string make_files(const bench& with, const workspace& what) {
    auto top = with.scratch + "/" + what.name;
    fs::create_directories(top);
    std::mt19937_64 random{what.files};
    for (std::size_t i = 0; i < what.files; ++i) {
      const auto directory = top + "/d" + std::to_string(i / 100);
      fs::create_directories(directory);
      std::string bytes(what.bytes_each, '\0');
      for (auto& each : bytes)
        each = static_cast<char>(random());
      std::ofstream{directory + "/f" + std::to_string(i), std::ios::binary} << bytes;
    }
    return top;
  }

  static std::string read(const std::string& path) {
    std::ifstream from{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{from}, {}};
  }

  void measure_one(bench& with, workspace& what) {
    const auto top = make_files(with, what);
    const auto archive_path = with.scratch + "/" + what.name + ".tar";
    run_on_host({find_program("tar"), "-cf", archive_path, "-C", top, "."});
    const auto archive = read(archive_path);
    const auto server = with.start_insula();
    bridge_client client{server->port(), server->key()};
    const auto id = client.create();
    client.hydrate(id, archive);
    peak_.next_round();
    load::reset_peak(server->pid());
    const auto before = mib(server->pid(), "VmRSS");
    const auto unit = [&](double ms) {
      return (what.files == 1 ? static_cast<double>(what.bytes_each) / mega
                              : static_cast<double>(what.files)) /
             (ms / 1000);
    };
    const auto timed = [&](series& to, const auto& go) {
      const auto since = clock::now();
      go();
      to.add(unit(ms_since(since)));
    };
    for (std::size_t i = 0; i < with.repeat(15, 4); ++i) {
      const auto fresh = client.create(); // Writing over files is another thing than making them.
      client.exec(fresh, true_command(), clock::now());
      const auto target = with.scratch + "/" + what.name + "-out";
      fs::create_directories(target);
      run_in_random_order(
        with, {{&what.persist,
                [&] {
                  client.ready();
                  std::size_t size = 0;
                  timed(what.persist, [&] { size = client.persist(id); });
                  if (size < what.files * what.bytes_each)
                    throw std::runtime_error("the archive is too short");
                }},
               {&what.hydrate,
                [&] {
                  client.ready();
                  timed(what.hydrate, [&] { client.hydrate(fresh, archive); });
                }},
               {&what.create_floor,
                [&] {
                  timed(what.create_floor, [&] {
                    run_on_host({find_program("tar"), "-cf", "-", "-C", top, "."});
                  });
                }},
               {&what.extract_floor, [&] {
                  timed(what.extract_floor, [&] {
                    run_on_host({find_program("tar"), "-xf", archive_path, "-C", target});
                  });
                }}});
      client.remove(fresh);
      fs::remove_all(target);
    }
    peak_.add(mib(server->pid(), "VmHWM") - before);
    server->stop();
    fs::remove_all(top);
    fs::remove(archive_path);
  }

  static double mib(pid_t pid, const char* field) {
    return static_cast<double>(load::status_kib(pid, field)) / 1024;
  }

  static void tell_one(report& all, const workspace& what, const std::string& unit,
                       const std::string& name) {
    auto persist = make_row("persist " + name, unit, what.persist, better::higher);
    auto hydrate = make_row("hydrate " + name, unit, what.hydrate, better::higher);
    const auto create =
      make_row("tar -c on the machine: " + name, unit, what.create_floor, better::higher);
    const auto extract =
      make_row("tar -x on the machine: " + name, unit, what.extract_floor, better::higher);
    persist.floors = {{"tar -c", create.measured.p50}};
    hydrate.floors = {{"tar -x", extract.measured.p50}};
    for (const auto& each : {persist, hydrate, create, extract})
      all.rows.push_back(each);
  }

  // The largest archive that can be hydrated has room for a little less than 32 MiB.
  workspace large_{"large", 1, 32'000'000, {}, {}, {}, {}};
  workspace many_{"many", 5000, 1024, {}, {}, {}, {}};
  series peak_;
};

} // namespace

std::unique_ptr<scenario> make_archives() {
  return std::make_unique<archives>();
}

} // namespace insula::bench
