#include "actors/sandbox_list.hpp"
#include "base/unique_fd.hpp"
#include "storage/etcd/cluster_store.hpp"
#include "storage/etcd/gateway_json.hpp"
#include "storage/etcd/http_client.hpp"
#include "storage/etcd/membership.hpp"
#include "storage/etcd/orphans.hpp"
#include "storage/etcd/watched_keys.hpp"
#include "storage/secret.hpp"
#include "tests/storage/passing_client.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/etcd.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/made_authority.hpp"
#include "tests/support/store_calls.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <netinet/in.h>
#include <sys/socket.h>

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

/// Passes everything on, and answers of transactions and renewals as the test wants it.
class played_client final : public passing_client {
public:
  using answer = std::function<void(result<etcd::outcome>)>;
  /// On the client's thread, in place of `then`.
  using player = std::function<void(const etcd::transaction&, result<etcd::outcome>, answer then)>;

  using passing_client::passing_client;

  using renewal_answer = std::function<void(result<etcd::renewal>)>;
  using renewal_player = std::function<void(result<etcd::renewal>, renewal_answer then)>;

  void play(player by) {
    std::promise<void> set;
    to_.post([&] {
      by_ = std::move(by);
      set.set_value();
    });
    set.get_future().wait();
  }
  void play_renewals(renewal_player by) {
    std::promise<void> set;
    to_.post([&] {
      renewed_by_ = std::move(by);
      set.set_value();
    });
    set.get_future().wait();
  }

  void transact(etcd::transaction what, milliseconds patience, answer then) override {
    to_.transact(what, patience, [this, what, then](result<etcd::outcome> got) {
      by_ ? by_(what, std::move(got), then) : then(std::move(got));
    });
  }
  void renew(etcd::lease_id which, milliseconds patience,
             std::function<void(result<etcd::renewal>)> then) override {
    to_.renew(which, patience, [this, then = std::move(then)](result<etcd::renewal> got) {
      renewed_by_ ? renewed_by_(std::move(got), then) : then(std::move(got));
    });
  }

private:
  player by_;
  renewal_player renewed_by_;
};

bool looks_at(const etcd::transaction& what, std::string_view key) {
  return what.conditions.empty() && what.then.size() == 1 &&
         what.then[0].what == etcd::operation::of::read && what.then[0].key == key;
}

bool puts(const etcd::transaction& what, std::string_view key) {
  return std::any_of(what.then.begin(), what.then.end(), [&](const auto& each) {
    return each.what == etcd::operation::of::put && each.key == key;
  });
}

/// One node of a cluster, as far as it remembers things.
struct node {
  using fits_fn = decltype(etcd::membership::listener::fits);

  explicit node(const etcd_server& server, std::string name, etcd::lease_id resumed = 0,
                fits_fn fits = nullptr, bool waits_to_start = false,
                std::vector<std::string> found_by = {"@alarm/", "about"}, std::uint32_t format = 1,
                std::chrono::milliseconds lives = 3s)
      : client(connect_to(server))
      , played(*client) {
    etcd::membership_options how;
    how.prefix = "t/";
    how.self = name;
    how.record = "I am " + name;
    how.resumed = resumed;
    how.format = format;
    how.lives = lives;
    etcd::membership::listener tell;
    if (fits)
      tell.fits = std::move(fits);
    tell.joined = [this](bool resumed_it) {
      has_resumed = resumed_it;
      ++joined;
    };
    tell.waits = [this](const error& why) {
      const std::lock_guard lock{mutex};
      waits = why.message;
    };
    tell.renewed = [this](std::chrono::nanoseconds until) { good_until = until; };
    tell.lost = [this](auto gone) {
      was_good_until = good_until.load();
      store->forget_all();
      played.post([this, gone] { // Behind that, which is posted as well.
        ++lost;
        gone();
      });
    };
    member = std::make_unique<etcd::membership>(played, how, tell);
    etcd::cluster_store_options keeping{"t/", std::move(found_by)};
    keeping.found = [this] { ++found; };
    keeping.most_activations = most_activations;
    keeping.told_of_owned = {"about", "@alarm/"};
    keeping.refuses = [this] {
      return closed ? std::optional{error{errc::node_unreachable, "closed"}} : std::nullopt;
    };
    store = std::make_unique<etcd::cluster_store>(played, *member, keeping);
    if (!waits_to_start)
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

  result<etcd::cluster_store::owning> own(const std::string& id) {
    return wait_for<etcd::cluster_store::owning>([&](auto then) { store->own(id, then); });
  }

  static constexpr std::uint64_t most_activations = 50;

  std::unique_ptr<etcd::http_client> client;
  played_client played;
  std::unique_ptr<etcd::membership> member;
  std::unique_ptr<etcd::cluster_store> store;
  std::atomic<int> joined{0}, lost{0}, found{0};
  std::atomic<bool> has_resumed{false}, closed{false};
  std::atomic<std::chrono::nanoseconds> good_until{}, was_good_until{}; ///< By the client's clock.
  std::mutex mutex;
  std::string waits;
};

/// As a node does that has just joined.
actors::listed_records bring_up_records(node& at, const actors::group_rule& groups = {}) {
  return actors::list_older_records(
    *at.store, *at.store, actors::found_records::older, groups,
    [&at](const auto& id) { at.store->give_up(id, [](const auto&) {}); });
}

contents read_all(store& where, std::string_view owner) {
  auto all = where.read(owner);
  if (!all)
    FAIL(all.reason().message);
  return as_map(*all);
}

/// A cluster's store as the contract of scans sees it: one node, which is restarted to reopen it.
class in_etcd {
public:
  store& open() {
    one_ = std::make_unique<node>(server_, "n1");
    one_->played.play([this](const etcd::transaction& what, auto got, auto then) {
      for (std::size_t i = 0; got && i < got->found.size() && i < what.then.size(); ++i)
        if (what.then[i].key.starts_with("t/mark/") ||
            (what.then[i].key.starts_with("t/data/") && what.then[i].end.empty()))
          lines_read_ += got->found[i].size();
      then(std::move(got));
    });
    one_->wait_until_member();
    return *one_->store;
  }
  store& reopen() {
    one_.reset();
    held_.clear();
    return open();
  }
  epoch may_write(const std::string& owner) {
    auto& held = held_[owner];
    if (held == 0)
      held = one_->hold(owner);
    return held;
  }
  std::uint64_t lines_read() const { return lines_read_; }

private:
  etcd_server server_;
  std::atomic<std::uint64_t> lines_read_{0};
  std::map<std::string, epoch> held_;
  std::unique_ptr<node> one_;
};

} // namespace

#define INSULA_SCANNED in_etcd
#include "tests/contract/scan_contract.hpp"

TEST_CASE("a page of a list whose lines are as large as can be is read a few lines at a time",
          "[etcd][scan]") {
  in_etcd one;
  auto& s = one.open();
  const std::string large(store::max_value_bytes, 'v');
  constexpr int many = 56; // Together more than an answer of the client may have.
  for (int i = 0; i < many; ++i) {
    const auto owner = "o" + std::to_string(i);
    const auto written =
      commit_now(s, {owner, one.may_write(owner), {{"@l/" + std::to_string(100 + i), large}}});
    if (!written)
      FAIL(written.reason().message);
  }
  for (const std::size_t limit : {many, 1'000}) {
    const auto before = one.lines_read();
    const auto page = s.scan("@l/", {}, limit);
    if (!page)
      FAIL(page.reason().message);
    CHECK(page->lines.size() == 4);
    CHECK(page->more);
    CHECK(page->lines.front().key == "@l/100");
    CHECK(one.lines_read() - before < page->lines.size() + etcd::cluster_store::lines_at_once);
  }
  const auto last = s.scan("@l/", {"@l/152", "o52"}, 1'000);
  REQUIRE(last);
  CHECK(last->lines.size() == 3);
  CHECK_FALSE(last->more);
}

TEST_CASE("a node that is too old for what is stored is no member, and says what to do", "[etcd]") {
  etcd_server server;
  const auto made = [&](const std::string& name, std::uint32_t format, etcd::lease_id resumed = 0,
                        node::fits_fn fits = nullptr) {
    return std::make_unique<node>(server, name, resumed, std::move(fits), true,
                                  std::vector<std::string>{"@alarm/"}, format);
  };
  const auto format_now = [&](node& at) {
    const auto got = wait_for<etcd::outcome>([&](auto then) {
      at.client->transact({{}, {etcd::operation::read("t/format")}, {}}, 5'000ms, then);
    });
    REQUIRE(got);
    return got->found[0].empty() ? "none" : got->found[0][0].value;
  };
  const auto refused = [&](node& which, const std::string& number) {
    which.member->start();
    CHECK(eventually([&] {
      const std::lock_guard lock{which.mutex};
      return which.waits.find("below t/ has format " + number + ", and this version knows none") !=
             std::string::npos;
    }));
    CHECK_FALSE(which.member->good());
  };
  const auto first = made("n1", 1);
  first->member->start();
  first->wait_until_member();
  CHECK(format_now(*first) == "none");

  // One that cannot be among those that there are raises nothing.
  auto misfit = made("n2", 2, 0, [](const auto& others) {
    return others.empty() ? result<void>{} : error{errc::invalid_request, "another protocol"};
  });
  misfit->member->start();
  REQUIRE(eventually([&] {
    const std::lock_guard lock{misfit->mutex};
    return misfit->waits == "another protocol";
  }));
  CHECK(format_now(*first) == "none");
  const auto lease = first->member->lease();
  first->stop(true);
  misfit->wait_until_member();
  CHECK(format_now(*misfit) == "2");

  refused(*made("n3", 1), "2");
  refused(*made("n1", 1, lease), "2");
  const auto same = made("n4", 2);
  same->member->start();
  same->wait_until_member();

  // It was raised after this one had looked.
  const auto late = made("n5", 2);
  std::atomic<bool> raised{false};
  late->played.play([&](const etcd::transaction& what, auto got, auto then) {
    if (what.then.empty() || what.then[0].key != "t/format" || raised.exchange(true))
      return then(std::move(got));
    late->client->transact({{}, {etcd::operation::put("t/format", "3")}, {}}, 5'000ms,
                           [got, then](const auto&) { then(got); });
  });
  refused(*late, "3");
  CHECK(late->joined == 0);
  late->played.play(nullptr);
  auto newest = made("n6", 4);
  newest->member->start();
  newest->wait_until_member();
  CHECK(format_now(*newest) == "4");
  for (const auto* odd : {"", "x", "0", "4x", "99999999999"}) {
    REQUIRE(wait_for<etcd::outcome>([&](auto then) {
      newest->client->transact({{}, {etcd::operation::put("t/format", odd)}, {}}, 5'000ms, then);
    }));
    refused(*made("n7", 4), odd);
  }
}

TEST_CASE("two new nodes that start at once agree on the format", "[etcd]") {
  etcd_server server;
  std::vector<std::unique_ptr<node>> all;
  for (const auto* name : {"n1", "n2", "n3"})
    all.push_back(std::make_unique<node>(server, name, 0, nullptr, true,
                                         std::vector<std::string>{"@alarm/"}, 2));
  for (auto& each : all)
    each->member->start();
  for (auto& each : all)
    each->wait_until_member();
}

TEST_CASE(
  "records that an earlier version has marked come to be in the list once, by two nodes at once",
  "[etcd][list]") {
  etcd_server server;
  constexpr int many = 150;
  const auto id_of = [](int i) { return "s" + std::to_string(1'000 + i); };
  {
    node older{server, "n0", 0, nullptr, false, {"@alarm/", "about", "created_ms", "image"}};
    older.wait_until_member();
    for (int i = 0; i < many; ++i) {
      std::vector<change> record{{"created_ms", std::to_string(1'000 + i)},
                                 {"image", "host"},
                                 {"started_ms", "9"},
                                 {"about", "of " + std::to_string(i)}};
      REQUIRE(commit_now(*older.store, {id_of(i), older.hold(id_of(i)), std::move(record)}));
    }
    CHECK(older.store->find("created_ms")->size() == many);
    CHECK(*older.store->count(actors::sandbox_list) == 0);
  }
  const std::vector<std::string> found_by{"@alarm/", "snapshot"};
  node one{server, "n1", 0, nullptr, false, found_by};
  node two{server, "n2", 0, nullptr, false, found_by};
  one.wait_until_member();
  two.wait_until_member();
  {
    auto by_one = std::async(std::launch::async, [&] { return bring_up_records(one); });
    const auto by_two = bring_up_records(two);
    const auto outcome = by_one.get();
    CHECK(outcome.written + by_two.written == many);
    for (const auto& each : {outcome, by_two}) {
      CHECK(each.left == 0);
      CHECK((each.why ? each.why->message : "") == "");
    }
  }
  const auto page = one.store->scan(actors::sandbox_list, {}, 1'000);
  REQUIRE(page);
  REQUIRE(page->lines.size() == many);
  for (int i = 0; i < many; ++i) {
    const auto told = actors::read_line(page->lines[static_cast<std::size_t>(many - 1 - i)]);
    CHECK(told.id == id_of(i));
    CHECK(told.is.created_ms == 1'000 + i);
    CHECK(told.is.metadata == api_metadata{{"opensandbox", "of " + std::to_string(i)}});
    CHECK(read_all(*two.store, id_of(i)).size() == 5);
  }
  const auto keys_below = [&](const std::string& prefix) {
    const auto got = wait_for<etcd::outcome>([&](auto then) {
      one.client->transact(
        {{}, {etcd::operation::read(prefix, etcd::end_of_prefix(prefix), true)}, {}}, 5'000ms,
        then);
    });
    REQUIRE(got);
    return got->found[0];
  };
  for (const auto& each : keys_below("t/mark/"))
    CHECK(each.key.starts_with("t/mark/" + std::string{actors::sandbox_list}));
  CHECK(eventually([&] { return keys_below("t/owner/").empty(); }));
  CHECK(one.store->mine().empty());
  CHECK(two.store->mine().empty());

  std::atomic<int> looked_at{0}; // Lines and records, by a later start.
  one.played.play([&](const etcd::transaction& what, auto got, auto then) {
    for (std::size_t i = 0; got && i < got->found.size() && i < what.then.size(); ++i)
      if (const auto& key = what.then[i].key;
          key.starts_with("t/data/") || key.starts_with("t/mark/@list"))
        looked_at += static_cast<int>(got->found[i].size());
    then(std::move(got));
  });
  const auto later = bring_up_records(one);
  CHECK(later.written + later.left == 0);
  CHECK(looked_at == 0);
  one.played.play(nullptr);
}

TEST_CASE("a node that takes no more keeps what is its, and takes nothing again", "[etcd]") {
  etcd_server server;
  node before{server, "n1"};
  before.wait_until_member();
  before.hold("known");
  before.stop(false);
  node one{server, "n1", before.member->lease()};
  node two{server, "n2"};
  one.wait_until_member();
  two.wait_until_member();
  const auto held = one.hold("here");
  one.closed = true;
  const auto refused = one.own("new");
  REQUIRE_FALSE(refused);
  CHECK(refused.reason().code == errc::node_unreachable);
  CHECK(refused.reason().message == "closed");
  CHECK_FALSE(one.store->is_mine("new"));
  // It has to know of what etcd says is its own, to give it up.
  CHECK(one.own("known"));
  CHECK(one.store->is_mine("known"));
  CHECK(two.own("known")->node == "n1");

  CHECK(commit_now(*one.store, {"here", held, {{"about", "it"}}}));
  one.store->release("here", held);
  // The question that comes while it goes asks again once it has gone.
  std::promise<result<epoch>> late;
  std::promise<result<void>> given;
  one.store->give_up("here", [&](auto outcome) { given.set_value(std::move(outcome)); });
  one.store->acquire("here", [&](auto outcome) { late.set_value(std::move(outcome)); });
  CHECK(given.get_future().get());
  const auto too_late = late.get_future().get();
  REQUIRE_FALSE(too_late);
  CHECK(too_late.reason().message == "closed");
  CHECK(two.own("here")->node == "n2");
  CHECK(one.own("here")->node == "n2");
  one.closed = false;
  CHECK(one.own("new")->node == "n1");
}

TEST_CASE("lines of an earlier version come to the lists of groups, by two nodes at once",
          "[etcd][list]") {
  etcd_server server;
  constexpr int many = 60;
  const auto id_of = [](int i) { return "s" + std::to_string(1'000 + i); };
  const std::vector<std::string> found_by{"@alarm/", "snapshot"};
  {
    node older{server, "n0", 0, nullptr, false, found_by};
    older.wait_until_member();
    for (int i = 0; i < many; ++i) {
      actors::record_entries record{{"created_ms", std::to_string(1'000 + i)},
                                    {"metadata/grouped", i % 2 == 0 ? "even" : "odd"}};
      const auto line = *actors::line_of(record);
      record.emplace(std::string{actors::older_sandbox_list} +
                       line.key.substr(actors::sandbox_list.size()),
                     line.value);
      std::vector<change> changes;
      for (const auto& [key, value] : record)
        changes.push_back({key, value});
      REQUIRE(commit_now(*older.store, {id_of(i), older.hold(id_of(i)), std::move(changes)}));
    }
  }
  const actors::group_rule groups = [](const api_metadata& all) {
    return std::optional{grouped_sandbox{all.at("grouped"), "box"}};
  };
  const auto bring_up = [&groups](node& at) { return bring_up_records(at, groups); };
  node one{server, "n1", 0, nullptr, false, found_by};
  node two{server, "n2", 0, nullptr, false, found_by};
  one.wait_until_member();
  two.wait_until_member();
  {
    auto by_one = std::async(std::launch::async, [&] { return bring_up(one); });
    const auto by_two = bring_up(two);
    const auto outcome = by_one.get();
    CHECK(outcome.written + by_two.written == many);
    CHECK(outcome.left + by_two.left == 0);
  }
  CHECK(*two.store->count(actors::older_sandbox_list) == 0);
  CHECK(*two.store->count(actors::sandbox_list) == many);
  list_group list{"even"};
  const auto range = actors::range_of(list);
  REQUIRE(range);
  const auto marks = one.store->scan(range->mark, range->after, many);
  REQUIRE(marks);
  REQUIRE(marks->lines.size() == many / 2);
  std::vector<mark_position> places;
  for (const auto& each : marks->lines)
    places.push_back(actors::line_behind(each));
  const auto lines = one.store->read_each(places);
  REQUIRE(lines);
  REQUIRE(lines->lines.size() == many / 2);
  for (int i = 0; i < many / 2; ++i) {
    const auto told = actors::read_line(lines->lines[static_cast<std::size_t>(i)]);
    CHECK(told.id == id_of(many - 2 - 2 * i));
    CHECK(told.is.metadata.at("grouped") == "even");
  }
  CHECK(bring_up(one).written == 0);
  CHECK(eventually([&] { return one.store->mine().empty() && two.store->mine().empty(); }));
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

namespace {

/// Answers, and lets time pass, as the test says, on its own thread.
class held_client final : public etcd::client {
public:
  struct watching {
    etcd::revision from = 0;
    std::function<void(std::vector<etcd::event>, etcd::revision)> tell;
    std::function<void(error)> ended;
    std::weak_ptr<void> wanted;
  };

  void transact(etcd::transaction, milliseconds,
                std::function<void(result<etcd::outcome>)> then) override {
    readings.push_back(std::move(then));
  }
  void grant(std::chrono::seconds, milliseconds,
             std::function<void(result<etcd::lease_id>)>) override {}
  void renew(etcd::lease_id, milliseconds, std::function<void(result<etcd::renewal>)>) override {}
  void revoke(etcd::lease_id, milliseconds, std::function<void(result<void>)>) override {}
  std::shared_ptr<void> watch(std::string, etcd::revision from,
                              std::function<void(std::vector<etcd::event>, etcd::revision)> tell,
                              std::function<void(error)> ended) override {
    auto wanted = std::make_shared<int>(0);
    watches.push_back({from, std::move(tell), std::move(ended), wanted});
    return wanted;
  }
  void post(std::function<void()> what) override { what(); }
  void after(std::chrono::nanoseconds pause, std::function<void()> what) override {
    timers_.emplace(now_ + pause, std::move(what));
  }
  std::chrono::nanoseconds now() const override { return now_; }

  void let_pass(std::chrono::nanoseconds time) {
    const auto until = now_ + time;
    while (!timers_.empty() && timers_.begin()->first <= until) {
      const auto due = timers_.extract(timers_.begin());
      now_ = due.key();
      due.mapped()();
    }
    now_ = until;
  }

  std::vector<std::function<void(result<etcd::outcome>)>> readings;
  std::vector<watching> watches;

private:
  std::chrono::nanoseconds now_{0};
  std::multimap<std::chrono::nanoseconds, std::function<void()>> timers_;
};

etcd::outcome read_at(etcd::revision at, std::vector<etcd::key_value> keys) {
  etcd::outcome got;
  got.held = true;
  got.at = at;
  got.found = {std::move(keys)};
  return got;
}

} // namespace

TEST_CASE("a watch that breaks off goes on from the last change, and nothing is read for that",
          "[etcd]") {
  held_client client;
  int changes = 0;
  etcd::watched_keys owners{client, "t/", [&] { ++changes; }};
  owners.start();
  REQUIRE(client.readings.size() == 1);
  client.readings.back()(read_at(5, {{"t/a", "1", 3, 3}}));
  REQUIRE(client.watches.size() == 1);
  CHECK(client.watches[0].from == 6);
  // Nothing was heard of: the next one begins where that one did.
  client.watches[0].ended({errc::node_unreachable, "slow"});
  CHECK(client.watches[0].wanted.expired());
  client.let_pass(1s);
  REQUIRE(client.watches.size() == 2);
  CHECK(client.watches[1].from == 6);
  client.watches[1].tell({{false, {"t/b", "2", 8, 8}}, {true, {"t/a", {}, 0, 9}}}, 12);
  CHECK(owners.find("b")->value == "2");
  CHECK_FALSE(owners.find("a"));
  // What etcd has reached says nothing of what has been told.
  for (std::size_t i = 2; i < 10; ++i) {
    client.watches.back().ended({errc::io_failed, "etcd has ended the watch"});
    client.let_pass(500ms);
    REQUIRE(client.watches.size() == i + 1);
    CHECK(client.watches.back().from == 10);
  }
  CHECK(client.readings.size() == 1);
  CHECK(owners.size() == 1); // It has been there all the time.
  // Now there is no way round it.
  client.watches.back().ended({errc::result_gone, "compacted"});
  client.let_pass(1s);
  REQUIRE(client.readings.size() == 2);
  client.readings.back()(read_at(40, {{"t/c", "3", 30, 30}}));
  CHECK(client.watches.back().from == 41);
  CHECK(owners.find("c"));
  CHECK_FALSE(owners.find("b"));
  // A member that is cut off tells nothing, however well its watch goes on.
  client.let_pass(etcd::watched_keys::refresh);
  CHECK(client.readings.size() == 3);
  CHECK(changes == 3);
}

TEST_CASE("a watch says whether etcd still has what it is to tell", "[etcd]") {
  const auto why = [](const std::string& more) {
    const auto news =
      etcd::read_news(R"({"result":{"header":{"revision":"9"},"canceled":true)" + more + "}}");
    REQUIRE(news);
    return news->ended.value().code;
  };
  CHECK(why(R"(,"compact_revision":"7")") == errc::result_gone);
  CHECK(why(R"(,"cancel_reason":"no leader")") == errc::io_failed);
  etcd_server server;
  auto client = connect_to(server);
  for (int i = 0; i < 3; ++i)
    REQUIRE(wait_for<etcd::outcome>([&](auto then) {
      client->transact({{}, {etcd::operation::put("t/a", std::to_string(i))}, {}}, 5s, then);
    }));
  server.forget_before(3);
  auto ended = std::make_shared<std::promise<errc>>();
  const auto watching = client->watch(
    "t/", 1, [](auto, auto) {}, [ended](const error& said) { ended->set_value(said.code); });
  auto got = ended->get_future();
  REQUIRE(got.wait_for(60s) == std::future_status::ready);
  CHECK(got.get() == errc::result_gone);
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

TEST_CASE("a node that does not fit to the others waits until it does", "[etcd]") {
  etcd_server server;
  auto one = std::make_unique<node>(server, "n1");
  one->wait_until_member();
  const auto no_n1 = [](const auto& others) -> result<void> {
    for (const auto& [name, record] : others)
      if (name == "n1")
        return error{errc::invalid_request, name + " says: " + record};
    return {};
  };
  node two{server, "n2", 0, no_n1};
  CHECK(eventually([&] {
    const std::lock_guard lock{two.mutex};
    return two.waits == "n1 says: I am n1";
  }));
  CHECK_FALSE(two.member->good());
  one.reset();
  two.wait_until_member();
  // Its own record of before is none of the others'.
  two.stop(false);
  node again{server, "n2", two.member->lease(), [](const auto& others) -> result<void> {
               if (others.empty())
                 return {};
               return error{errc::invalid_request, "there are others"};
             }};
  again.wait_until_member();
  CHECK(again.has_resumed);
}

TEST_CASE("a node can ask whether it would fit, and changes nothing by that", "[etcd]") {
  etcd_server server;
  node one{server, "n1", 0, nullptr, false, {"@alarm/"}, 2};
  one.wait_until_member();
  const auto client = connect_to(server);
  const auto revision_now = [&] {
    const auto got = wait_for<etcd::outcome>([&](auto then) {
      client->transact({{}, {etcd::operation::read("t/none")}, {}}, 5s, then);
    });
    REQUIRE(got);
    return got->at;
  };
  const auto before = revision_now();
  const auto asked = [&](const std::string& self, std::uint32_t format, node::fits_fn fits) {
    etcd::membership_options how;
    how.prefix = "t/";
    how.self = self;
    how.format = format;
    etcd::membership::listener tell;
    tell.fits = std::move(fits);
    const auto told = wait_for<void>(
      [&](auto then) { etcd::membership::check(*client, how, tell, std::move(then)); });
    return told ? std::string{} : told.reason().message;
  };
  const auto no_others = [](const auto& others) -> result<void> {
    if (others.empty())
      return {};
    return error{errc::invalid_request, "there is " + others.begin()->second};
  };
  CHECK(asked("n2", 2, no_others) == "there is I am n1");
  CHECK(asked("n1", 2, no_others).empty()); // Its own record is that of the server before.
  CHECK(asked("n1", 3, no_others).empty());
  CHECK(asked("n1", 1, no_others).find("has format 2, and this version knows none beyond 1") !=
        std::string::npos);
  CHECK(revision_now() == before);
  CHECK(one.member->good());
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
  const std::vector<std::string> found_by{"@alarm/", "snapshot"};
  node one{server, "n1", 0, nullptr, false, found_by};
  node two{server, "n2", 0, nullptr, false, found_by};
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
  // etcd answers nothing else while it writes megabytes, which must not cost the lease.
  node one{server, "n1", 0, nullptr, false, {"@alarm/", "about"}, 1, 60s};
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

TEST_CASE("what an earlier version has marked is found until it is written again, and then no more",
          "[etcd][scan]") {
  etcd_server server;
  const auto before = [&](const std::string& name) {
    return std::make_unique<node>(server, name, 0, nullptr, false,
                                  std::vector<std::string>{"@alarm/", "about", "image"});
  };
  auto one = before("n1");
  one->wait_until_member();
  for (const std::string id : {"a", "b", "c"})
    REQUIRE(
      commit_now(*one->store,
                 {id, one->hold(id), {{"about", "of " + id}, {"image", "host"}, {"@alarm/", id}}}));
  one.reset();
  node now{server, "n2", 0, nullptr, false, {"@alarm/", "snapshot"}};
  now.wait_until_member();
  CHECK(now.store->find("about")->size() == 3);
  CHECK(now.store->find("image")->size() == 3);
  CHECK(*now.store->count("@alarm/") == 3);
  SECTION("by any batch") {
    REQUIRE(commit_now(*now.store, {"a", now.hold("a"), {{"@l/1", "x"}}}));
    CHECK(read_all(*now.store, "a") ==
          contents{{"about", "of a"}, {"image", "host"}, {"@alarm/", "a"}, {"@l/1", "x"}});
  }
  SECTION("by one that writes the same keys") {
    REQUIRE(commit_now(*now.store, {"a", now.hold("a"), {{"about", "new"}}, {"about", "im"}}));
    CHECK(read_all(*now.store, "a") == contents{{"about", "new"}, {"@alarm/", "a"}});
  }
  SECTION("by one that removes them") {
    REQUIRE(commit_now(*now.store, {"a", now.hold("a"), {{"about", std::nullopt}}}));
    CHECK(read_all(*now.store, "a") == contents{{"image", "host"}, {"@alarm/", "a"}});
  }
  CHECK(*now.store->find("about") ==
        std::vector<owned_entry>{{"b", "about", "of b"}, {"c", "about", "of c"}});
  CHECK(now.store->find("image")->size() == 2);
  CHECK(*now.store->count("@alarm/") == 3);
}

TEST_CASE("of what is looked for, its owner and some keys are told", "[etcd]") {
  etcd_server server;
  node one{server, "n1"};
  one.wait_until_member();
  const auto found = [&](const std::string& id) {
    const auto got = wait_for<etcd::cluster_store::found_owner>(
      [&](auto then) { one.store->find_owner(id, then); });
    REQUIRE(got);
    auto text = got->node + (got->has_been ? ", with a record" : "");
    for (const auto& each : got->told)
      text += ", " + each;
    return text;
  };
  CHECK(found("a") == ", , ");
  const auto held = one.hold("a");
  REQUIRE(commit_now(*one.store, {"a", held, {{"about", "of a"}, {"@alarm/", "5"}}}));
  CHECK(found("a") == "n1, with a record, of a, 5");
  REQUIRE(commit_now(*one.store, {"b", one.hold("b"), {{"state", "x"}}}));
  CHECK(found("b") == "n1, with a record, , ");
  one.store->release("a", held);
  REQUIRE(wait_for<void>([&](auto then) { one.store->give_up("a", then); }));
  CHECK(found("a") == ", with a record, of a, 5");
}

TEST_CASE("what all nodes share is the first one's", "[etcd]") {
  etcd_server server;
  const std::vector<std::string> found_by{"@alarm/", "snapshot"};
  node one{server, "n1", 0, nullptr, false, found_by};
  node two{server, "n2", 0, nullptr, false, found_by};
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

TEST_CASE("a keepalive counts only with a read of the node's own key in the same term", "[etcd]") {
  etcd_server server;
  node one{server, "n1"};
  one.wait_until_member();
  const auto held = one.hold("a");
  REQUIRE(commit_now(*one.store, {"a", held, {{"key", "value"}}}));
  std::atomic<int> renewed{0};
  SECTION("where the keepalive is an old leader's") {
    one.played.play_renewals([&](result<etcd::renewal> got, auto then) {
      if (got) {
        ++renewed;
        got->in -= 1;
      }
      then(std::move(got));
    });
  }
  SECTION("where the read is not answered") {
    one.played.play_renewals([&](result<etcd::renewal> got, auto then) {
      ++renewed;
      then(std::move(got));
    });
    one.played.play([](const auto& what, result<etcd::outcome> got, auto then) {
      if (!looks_at(what, "t/nodes/n1"))
        then(std::move(got));
    });
  }
  SECTION("where neither says its term") {
    one.played.play_renewals([&](result<etcd::renewal> got, auto then) {
      ++renewed;
      then(got ? etcd::renewal{got->left, 0} : std::move(got));
    });
    one.played.play([](const auto&, result<etcd::outcome> got, auto then) {
      if (got)
        got->in = 0;
      then(std::move(got));
    });
  }
  const auto began = one.client->now();
  CHECK(eventually([&] { return one.lost == 1; }, 10s));
  // Its lease and the margin, from what it has sent before: however late this machine runs the
  // timer.
  CHECK(one.was_good_until.load() <= began + 2'500ms);
  CHECK(renewed > 2); // etcd has said all the time that the lease lives.
  CHECK_FALSE(one.store->is_mine("a"));
  one.played.play_renewals({});
  one.played.play({});
  one.wait_until_member();
  CHECK(eventually([&] { return bool{one.try_to_hold("a")}; }));
  CHECK_FALSE(eventually([&] { return one.lost > 1; }, 4s));
}

TEST_CASE("a renewal that etcd answers in two terms is asked for again at once", "[etcd]") {
  etcd_server server;
  node one{server, "n1"};
  one.wait_until_member();
  // Of ten one is of the same term: with two a second none would come in time.
  std::atomic<int> renewed{0};
  one.played.play_renewals([&](result<etcd::renewal> got, auto then) {
    if (got && ++renewed % 10 != 0)
      got->in -= 1;
    then(std::move(got));
  });
  CHECK_FALSE(eventually([&] { return one.lost > 0; }, 5s));
  CHECK(renewed > 20);
  CHECK(renewed < 100);
}

TEST_CASE("a node whose lease etcd ends before its time hears of it at the next renewal",
          "[etcd]") {
  etcd_server server;
  node one{server, "n1"};
  one.wait_until_member();
  auto other = connect_to(server);
  const auto lease = one.member->lease();
  SECTION("the lease") {
    REQUIRE(wait_for<bool>([&](auto then) {
      other->revoke(lease, 5s, [then](const auto& said) { then(bool{said}); });
    }));
    CHECK(eventually([&] { return one.lost == 1; }, 2s));
  }
  SECTION("its record alone, which somebody else has made since") {
    const auto change = [&](etcd::operation what) {
      return wait_for<etcd::outcome>([&](auto then) {
        other->transact({{}, {what}, {}}, 5s, then);
      });
    };
    REQUIRE(change(etcd::operation::remove("t/nodes/n1")));
    REQUIRE(change(etcd::operation::put("t/nodes/n1", "I am n1", lease)));
    CHECK(eventually([&] { return one.lost == 1; }, 2s));
  }
  SECTION("at once, if there is a reason to look") {
    REQUIRE(wait_for<bool>([&](auto then) {
      other->revoke(lease, 5s, [then](const auto& said) { then(bool{said}); });
    }));
    one.member->look();
    CHECK(eventually([&] { return one.lost == 1; }, 300ms));
  }
  one.wait_until_member();
  CHECK(one.member->lease() != lease);
}

TEST_CASE("a server goes on with a lease only as etcd's leader of now has renewed it", "[etcd]") {
  etcd_server server;
  auto one = std::make_unique<node>(server, "n1");
  one->wait_until_member();
  const auto lease = one->member->lease();
  one->stop(false);
  node two{server, "n1", lease, nullptr, true};
  two.played.play_renewals([](result<etcd::renewal> got, auto then) {
    if (got)
      got->in -= 1;
    then(std::move(got));
  });
  two.member->start();
  CHECK_FALSE(eventually([&] { return two.member->good(); }, 1s));
  two.played.play_renewals({});
  two.wait_until_member();
  CHECK(two.has_resumed);
}

TEST_CASE("what nobody knows of is found out about before the next write", "[etcd]") {
  etcd_server server;
  // The lease outlasts the pause by far, since a busy machine renews it late.
  node one{server, "n1", 0, nullptr, false, {"@alarm/", "about"}, 1, 20s};
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

TEST_CASE("what is owned and not used is given up", "[etcd]") {
  etcd_server server;
  const std::vector<std::string> found_by{"@alarm/", "snapshot"};
  node one{server, "n1", 0, nullptr, false, found_by};
  node two{server, "n2", 0, nullptr, false, found_by};
  one.wait_until_member();
  two.wait_until_member();
  for (const auto* id : {"unused", "asked", "held", "written", "refused"})
    REQUIRE(one.own(id)->node == "n1");
  const auto held = one.hold("held");
  const auto once = one.hold("written");
  REQUIRE(commit_now(*one.store, {"written", once, {{"key", "value"}}}));
  one.store->release("written", once);

  one.store->release("refused", 0); // Nobody has come to hold it.
  CHECK(eventually([&] { return two.own("refused")->node == "n2"; }));

  one.store->give_up_unused();
  CHECK(one.own("asked")->node == "n1");
  CHECK(one.store->is_mine("unused")); // Who has asked for it may be on the way.
  one.store->give_up_unused();
  CHECK(eventually([&] { return two.own("unused")->node == "n2"; }));
  for (const auto* id : {"asked", "held", "written"})
    CHECK(two.own(id)->node == "n1");
  CHECK(commit_now(*one.store, {"held", held, {{"key", "value"}}}));
}

TEST_CASE(
  "a write that has come to be, and is told as refused, does not stand in the way of others",
  "[etcd]") {
  etcd_server server;
  node one{server, "n1"};
  one.wait_until_member();
  const auto held = one.hold("a");
  const bool first = GENERATE(true, false);
  const auto why = GENERATE(errc::disk_full, errc::io_failed, errc::node_unreachable);
  CAPTURE(first, int(why));
  if (!first)
    REQUIRE(commit_now(*one.store, {"a", held, {{"n", "0"}}}));
  const auto spoil = [&](bool yes) {
    one.played.play([=](const etcd::transaction& what, result<etcd::outcome> got,
                        const played_client::answer& then) {
      if (yes && puts(what, "t/head/a"))
        return then(error{why, "as the test wants it"});
      then(std::move(got));
    });
  };
  spoil(true);
  CHECK(commit_now(*one.store, {"a", held, {{"n", "1"}, {"@alarm/", "1"}}}).reason().code == why);
  spoil(false);
  SECTION("another write") {
    CHECK(commit_now(*one.store, {"a", held, {{"n", "2"}}}));
    CHECK(read_all(*one.store, "a") == contents{{"n", "2"}, {"@alarm/", "1"}});
    CHECK(commit_now(*one.store, {"a", held, {{"@alarm/", std::nullopt}}}));
    CHECK(one.store->find("@alarm/")->empty());
  }
  SECTION("its end") {
    CHECK(commit_now(*one.store, {"a", held + 1, {}, {""}}));
    CHECK(one.store->owners()->empty());
    CHECK(one.store->find("@alarm/")->empty());
  }
  CHECK(one.lost == 0);
}

TEST_CASE("an id that is activated again and again goes on with later epochs", "[etcd]") {
  etcd_server server;
  const std::vector<std::string> found_by{"@alarm/", "snapshot"};
  node one{server, "n1", 0, nullptr, false, found_by};
  node two{server, "n2", 0, nullptr, false, found_by};
  one.wait_until_member();
  two.wait_until_member();
  epoch before = 0;
  for (std::uint64_t i = 0; i < 2 * node::most_activations + 5; ++i) {
    const auto held = one.hold("a");
    REQUIRE(held > before);
    if (i % 10 == 0)
      REQUIRE(commit_now(*one.store, {"a", held, {{"n", std::to_string(i)}}}));
    one.store->release("a", held);
    REQUIRE(one.own("a")->node == "n1");
    if (before != 0)
      REQUIRE(commit_now(*one.store, {"a", before, {{"n", "old"}}}).reason().code ==
              errc::stale_epoch);
    before = held;
  }
  CHECK(read_all(*one.store, "a") == contents{{"n", "100"}});
  CHECK(two.own("a")->node == "n1");
  CHECK(one.lost == 0);
}

TEST_CASE("an answer to who has asked in an earlier membership is not told to others", "[etcd]") {
  etcd_server server;
  node one{server, "n1"};
  one.wait_until_member();
  std::mutex mutex;
  std::vector<std::function<void()>> held;
  one.played.play([&](const etcd::transaction& what, result<etcd::outcome> got,
                      const played_client::answer& then) {
    const std::lock_guard lock{mutex};
    if (puts(what, "t/owner/a"))
      held.emplace_back([then, got] { then(got); });
    else
      then(std::move(got));
  });
  const auto are_held = [&](std::size_t count) {
    return eventually([&] {
      const std::lock_guard lock{mutex};
      return held.size() == count;
    });
  };
  const auto ask = [&] {
    auto told = std::make_shared<std::promise<bool>>();
    one.store->own("a", [told](const auto& who) { told->set_value(bool{who}); });
    return told->get_future();
  };
  auto early = ask();
  REQUIRE(are_held(1));
  one.store->forget_all();
  CHECK_FALSE(early.get());
  auto late = ask();
  REQUIRE(are_held(2));
  one.client->post(held[0]);
  one.played.play({});
  CHECK(late.wait_for(0s) == std::future_status::timeout);
  one.client->post(held[1]);
  CHECK(late.get());
}

TEST_CASE("a node is told of alarms that come to it, and of nothing else", "[etcd]") {
  etcd_server server;
  auto one = std::make_unique<node>(server, "n1");
  one->wait_until_member();
  REQUIRE(commit_now(*one->store, {"with", one->hold("with"), {{"@alarm/", "1"}, {"about", "x"}}}));
  REQUIRE(commit_now(*one->store, {"without", one->hold("without"), {{"about", "x"}}}));
  one.reset();
  node two{server, "n2"};
  two.wait_until_member();
  REQUIRE(two.own("without")->node == "n2");
  CHECK(two.found == 0);
  REQUIRE(two.own("with")->node == "n2");
  CHECK(two.found == 1);
}

TEST_CASE("what was owned by the server before is found, and so is what a lost node had",
          "[etcd]") {
  etcd_server server;
  auto one = std::make_unique<node>(server, "n1");
  one->wait_until_member();
  const auto lease = one->member->lease();
  for (const auto* id : {"a", "b"})
    REQUIRE(commit_now(*one->store, {id, one->hold(id), {{"@alarm/", "1"}}}));
  one->stop(false);
  auto again = std::make_unique<node>(server, "n1", lease);
  again->wait_until_member();
  REQUIRE(again->has_resumed);
  etcd::watched_keys nodes{*again->client, "t/nodes/", [] {}};
  etcd::watched_keys owners{*again->client, "t/owner/", [] {}};
  nodes.start();
  owners.start();
  REQUIRE(eventually([&] { return nodes.ready() && owners.ready(); }));
  CHECK(etcd::not_known_of(*again->member, owners, *again->store) ==
        std::vector<std::string>{"a", "b"});
  REQUIRE(again->own("a")->node == "n1");
  CHECK(etcd::not_known_of(*again->member, owners, *again->store) == std::vector<std::string>{"b"});
  CHECK(etcd::unattended(*again->store->find("@alarm/"), nodes, owners).empty());
  // A third one's table of owners may still have what that of nodes has not.
  auto far = connect_to(server);
  etcd::watched_keys others{*far, "t/nodes/n2", [] {}};
  CHECK(etcd::unattended(*again->store->find("@alarm/"), others, owners) ==
        std::vector<std::string>{"a", "b"});
}

// ---- The way to etcd

namespace {

/// Takes connections, and says nothing.
class silent_member {
public:
  silent_member()
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    auto* const any = reinterpret_cast<sockaddr*>(&at);
    REQUIRE(::bind(socket_.get(), any, sizeof at) == 0);
    REQUIRE(::getsockname(socket_.get(), any, &size) == 0);
    REQUIRE(::listen(socket_.get(), 1024) == 0);
    url = "http://127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }

  /// So many have come.
  std::size_t connections() {
    for (int fd = -1; (fd = ::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)) >= 0;)
      taken_.emplace_back(fd);
    return taken_.size();
  }

  std::string url;

private:
  unique_fd socket_;
  std::vector<unique_fd> taken_;
};

result<etcd::lease_id> granted_by(etcd::client& client, std::chrono::milliseconds patience = 5s) {
  return wait_for<etcd::lease_id>([&](auto then) { client.grant(10s, patience, then); });
}

result<etcd::outcome> read_by(etcd::client& client, std::chrono::milliseconds patience = 5s) {
  return wait_for<etcd::outcome>([&](auto then) {
    client.transact({{}, {etcd::operation::read("x")}, {}}, patience, then);
  });
}

std::unique_ptr<etcd::http_client> connect_by(etcd::http_options how) {
  auto made = etcd::http_client::open(std::move(how));
  if (!made)
    FAIL(made.reason().message);
  return std::move(*made);
}

} // namespace

TEST_CASE("where one member of etcd's does not answer, the next one does", "[etcd]") {
  etcd_server server;
  silent_member silent;
  const auto refuses = "http://127.0.0.1:" + std::to_string(free_port());
  const auto first = GENERATE_REF(refuses, silent.url);
  auto client = connect_by({{first, server.url()}, "", "", ""});
  const auto took = [&] {
    const auto began = std::chrono::steady_clock::now();
    CHECK(read_by(*client));
    return std::chrono::steady_clock::now() - began;
  };
  CHECK(took() < 1500ms);
  CHECK(took() < 250ms); // It is not asked first any more.
  CHECK(granted_by(*client));
  std::atomic<int> heard{0};
  const auto watching = client->watch(
    "y", 1, [&](auto, auto) { ++heard; }, [](const auto&) {});
  const auto put = [&] {
    return wait_for<etcd::outcome>([&](auto then) {
      client->transact({{}, {etcd::operation::put("y", "1")}, {}}, 5s, then);
    });
  };
  CHECK(put());
  CHECK(eventually([&] { return heard > 0; }, 5s));
}

TEST_CASE("a watch leaves a member of etcd's that hangs", "[etcd]") {
  etcd_server server, hangs;
  auto client = connect_by({{hangs.url(), server.url()}, "", "", ""});
  std::atomic<int> ended{0};
  const auto first = client->watch(
    "y", 1, [](auto, auto) {}, [&](const auto&) { ++ended; });
  REQUIRE(read_by(*client));
  hangs.stand_still();
  REQUIRE(read_by(*client)); // By the other one.
  CHECK(eventually([&] { return ended == 1; }, 5s));
  std::atomic<int> heard{0};
  const auto second = client->watch(
    "y", 1, [&](auto, auto) { ++heard; }, [&](const auto&) { ++ended; });
  REQUIRE(wait_for<etcd::outcome>([&](auto then) {
    client->transact({{}, {etcd::operation::put("y", "1")}, {}}, 5s, then);
  }));
  CHECK(eventually([&] { return heard > 0; }, 5s));
  CHECK_FALSE(eventually([&] { return ended > 1; }, 3s)); // That one stays.
  hangs.go_on();
}

TEST_CASE("questions wait for each other, and no lease waits for them", "[etcd]") {
  silent_member silent;
  etcd::http_options how{{silent.url}, "", "", ""};
  how.attempt = 3s;
  how.max_waiting = 300;
  auto client = connect_by(how);
  std::atomic<std::size_t> answered{0}, refused{0};
  constexpr std::size_t asked = 500;
  for (std::size_t i = 0; i < asked; ++i)
    client->transact({{}, {etcd::operation::read("x")}, {}}, 2s, [&](const auto& got) {
      refused += got.reason().code == errc::limit_reached ? 1 : 0;
      ++answered;
    });
  CHECK(eventually([&] { return silent.connections() == 64; }, 1s));
  CHECK(eventually([&] { return refused == asked - 64 - how.max_waiting; }, 1s));
  client->renew(1, 1s, [](const auto&) {});
  CHECK(eventually([&] { return silent.connections() == 65; }, 1s));
  CHECK(answered == refused);
  // All have had their time, and not more.
  CHECK(eventually([&] { return answered == asked; }, 3s));
}

TEST_CASE("etcd is spoken to over TLS, with certificates on both sides", "[etcd]") {
  made_authority ours, others{"another authority"};
  const auto own = ours.issue("127.0.0.1");
  const auto mine = ours.issue("n1");
  const auto theirs = others.issue("n1");
  etcd_server server{etcd_server::tls_files{own.certificate, own.key, ours.file()}};
  const auto told = [&](etcd::http_options how) {
    const auto got = granted_by(*connect_by(std::move(how)), 1s);
    return got ? std::string{"granted"} : got.reason().message;
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(told({{server.url()}, ours.file(), mine.certificate, mine.key}), Contains("granted"));
  {
    INFO("etcd is not who it should be");
    const auto why = told({{server.url()}, others.file(), mine.certificate, mine.key});
    CHECK_THAT(why, Contains(server.url()) && Contains("certificate"));
  }
  {
    INFO("we have no certificate");
    const auto why = told({{server.url()}, ours.file(), "", ""});
    CHECK_THAT(why, Contains(server.url()) && Contains("certificate"));
  }
  {
    INFO("we have another's");
    const auto why = told({{server.url()}, ours.file(), theirs.certificate, theirs.key});
    CHECK_THAT(why, Contains(server.url()) && Contains("certificate"));
  }
  {
    INFO("nobody is there");
    server.stop();
    const auto why = told({{server.url()}, ours.file(), mine.certificate, mine.key});
    CHECK_THAT(why, Contains(server.url()) && Contains("refused"));
  }
  {
    INFO("there is no such file");
    const auto none = etcd::http_client::open({{server.url()}, "/nowhere/ca.pem", "", ""});
    REQUIRE_FALSE(none);
    CHECK_THAT(none.reason().message, Contains("/nowhere/ca.pem"));
  }
}

TEST_CASE("whose certificate is revoked is refused by etcd", "[etcd]") {
  made_authority ours;
  const auto own = ours.issue("127.0.0.1");
  const auto mine = ours.issue("n1");
  const auto theirs = ours.issue("n2");
  etcd_server server{etcd_server::tls_files{own.certificate, own.key, ours.file(), ours.revoked()}};
  const auto connect = [&](const made_authority::files& as) {
    return connect_by({{server.url()}, ours.file(), as.certificate, as.key});
  };
  const auto kept = connect(mine);
  REQUIRE(granted_by(*kept, 5s));
  ours.revoke(mine);
  const auto refused = granted_by(*connect(mine), 1s);
  REQUIRE_FALSE(refused);
  CHECK(refused.reason().code == errc::node_unreachable);
  using Catch::Matchers::Contains;
  CHECK_THAT(refused.reason().message, Contains(server.url()) && Contains("revoked"));
  CHECK(granted_by(*connect(theirs), 5s));
  // Who is connected stays so until etcd is started again.
  CHECK(granted_by(*kept, 5s));
  server.stop();
  server.start();
  CHECK_FALSE(granted_by(*kept, 1s));
  CHECK(granted_by(*connect(theirs), 5s));
}

TEST_CASE("etcd's members say which version they are, and by how much their clocks differ",
          "[etcd]") {
  etcd_server server;
  const auto nowhere = "http://127.0.0.1:" + std::to_string(free_port());
  const auto client = connect_by({{nowhere, server.url()}, "", "", ""});
  std::promise<std::map<std::string, etcd::http_client::member_status>> told;
  client->look_at_members(5s, [&](auto found) { told.set_value(std::move(found)); });
  const auto found = told.get_future().get();
  REQUIRE(found.size() == 1);
  CHECK(found.begin()->first == server.url());
  const auto& said = found.begin()->second;
  REQUIRE(said.ahead);
  CHECK(std::chrono::abs(*said.ahead) <= 1s);
  CHECK(std::count(said.version.begin(), said.version.end(), '.') == 2);
  CHECK(granted_by(*client, 5s));
}
