#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

#include <csignal>
#include <deque>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

using namespace insula::test;

namespace {

constexpr int rounds = 1'000;
constexpr std::size_t ids = 6;

std::string id_of(std::size_t i) {
  return "box" + std::string(1, static_cast<char>('a' + i));
}

/// One that plays with sandboxes in every way there is, and knows what has to be in them.
class player {
public:
  player(node& on, unsigned seed)
      : it_(on)
      , rng_(seed) {}

  void round() {
    const auto id = id_of(rng_() % ids);
    switch (rng_() % 64) {
      case 0: return crash([&] { it_.crash_server(); }, false);
      case 1: return crash([&] { REQUIRE(it_.stop(SIGTERM) == 0); }, false);
      case 2: return crash([&] { it_.crash_both(); }, true);
      case 3: return kill_agent();
      default: break;
    }
    switch (rng_() % 8) {
      case 0: return write(id);
      case 1: return read(id);
      case 2: return remove(id);
      case 3: return leave_stream(id);
      case 4: return in_session(id);
      case 5: return background(id);
      case 6: return kill_inside(id);
      default: CHECK(it_.exec(id, {"echo", id}).out == id + "\n");
    }
  }

  void remove_all() {
    streams_.clear();
    for (std::size_t i = 0; i < ids; ++i)
      CHECK(it_.remove(id_of(i)) == 204);
  }

private:
  void write(const std::string& id) {
    const auto text = std::to_string(rng_());
    REQUIRE(it_.sh(id, "echo " + text + " > file").exit_code == 0);
    files_[id] = text;
  }
  void read(const std::string& id) {
    const auto got = it_.sh(id, "cat file 2> /dev/null").out;
    CHECK(got == (files_.contains(id) ? files_[id] + "\n" : ""));
  }
  void remove(const std::string& id) {
    CHECK(it_.remove(id) == 204);
    files_.erase(id);
    sessions_.erase(id);
  }
  /// It goes on without its client.
  void leave_stream(const std::string& id) {
    streams_.push_back(std::make_unique<exec_stream>(
      it_.port(), id,
      exec_body({"bash", "-c", "for ((i = 0; i < 100; ++i)); do echo $i; sleep 0.05; done"})));
    REQUIRE(streams_.back()->next());
    if (streams_.size() > 5)
      streams_.pop_front();
  }
  void in_session(const std::string& id) {
    auto& count = sessions_[id];
    const auto got =
      exec_stream{it_.port(), id, exec_body({"eval", "echo $((++n))"}), "Session-Id: s\r\n"}.rest();
    CHECK(got.out == std::to_string(++count) + "\n");
  }
  void background(const std::string& id) {
    CHECK(
      it_
        .sh(id,
            "setsid sleep 1000 > /dev/null 2>&1 & (sleep 0.1; exec sleep 500) > /dev/null 2>&1 &")
        .exit_code == 0);
  }
  /// All that the sandbox's user may; its sessions begin anew.
  void kill_inside(const std::string& id) {
    static_cast<void>(it_.sh(id, "kill -9 -1"));
    sessions_.erase(id);
  }
  /// Its sandbox is gone with it, and the next one is empty.
  void kill_agent() {
    for (const auto pid : it_.processes())
      if (pid != it_.pid() && pid != it_.spawner() && parent_of(pid) == it_.spawner()) {
        ::kill(pid, SIGKILL);
        break;
      }
    // Whose it was is not known here.
    CHECK(eventually([&] { return it_.ask("GET", "/health").status == 200; }));
    for (std::size_t i = 0; i < ids; ++i)
      remove(id_of(i));
  }
  template <class Crash>
  void crash(Crash how, bool everything) {
    how();
    it_.start();
    if (everything) {
      files_.clear();
      sessions_.clear();
    }
  }

  static pid_t parent_of(pid_t process) {
    std::ifstream file{"/proc/" + std::to_string(process) + "/stat"};
    std::string line;
    std::getline(file, line);
    std::istringstream rest{line.substr(std::min(line.rfind(')') + 1, line.size()))};
    char state = 'X';
    pid_t parent = 0;
    rest >> state >> parent;
    return parent;
  }

  node& it_;
  std::mt19937 rng_;
  std::map<std::string, std::string> files_; ///< What the sandbox of an id has in its file.
  std::map<std::string, int> sessions_;      ///< How far its session has counted.
  std::deque<std::unique_ptr<exec_stream>> streams_;
};

} // namespace

TEST_CASE("a thousand random rounds of use, deletion and kill -9 leave nothing", "[chaos]") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  node it;
  player one{it, seed};
  for (int i = 0; i < rounds; ++i) {
    CAPTURE(i);
    one.round();
  }
  one.remove_all();
  CHECK(eventually([&] { return it.sandbox_groups().empty(); }));
  CHECK(eventually([&] { return it.processes().size() == node::own_processes; }));
  // A spawner that has nothing keeps nothing.
  CHECK(eventually([&] { return open_files(it.spawner()) < 30; }));
}
