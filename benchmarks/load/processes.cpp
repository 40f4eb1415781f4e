#include "benchmarks/load/processes.hpp"

#include "base/unique_fd.hpp"
#include "benchmarks/load/interrupt.hpp"
#include "benchmarks/load/reports.hpp"
#include "benchmarks/load/spawn.hpp"

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

extern char** environ;

namespace insula::load {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

/// A directory for results on their way; gone with everything in it.
class result_directory {
public:
  result_directory() {
    auto name = (fs::temp_directory_path() / "insula-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw std::system_error{errno, std::generic_category(), name};
    path_ = name;
  }
  ~result_directory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  result_directory(const result_directory&) = delete;
  result_directory& operator=(const result_directory&) = delete;

  std::string file(unsigned number) const { return path_ + "/" + std::to_string(number) + ".json"; }

private:
  std::string path_;
};

std::vector<std::string> arguments_of(const run_options& options, share part, bool talks,
                                      const std::string& file) {
  std::string names;
  for (const auto& each : options.scenarios)
    names.append(names.empty() ? "" : ",").append(each);
  std::vector<std::string> words{
    "/proc/self/exe", "bench",
    "--url",          options.server.url.text(),
    "--scenario",     names,
    "--arrivals",     options.kind == arrivals::poisson ? "poisson" : "fixed",
    "--seed",         std::to_string(options.seed),
    "--threads",      std::to_string(options.threads),
    "--timeout",      std::to_string(options.patience.count()) + "ms",
    "--max-time",     std::to_string(options.scenario_patience.count()) + "s",
    "--share",        std::to_string(part.index + 1) + "/" + std::to_string(part.of),
    "--json",         file,
    "--only-json"};
  const auto add = [&words](const std::string& name, const std::string& value) {
    words.push_back(name);
    words.push_back(value);
  };
  if (options.max_in_flight > 0)
    add("--max-in-flight", std::to_string(options.max_in_flight));
  if (options.closed > 0)
    add("--closed", std::to_string(options.closed));
  for (const auto& [name, value] : options.set)
    add("--set", std::string{name}.append("=").append(value));
  if (!options.server.ca_file.empty())
    add("--ca", options.server.ca_file);
  if (options.start_at)
    add("--start-at", iso_time(*options.start_at));
  if (options.server.insecure)
    words.push_back("--insecure");
  if (options.quick)
    words.push_back("--quick");
  if (!talks || !options.show_progress)
    words.push_back("--no-progress");
  return words;
}

/// The key travels this way: a command line can be read by everybody.
std::vector<std::string> environment_with(const std::string& key) {
  std::vector<std::string> all;
  for (char** each = environ; *each != nullptr; ++each)
    if (!std::string_view{*each}.starts_with("SANDBOX_API_KEY="))
      all.emplace_back(*each);
  all.push_back("SANDBOX_API_KEY=" + key);
  return all;
}

} // namespace

result<run_result> run_in_processes(const run_options& options, unsigned count) {
  if (auto good = check(options); !good)
    return good.reason();
  std::vector<pid_t> running;
  try {
    const result_directory files;
    const unique_fd nowhere{::open("/dev/null", O_WRONLY | O_CLOEXEC)};
    const auto environment = environment_with(options.server.key);
    for (unsigned i = 0; i < count; ++i) {
      const auto part = options.part.inside({i, count});
      running.push_back(spawn({arguments_of(options, part, i == 0, files.file(i)), environment,
                               nowhere.get(), STDERR_FILENO, true}));
    }
    int handed_on = 0;
    std::size_t left = running.size();
    while (left > 0) {
      for (; handed_on < interrupts(); ++handed_on)
        for (const auto each : running)
          if (each > 0)
            ::kill(each, SIGINT);
      for (auto& each : running)
        if (each > 0 &&
            ::waitpid(each, nullptr, WNOHANG) != 0) { // Ended; or nobody's child to wait for.
          each = -1;
          --left;
        }
      if (left > 0)
        std::this_thread::sleep_for(20ms);
    }
    // Their own exit statuses say nothing that their results do not say better.
    std::vector<run_result> all;
    for (unsigned i = 0; i < count; ++i) {
      auto one = read_json(files.file(i));
      if (!one)
        return error{errc::io_failed, "client " + std::to_string(i + 1) + " of " +
                                        std::to_string(count) + " has left no result"};
      all.push_back(std::move(*one));
    }
    return merge(std::move(all));
  } catch (const std::system_error& why) {
    for (const auto each : running) {
      ::kill(each, SIGINT);
      ::waitpid(each, nullptr, 0);
    }
    return error{errc::io_failed, std::string{"the clients could not be started: "} + why.what()};
  }
}

} // namespace insula::load
