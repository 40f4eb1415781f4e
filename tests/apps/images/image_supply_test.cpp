// The images of a running server: what is asked of the room, how often, and what askers are told.
#include "base/limits.hpp"
#include "tests/apps/images/fetching_node.hpp"

#include <algorithm>
#include <set>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

const std::string kit = "reg.example/acme/kit:1";
const std::string other = "reg.example/acme/other:1";

std::string nth(std::size_t number) {
  return "reg.example/many:" + std::to_string(number);
}

/// Two pulls are on their way, which is as many as there can be.
struct busy_node : fetching_node {
  scripted_room::order first, second;

  busy_node() {
    start();
    find("reg.example/busy:1");
    find("reg.example/busy:2");
    first = next_pull("reg.example/busy:1");
    second = next_pull("reg.example/busy:2");
  }
};

} // namespace

// ---- One pull for all

TEST_CASE("two askers share one pull, and both get the image's name", "[apps][images]") {
  fetching_node node;
  node.start();
  const auto first = node.find(kit);
  const auto second = node.find(kit);
  const auto order = node.next_pull(kit);
  CHECK(first.open());
  CHECK(second.open());
  node.room.image(record_of("kit-1", kit, digest_of('a')), "kit-1");
  node.room.done(order, "kit-1");
  CHECK(first.name() == "kit-1");
  CHECK(second.name() == "kit-1");
  node.settle();
  CHECK(first.open());
  CHECK(second.open());
  CHECK(node.supply->read_figures().pulled == 2); // The second one is settle()'s.
}

TEST_CASE("an image that was fetched is found at once by the words that it was asked for in",
          "[apps][images]") {
  fetching_node node;
  node.start();
  // Another reference led to the same bytes before, and the image's record has that one.
  node.bring("first", "first", other, digest_of('a'));
  const auto asker = node.find(kit);
  node.room.done(node.next_pull(kit), "first");
  CHECK(asker.name() == "first");
  const auto again = node.find(kit);
  REQUIRE_FALSE(again.open());
  CHECK(again.name() == "first");

  INFO("but not once the name leads to other bytes");
  node.bring("first", "second", other, digest_of('b'));
  node.find(kit);
  node.next_pull(kit);
}

TEST_CASE("what the room tells of an image is in the catalogue before its askers are told",
          "[apps][images]") {
  fetching_node node;
  node.how.env = {{"LANG", "C.UTF-8"}};
  node.start();
  const auto asker = node.find(kit);
  const auto order = node.next_pull(kit);
  auto record = record_of("kit-1", kit, digest_of('a'));
  record.settings.env = {"LANG=tlh", "KIT=1"};
  const std::string end(1, '\0');
  node.room.tell({room_news::image}, to_json(record) + end + ".tree" + end + "/bundle.pem" + end +
                                       "node 22.11.0\npython \n");
  node.room.done(order, "kit-1");
  REQUIRE(asker.name() == "kit-1");
  const auto is = node.all->find("kit-1");
  REQUIRE(is);
  CHECK(is->layers.tree == ".tree");
  CHECK(is->reference == kit);
  CHECK(is->digest == digest_of('a'));
  CHECK(is->by_node);
  CHECK(is->shell == "/bin/sh");
  CHECK(is->env.at("KIT") == "1");
  CHECK(is->env.at("LANG") == "C.UTF-8");
  CHECK(is->env.at("REQUESTS_CA_BUNDLE") == "/bundle.pem");
  CHECK(is->programs ==
        std::map<std::string, std::string>{{"node", "22.11.0"}, {"python", std::string{}}});
}

// ---- images.pull and images.allow

TEST_CASE("images.pull never: a sandbox names an image of the node, and none is fetched for it",
          "[apps][images]") {
  fetching_node node;
  node.how.policy.pull = image_pull::never;
  node.all->put("kit", image_with("kit", other, digest_of('a')));
  node.start();
  CHECK(node.find("kit").name() == "kit");
  CHECK(node.find(other).name() == "kit");
  CHECK(node.find("reg.example/acme/any@" + digest_of('a')).name() == "kit");
  const auto none = node.find(kit).reason();
  CHECK(none.code == errc::image_refused);
  CHECK(none.message == "there is no image " + kit + " on this node");
  CHECK(node.find("Bad Name").reason().message == "there is no image Bad Name on this node");

  INFO("a client's own name for it is taken for what it seems");
  CHECK(node.find(kit, {"nothing", "kit"}).name() == "kit");
  node.settle();

  INFO("an operator has one fetched");
  const auto asked = node.pull(kit);
  node.room.done(node.next_pull(kit), "kit");
  CHECK(asked.name() == "kit");
}

TEST_CASE("images.pull missing: an image that is here is not fetched again", "[apps][images]") {
  fetching_node node;
  node.all->put("kit", image_with("kit", kit, digest_of('a')));
  node.all->put("mine", image_with("mine"));
  node.start();
  for (const auto& each : {std::string{"kit"}, kit, "reg.example/acme/kit@" + digest_of('a'),
                           "elsewhere.example/copy@" + digest_of('a')}) {
    CAPTURE(each);
    const auto asker = node.find(each);
    REQUIRE_FALSE(asker.open());
    CHECK(asker.name() == "kit");
  }
  CHECK(node.find("Bad Name").code() == errc::image_refused);
  node.settle();

  INFO("a client's own name does not lead to what is from elsewhere");
  CHECK(node.find(other, {"mine"}).name() == "mine");
  CHECK(node.find(kit, {"kit"}).name() == "kit");
  node.find(other, {"kit"});
  node.next_pull(other);

  INFO("an operator who has it fetched wants to know what the registry has by now");
  const auto asked = node.pull(kit);
  node.room.done(node.next_pull(kit), "kit");
  CHECK(asked.name() == "kit");
  node.pull("mine"); // An image of that name is here, but not from there.
  node.next_pull("docker.io/library/mine:latest");
}

TEST_CASE("images.pull always: the registry is asked each time, unless the name says which bytes",
          "[apps][images]") {
  fetching_node node;
  node.how.policy.pull = image_pull::always;
  node.all->put("kit", image_with("kit", kit, digest_of('a')));
  node.start();
  CHECK(node.find("kit").name() == "kit");
  CHECK(node.find("reg.example/acme/kit@" + digest_of('a')).name() == "kit");
  node.settle();
  for (int round = 0; round < 2; ++round) {
    const auto asker = node.find(kit);
    const auto order = node.next_pull(kit);
    CHECK(asker.open());
    node.room.done(order, "kit");
    CHECK(asker.name() == "kit");
  }
}

TEST_CASE("an image that images.allow does not name is forbidden, and the room hears nothing of it",
          "[apps][images]") {
  fetching_node node;
  node.how.policy.allow = {"reg.example/acme/*", "settle.example/*"};
  node.all->put("here", image_with("here", "reg.example/else:1", digest_of('a')));
  node.start();
  for (const std::string each : {"reg.example/acme/deep/kit:1", "elsewhere.example/acme/kit:1"}) {
    CAPTURE(each);
    for (const auto& asker : {node.find(each), node.pull(each)}) {
      REQUIRE_FALSE(asker.open());
      const auto why = asker.reason();
      CHECK(why.code == errc::forbidden);
      CHECK(has(why.message, each + " (images.allow)"));
    }
  }
  CHECK(node.find("reg.example/else:1").name() == "here"); // It need not be fetched.
  node.settle();
  node.find(kit);
  node.next_pull(kit);
}

TEST_CASE("a runtime stands for the image that the configuration says", "[apps][images]") {
  fetching_node node;
  node.how.runtimes = {{"node22", ""}, {"node24", kit}, {"python3", ""}};
  auto with_node = image_with("host");
  with_node.programs = {{"node", "22.11.0"}};
  node.all->put("host", with_node);
  node.all->put("python3", image_with("python3"));
  node.start();
  CHECK(node.find("node22").name() == "host");
  CHECK(node.find("python3").name() == "python3");
  const auto asker = node.find("node24");
  const auto asked = node.pull("node24");
  node.room.done(node.next_pull(kit), "kit-1");
  CHECK(asker.name() == "kit-1");
  CHECK(asked.name() == "kit-1");
  const auto all = node.supply->runtimes();
  REQUIRE(all.size() == 3);
  CHECK(all[0].image == "host");
  CHECK(all[0].version == "22.11.0");
  CHECK(all[1].image == kit);
  CHECK(all[1].version.empty());
  CHECK(all[2].image == "python3");
}

TEST_CASE("a node that has an image shows one of the signs by which it is looked for",
          "[apps][images]") {
  fetching_node node;
  node.how.runtimes = {{"node22", ""}, {"node24", kit}};
  node.all->put("kit", image_with("kit", kit, digest_of('a')));
  node.start();
  const auto shown = node.all->signs();
  const auto shows = [&](const actors::image_wish& wanted) {
    const auto signs = node.supply->signs_of(wanted);
    return std::any_of(signs.begin(), signs.end(), [&](auto each) {
      return std::binary_search(shown->begin(), shown->end(), each);
    });
  };
  CHECK(shows({"kit"}));
  CHECK(shows({kit}));
  CHECK(shows({"reg.example/acme/any@" + digest_of('a')}));
  CHECK(shows({other, {"kit"}}));
  CHECK(shows({"node24"}));
  CHECK_FALSE(shows({other}));
  CHECK_FALSE(shows({"Bad Name"}));
  INFO("each node has the default image");
  CHECK(node.supply->signs_of({"host"}).empty());
  CHECK(node.supply->signs_of({"node22"}).empty());
}

// ---- Ceilings

TEST_CASE("at most two pulls are on their way, and the next begins when one ends",
          "[apps][images]") {
  busy_node node;
  const auto third = node.find(kit);
  node.find(other);
  node.look_round();
  CHECK_FALSE(node.room.has_order());
  SECTION("well") {
    node.room.done(node.second, "host");
  }
  SECTION("badly") {
    node.room.fail(node.second, errc::image_refused, "no");
  }
  const auto order = node.next_pull(kit);
  node.look_round();
  CHECK_FALSE(node.room.has_order());
  CHECK(third.open());
  node.room.done(order, "host");
  CHECK(third.name() == "host");
  node.next_pull(other);
}

TEST_CASE("more images than may wait for their turn are refused at once", "[apps][images]") {
  busy_node node;
  std::vector<told> waiting;
  for (std::size_t i = 0; i < limits::images_waiting; ++i)
    waiting.push_back(node.find(nth(i)));
  for (const auto& beyond : {node.find(kit), node.pull(kit)}) {
    REQUIRE_FALSE(beyond.open());
    CHECK(beyond.code() == errc::image_pending);
  }
  INFO("another asker of one that waits is none too many");
  const auto joined = node.find(nth(0));
  CHECK(joined.open());

  INFO("one more may wait once another one's turn has come");
  node.room.done(node.first, "host");
  const auto order = node.next_pull(nth(0));
  const auto next = node.find(kit);
  CHECK(next.open());
  CHECK(node.find(other).code() == errc::image_pending);
  node.room.done(order, "host");
  CHECK(joined.name() == "host");
  CHECK(waiting[0].name() == "host");
  CHECK(std::all_of(waiting.begin() + 1, waiting.end(), [](auto& each) { return each.open(); }));
}

TEST_CASE("more askers than may wait for one image are refused at once", "[apps][images]") {
  fetching_node node;
  node.start();
  std::vector<told> waiting;
  for (std::size_t i = 0; i < limits::waiting_per_image; ++i)
    waiting.push_back(i % 2 == 0 ? node.find(kit) : node.pull(kit));
  const auto order = node.next_pull(kit);
  for (const auto& beyond : {node.find(kit), node.pull(kit)}) {
    REQUIRE_FALSE(beyond.open());
    CHECK(beyond.code() == errc::image_pending);
  }
  const auto another = node.find(other);
  CHECK(another.open());
  node.room.done(order, "host");
  for (const auto& each : waiting)
    CHECK(each.name() == "host");
}

TEST_CASE("no asker is forgotten while the room is too busy to take an order", "[apps][images]") {
  events<std::string> asked;
  events<bool> go_on;
  fetching_node node;
  const auto fillers = node.room.fill();
  node.how.users = [&](const std::string& name, const actors::sandbox_image&) -> users_or_error {
    asked.tell(name);
    go_on.next();
    return nobody();
  };
  node.all->put("old", image_with("old"));
  node.start();
  // All of them are there when the supply's thread comes back.
  const auto removal = node.remove("old");
  CHECK(asked.next() == "old");
  std::vector<told> askers;
  for (std::size_t i = 0; i < 5; ++i)
    askers.push_back(node.find(nth(i)));
  go_on.tell(true);
  CHECK(asked.next() == "old"); // Once more, now that no sandbox can begin with it.
  go_on.tell(true);
  CHECK(removal.code() == errc::limit_reached);
  CHECK(node.all->find("old"));
  for (std::size_t i = 0; i < askers.size(); ++i) {
    const auto why = askers[i].reason();
    CHECK(node.supply->on_their_way().empty()); // Nobody's answer waits for another turn.
    CHECK(why.code == errc::image_pending);
    CHECK(has(why.message, nth(i)));
  }
  INFO("they may ask again");
  for (int i = 0; i < fillers; ++i)
    CHECK(node.room.next().text == "filler");
  node.time.advance(6s);
  const auto again = node.find(nth(4));
  node.room.done(node.next_pull(nth(4)), "host");
  CHECK(again.name() == "host");
}

// ---- Failures

TEST_CASE("what a registry refuses is refused for half a minute without a question",
          "[apps][images]") {
  fetching_node node;
  node.start();
  const auto asker = node.find(kit);
  const auto operators = node.pull(kit);
  node.room.fail(node.next_pull(kit), errc::not_found, "it has no " + kit);
  for (const auto& each : {asker, operators}) {
    const auto why = each.reason();
    CHECK(why.code == errc::image_refused);
    CHECK(why.message == "it has no " + kit);
  }
  node.time.advance(29s);
  for (const auto& each : {node.find(kit), node.pull(kit)}) {
    REQUIRE_FALSE(each.open());
    const auto why = each.reason();
    CHECK(why.code == errc::image_refused);
    CHECK(why.message == "it has no " + kit);
  }
  node.settle();
  CHECK(node.supply->read_figures().failed == 1);

  node.time.advance(2s);
  const auto again = node.find(kit);
  node.room.done(node.next_pull(kit), "host");
  CHECK(again.name() == "host");
}

TEST_CASE("what has only failed is tried again after some seconds", "[apps][images]") {
  const auto [code, as] = GENERATE(table<errc, errc>({
    {errc::io_failed, errc::image_pending},
    {errc::deadline_exceeded, errc::image_pending},
    {errc::limit_reached, errc::image_pending},
    {errc::disk_full, errc::disk_full},
  }));
  CAPTURE(static_cast<int>(code));
  fetching_node node;
  node.start();
  const auto asker = node.find(kit);
  node.room.fail(node.next_pull(kit), code, "it broke");
  CHECK(asker.code() == as);
  node.time.advance(4s);
  const auto soon = node.find(kit);
  REQUIRE_FALSE(soon.open());
  CHECK(soon.code() == as);
  node.settle();
  node.time.advance(2s);
  node.find(kit);
  node.next_pull(kit);
}

TEST_CASE("a failure is told with the image that it is of", "[apps][images]") {
  fetching_node node;
  node.start();
  const auto asker = node.find(kit);
  node.room.fail(node.next_pull(kit), errc::io_failed, "it broke");
  CHECK(asker.reason().message == "the image " + kit + ": it broke");
}

TEST_CASE("an image that comes by another way is found in spite of a refusal", "[apps][images]") {
  fetching_node node;
  node.start();
  const auto asker = node.find(kit);
  node.room.fail(node.next_pull(kit), errc::not_found, "it has none");
  CHECK(asker.code() == errc::image_refused);
  node.bring("mine", "mine", kit);
  CHECK(node.find(kit).name() == "mine");
}

// ---- Patience

TEST_CASE("an impatient asker is told how much has come, and the pull goes on without it",
          "[apps][images]") {
  fetching_node node;
  node.start();
  const auto operators = node.pull(kit);
  const auto asker = node.find(kit);
  const auto order = node.next_pull(kit);
  node.room.progress(order, 50, 120);
  node.settle();
  CHECK(asker.open());
  node.time.advance(limits::image_patience + 1s);
  node.nudge();
  const auto why = asker.reason();
  CHECK(why.code == errc::image_pending);
  CHECK(has(why.message, kit + " is being fetched (41 %)"));

  INFO("an operator's pull is answered in any case, and waits longer");
  CHECK(operators.open());
  CHECK(node.supply->on_their_way().size() == 1);

  INFO("the next asker joins it");
  const auto next = node.find(kit);
  node.settle();
  CHECK(next.open());
  node.room.done(order, "host");
  CHECK(next.name() == "host");
  CHECK(operators.name() == "host");
  node.settle();
  CHECK(asker.open());
}

TEST_CASE("an operator's pull is told of an image that takes long, too", "[apps][images]") {
  fetching_node node;
  node.start();
  const auto asker = node.pull(kit);
  node.next_pull(kit);
  node.time.advance(limits::image_patience + 11s);
  node.nudge();
  const auto why = asker.reason();
  CHECK(why.code == errc::image_pending);
  CHECK(why.message == "the image " + kit + " is being fetched; ask again");
}

TEST_CASE("an image whose askers have gone still has its turn", "[apps][images]") {
  busy_node node;
  const auto asker = node.find(kit);
  node.time.advance(limits::image_patience + 1s);
  node.nudge();
  CHECK(asker.code() == errc::image_pending);
  node.room.done(node.first, "host");
  node.room.done(node.next_pull(kit), "host");
  node.settle();
  CHECK(node.supply->on_their_way().size() == 1); // The second one of the busy node.
}

TEST_CASE("images on their way are listed with what has come of them", "[apps][images]") {
  busy_node node;
  node.find(kit);
  node.room.progress(node.first, 1, 10);
  node.room.progress(node.first, 3, 10);
  node.room.progress(node.second, 5, 20);
  node.room.done(node.second, "host");
  const auto order = node.next_pull(kit); // All that was told before has been heard.
  auto all = node.supply->on_their_way();
  REQUIRE(all.size() == 2);
  CHECK(all[0].reference == kit);
  CHECK(all[0].bytes == 0);
  CHECK(all[0].total_bytes == 0);
  CHECK(all[1].reference == "reg.example/busy:1");
  CHECK(all[1].bytes == 3);
  CHECK(all[1].total_bytes == 10);
  const auto figures = node.supply->read_figures();
  CHECK(figures.bytes == 20);
  CHECK(figures.on_their_way == 2);
  node.room.done(order, "host");
  node.settle();
  CHECK(node.supply->on_their_way().size() == 1);
}

// ---- News

TEST_CASE("a name that the server has found leads to the same image until it ends",
          "[apps][images]") {
  fetching_node node;
  node.all->put("kit", image_with("first"));
  node.start();
  const auto before = node.all->find("kit");
  INFO("the image is replaced");
  node.bring("kit", "second");
  CHECK(node.all->find("kit") == before);
  INFO("the image is removed, but not by the server");
  node.room.gone("kit", false);
  node.settle();
  CHECK(node.all->find("kit") == before);
  INFO("the server's own removal ends that");
  node.room.gone("kit", true);
  node.settle();
  CHECK(node.all->find("kit") == nullptr);
  node.bring("kit", "third");
  REQUIRE(node.all->find("kit"));
  CHECK(node.all->find("kit")->layers.tree == "third");
  node.bring("kit", "fourth");
  CHECK(node.all->find("kit")->layers.tree == "fourth");
}

TEST_CASE("a name that has come since leads to what it leads to on the disk", "[apps][images]") {
  fetching_node node;
  node.start();
  node.bring("kit", "first", kit, digest_of('a'));
  const auto sandbox = node.all->find("kit");
  REQUIRE(sandbox);
  CHECK(sandbox->layers.tree == "first");
  INFO("the same news again changes nothing");
  node.bring("kit", "first", kit, digest_of('a'));
  CHECK(node.all->find("kit") == sandbox);
  INFO("other bytes do, and a sandbox goes on with its own");
  node.bring("kit", "second", kit, digest_of('b'));
  CHECK(node.all->find("kit")->digest == digest_of('b'));
  CHECK(sandbox->layers.tree == "first");
  const auto trees = node.all->trees();
  CHECK(std::set<std::string>(trees.begin(), trees.end()) ==
        std::set<std::string>{"first", "second", "host"});
  INFO("and it goes when the image goes");
  node.room.gone("kit", false);
  node.settle();
  CHECK(node.all->find("kit") == nullptr);
}

TEST_CASE("an image has not been used because an earlier one of its name was", "[apps][images]") {
  fetching_node node;
  node.start();
  node.bring("kit", "first");
  node.supply->used("kit");
  CHECK(node.room.next().task == room_task::used);
  node.room.gone("kit", false);
  node.bring("kit", "second");
  const auto listed = node.supply->list();
  REQUIRE(listed.size() == 2);
  CHECK(listed[1].name == "kit");
  CHECK(listed[1].used_ms == 0);
  node.supply->used("kit");
  CHECK(node.room.next().task == room_task::used);
}

TEST_CASE("nothing that the room says without sense does harm", "[apps][images]") {
  busy_node node;
  const auto waiting = node.find(kit);
  node.look_round();
  const std::string end(1, '\0');
  const auto good = to_json(record_of("bad", other, digest_of('a')));
  for (const auto& text :
       {std::string{}, std::string{"{}"}, good, good + end + "tree", good + end + "tree" + end,
        "{}" + end + "tree" + end + end, end + end + end, "[" + end + "tree" + end + end,
        to_json(record_of("../bad", other, digest_of('a'))) + end + "tree" + end + end})
    node.room.tell({room_news::image}, text);
  for (const std::uint32_t kind : {0u, 6u, ~0u})
    node.room.tell({static_cast<room_news>(kind), 1, node.first.number}, "host");
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{77}, ~std::uint64_t{0}}) {
    node.room.tell({room_news::done, 0, number}, "host");
    node.room.tell({room_news::failed, 1, number}, "no");
    node.room.tell({room_news::progress, 0, number, 1, 2});
  }
  node.room.gone("nothing", false);
  node.room.gone("", true);
  node.room.done(node.first, "host");
  const auto order = node.next_pull(kit);
  CHECK(waiting.open());
  CHECK(node.all->list().size() == 1);
  for (const auto& each : node.supply->on_their_way())
    CHECK(each.bytes == 0);
  node.room.done(order, "host");
  CHECK(waiting.name() == "host");
  node.settle();
}

TEST_CASE("a failure whose code nobody knows is a failure", "[apps][images]") {
  fetching_node node;
  node.start();
  const auto code = GENERATE(0u, 200u, 256u, ~0u);
  const auto asker = node.find(kit);
  node.room.fail(node.next_pull(kit), static_cast<errc>(code), "no");
  CHECK(asker.code() == errc::image_refused);
}

TEST_CASE("a use is told to the room once a minute", "[apps][images]") {
  fetching_node node;
  node.start();
  const auto used = [&](const std::string& name) {
    const auto order = node.room.next();
    return order.task == room_task::used && order.text == name;
  };
  node.supply->used("host");
  CHECK(used("host"));
  node.time.advance(59s);
  node.supply->used("host");
  node.supply->used("kit");
  CHECK(used("kit"));
  const auto listed = node.supply->list();
  REQUIRE(listed.size() == 1);
  CHECK(listed[0].used_ms == node.time.unix_ms() - 59'000);
  CHECK(listed[0].is_default);
  node.time.advance(2s);
  node.supply->used("host");
  CHECK(used("host"));
  node.settle();
}

// ---- The end

TEST_CASE("when the room ends all that wait are told, and later askers too", "[apps][images]") {
  busy_node node;
  node.all->put("old", image_with("old"));
  const auto running = node.find("reg.example/busy:1");
  const auto waiting = node.find(kit);
  const auto removal = node.remove("old");
  node.next_removal("old");
  SECTION("its process ends") {
    node.room.die();
  }
  SECTION("it says less than a packet") {
    node.room.tell_bytes("?");
  }
  CHECK(running.code() == errc::image_pending);
  CHECK(waiting.code() == errc::image_pending);
  CHECK(removal.code() == errc::io_failed);
  for (const auto& later : {node.find(kit), node.pull(other)}) {
    REQUIRE_FALSE(later.open());
    const auto why = later.reason();
    CHECK(why.code == errc::image_pending);
    CHECK(has(why.message, "the server needs a restart"));
  }
  CHECK(node.remove("host").code() == errc::io_failed);
  CHECK(node.supply->on_their_way().empty());
  INFO("what is here needs no room");
  CHECK(node.find("host").name() == "host");
  node.supply->used("host");
}

TEST_CASE("the end of the server answers all that wait, and later askers too", "[apps][images]") {
  busy_node node;
  node.all->put("old", image_with("old"));
  const auto running = node.find("reg.example/busy:1");
  const auto waiting = node.pull(kit);
  const auto removal = node.remove("old");
  node.next_removal("old");
  node.supply->end();
  for (const auto& each : {running, waiting}) {
    REQUIRE_FALSE(each.open());
    CHECK(each.code() == errc::image_pending);
  }
  REQUIRE_FALSE(removal.open());
  CHECK(removal.code() == errc::io_failed);
  const auto later = node.find(other);
  REQUIRE_FALSE(later.open());
  CHECK(later.code() == errc::image_pending);
  const auto removed_later = node.remove("host");
  REQUIRE_FALSE(removed_later.open());
  CHECK(removed_later.code() == errc::io_failed);
  CHECK(node.find("host").name() == "host");
  CHECK_FALSE(node.room.has_order());
}
