#include "benchmarks/host_command.hpp"
#include "benchmarks/load/interrupt.hpp"
#include "benchmarks/machine.hpp"
#include "benchmarks/scenario.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;
namespace load = insula::load;
using namespace insula::bench;

struct settings {
  std::string insula;
  std::string state = "/var/tmp";
  std::string json;
  std::vector<std::string> only;
  unsigned rounds = 3;
  unsigned patience = 20;
  std::uint64_t seed = std::random_device{}();
  bool quick = false;
};

/// A directory of our own that goes when we go.
class scratch_directory {
public:
  explicit scratch_directory(const std::string& below) {
    fs::create_directories(below);
    std::string name = below + "/insula-bench.XXXXXX";
    if (::mkdtemp(name.data()) == nullptr)
      throw std::system_error{errno, std::generic_category(), below};
    path_ = name;
    ::chmod(path_.c_str(), 0755); // The server's user comes through here.
  }
  ~scratch_directory() {
    // What a server that did not end well has left is kept: somebody will want to look.
    std::error_code not_empty;
    if (!fs::remove(path_, not_empty))
      std::cerr << "insula_bench: kept " << path_ << '\n';
  }
  scratch_directory(const scratch_directory&) = delete;
  scratch_directory& operator=(const scratch_directory&) = delete;
  const std::string& path() const { return path_; }

private:
  std::string path_;
};

struct measured_scenario {
  std::unique_ptr<scenario> what;
  series broken; ///< Rounds that could not be finished.
};

std::vector<measured_scenario> choose(const settings& from) {
  std::vector<measured_scenario> chosen;
  for (auto& each : all_scenarios()) {
    const auto wanted = [&each](const std::string& text) {
      return each->name().find(text) != std::string::npos;
    };
    if (from.only.empty() || std::any_of(from.only.begin(), from.only.end(), wanted))
      chosen.push_back({std::move(each), {}});
  }
  return chosen;
}

void measure(std::vector<measured_scenario>& chosen, bench& with, calm& machine, unsigned rounds) {
  std::vector<measured_scenario*> order;
  order.reserve(chosen.size());
  for (auto& each : chosen)
    order.push_back(&each);
  const auto began = insula::bench::clock::now();
  for (unsigned round = 1; round <= rounds; ++round) {
    std::shuffle(order.begin(), order.end(), with.random);
    for (auto* each : order) {
      std::cerr << "insula_bench: " << static_cast<long>(ms_since(began) / 1000) << " s, round "
                << round << " of " << rounds << ": " << each->what->name() << std::endl;
      machine.wait();
      try {
        each->what->measure(with);
      } catch (const load::interrupted&) {
        throw;
      } catch (const std::exception& why) {
        each->broken.fail(why.what());
        std::cerr << "insula_bench: " << each->what->name() << ": " << why.what() << std::endl;
      }
      machine.look();
    }
  }
}

report tell(const std::vector<measured_scenario>& chosen, const bench& with) {
  report all;
  for (const auto& each : chosen) {
    const auto first = all.rows.size();
    each.what->tell(with, all);
    for (auto at = first; at < all.rows.size(); ++at)
      all.rows[at].scenario = each.what->name();
    if (each.broken.failures() > 0)
      all.remarks.push_back(each.what->name() + ": " + std::to_string(each.broken.failures()) +
                            " rounds could not be finished: " + each.broken.first_failure());
  }
  if (with.bwrap.empty())
    all.remarks.push_back(
      "bubblewrap is not installed (Debian: bubblewrap), so it is not compared with");
  return all;
}

bool all_went_well(const report& all, const std::vector<measured_scenario>& chosen) {
  return std::all_of(all.rows.begin(), all.rows.end(),
                     [](const row& each) { return each.failures == 0; }) &&
         std::all_of(chosen.begin(), chosen.end(),
                     [](const auto& each) { return each.broken.failures() == 0; });
}

int run(const settings& from, const std::vector<std::string>& words) {
  if (::geteuid() != 0) {
    std::cerr << "insula_bench: sandboxes can be made by root only\n";
    return 2;
  }
  auto chosen = choose(from);
  if (chosen.empty()) {
    std::cerr << "insula_bench: there is no such scenario; see --list\n";
    return 2;
  }
  load::watch_for_interrupts();
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);

  const scratch_directory scratch{from.state};
  bench with;
  with.insula = from.insula;
  with.scratch = scratch.path();
  with.nginx = find_program("nginx");
  with.bwrap = find_program("bwrap");
  with.node = ::access("/usr/bin/node", X_OK) == 0 ? "/usr/bin/node" : "";
  with.quick = from.quick;
  with.random.seed(from.seed);
  calm machine{std::chrono::seconds{from.quick ? 0 : from.patience}};
  auto where = describe_machine(from.insula, scratch.path(), words);
  measure(chosen, with, machine, from.rounds);

  auto all = tell(chosen, with);
  all.where = std::move(where);
  all.where.emplace_back("noise", machine.describe());
  all.where.emplace_back("rounds", std::to_string(from.rounds) + ", order from --seed " +
                                     std::to_string(from.seed));
  print(std::cout, all);
  if (!from.json.empty()) {
    std::ofstream file{from.json};
    print_json(file, all);
    if (!file.flush()) {
      std::cerr << "insula_bench: cannot write " << from.json << '\n';
      return 1;
    }
  }
  return all_went_well(all, chosen) ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
  settings from;
  // Beside us in the build directory.
  from.insula =
    (fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "insula").string();
  bool list = false;
  CLI::App app{"Measures a built insula through HTTP on this machine, beside what the same work "
               "costs without it."};
  app.add_option("--insula", from.insula,
                 "The program to measure; default: the one built with this");
  app.add_option("--state", from.state,
                 "Below which directory servers keep their state; default: /var/tmp");
  app.add_option("--json", from.json, "Write everything to this file as well");
  app.add_option("--only", from.only,
                 "Only scenarios with this in their name; may be given several times");
  auto* rounds = app.add_option("--rounds", from.rounds,
                                "How often everything is measured; default: 3, with --quick 1");
  rounds->check(CLI::Range(1u, 100u));
  app.add_option("--patience", from.patience,
                 "Seconds to wait for a calm machine before each measurement; default: 20");
  app.add_option("--seed", from.seed, "Of the random order");
  app.add_flag("--quick", from.quick,
               "Few repetitions, to see that all is well; the numbers are rough");
  app.add_flag("--list", list, "Name the scenarios, and end");
  CLI11_PARSE(app, argc, argv);
  if (list) {
    for (const auto& each : all_scenarios())
      std::cout << each->name() << "\n    " << each->about() << '\n';
    return 0;
  }
  if (from.quick && rounds->empty())
    from.rounds = 1;
  // The program's name without where it is.
  std::vector<std::string> words(argv, argv + argc);
  words.front() = fs::path{words.front()}.filename();
  try {
    return run(from, words);
  } catch (const load::interrupted&) {
    std::cerr << "insula_bench: interrupted\n";
    return 130;
  } catch (const std::exception& why) {
    std::cerr << "insula_bench: " << why.what() << '\n';
    return 1;
  }
}
