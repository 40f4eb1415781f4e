#include "benchmarks/insula_server.hpp"

#include "benchmarks/load/process_stats.hpp"

#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>

namespace insula::bench {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

/// The first start makes a disk image and a list of the machine's programs.
constexpr auto start_patience = 60s;
constexpr auto stop_patience = 60s;

/// Uids away from those of a server that may run here with the defaults.
constexpr const char* configuration = R"(runtime:
  first_slot: 30000
  slots: 4096
)";

std::string random_key() {
  std::random_device random;
  std::string key;
  for (int i = 0; i < 32; ++i)
    key += "0123456789abcdef"[random() % 16];
  return key;
}

} // namespace

insula_server::insula_server(const std::string& program, std::string directory,
                             const std::string& yaml)
    : program_(program)
    , directory_(std::move(directory))
    , key_(random_key()) {
  fs::create_directories(directory_);
  std::ofstream{directory_ + "/cluster.yaml"} << configuration << yaml << '\n';
  try {
    start();
  } catch (const std::exception&) {
    fs::remove_all(directory_);
    throw;
  }
}

void insula_server::start() {
  auto env = plain_environment();
  env.push_back("SANDBOX_API_KEY=" + key_);
  try {
    process_.emplace(child::options{{program_, "serve", "--config", directory_ + "/cluster.yaml",
                                     "--listen", "127.0.0.1:0", "--state", directory_ + "/state"},
                                    env,
                                    directory_ + "/log"});
    const std::string before = "insula is ready on http://127.0.0.1:";
    for (std::string line; line.compare(0, before.size(), before) != 0;) {
      line = process_->read_line(start_patience);
      if (line.compare(0, before.size(), before) == 0)
        port_ = static_cast<std::uint16_t>(std::stoul(line.substr(before.size())));
    }
  } catch (const std::exception& why) {
    const auto words = std::string{why.what()} + last_words();
    process_.reset();
    throw std::runtime_error(program_ + " serve: " + words);
  }
}

clock::time_point insula_server::kill_and_replace(const std::function<void()>& meanwhile) {
  process_->stop(SIGKILL, stop_patience);
  process_.reset();
  meanwhile();
  const auto began = clock::now();
  start();
  return began;
}

insula_server::~insula_server() {
  try {
    stop();
  } catch (const std::exception&) {
    // Whoever wanted to know has called stop().
  }
}

std::vector<pid_t> insula_server::spawners() const {
  return load::find_processes("insula-spawner " + directory_ + "/");
}

void insula_server::stop() {
  if (!process_)
    return;
  const bool well = process_->stop(SIGINT, stop_patience);
  process_.reset();
  if (!well)
    throw std::runtime_error("insula serve did not end well" + last_words());
  fs::remove_all(directory_);
}

std::string insula_server::last_words() const {
  std::ifstream file{directory_ + "/log"};
  const std::string text{std::istreambuf_iterator<char>{file}, {}};
  constexpr std::size_t enough = 2000;
  return "\n" + text.substr(text.size() > enough ? text.size() - enough : 0);
}

} // namespace insula::bench
