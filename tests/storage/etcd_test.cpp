#include "storage/etcd/cluster_store.hpp"
#include "storage/etcd/gateway_json.hpp"
#include "storage/etcd/http_client.hpp"
#include "storage/etcd/membership.hpp"
#include "storage/etcd/watched_keys.hpp"
#include "storage/secret.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/etcd.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/store_calls.hpp"

#include <atomic>
#include <future>
#include <mutex>

using namespace insula;
using namespace insula::storage;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

std::unique_ptr<etcd::http_client> connect_to(const etcd_server& server) {
  auto made = etcd::http_client::open({{server.url()}, "", "", ""});
  REQUIRE(made);
  return std::move(*made);
}

template <class T, class Ask>
result<T> wait_for(Ask ask) {
  auto told = std::make_shared<std::promise<result<T>>>();
  auto got = told->get_future();
  ask([told](result<T> answer) { told->set_value(std::move(answer)); });
  REQUIRE(got.wait_for(60s) == std::future_status::ready);
  return got.get();
}

/// One node of a cluster, as far as it remembers things.
struct node {
  explicit node(const etcd_server& server, std::string name, etcd::lease_id resumed = 0)
      : client(connect_to(server)) {
    etcd::membership_options how;
    how.prefix = "t/";
    how.self = name;
    how.record = "I am " + name;
    how.resumed = resumed;
    etcd::membership::listener tell;
    tell.joined = [this](bool resumed_it) {
      has_resumed = resumed_it;
      ++joined;
    };
    tell.waits = [this](const error& why) {
      const std::lock_guard lock{mutex};
      waits = why.message;
    };
    tell.lost = [this](auto gone) {
      ++lost;
      store->forget_all();
      gone();
    };
    member = std::make_unique<etcd::membership>(*client, how, tell);
    store = std::make_unique<etcd::cluster_store>(
      *client, *member, etcd::cluster_store_options{"t/", {"@alarm/", "about"}});
    member->start();
  }
  ~node() {
    if (member)
      stop(true);
    store.reset();
    member.reset();
    client.reset();
  }

  void stop(bool end_lease) {
    std::promise<void> left;
    member->leave(end_lease, [&] { left.set_value(); });
    left.get_future().wait();
  }

  void wait_until_member() {
    REQUIRE(eventually([&] { return member->good(); }));
  }

  epoch hold(const std::string& id) {
    auto got = wait_for<epoch>([&](auto then) { store->acquire(id, then); });
    if (!got)
      FAIL(got.reason().message);
    return *got;
  }

  result<epoch> try_to_hold(const std::string& id) {
    return wait_for<epoch>([&](auto then) { store->acquire(id, then); });
  }

  std::unique_ptr<etcd::http_client> client;
  std::unique_ptr<etcd::membership> member;
  std::unique_ptr<etcd::cluster_store> store;
  std::atomic<int> joined{0}, lost{0};
  std::atomic<bool> has_resumed{false};
  std::mutex mutex;
  std::string waits;
};

contents read_all(store& where, std::string_view owner) {
  auto all = where.read(owner);
  if (!all)
    FAIL(all.reason().message);
  return as_map(*all);
}

} // namespace

TEST_CASE("base64 goes both ways", "[etcd]") {
  for (std::size_t length = 0; length < 70; ++length) {
    std::string bytes;
    for (std::size_t i = 0; i < length; ++i)
      bytes += static_cast<char>(i * 37 + length);
    CHECK(etcd::from_base64(etcd::base64(bytes)) == bytes);
  }
  CHECK_FALSE(etcd::from_base64("a"));
  CHECK_FALSE(etcd::from_base64("a*=="));
}

TEST_CASE("answers that make no sense are errors", "[etcd]") {
  for (const auto* text : {"", "[]", "{", "{}", "null", R"({"header":7})", R"({"header":{}})"})
    CHECK_FALSE(etcd::read_outcome(text));
  CHECK_FALSE(etcd::read_grant("{}"));
  CHECK_FALSE(etcd::read_renewal("{}"));
  CHECK_FALSE(etcd::read_news("nonsense"));
  const auto odd = etcd::read_outcome(
    R"({"header":{"revision":"5"},"responses":[{"response_range":{"kvs":[7,{"key":9}]}},3]})");
  REQUIRE(odd);
  CHECK(odd->found.size() == 2);
}

TEST_CASE("a node is a member until it leaves", "[etcd]") {
  etcd_server server;
  auto watching = connect_to(server);
  etcd::watched_keys nodes{*watching, "t/nodes/", [] {}};
  nodes.start();
  {
    node one{server, "n1"};
    one.wait_until_member();
    CHECK(eventually([&] { return nodes.find("n1").has_value(); }));
    CHECK(nodes.find("n1")->value == "I am n1");
    // Longer than its lease lives.
    CHECK_FALSE(eventually([&] { return !one.member->good(); }, 4s));
    CHECK(one.lost == 0);
  }
  CHECK(eventually([&] { return !nodes.find("n1"); }, 2s));
}

TEST_CASE("two nodes of one name are not members at once", "[etcd]") {
  etcd_server server;
  auto one = std::make_unique<node>(server, "n1");
  one->wait_until_member();
  node two{server, "n1"};
  CHECK(eventually([&] {
    const std::lock_guard lock{two.mutex};
    return two.waits.find("is a member already") != std::string::npos;
  }));
  CHECK_FALSE(two.member->good());
  one.reset();
  two.wait_until_member();
}

TEST_CASE("a server goes on with the lease of the one before", "[etcd]") {
  etcd_server server;
  auto one = std::make_unique<node>(server, "n1");
  one->wait_until_member();
  const auto lease = one->member->lease();
  const auto held = one->hold("a");
  REQUIRE(commit_now(*one->store, {"a", held, {{"key", "value"}}}));
  one->stop(false);
  node two{server, "n1", lease};
  two.wait_until_member();
  CHECK(two.has_resumed);
  const auto later = two.hold("a");
  CHECK(later > held);
  CHECK(read_all(*two.store, "a") == contents{{"key", "value"}});
  REQUIRE(commit_now(*two.store, {"a", later, {{"key", "other"}}}));
  CHECK(read_all(*two.store, "a") == contents{{"key", "other"}});
}

TEST_CASE("one node owns an id until it is gone", "[etcd]") {
  etcd_server server;
  node one{server, "n1"}, two{server, "n2"};
  one.wait_until_member();
  two.wait_until_member();
  const auto held = one.hold("a");
  CHECK(one.store->is_mine("a"));
  const auto refused = two.try_to_hold("a");
  REQUIRE_FALSE(refused);
  CHECK(refused.reason().code == errc::stale_epoch);
  CHECK(refused.reason().message == "a is on node n1");
  CHECK(one.try_to_hold("a").reason().code == errc::limit_reached);

  SECTION("it is given back without anything written") {
    one.store->release("a", held);
    CHECK(eventually([&] { return bool{two.try_to_hold("a")}; }));
  }
  SECTION("what has been written stays its own, with growing epochs") {
    REQUIRE(commit_now(*one.store, {"a", held, {{"key", "value"}}}));
    one.store->release("a", held);
    const auto next = one.hold("a");
    CHECK(next > held);
    CHECK(commit_now(*one.store, {"a", held, {{"key", "old"}}}).reason().code == errc::stale_epoch);
    CHECK_FALSE(two.try_to_hold("a"));
    one.store->release("a", next);
    const auto given = wait_for<void>([&](auto then) { one.store->give_up("a", then); });
    CHECK(given);
    const auto other = two.hold("a");
    CHECK(other > next);
    CHECK(read_all(*two.store, "a") == contents{{"key", "value"}});
    CHECK(commit_now(*one.store, {"a", next, {{"key", "old"}}}).reason().code == errc::stale_epoch);
  }
  SECTION("it is deleted") {
    REQUIRE(commit_now(*one.store, {"a", held, {{"key", "value"}, {"@alarm/", "due"}}}));
    CHECK(one.store->find("@alarm/")->size() == 1);
    REQUIRE(commit_now(*one.store, {"a", held + 1, {}, {""}}));
    CHECK(commit_now(*one.store, {"a", held, {{"key", "late"}}}).reason().code ==
          errc::stale_epoch);
    one.store->release("a", held);
    const auto later = one.hold("a");
    CHECK(later > held + 1);
    CHECK(read_all(*one.store, "a").empty());
    CHECK(one.store->find("@alarm/")->empty());
    CHECK(one.store->owners()->empty());
  }
}

TEST_CASE("a cluster's store keeps what it acknowledges", "[etcd]") {
  etcd_server server;
  node one{server, "n1"};
  one.wait_until_member();
  const auto held = one.hold("a");
  const std::string odd{"\0\xff/\n", 4};
  const auto put = [&](std::vector<change> changes, std::vector<std::string> cleared = {}) {
    const auto outcome =
      commit_now(*one.store, {"a", held, std::move(changes), std::move(cleared)});
    if (!outcome)
      FAIL(outcome.reason().message);
  };
  put({{"state", "ready"}, {odd, odd}, {"empty", ""}});
  CHECK(read_all(*one.store, "a") == contents{{"state", "ready"}, {odd, odd}, {"empty", ""}});
  // Of two changes of one key the later stands; what is cleared goes before all of them.
  put({{"s/1", "1"}, {"s/2", "2"}, {"s/1", "one"}, {"s/3", "3"}});
  put({{"s/2", "two"}, {"s/9", std::nullopt}, {"empty", std::nullopt}}, {"s/", "state"});
  CHECK(read_all(*one.store, "a") == contents{{odd, odd}, {"s/2", "two"}});
  CHECK(as_map(*one.store->read("a", "s/")) == contents{{"s/2", "two"}});
  put({{"x", "1"}}, {""});
  CHECK(read_all(*one.store, "a") == contents{{"x", "1"}});

  SECTION("marks are found, with their owners") {
    const auto other = one.hold("b");
    REQUIRE(commit_now(*one.store, {"b", other, {{"@alarm/s/", "1"}, {"about", "b"}}}));
    put({{"@alarm/", "2"}, {"@alarm/s/", "3"}, {"other", "4"}});
    const std::vector<owned_entry> all{
      {"a", "@alarm/", "2"}, {"a", "@alarm/s/", "3"}, {"b", "@alarm/s/", "1"}};
    CHECK(*one.store->find("@alarm/") == all);
    put({}, {"@alarm/s/"});
    CHECK(*one.store->find("@alarm/") ==
          std::vector<owned_entry>{{"a", "@alarm/", "2"}, {"b", "@alarm/s/", "1"}});
    CHECK(*one.store->find("about") == std::vector<owned_entry>{{"b", "about", "b"}});
    CHECK(*one.store->owners() == std::vector<std::string>{"a", "b"});
  }
  SECTION("a batch of its largest size") {
    std::vector<change> changes;
    for (int i = 0; i < 15; ++i)
      changes.push_back({"k" + std::to_string(i), std::string(1'000'000, 'x')});
    put(std::move(changes));
    CHECK(read_all(*one.store, "a").size() == 16);
  }
  SECTION("many at once, in their order") {
    std::vector<std::future<result<void>>> all;
    for (int i = 0; i < 200; ++i)
      all.push_back(commit_async(*one.store, {"a", held, {{"n", std::to_string(i)}}}));
    for (auto& each : all)
      CHECK(each.get());
    CHECK(read_all(*one.store, "a")["n"] == "199");
  }
}

TEST_CASE("what all nodes share is the first one's", "[etcd]") {
  etcd_server server;
  node one{server, "n1"}, two{server, "n2"};
  one.wait_until_member();
  two.wait_until_member();
  const auto first = kept_secret(*one.store, "ids");
  const auto second = kept_secret(*two.store, "ids");
  REQUIRE(first);
  REQUIRE(second);
  CHECK(*first == *second);
  CHECK(commit_now(*two.store, {"_secret", 1, {{"ids", "mine"}}}).reason().code ==
        errc::stale_epoch);
}

TEST_CASE("a node that is cut off fences itself in time", "[etcd]") {
  etcd_server server;
  node one{server, "n1"};
  one.wait_until_member();
  const auto held = one.hold("a");
  REQUIRE(commit_now(*one.store, {"a", held, {{"key", "value"}}}));
  server.stand_still();
  CHECK(eventually([&] { return one.lost == 1; }, 10s));
  CHECK_FALSE(one.member->good());
  CHECK_FALSE(one.store->is_mine("a"));
  CHECK(commit_now(*one.store, {"a", held, {{"key", "late"}}}).reason().code == errc::stale_epoch);
  CHECK(one.try_to_hold("a").reason().code == errc::node_unreachable);
  server.go_on();
  one.wait_until_member();
  CHECK(eventually([&] { return bool{one.try_to_hold("a")}; }));
  CHECK(read_all(*one.store, "a") == contents{{"key", "value"}});
}

TEST_CASE("what nobody knows of is found out about before the next write", "[etcd]") {
  etcd_server server;
  node one{server, "n1"};
  one.wait_until_member();
  const auto held = one.hold("a");
  REQUIRE(commit_now(*one.store, {"a", held, {{"n", "0"}}}));
  // A pause shorter than the lease: the attempts that etcd has taken in meanwhile come to be late.
  server.stand_still();
  auto unsure = commit_async(*one.store, {"a", held, {{"n", "1"}}});
  CHECK(unsure.wait_for(1s) == std::future_status::timeout);
  server.go_on();
  CHECK(unsure.get());
  for (int i = 2; i < 20; ++i)
    CHECK(commit_now(*one.store, {"a", held, {{"n", std::to_string(i)}}}));
  CHECK(read_all(*one.store, "a") == contents{{"n", "19"}});
}

TEST_CASE("etcd may be gone for a while", "[etcd]") {
  etcd_server server;
  node one{server, "n1"};
  one.wait_until_member();
  server.stop();
  CHECK(eventually([&] { return one.lost == 1; }, 10s));
  server.start();
  one.wait_until_member();
  CHECK(one.joined == 2);
}
