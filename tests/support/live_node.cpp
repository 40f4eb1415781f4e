#include "tests/support/live_node.hpp"

#include "runtime/host_image.hpp"
#include "runtime/spawner_client.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <random>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace insula::test {

namespace fs = std::filesystem;
using namespace runtime;
using namespace std::chrono_literals;

namespace {

std::string contents(const fs::path& path) {
  std::ifstream file{path, std::ios::binary};
  std::ostringstream all; // Not by iterators, which throw when what a file tells of has just gone.
  all << file.rdbuf();
  return all.str();
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> all;
  for (const auto& each : fs::directory_iterator{"/proc"})
    if (const auto pid = std::atoi(each.path().filename().c_str()); pid > 0)
      all.push_back(pid);
  return all;
}

std::string command_line(pid_t process) {
  auto words = contents("/proc/" + std::to_string(process) + "/cmdline");
  std::replace(words.begin(), words.end(), '\0', ' ');
  return words;
}

/// Below which every node of this program has its state. It goes with the program, even if that is
/// killed: a process that holds nothing but a pipe sees the end and sweeps.
class nodes_directory {
public:
  nodes_directory() {
    const char* wanted = std::getenv("INSULA_TEST_STATE");
    path_ = std::string{wanted != nullptr ? wanted : "/var/tmp"} + "/insula-nodes-XXXXXX";
    if (::geteuid() != 0)
      throw std::runtime_error("sandboxes can be made by root only");
    if (::mkdtemp(path_.data()) == nullptr)
      throw std::runtime_error("no directory " + path_);
    ::chmod(path_.c_str(), 0755);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw std::runtime_error("no pipe");
    alive_.reset(ends[1]);
    sweeper_ = ::fork();
    if (sweeper_ == 0) {
      ::setsid();
      ::dup2(ends[0], 0);
      ::close_range(1, ~0u, 0);
      char none = 0;
      while (::read(0, &none, 1) < 0) {
      }
      sweep();
      ::_exit(0);
    }
    ::close(ends[0]);
  }
  ~nodes_directory() {
    alive_.reset();
    ::waitpid(sweeper_, nullptr, 0);
  }

  std::string next() {
    auto made = path_ + "/" + std::to_string(++count_);
    fs::create_directory(made);
    return made;
  }

private:
  void sweep() const {
    std::error_code ignored;
    for (const auto& each : fs::directory_iterator{path_, ignored})
      cgroup_tree::of_this_process(node_key(each.path().string())).sweep();
    fs::remove_all(path_, ignored);
  }

  std::string path_;
  unique_fd alive_;
  pid_t sweeper_ = -1;
  int count_ = 0;
};

nodes_directory& nodes() {
  static nodes_directory the;
  return the;
}

sandbox_limits modest() {
  sandbox_limits limits;
  limits.memory_bytes = 512ull << 20;
  limits.disk_bytes = 256ull << 20;
  limits.shm_bytes = 16ull << 20;
  limits.log_bytes = 4ull << 20;
  limits.processes = 256;
  limits.open_files = 1024;
  return limits;
}

} // namespace

pid_t find_process(const std::string& words) {
  for (const auto pid : all_processes())
    if (pid != ::getpid() && command_line(pid).find(words) != std::string::npos && lives(pid))
      return pid;
  return 0;
}

namespace {

/// What stands after the name in /proc/<pid>/stat, which may have spaces in it.
std::pair<char, pid_t> state_and_parent(pid_t process) {
  const auto stat = contents("/proc/" + std::to_string(process) + "/stat");
  std::istringstream rest{stat.substr(std::min(stat.rfind(')') + 1, stat.size()))};
  char state = 'X';
  pid_t parent = 0;
  rest >> state >> parent;
  return {state, parent};
}

} // namespace

pid_t parent_of(pid_t process) {
  return state_and_parent(process).second;
}

bool lives(pid_t process) {
  const auto state = state_and_parent(process).first;
  return state != 'X' && state != 'Z';
}

bool outcome::exited(int code) const {
  return !failed && !how.lost && WIFEXITED(how.status) && WEXITSTATUS(how.status) == code;
}

bool outcome::killed_by(int signal) const {
  return !failed && !how.lost && WIFSIGNALED(how.status) && WTERMSIG(how.status) == signal;
}

// ---- Commands

struct live_command::heard {
  events<std::optional<error>> start;
  events<process_exit> end;
  events<int> complete;
};

process_listener live_command::listener() {
  return {[to = heard_] { to->start.tell({}); },
          [to = heard_](error why) { to->start.tell(std::move(why)); },
          [to = heard_](process_exit how) { to->end.tell(how); },
          [to = heard_] { to->complete.tell(1); }};
}

live_command::live_command(sandbox& in, process_spec spec)
    : heard_(std::make_shared<heard>())
    , process_(in.start(std::move(spec), listener())) {}

live_command::live_command(shell& in, shell_command what)
    : heard_(std::make_shared<heard>())
    , process_(in.run(std::move(what), listener())) {}

live_command::live_command(sandbox& in, const survivor& which)
    : heard_(std::make_shared<heard>())
    , process_(in.take_over(which, listener())) {}

bool live_command::started() {
  so_far_.failed = heard_->start.next(30s);
  return !so_far_.failed;
}

process_exit live_command::ended(std::chrono::milliseconds limit) {
  return heard_->end.next(limit);
}

/// One question. False: there is no more.
bool live_command::read(bool attached) {
  const auto told = std::make_shared<events<log_chunk>>();
  process_->read(offset_, 256 * 1024, attached,
                 [told](log_chunk chunk) { told->tell(std::move(chunk)); });
  auto chunk = told->next(60s);
  for (auto& each : chunk.frames)
    (each.stream == output_stream::out ? so_far_.out : so_far_.err) += each.bytes;
  so_far_.lost += chunk.lost_bytes;
  offset_ = chunk.next_offset;
  if (chunk.ended)
    so_far_.how = *chunk.ended;
  return !chunk.ended;
}

std::string live_command::says(const std::string& text) {
  while (so_far_.out.find(text) == std::string::npos)
    if (!read(false) && so_far_.out.find(text) == std::string::npos) // Both may come at once.
      throw std::runtime_error("it ended without saying " + text + " but: " + so_far_.out +
                               so_far_.err);
  return so_far_.out;
}

outcome live_command::finish(bool attached) {
  while (read(attached)) {
  }
  if (!so_far_.failed)
    started();
  return so_far_;
}

process_spec in_shell(const std::string& script, sandbox_user user) {
  process_spec spec;
  spec.argv = {"/bin/bash", "-c", script};
  spec.env = {"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/sandbox", "LC_ALL=C"};
  spec.cwd = "/workspace";
  spec.user = user;
  return spec;
}

// ---- Sandboxes

struct live_sandbox::heard {
  events<std::shared_ptr<sandbox>> ready;
  events<error> failure;
  events<int> ended;
};

sandbox_listener live_sandbox::listener(const std::shared_ptr<heard>& to) {
  return {[to](auto box) { to->ready.tell(std::move(box)); },
          [to](error why) {
            to->failure.tell(std::move(why));
            to->ready.tell(nullptr);
          },
          [to] { to->ended.tell(1); }};
}

std::optional<live_sandbox> live_sandbox::adopted(live_node& in, const std::string& name) {
  live_sandbox box{std::make_shared<heard>()};
  auto spec = in.spec();
  spec.name = name;
  in.engine().adopt(spec, listener(box.heard_));
  box.box_ = box.heard_->ready.next(60s);
  return box.box_ ? std::optional{std::move(box)} : std::nullopt;
}

namespace {

sandbox_spec with_limits(sandbox_spec wanted, const std::optional<sandbox_limits>& limits) {
  if (limits)
    wanted.limits = *limits;
  return wanted;
}

} // namespace

live_sandbox::live_sandbox(live_node& in, std::optional<sandbox_limits> limits)
    : live_sandbox(in, with_limits(in.spec(), limits)) {}

live_sandbox::live_sandbox(live_node& in, sandbox_spec wanted)
    : heard_(std::make_shared<heard>()) {
  in.engine().create(std::move(wanted), listener(heard_));
  box_ = heard_->ready.next(60s);
  if (!box_)
    throw std::runtime_error("no sandbox: " + heard_->failure.next().message);
}

live_sandbox::~live_sandbox() {
  if (box_)
    destroy();
}

void live_sandbox::destroy() {
  const auto gone = std::make_shared<events<int>>();
  box_->destroy([gone] { gone->tell(1); });
  gone->next(60s);
}

void live_sandbox::wait_until_ended() {
  heard_->ended.next(30s);
}

live_command live_sandbox::start(process_spec spec) {
  return {*box_, std::move(spec)};
}

live_command live_sandbox::start(const std::string& script, sandbox_user user) {
  return start(in_shell(script, user));
}

outcome live_sandbox::run(const std::string& script, sandbox_user user) {
  return start(script, user).finish();
}

// ---- Nodes

live_node::live_node(native_options options, std::uint64_t most_uncharged)
    : options_(std::move(options))
    , most_uncharged_(most_uncharged)
    , state_(nodes().next())
    , key_(node_key(state_)) {
  fs::create_directory(state_ + "/logs");
  auto image = prepare_host_image(state_ + "/images/host");
  if (!image)
    throw std::runtime_error(image.reason().message);
  image_ = image->layers;
  options_.key = key_;
  options_.log_directory = state_ + "/logs";
  if (options_.first_slot ==
      0) // Nodes of one machine share the user ids that some ceilings are counted by.
    options_.first_slot = std::random_device{}() % 30'000;
  serve();
}

live_node::~live_node() {
  try {
    if (engine_)
      shut_down();
    else if (const auto left = spawner(); left > 0)
      ::kill(left, SIGTERM);
    for (const auto& each : leftovers())
      std::fprintf(stderr, "left behind: %s\n", each.c_str());
  } catch (const std::exception& why) {
    std::fprintf(stderr, "while ending a node: %s\n", why.what());
  }
}

void live_node::serve(const std::string& disk) {
  if (engine_)
    earlier_.push_back(std::move(engine_));
  // A pool of its own size: a test's disk need not be sparse over the whole of the machine's.
  auto socket = connect_to_spawner({.state_directory = state_,
                                    .key = key_,
                                    .disk = disk,
                                    .pool_bytes = 4ull << 30,
                                    .most_uncharged = most_uncharged_});
  if (!socket)
    throw std::runtime_error(socket.reason().message);
  engine_ = std::make_unique<native_engine>(pool_, options_, std::move(*socket));
}

void live_node::shut_down() {
  engine_->shut_down(30s);
}

sandbox_spec live_node::spec() const {
  return {"test", image_, modest(), "test"};
}

cgroup_tree live_node::cgroups() const {
  return cgroup_tree::of_this_process(key_);
}

pid_t live_node::spawner() const {
  return find_process("insula-spawner " + state_ + " ");
}

pid_t live_node::gateway() const {
  return find_process("insula-gateway " + std::to_string(spawner::gateway_uid) + " " + state_ +
                      " ");
}

std::vector<pid_t> live_node::agents() const {
  std::vector<pid_t> all;
  const auto parent = spawner();
  for (const auto pid : all_processes())
    if (parent > 0 && parent_of(pid) == parent && pid != gateway() && lives(pid))
      all.push_back(pid);
  return all;
}

std::vector<std::string> live_node::traces() const {
  std::vector<std::string> found;
  const auto tree = cgroups();
  for (const auto& each : tree.hierarchies()) {
    const auto top = each.directory + "/insula-" + key_;
    std::error_code missing;
    for (const auto& in : {top, top + "/sandboxes"})
      for (const auto& group : fs::directory_iterator{in, missing})
        if (const auto name = group.path().filename();
            group.is_directory() && name != "host" && name != "sandboxes")
          found.push_back("cgroup " + group.path().string());
  }
  for (const auto pid : all_processes()) {
    const auto proc = "/proc/" + std::to_string(pid);
    if (pid != ::getpid() && contents(proc + "/mountinfo").find(state_ + "/") != std::string::npos)
      found.push_back("mounts of " + std::to_string(pid) + " " + command_line(pid));
    if (contents(proc + "/cgroup").find("insula-" + key_) != std::string::npos && lives(pid))
      found.push_back("process " + std::to_string(pid) + " " + command_line(pid));
  }
  for (const auto& each : fs::directory_iterator{"/sys/block"})
    if (contents(each.path() / "loop/backing_file").find(state_ + "/") != std::string::npos)
      found.push_back("loop device " + each.path().filename().string());
  for (const auto& each : fs::directory_iterator{state_ + "/logs"})
    found.push_back("file " + each.path().string());
  return found;
}

std::vector<std::string> live_node::leftovers() const {
  auto found = traces();
  eventually([&] {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    } // Spawners are children of this process.
    return (found = traces()).empty();
  });
  const auto tree = cgroups();
  for (const auto& each : tree.hierarchies())
    if (fs::exists(each.directory + "/insula-" + key_))
      found.push_back("cgroup " + each.directory + "/insula-" + key_);
  return found;
}

live_node& shared_node() {
  struct watched {
    live_node node;
    ~watched() {
      try {
        node.shut_down();
      } catch (...) {
      }
      const auto left = node.leftovers();
      for (const auto& each : left)
        std::fprintf(stderr, "left behind: %s\n", each.c_str());
      if (!left.empty())
        ::_exit(3);
    }
  };
  nodes(); // Outlives the node.
  static watched the;
  return the.node;
}

} // namespace insula::test
