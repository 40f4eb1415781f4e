// Many threads that ask at once, a room that says what chance has it say, and both ends of it all.
#include "tests/apps/images/fetching_node.hpp"
#include "tests/support/eventually.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <random>
#include <thread>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

constexpr int images = 5, askers = 8, rounds = 60;

std::string reference_of(int image) {
  return "reg.example/image:" + std::to_string(image);
}

std::string name_of(const std::string& reference) {
  return "image-" + reference.substr(reference.rfind(':') + 1);
}

/// Answers each order once, some time, in any order.
class random_room {
public:
  random_room(scripted_room& room, unsigned seed)
      : room_(room)
      , dice_(seed) {}

  struct figures {
    std::size_t pulls = 0, most_at_once = 0;
  };

  /// Until nobody asks any more.
  figures serve(const std::atomic<bool>& ends) {
    while (true) {
      take(1ms);
      if (waiting_.empty() && ends)
        return counts_;
      if (!waiting_.empty() && (roll(2) == 0 || !room_.has_order()))
        answer_one();
    }
  }

  /// Until it has answered so many.
  void serve_some(int answers) {
    while (answers > 0) {
      take(1min);
      if (roll(3) != 0 || !room_.has_order()) {
        answers -= waiting_.empty() ? 0 : 1;
        answer_one();
      }
    }
  }

private:
  unsigned roll(unsigned sides) { return static_cast<unsigned>(dice_()) % sides; }

  void take(std::chrono::milliseconds patience) {
    auto order = waiting_.empty() ? room_.next_within(patience) : room_.next_within(0ms);
    if (!order || (order->task != room_task::pull && order->task != room_task::remove))
      return;
    counts_.pulls += order->task == room_task::pull ? 1 : 0;
    waiting_.push_back(std::move(*order));
    const auto pulls = std::count_if(waiting_.begin(), waiting_.end(),
                                     [](auto& each) { return each.task == room_task::pull; });
    counts_.most_at_once = std::max(counts_.most_at_once, static_cast<std::size_t>(pulls));
  }

  void answer_one() {
    if (waiting_.empty())
      return;
    const auto at = waiting_.begin() + roll(static_cast<unsigned>(waiting_.size()));
    const auto order = std::move(*at);
    waiting_.erase(at);
    if (order.task == room_task::pull)
      answer_pull(order);
    else
      answer_removal(order);
  }

  void answer_pull(const scripted_room::order& order) {
    const auto name = name_of(order.text);
    for (unsigned i = roll(3); i > 0; --i)
      room_.progress(order, roll(100), 100);
    switch (roll(4)) {
      case 0: return room_.fail(order, errc::not_found, "it has no such image");
      case 1: return room_.fail(order, errc::io_failed, "it broke");
      case 2: room_.gone(name, false); break;
      default: break;
    }
    const auto bytes = digest_of(static_cast<char>('a' + roll(6)));
    room_.image(record_of(name, order.text, bytes), name + "-" + std::to_string(++trees_));
    room_.done(order, name);
  }

  void answer_removal(const scripted_room::order& order) {
    if (roll(2) == 0)
      return room_.fail(order, errc::io_failed, "it broke");
    room_.gone(order.text, true);
    room_.done(order, order.text);
  }

  scripted_room& room_;
  std::minstd_rand dice_;
  std::vector<scripted_room::order> waiting_;
  figures counts_;
  int trees_ = 0;
};

/// What an asker may hear of an image.
bool makes_sense(const result<std::string>& heard, const std::string& reference) {
  if (heard)
    return *heard == name_of(reference);
  const auto code = heard.reason().code;
  return code == errc::image_pending || code == errc::image_refused;
}

bool makes_sense_of_removal(const result<std::string>& heard) {
  if (heard)
    return true;
  const auto code = heard.reason().code;
  return code == errc::not_found || code == errc::limit_reached || code == errc::io_failed;
}

struct outcome {
  int senseless = 0, unanswered = 0, answered_twice = 0, names = 0;
};

/// Asks, waits for the answer, and asks again.
outcome ask_many(fetching_node& node, unsigned seed) {
  std::minstd_rand dice{seed};
  outcome all;
  std::vector<told> askers_before;
  for (int round = 0; round < rounds; ++round) {
    const auto reference = reference_of(static_cast<int>(dice() % images));
    const auto asker = dice() % 4 == 0 ? node.pull(reference) : node.find(reference);
    std::optional<told> removal;
    switch (dice() % 8) {
      case 0: removal = node.remove(name_of(reference)); break;
      case 1: node.supply->used(name_of(reference)); break;
      case 2: node.supply->list(); break;
      case 3: node.supply->on_their_way(); break;
      case 4: node.supply->read_figures(); break;
      case 5: node.time.advance(std::chrono::milliseconds{dice() % 20'000}); break;
      default: break;
    }
    try {
      const auto heard = asker.get();
      all.names += heard ? 1 : 0;
      all.senseless += makes_sense(heard, reference) ? 0 : 1;
      if (removal)
        all.senseless += makes_sense_of_removal(removal->get()) ? 0 : 1;
    } catch (const std::exception&) {
      ++all.unanswered;
    }
    askers_before.push_back(asker);
    if (removal)
      askers_before.push_back(*removal);
  }
  for (const auto& each : askers_before)
    all.answered_twice += each.open() ? 0 : 1;
  return all;
}

std::vector<outcome> ask_from_many_threads(fetching_node& node, unsigned seed) {
  std::vector<std::future<outcome>> running;
  for (unsigned i = 0; i < askers; ++i)
    running.push_back(std::async(std::launch::async, ask_many, std::ref(node), seed + i));
  std::vector<outcome> all;
  for (auto& each : running)
    all.push_back(each.get());
  return all;
}

void check(const std::vector<outcome>& all) {
  for (const auto& each : all) {
    CHECK(each.senseless == 0);
    CHECK(each.unanswered == 0);
    CHECK(each.answered_twice == 0);
  }
}

} // namespace

TEST_CASE("many askers of few images hear one answer each, whatever the room says",
          "[apps][images]") {
  const auto seed = GENERATE(1u, 1001u);
  CAPTURE(seed);
  fetching_node node;
  node.how.policy.keep_unused = 1min;
  node.how.may_sweep = true;
  SECTION("only what is missing is fetched") {}
  SECTION("all is fetched again") {
    node.how.policy.pull = image_pull::always;
  }
  node.start();
  std::atomic<bool> ends = false;
  auto served = std::async(std::launch::async, [&] {
    return random_room{node.room, seed}.serve(ends);
  });
  const auto all = ask_from_many_threads(node, seed);
  const bool idle = eventually([&] { return node.supply->on_their_way().empty(); });
  ends = true;
  const auto orders = served.get();
  check(all);
  CHECK(idle);
  CHECK(orders.most_at_once <= 2);
  const auto figures = node.supply->read_figures();
  CHECK(figures.pulled + figures.failed == orders.pulls);
  CHECK(std::any_of(all.begin(), all.end(), [](auto& each) { return each.names > 0; }));
}

TEST_CASE("many askers hear one answer each when the room ends among them", "[apps][images]") {
  fetching_node node;
  node.start();
  auto served = std::async(std::launch::async, [&] {
    random_room{node.room, 7}.serve_some(12);
    node.room.die();
  });
  const auto all = ask_from_many_threads(node, 2000);
  served.get();
  check(all);
  CHECK(node.supply->on_their_way().empty());
  CHECK(node.find("reg.example/image:none").code() == errc::image_pending);
}

TEST_CASE("many askers hear one answer each when the server ends among them", "[apps][images]") {
  fetching_node node;
  node.start();
  std::atomic<bool> ends = false;
  auto served = std::async(std::launch::async, [&] {
    random_room room{node.room, 9};
    room.serve_some(12);
    node.supply->end();
    return room.serve(ends); // Nobody hears it.
  });
  const auto all = ask_from_many_threads(node, 3000);
  ends = true;
  served.get();
  check(all);
}
