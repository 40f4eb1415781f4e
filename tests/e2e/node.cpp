#include "tests/e2e/node.hpp"

#include "runtime/spawner_client.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/etcd.hpp"
#include "tests/support/made_authority.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <poll.h>
#include <rapidjson/document.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

namespace insula::test {

namespace {

namespace fs = std::filesystem;

constexpr auto start_patience = 60s;
constexpr auto stop_patience = 60s;

std::string content_of(const fs::path& path) {
  std::ifstream file{path, std::ios::binary};
  std::ostringstream all; // Not by iterators, which throw when what a file tells of has just gone.
  all << file.rdbuf();
  return all.str();
}

/// The line that says why a server has ended.
std::string last_line_of(std::string text) {
  while (text.ends_with('\n'))
    text.pop_back();
  return text.substr(text.rfind('\n') + 1); // All of one line: npos + 1 is 0.
}

/// Calls `take` with every process's directory.
template <class Take>
void for_each_process(Take take) {
  std::error_code gone;
  for (const auto& each : fs::directory_iterator{"/proc", gone})
    if (const auto name = each.path().filename().string();
        std::isdigit(static_cast<unsigned char>(name.front())))
      take(each.path(), static_cast<pid_t>(std::stol(name)));
}

bool is_zombie(const fs::path& process) {
  const auto text = content_of(process / "stat");
  const auto state = text.rfind(") ");
  return state == std::string::npos || text[state + 2] == 'Z' || text[state + 2] == 'X';
}

/// Directories with that name in any cgroup hierarchy. Others come and go meanwhile.
void find_directories(const fs::path& below, const std::string& name,
                      std::vector<std::string>& found) {
  std::error_code gone;
  fs::directory_iterator each{below, gone};
  for (; !gone && each != fs::directory_iterator{}; each.increment(gone)) {
    std::error_code ignored;
    if (!each->is_directory(ignored) || each->is_symlink(ignored))
      continue;
    if (each->path().filename() == name)
      found.push_back(each->path().string());
    else
      find_directories(each->path(), name, found);
  }
}

constexpr unsigned slots = 1000;

/// Numbers of sandboxes' uids are taken from here on; nodes on one machine must not share them.
unsigned first_slot() {
  static unsigned made = 0;
  constexpr unsigned places = 36;
  return (static_cast<unsigned>(::getpid()) * 5 + made++) % places * slots;
}

} // namespace

std::uint64_t resident_bytes(pid_t pid) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 0;
#endif
  std::istringstream numbers{content_of("/proc/" + std::to_string(pid) + "/statm")};
  std::uint64_t all = 0, resident = 0;
  numbers >> all >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::string status_of(pid_t pid, const std::string& key) {
  std::istringstream lines{content_of("/proc/" + std::to_string(pid) + "/status")};
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key + ":\t"))
      return line.substr(key.size() + 2);
  return {};
}

std::size_t open_files(pid_t pid) {
  const fs::directory_iterator all{"/proc/" + std::to_string(pid) + "/fd"};
  return static_cast<std::size_t>(std::distance(fs::begin(all), fs::end(all)));
}

std::string open_file_names(pid_t pid) {
  std::map<std::string, std::size_t> names;
  std::error_code gone;
  for (const auto& each : fs::directory_iterator{"/proc/" + std::to_string(pid) + "/fd"})
    ++names[fs::read_symlink(each.path(), gone).string()];
  std::string text;
  for (const auto& [name, count] : names)
    text += std::to_string(count) + " x " + name + "\n";
  return text;
}

/// A cluster of two: an etcd, and the node that requests go by.
struct node::way_around {
  std::string section(const std::string& name) const {
    const auto& own = name == "owner" ? owner_ : gateway_;
    return "cluster:\n  etcd: {endpoints: [\"" + etcd.url() +
           "\"]}\n  authority: " + authority.file() + "\n  certificate: " + own.certificate +
           "\n  key: " + own.key + "\n  nodes:\n" + nodes_;
  }

  etcd_server etcd;
  made_authority authority;
  std::unique_ptr<node> gateway;

private:
  static std::string at() { return "\"127.0.0.1:" + std::to_string(free_port()) + '"'; }
  static std::string line(const std::string& name) {
    return "    " + name + ": {internal: " + at() + ", link: " + at() + "}\n";
  }

  const made_authority::files owner_ = authority.issue("owner");
  const made_authority::files gateway_ = authority.issue("gateway");
  const std::string nodes_ = line("gateway") + line("owner");
};

node::node(const std::string& yaml, const std::function<void(const std::string&)>& prepare,
           std::string name)
    : around_(name.empty() && std::getenv("INSULA_E2E_THROUGH") != nullptr
                ? std::make_unique<way_around>()
                : nullptr)
    , name_(around_ ? "owner" : std::move(name))
    , first_slot_(first_slot()) {
  if (::geteuid() != 0)
    throw std::runtime_error("these tests need root");
  fs::create_directory(state());
  key_ = runtime::node_key(fs::canonical(state()).string());
  configure(yaml);
  if (prepare)
    prepare(state());
  start();
  if (around_)
    go_around(yaml);
}

void node::configure(const std::string& yaml) {
  constexpr std::string_view head = "runtime: {"; // More of that section.
  const bool has_more = yaml.starts_with(head);
  std::ofstream{where_ / "cluster.yaml"} << head << "first_slot: " << first_slot_
                                         << ", slots: " << slots << (has_more ? ", " : "}\n")
                                         << yaml.substr(has_more ? head.size() : 0) << '\n'
                                         << (around_ ? around_->section(name_) : "");
}

/// Returns once each knows of the other: that it takes nothing, and that it does.
void node::go_around(const std::string& yaml) {
  constexpr std::string_view key =
    "Authorization: Bearer secret\r\n"; // As all of these tests have it.
  around_->gateway =
    std::make_unique<node>(yaml + '\n' + around_->section("gateway"), nullptr, "gateway");
  if (around_->gateway->ask("POST", "/v1/cluster/drain/gateway", {}, key).status != 202)
    throw std::runtime_error("the gateway is not drained\n" + around_->gateway->log());
  if (!eventually([&] {
        const auto seen = http_ask(port_, "GET", "/v1/cluster", {}, key).body;
        return seen.find("\"draining\"") != std::string::npos;
      }))
    throw std::runtime_error("nobody hears that the gateway is drained\n" + log());
  const auto takes_some = [&](const rapidjson::Value& each) {
    return each["name"] == name_.c_str() && each["capacity"].GetInt() > 0;
  };
  if (!eventually([&] {
        rapidjson::Document seen;
        seen.Parse(around_->gateway->ask("GET", "/v1/cluster", {}, key).body.c_str());
        if (seen.HasParseError() || !seen.IsObject() || !seen.HasMember("nodes"))
          return false;
        const auto nodes = seen["nodes"].GetArray();
        return std::any_of(nodes.begin(), nodes.end(), takes_some);
      }))
    throw std::runtime_error("the gateway does not hear of the owner\n" + log());
}

std::uint16_t node::gateway_port() const {
  return around_->gateway ? around_->gateway->port() : port_;
}

std::vector<std::string> node::command() const {
  std::vector<std::string> words{
    INSULA_PROGRAM, "serve", "--listen", "127.0.0.1:0",
    "--state",      state(), "--config", (where_ / "cluster.yaml").string()};
  if (!name_.empty())
    words.insert(words.end(), {"--node", name_});
  return words;
}

void node::start() {
  server_ = std::make_unique<child_program>(
    command(), child_program::options{.error_file = (where_ / "log").string()});
  const auto line = server_->read_line(start_patience);
  if (!line || !line->starts_with("insula is ready on http"))
    throw std::runtime_error(
      "insula did not get ready: " + line.value_or(last_line_of(log()) + "\n") + log());
  port_ = static_cast<std::uint16_t>(std::stoi(line->substr(line->rfind(':') + 1)));
}

int node::stop(int signal) {
  server_->signal(signal);
  const auto status = server_->wait(stop_patience);
  if (!status)
    throw std::runtime_error("insula does not end\n" + log());
  return *status;
}

/// A sandbox that is just being made looks like its spawner until it runs its agent.
pid_t node::spawner() const {
  std::map<pid_t, pid_t> found; // With their parents.
  for_each_process([&](const fs::path& path, pid_t pid) {
    std::string begin = "insula-spawner";
    begin.append(1, '\0').append(state()).append(1, '\0');
    if (!content_of(path / "cmdline").starts_with(begin))
      return;
    const auto stat = content_of(path / "stat");
    std::istringstream rest{stat.substr(std::min(stat.rfind(')') + 1, stat.size()))};
    char state = 0;
    rest >> state >> found[pid];
  });
  for (const auto& [pid, parent] : found)
    if (!found.contains(parent))
      return pid;
  return -1;
}

pid_t node::gateway() const {
  std::string begin = "insula-gateway";
  begin.append(1, '\0');
  for (const auto pid : processes())
    if (content_of("/proc/" + std::to_string(pid) + "/cmdline").starts_with(begin))
      return pid;
  return -1;
}

bool node::stands_still() const {
  const auto text = content_of("/proc/" + std::to_string(pid()) + "/stat");
  return text.find(") T ") != std::string::npos;
}

void node::crash_server() {
  stop(SIGKILL);
}

void node::crash_spawner() {
  const auto process = open_process(spawner());
  ::kill(spawner(), SIGKILL);
  if (!wait_for_end(process, stop_patience))
    throw std::runtime_error("the spawner does not end");
}

void node::crash_both() {
  const auto other = spawner();
  const auto process = open_process(other);
  server_->signal(SIGKILL);
  ::kill(other, SIGKILL);
  server_->wait(stop_patience);
  if (!wait_for_end(process, stop_patience))
    throw std::runtime_error("the spawner does not end");
}

std::string node::log() const {
  return content_of(where_ / "log");
}

std::vector<pid_t> node::processes() const {
  std::vector<pid_t> found;
  for_each_process([&](const fs::path& path, pid_t pid) {
    const bool ours =
      content_of(path / "cgroup").find("/insula-" + key_ + "/") != std::string::npos ||
      content_of(path / "cmdline").find(state() + std::string(1, '\0')) != std::string::npos;
    if (ours && !is_zombie(path))
      found.push_back(pid);
  });
  return found;
}

std::vector<std::string> node::sandbox_groups() const {
  std::vector<std::string> nodes, found;
  find_directories("/sys/fs/cgroup", "insula-" + key_, nodes);
  for (const auto& each : nodes) {
    std::error_code gone;
    for (const auto& group : fs::directory_iterator{each + "/sandboxes", gone})
      if (group.path().filename().string().starts_with("sb-"))
        found.push_back(group.path().string());
  }
  return found;
}

std::vector<std::string> node::traces() const {
  std::vector<std::string> found;
  for (const auto pid : processes()) {
    auto words = content_of("/proc/" + std::to_string(pid) + "/cmdline");
    std::replace(words.begin(), words.end(), '\0', ' ');
    found.push_back("process " + std::to_string(pid) + ": " + words);
  }
  std::istringstream mounts{content_of("/proc/self/mountinfo")};
  for (std::string line; std::getline(mounts, line);)
    if (line.find(scratch()) != std::string::npos)
      found.push_back("mount: " + line);
  find_directories("/sys/fs/cgroup", "insula-" + key_, found);
  std::error_code gone;
  for (const auto& each : fs::directory_iterator{"/sys/block", gone})
    if (const auto file = content_of(each.path() / "loop/backing_file");
        file.starts_with(state() + "/"))
      found.push_back("loop device: " + each.path().string() + " on " + file);
  for (const auto& each : fs::directory_iterator{state(), gone})
    if (const auto name = each.path().filename();
        name != "records" && name != "images" && name != "logs" && name != "lock" &&
        name != "secrets.key" && name != "oidc-keys.json" &&
        !(keeps_snapshots && name == "disk.btrfs"))
      found.push_back("file: " + each.path().string());
  for (const auto& each : fs::directory_iterator{state() + "/logs", gone})
    found.push_back("file: " + each.path().string());
  return found;
}

node::~node() {
  if (around_)
    around_->gateway.reset(); // Who ends gives back to etcd what it has.
  try {
    if (running()) {
      const int status = stop(SIGINT);
      CHECK(status == 0);
    }
    eventually([this] { return traces().empty(); });
    CHECK(traces() == std::vector<std::string>{});
  } catch (const std::exception& failure) {
    FAIL_CHECK(failure.what());
  }
  if (std::getenv("INSULA_E2E_LOG") != nullptr)
    std::cerr << log();
}

} // namespace insula::test
