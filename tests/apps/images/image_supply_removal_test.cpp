// Images that go: those that are asked to, and those that nobody uses.
#include "base/limits.hpp"
#include "tests/apps/images/fetching_node.hpp"

#include <set>
#include <string_view>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

const std::string kit = "reg.example/acme/kit:1";

/// An image of the node's own, which is there for a day.
actors::sandbox_image fetched(const fetching_node& on, const std::string& tree) {
  constexpr std::int64_t day_ms = 24 * 60 * 60 * 1000;
  auto is = image_with(tree, "reg.example/" + tree + ":1", digest_of('f'));
  is.by_node = true;
  is.created_ms = on.time.unix_ms() - day_ms;
  return is;
}

std::set<std::string> trees_of(const scripted_room::order& sweep) {
  std::set<std::string> trees;
  for (std::string_view left = sweep.text; !left.empty();) {
    const auto tree = left.substr(0, left.find('\0'));
    left.remove_prefix(tree.size() + 1);
    trees.emplace(tree);
  }
  return trees;
}

/// A node that removes images which are unused for an hour, and sweeps; its first look has come.
struct collecting_node : fetching_node {
  collecting_node() {
    how.policy.keep_unused = 1h;
    how.may_sweep = true;
  }

  void begin() {
    start();
    time.advance(1min);
    nudge();
  }
  /// The supply's thread has looked for images, and removes no more of them than the test knows of.
  scripted_room::order next_sweep() {
    auto order = room.next();
    REQUIRE(order.task == room_task::sweep);
    return order;
  }
};

} // namespace

TEST_CASE("an image that nobody needs is removed", "[apps][images]") {
  fetching_node node;
  node.all->put("old", image_with("old"));
  node.start();
  const auto removal = node.remove("old");
  const auto order = node.next_removal("old");
  CHECK(node.all->find("old") == nullptr); // No sandbox begins with it from now on.
  CHECK(node.remove("old").code() == errc::not_found);
  CHECK(removal.open());
  node.room.gone("old", true);
  node.room.done(order, "old");
  CHECK(removal.name() == "old");
  CHECK(node.all->find("old") == nullptr);
  CHECK(node.supply->read_figures().removed == 1);
  node.settle();
  CHECK(removal.open());
}

TEST_CASE("an image that is being looked at is removed, and what was seen of it stays",
          "[apps][images]") {
  fetching_node node;
  node.all->put("old", image_with("old"));
  node.start();
  const auto listed = node.all->list();
  const auto looked_at = node.all->look("old");
  CHECK_FALSE(node.all->is_held("old"));
  node.remove("old");
  node.next_removal("old");
  CHECK(node.all->look("old") == nullptr);
  CHECK(looked_at->layers.tree == "old");
  CHECK(listed.at("old") == looked_at);
}

TEST_CASE("an image that the room does not remove is there again", "[apps][images]") {
  fetching_node node;
  node.all->put("old", image_with("old"));
  node.start();
  const std::weak_ptr before = node.all->find("old");
  const auto removal = node.remove("old");
  const auto order = node.next_removal("old");
  node.room.fail(order, errc::limit_reached, "an image is being unpacked");
  const auto why = removal.reason();
  CHECK(why.code == errc::limit_reached);
  CHECK(why.message == "an image is being unpacked");
  CHECK(node.all->find("old"));
  CHECK(node.all->find("old") == before.lock());
  CHECK(node.supply->read_figures().removed == 0);

  INFO("and can be removed later");
  const auto again = node.remove("old");
  node.room.done(node.next_removal("old"), "old");
  CHECK(again.name() == "old");
}

TEST_CASE("an image that came while another one of its name was not removed stays",
          "[apps][images]") {
  fetching_node node;
  node.start();
  node.bring("old", "first");
  const auto removal = node.remove("old");
  const auto order = node.next_removal("old");
  node.room.image(record_of("old", kit, digest_of('b')), "second");
  node.room.fail(order, errc::io_failed, "no");
  CHECK(removal.code() == errc::io_failed);
  REQUIRE(node.all->find("old"));
  CHECK(node.all->find("old")->layers.tree == "second");
}

TEST_CASE("an image from which a sandbox runs is not removed", "[apps][images]") {
  fetching_node node;
  node.all->put("old", image_with("old"));
  node.start();
  auto sandbox = node.all->find("old");
  const auto why = node.remove("old").reason();
  CHECK(why.code == errc::limit_reached);
  CHECK(why.message == "sandboxes run from the image old");
  CHECK(node.all->find("old") == sandbox);
  node.settle();
  sandbox.reset();
  node.remove("old");
  node.next_removal("old");
}

TEST_CASE("an image from which a sandbox was given out meanwhile is not removed",
          "[apps][images]") {
  actors::shared_image sandbox;
  fetching_node node;
  node.how.users = [&](const std::string& name, const actors::sandbox_image&) -> users_or_error {
    sandbox = node.all->find(name); // Between the supply's question and its deed.
    return nobody();
  };
  node.all->put("old", image_with("old"));
  node.start();
  CHECK(node.remove("old").reason().message == "sandboxes run from the image old");
  CHECK(node.all->find("old"));
  node.settle();
}

TEST_CASE("an image that a sandbox's record names is not removed", "[apps][images]") {
  fetching_node node;
  users_or_error users{std::vector<std::string>{"abc", "def"}};
  node.how.users = [&](const std::string& name, const actors::sandbox_image& is) {
    return name == "old" && is.digest == digest_of('a') ? users : nobody();
  };
  node.all->put("old", image_with("old", kit, digest_of('a')));
  node.start();
  SECTION("that is known") {
    const auto why = node.remove("old").reason();
    CHECK(why.code == errc::limit_reached);
    CHECK(why.message == "the sandbox abc starts from the image old; delete it first");
  }
  SECTION("that cannot be known") {
    users = error{errc::store_failed, "the disk says nothing"};
    const auto why = node.remove("old").reason();
    CHECK(why.code == errc::store_failed);
    CHECK(why.message == "the disk says nothing");
  }
  CHECK(node.all->find("old"));
  node.settle();
}

TEST_CASE("without a look at the records no image is removed", "[apps][images]") {
  fetching_node node;
  node.how.users = nullptr;
  node.all->put("old", image_with("old"));
  node.start();
  const auto why = node.remove("old").reason();
  CHECK(why.code == errc::limit_reached);
  CHECK(has(why.message, "insula image rm"));
  CHECK(node.all->find("old"));
  node.settle();
}

TEST_CASE("an image that the configuration names is not removed", "[apps][images]") {
  fetching_node node;
  node.how.pinned = {"named", kit, "node:24", "pinned@" + digest_of('d')};
  node.all->put("named", image_with("named"));
  node.all->put("by-reference", image_with("by-reference", kit));
  node.all->put("by-short", image_with("by-short", "docker.io/library/node:24"));
  node.all->put("by-digest", image_with("by-digest", "docker.io/library/pinned:1", digest_of('d')));
  node.all->put("named-alike", image_with("named-alike", "docker.io/library/named:latest"));
  node.start();
  for (const std::string name : {"named", "by-reference", "by-short", "by-digest"}) {
    const auto why = node.remove(name).reason();
    CHECK(why.code == errc::limit_reached);
    CHECK(why.message == "the configuration names the image " + name);
    CHECK(node.all->find(name));
  }
  node.settle();
  INFO("a name is no reference");
  node.remove("named-alike");
  node.next_removal("named-alike");
}

TEST_CASE("an image that is not there is not removed", "[apps][images]") {
  fetching_node node;
  node.start();
  for (const std::string name : {"nothing", "", "../host"})
    CHECK(node.remove(name).code() == errc::not_found);
  node.settle();
}

namespace {

/// A node that looks for the users of the image "old", which is to go, until it is told to go on.
struct busy_removal {
  busy_removal() {
    node.how.users = [this](const std::string& name,
                            const actors::sandbox_image&) -> users_or_error {
      asked.tell(name);
      go_on.next();
      return std::vector<std::string>{"abc"};
    };
    node.all->put("old", image_with("old"));
    node.start();
    looked_at.emplace(node.remove("old"));
    CHECK(asked.next() == "old");
  }

  events<std::string> asked;
  events<bool> go_on;
  fetching_node node;
  std::optional<told> looked_at;
};

} // namespace

TEST_CASE("more removals than may wait are refused at once", "[apps][images]") {
  busy_removal of;
  auto& node = of.node;
  std::vector<told> waiting;
  for (std::size_t i = 0; i < limits::images_waiting; ++i)
    waiting.push_back(node.remove("nothing"));
  const auto beyond = node.remove("nothing");
  REQUIRE_FALSE(beyond.open());
  CHECK(beyond.code() == errc::limit_reached);
  of.go_on.tell(true);
  CHECK(of.looked_at->code() == errc::limit_reached);
  for (const auto& each : waiting)
    CHECK(each.code() == errc::not_found);
}

TEST_CASE("removals that nobody has looked at are answered when the server ends",
          "[apps][images]") {
  busy_removal of;
  auto& node = of.node;
  const auto waiting = node.find(kit);
  of.go_on.tell(true);
  node.supply->end();
  CHECK(of.looked_at->code() == errc::limit_reached);
  CHECK(waiting.code() == errc::image_pending);
}

// ---- Images that nobody uses

TEST_CASE("an image that the node has fetched goes when no sandbox has used it for long",
          "[apps][images]") {
  collecting_node node;
  node.all->put("old", fetched(node, "old"));
  auto imported = fetched(node, "imported");
  imported.by_node = false;
  node.all->put("imported", imported);
  auto fresh = fetched(node, "fresh");
  fresh.created_ms = node.time.unix_ms();
  node.all->put("fresh", fresh);
  auto used_before = fetched(node, "used-before");
  used_before.used_ms = node.time.unix_ms();
  node.all->put("used-before", used_before);
  node.all->put("used", fetched(node, "used"));
  node.start();
  node.supply->used("used");
  CHECK(node.room.next().task == room_task::used);
  node.time.advance(1min);
  node.nudge();
  const auto order = node.next_removal("old");
  node.next_sweep();
  node.room.gone("old", true);
  node.room.done(order, "old");
  node.settle();
  CHECK(node.all->list().size() == 5);

  INFO("and the others when their time has come");
  node.time.advance(1h);
  node.nudge();
  std::set<std::string> gone;
  for (int i = 0; i < 3; ++i) {
    const auto each = node.room.next();
    CHECK(each.task == room_task::remove);
    gone.insert(each.text);
  }
  CHECK(gone == std::set<std::string>{"fresh", "used", "used-before"});
  node.next_sweep();
}

TEST_CASE("an image that somebody needs stays, however long nobody has used it", "[apps][images]") {
  collecting_node node;
  node.how.users = [](const std::string& name, const actors::sandbox_image&) -> users_or_error {
    return name == "recorded" ? std::vector<std::string>{"abc"} : nobody();
  };
  node.how.pinned = {"pinned"};
  for (const std::string name : {"held", "pinned", "recorded"})
    node.all->put(name, fetched(node, name));
  auto sandbox = node.all->find("held");
  node.begin();
  node.next_sweep();
  node.settle();
  CHECK(node.all->list().size() == 4);

  INFO("until it does not");
  sandbox.reset();
  node.time.advance(10min);
  node.nudge();
  node.next_removal("held");
  node.next_sweep();
}

TEST_CASE("no image is removed for not being used unless that is wanted, and can be known",
          "[apps][images]") {
  collecting_node node;
  SECTION("keep_unused is 0") {
    node.how.policy.keep_unused = 0ms;
  }
  SECTION("nobody can look at the records") {
    node.how.users = nullptr;
  }
  node.all->put("old", fetched(node, "old"));
  node.begin();
  node.settle();
  node.settle(); // The first one's order may have come before the look.
  CHECK(node.all->find("old"));
}

TEST_CASE("a sweep spares the trees that a name leads to, or on which a sandbox stands",
          "[apps][images]") {
  collecting_node node;
  node.all->put("mine", image_with("tree-1"));
  const auto sandbox = node.all->find("mine");
  node.all->put("mine", image_with("tree-2")); // Nobody holds this one.
  node.all->put("mine", image_with("tree-3"));
  node.begin();
  CHECK(trees_of(node.next_sweep()) == std::set<std::string>{"host", "tree-1", "tree-3"});
}

TEST_CASE("no tree is swept while sandboxes of an earlier server may stand on it",
          "[apps][images]") {
  collecting_node node;
  node.how.may_sweep = false;
  node.all->put("old", fetched(node, "old"));
  node.begin();
  node.room.done(node.next_removal("old"), "old");
  node.settle();
  node.settle();
}

TEST_CASE("no tree is swept when those that are needed cannot all be named", "[apps][images]") {
  collecting_node node;
  for (char each = 'a'; each <= 'z'; ++each)
    node.all->put(std::string(1, each), image_with(std::string(2000, each)));
  node.all->put("old", fetched(node, "old"));
  node.begin();
  node.room.done(node.next_removal("old"), "old");
  node.settle();
  node.settle();
}
