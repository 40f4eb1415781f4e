// The places of named keys, in a real etcd.
#include "storage/etcd/key_ledger.hpp"

#include "storage/etcd/gateway_json.hpp"
#include "storage/etcd/http_client.hpp"
#include "storage/etcd/membership.hpp"
#include "tests/storage/passing_client.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/etcd.hpp"
#include "tests/support/events.hpp"
#include "tests/support/eventually.hpp"

#include <atomic>
#include <future>
#include <set>

using namespace insula;
using namespace insula::storage;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

constexpr key_ceilings two_at_once{2, 0, 0};

/// One node of a cluster, as far as its keys go.
struct keyed_node {
  explicit keyed_node(const etcd_server& server, const std::string& name,
                      etcd::lease_id resumed = 0) {
    auto opened = etcd::http_client::open({{server.url()}, "", "", ""});
    REQUIRE(opened);
    client = std::move(*opened);
    etcd::membership_options how;
    how.prefix = "t/";
    how.self = name;
    how.record = name;
    how.resumed = resumed;
    std::promise<void> joined;
    etcd::membership::listener tell;
    tell.joined = [&joined](bool) { joined.set_value(); };
    member = std::make_unique<etcd::membership>(*client, how, tell);
    ledger = std::make_unique<etcd::key_ledger>(*client, *member, how.prefix,
                                                [this] { return now_us.load(); });
    member->start();
    REQUIRE(joined.get_future().wait_for(60s) == std::future_status::ready);
  }
  ~keyed_node() {
    ledger.reset();
    member.reset();
    client.reset();
  }
  void leave(bool end_lease) {
    std::promise<void> left;
    member->leave(end_lease, [&] { left.set_value(); });
    left.get_future().wait();
  }

  std::future<result<void>> ask(const std::string& sandbox, key_ceilings most = two_at_once,
                                bool is_new = false) {
    auto told = std::make_shared<std::promise<result<void>>>();
    ledger->reserve({"ci", sandbox, 100, is_new}, most, token(sandbox),
                    [told](result<void> how) { told->set_value(std::move(how)); });
    return told->get_future();
  }
  result<void> reserve(const std::string& sandbox, key_ceilings most = two_at_once,
                       bool is_new = false) {
    auto asked = ask(sandbox, most, is_new);
    REQUIRE(asked.wait_for(60s) == std::future_status::ready);
    return asked.get();
  }
  void put(const std::string& sandbox) { ledger->put({"ci", sandbox, 100}, token(sandbox)); }
  void drop(const std::string& sandbox) { ledger->drop({"ci", sandbox, 100}, token(sandbox)); }
  std::string token(const std::string& sandbox) const { return life + sandbox; }

  /// Sandboxes that count, as etcd has them.
  std::set<std::string> counted() {
    const auto all = places();
    return {all.begin(), all.end()};
  }
  std::size_t places_of(const std::string& sandbox) { return places().count(sandbox); }
  /// The sandbox of each.
  std::multiset<std::string> places() {
    std::promise<std::multiset<std::string>> told;
    client->transact(
      {{}, {etcd::operation::read("t/keys/ci/", etcd::end_of_prefix("t/keys/ci/"))}, {}}, 5s,
      [&](result<etcd::outcome> got) {
        std::multiset<std::string> all;
        if (got)
          for (const auto& each : got->found.at(0)) {
            const auto rest = each.key.substr(10);
            all.insert(rest.substr(0, rest.find('/')));
          }
        told.set_value(std::move(all));
      });
    return told.get_future().get();
  }

  std::string life = std::to_string(++lives) + "-";
  std::atomic<std::int64_t> now_us = 1'700'000'000'000'000;
  std::unique_ptr<etcd::http_client> client;
  std::unique_ptr<etcd::membership> member;
  std::unique_ptr<etcd::key_ledger> ledger;
  static inline int lives = 0;
};

using names = std::set<std::string>;

/// Passes everything on, but what is asked while nobody is to hear it.
class deaf_client final : public passing_client {
public:
  using answer = std::function<void(result<etcd::outcome>)>;
  struct question {
    etcd::transaction what;
    answer then;
  };

  using passing_client::passing_client;

  /// From now on what is asked is in `unheard`.
  void be_deaf(bool is) { deaf_ = is; }
  void let_pass(std::chrono::nanoseconds time) { ahead_ = ahead_.load() + time.count(); }
  /// Answers on the client's thread: as etcd does, or by nothing.
  void answer_one(bool at_last) {
    auto one = unheard.next();
    to_.post([this, one = std::move(one), at_last] {
      at_last ? to_.transact(one.what, 5s, one.then)
              : one.then(error{errc::node_unreachable, "no answer in time"});
    });
  }

  void transact(etcd::transaction what, milliseconds patience, answer then) override {
    if (deaf_)
      return unheard.tell({std::move(what), std::move(then)});
    to_.transact(std::move(what), patience, std::move(then));
  }
  std::chrono::nanoseconds now() const override {
    return to_.now() + std::chrono::nanoseconds{ahead_.load()};
  }

  events<question> unheard;

private:
  std::atomic<bool> deaf_ = false;
  std::atomic<std::int64_t> ahead_ = 0;
};

/// One node's, whose etcd says nothing when the test wants that.
struct deaf_node {
  explicit deaf_node(const etcd_server& server)
      : node(server, "one") {
    node.ledger.reset();
    node.ledger = std::make_unique<etcd::key_ledger>(client, *node.member, "t/",
                                                     [this] { return node.now_us.load(); });
  }
  ~deaf_node() { node.ledger.reset(); }

  keyed_node node;
  deaf_client client{*node.client};
};

errc reason_of(std::future<result<void>>& asked) {
  REQUIRE(asked.wait_for(60s) == std::future_status::ready);
  const auto how = asked.get();
  REQUIRE_FALSE(how);
  return how.reason().code;
}

} // namespace

TEST_CASE("nodes that ask at the same time have no more places than there are", "[etcd][keys]") {
  const etcd_server server;
  keyed_node one{server, "one"}, two{server, "two"}, three{server, "three"};
  std::vector<std::future<result<void>>> asked;
  for (int i = 0; i < 8; ++i)
    for (auto* each : {&one, &two, &three})
      asked.push_back(each->ask(each->member->self() + std::to_string(i), {7, 0, 0}));
  int had = 0;
  for (auto& each : asked) {
    const auto how = each.get();
    if (how)
      ++had;
    else
      CHECK(how.reason().code == errc::key_ceiling);
  }
  CHECK(had == 7);
  CHECK(one.counted().size() == 7);
}

TEST_CASE("a place is had once, and given back once", "[etcd][keys]") {
  const etcd_server server;
  keyed_node one{server, "one"}, two{server, "two"};
  CHECK(one.reserve("a"));
  CHECK(one.reserve("a")); // The same.
  CHECK(two.reserve("b"));
  CHECK_FALSE(two.reserve("c"));
  CHECK(two.reserve("a")); // It moves there, and counts once.
  one.drop("a");
  one.drop("nothing");
  CHECK_FALSE(two.reserve("c"));
  two.drop("a");
  REQUIRE(eventually([&] { return two.counted() == names{"b"}; }));
  CHECK(one.reserve("c"));
  // What is on its way out is waited for, for a moment.
  one.drop("c");
  CHECK(two.reserve("d"));
  one.put("e"); // It runs already.
  REQUIRE(eventually([&] { return one.counted() == names{"b", "d", "e"}; }));
  CHECK_FALSE(one.reserve("f"));
}

TEST_CASE("creates of a minute are those of all nodes", "[etcd][keys]") {
  const etcd_server server;
  keyed_node one{server, "one"}, two{server, "two"};
  const key_ceilings three_a_minute{0, 0, 3};
  CHECK(one.reserve("a", three_a_minute, true));
  CHECK(two.reserve("b", three_a_minute, true));
  CHECK(one.reserve("c", three_a_minute, true));
  const auto fourth = two.reserve("d", three_a_minute, true);
  REQUIRE_FALSE(fourth);
  CHECK(fourth.reason().retry_s == 20);
  CHECK(two.reserve("d", three_a_minute, false));
  one.now_us += 20'000'000;
  CHECK(one.reserve("e", three_a_minute, true));
}

TEST_CASE("what a lost node had counts until its lease is over", "[etcd][keys]") {
  const etcd_server server;
  keyed_node two{server, "two"};
  {
    keyed_node one{server, "one"};
    CHECK(one.reserve("a"));
    CHECK(one.reserve("b"));
    CHECK_FALSE(two.reserve("c"));
    one.leave(false); // As if it was killed.
  }
  CHECK(two.counted() == names{"a", "b"});
  REQUIRE(eventually([&] { return two.counted().empty(); }));
  CHECK(two.reserve("c"));
}

TEST_CASE("the next server on a lease keeps what lives, and no more", "[etcd][keys]") {
  const etcd_server server;
  keyed_node other{server, "other"};
  etcd::lease_id lease = 0;
  {
    keyed_node one{server, "one"};
    REQUIRE(one.reserve("a", {9, 0, 0}));
    REQUIRE(one.reserve("b", {9, 0, 0}));
    REQUIRE(one.reserve("c", {9, 0, 0}));
    lease = one.member->lease();
    one.leave(false);
  }
  REQUIRE(other.reserve("d", {9, 0, 0}));
  keyed_node next{server, "one", lease};
  REQUIRE(next.member->lease() == lease);
  std::atomic<bool> waits = true;
  const auto lives = [&](const std::string& sandbox) { return sandbox == "a" && waits; };
  next.ledger->tidy(lives);
  REQUIRE(eventually([&] { return next.counted() == names{"a", "d"}; }));
  next.put("a"); // It is taken over: its old place goes, the new one stays.
  waits = false;
  next.ledger->tidy(lives);
  REQUIRE(eventually([&] {
    next.ledger->tidy(lives);
    return next.counted() == names{"a", "d"};
  }));
  next.drop("a");
  REQUIRE(eventually([&] {
    next.ledger->tidy(lives);
    return next.counted() == names{"d"};
  }));
}

TEST_CASE("without etcd nothing is had, and what is asked ends with the ledger", "[etcd][keys]") {
  etcd_server server;
  keyed_node one{server, "one"};
  REQUIRE(one.reserve("a"));
  server.stop();
  auto asked = one.ask("b");
  one.ledger.reset();
  const auto how = asked.get();
  REQUIRE_FALSE(how);
  CHECK(how.reason().code == errc::node_unreachable);
  server.start();
}

TEST_CASE("while etcd says nothing, all that wait for one key are told so together",
          "[etcd][keys]") {
  const etcd_server server;
  deaf_node one{server};
  one.client.be_deaf(true);
  std::vector<std::future<result<void>>> asked;
  for (const auto* each : {"a", "b", "c"})
    asked.push_back(one.node.ask(each));
  for (int question = 0; question < 3; ++question) // As often as one of them would ask.
    one.client.answer_one(false);
  for (auto& each : asked)
    CHECK(reason_of(each) == errc::node_unreachable);
  one.client.be_deaf(false);
  CHECK(one.node.reserve("d"));
  CHECK(one.client.unheard.empty());
}

TEST_CASE("a start waits for its place so long, in the queue or not", "[etcd][keys]") {
  const etcd_server server;
  deaf_node one{server};
  one.client.be_deaf(true);
  auto first = one.node.ask("a"), second = one.node.ask("b");
  auto question = one.client.unheard.next();
  std::promise<void> both_wait;
  one.client.post([&] { both_wait.set_value(); });
  both_wait.get_future().wait();
  one.client.let_pass(15s);
  SECTION("etcd answers at last") {
    one.client.be_deaf(false);
    one.client.post([&] { one.client.transact(question.what, 5s, question.then); });
    REQUIRE(first.wait_for(60s) == std::future_status::ready);
    CHECK(first.get());
    CHECK(reason_of(second) == errc::node_unreachable);
    CHECK(one.node.reserve("b"));
  }
  SECTION("it does not") {
    one.client.post([&] { question.then(error{errc::node_unreachable, "no answer in time"}); });
    CHECK(reason_of(first) == errc::node_unreachable);
    CHECK(reason_of(second) == errc::node_unreachable);
  }
  CHECK(one.client.unheard.empty());
}

TEST_CASE("a survivor that is being taken over counts without a gap", "[etcd][keys]") {
  const etcd_server server;
  etcd::lease_id lease = 0;
  {
    keyed_node before{server, "one"};
    REQUIRE(before.reserve("a"));
    lease = before.member->lease();
    before.leave(false);
  }
  keyed_node next{server, "one", lease};
  REQUIRE(next.member->lease() == lease);
  // It is taken over while the old places are looked at.
  next.ledger->tidy([&](const std::string& sandbox) {
    next.put(sandbox);
    return false;
  });
  REQUIRE(eventually([&] { return next.places_of("a") == 2; }));
  CHECK(next.reserve("b", {9, 0, 0}));
  CHECK(next.places_of("a") == 2); // Until the new one has been seen there.
  REQUIRE(eventually([&] {
    next.ledger->tidy([](const std::string&) { return false; });
    return next.places_of("a") == 1;
  }));
  next.drop("a");
  REQUIRE(eventually([&] { return next.counted() == names{"b"}; }));
}
