#include "tests/actors/fixture.hpp"

#include <algorithm>
#include <utility>

using namespace insula;
using namespace insula::actors;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

/// A node with three images, of which new sandboxes start from the host's.
struct node_with_images : small_node {
  node_with_images() {
    options->images->put(
      "bookworm", {{".tree-1", false}, {{"PATH", "/opt/bin"}, {"HOME", "/home/me"}}, "/bin/bash"});
    options->images->put("tiny", {{".tree-2", false}, {}, "/bin/sh"});
  }

  std::string tree_of_newest() { return engine.creations.back().spec.image.tree; }
};

} // namespace

TEST_CASE("a new sandbox starts from the node's image, and the record says which",
          "[actors][sandbox][image]") {
  node_with_images node;
  node.options->image_name = "bookworm";
  const auto box = node.make_sandbox();
  node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value();
  CHECK(node.tree_of_newest() == ".tree-1");
  CHECK_FALSE(node.engine.creations.back().spec.image.machines_usr);
  CHECK(node.store.value("abc", "image") == "bookworm");
}

TEST_CASE("a sandbox keeps the image of its record, whatever new ones start from",
          "[actors][sandbox][image]") {
  node_with_images node;
  node.options->image_name = "bookworm";
  const auto first = node.make_sandbox();
  node.sys.ask<caf::ok_atom>(first, find_atom::value, request_context{}).value();
  node.options->image_name = "host"; // As after a restart with another configuration.
  const auto again = node.make_sandbox();
  node.sys.ask<caf::ok_atom>(again, find_atom::value, request_context{}).value();
  CHECK(node.tree_of_newest() == ".tree-1");
  CHECK(node.store.value("abc", "image") == "bookworm");
  const auto other = node.make_sandbox("def");
  node.sys.ask<caf::ok_atom>(other, find_atom::value, request_context{}).value();
  CHECK(node.tree_of_newest() == "host");
  CHECK(node.store.value("def", "image") == "host");

  SECTION("until it is deleted: then its id begins anew") {
    node.sys.ask<caf::ok_atom>(again, delete_atom::value, request_context{}).value();
    const auto anew = node.make_sandbox();
    node.sys.ask<caf::ok_atom>(anew, find_atom::value, request_context{}).value();
    CHECK(node.tree_of_newest() == "host");
  }
}

TEST_CASE("a sandbox whose image has gone is refused, and nothing of it is lost",
          "[actors][sandbox][image]") {
  node_with_images node;
  node.options->image_name = "bookworm";
  const auto first = node.make_sandbox();
  node.sys.ask<caf::ok_atom>(first, find_atom::value, request_context{}).value();
  node.options->images->take("bookworm");
  node.options->image_name = "host";
  const auto leases = node.leases.held.size();
  const auto creations = node.engine.creations.size();

  const auto again = node.make_sandbox();
  const auto refused = node.sys.ask<caf::ok_atom>(again, find_atom::value, request_context{});
  CHECK(refused.reason().code == errc::launch_failed);
  CHECK(refused.reason().message.find("\"bookworm\"") != std::string::npos);
  CHECK(node.engine.creations.size() == creations);
  CHECK(node.leases.held.size() == leases);
  CHECK(node.store.value("abc", "image") == "bookworm");
  CHECK(node.store.value("abc", "created_ms") == "1700000000000");

  SECTION("it starts once the image is back") {
    node.options->images->put("bookworm", {{".tree-1", false}, {}, "/bin/bash"});
    node.sys.ask<caf::ok_atom>(again, find_atom::value, request_context{}).value();
    CHECK(node.tree_of_newest() == ".tree-1");
  }
  SECTION("it can be deleted") {
    node.sys.ask<caf::ok_atom>(again, delete_atom::value, request_context{}).value();
    CHECK(node.store.value("abc", "image").empty());
  }
}

TEST_CASE("a command has the image's environment under its caller's", "[actors][sandbox][image]") {
  node_with_images node;
  node.options->image_name = "bookworm";
  const auto box = node.make_sandbox();
  auto request = command("env");
  request.env = {{"HOME", "/mine"}};
  const auto asked = node.sys.ask<process_actor>(box, request);
  const auto& spec = node.process().spec;
  CHECK(spec.argv == std::vector<std::string>{"/bin/bash", "-c", "env"});
  CHECK(std::count(spec.env.begin(), spec.env.end(), "PATH=/opt/bin") == 1);
  CHECK(std::count(spec.env.begin(), spec.env.end(), "HOME=/mine") == 1);
  CHECK(spec.env.size() == 2);
}

TEST_CASE("an image without bash has its commands run by sh, long ones too",
          "[actors][sandbox][image]") {
  node_with_images node;
  node.options->image_name = "tiny";
  const auto box = node.make_sandbox();
  const auto asked = node.sys.ask<process_actor>(box, command("true"));
  CHECK(node.process().spec.argv.front() == "/bin/sh");
  const auto longer = node.sys.ask<process_actor>(box, command(std::string(200'000, ' ') + "true"));
  CHECK(node.process().spec.argv ==
        std::vector<std::string>{"/bin/sh", "-c", "eval \"$(cat /proc/self/fd/9)\" 9<&-"});
  CHECK(node.process().spec.script.size() == 200'004);
}

namespace {

/// Answers when the test says so.
struct scripted_supply : image_supply {
  void find(const image_wish& wanted, found_function then) override {
    asked.push_back(wanted);
    waiting.push_back(std::move(then));
  }
  void used(const std::string& name) override { uses.push_back(name); }

  void answer(const result<std::string>& with) { std::exchange(waiting, {}).front()(with); }

  std::vector<image_wish> asked;
  std::vector<found_function> waiting;
  std::vector<std::string> uses;
};

const std::string wanted = "registry.example/acme/tool:1";

sandbox_image tool(const std::string& digest) {
  sandbox_image made{{".tree-9", false}, {}, "/bin/bash"};
  made.digest = digest;
  made.reference = wanted;
  return made;
}

struct node_that_pulls : node_with_images {
  node_that_pulls() { options->supply = &supply; }
  ~node_that_pulls() { options->supply = nullptr; }

  request_context asking_for(const std::string& image) {
    request_context context{"r"};
    context.image = image;
    return context;
  }
  void bring(const std::string& digest = "sha256:1") {
    options->images->put("tool-1", tool(digest));
    answer(std::string{"tool-1"});
  }
  void answer(const result<std::string>& with) {
    supply.answer(with);
    sys.run();
  }

  scripted_supply supply;
};

} // namespace

TEST_CASE("a first request's image is brought before the sandbox starts from it",
          "[actors][sandbox][image]") {
  node_that_pulls node;
  const auto box = node.make_sandbox();
  auto asked = node.sys.ask<caf::ok_atom>(box, find_atom::value, node.asking_for(wanted));
  node.sys.run();
  REQUIRE(node.supply.asked.size() == 1);
  CHECK(node.supply.asked.front().text == wanted);
  CHECK(node.engine.creations.empty());
  SECTION("it comes") {
    node.bring();
    asked.value();
    CHECK(node.tree_of_newest() == ".tree-9");
    CHECK(node.store.value("abc", "image") == "tool-1");
    CHECK(node.store.value("abc", "image_asked") == wanted);
    CHECK(node.store.value("abc", "image_source") == "registry.example/acme/tool@sha256:1");
    CHECK(node.supply.uses == std::vector<std::string>{"tool-1"});

    INFO("the same words, its name or none are served, others are not");
    for (const auto& same : {wanted, std::string{"tool-1"}, std::string{}})
      node.sys.ask<caf::ok_atom>(box, find_atom::value, node.asking_for(same)).value();
    const auto other = node.sys.ask<caf::ok_atom>(box, find_atom::value, node.asking_for("tiny"));
    CHECK(other.reason().code == errc::sandbox_mismatch);
    CHECK(other.reason().message.find(wanted) != std::string::npos);
  }
  SECTION("it takes longer than a request waits, and the next one finds it") {
    node.answer(error{errc::image_pending, "on its way"});
    CHECK(asked.reason().code == errc::image_pending);
    CHECK(node.store.value("abc", "created_ms").empty());
    asked = node.sys.ask<caf::ok_atom>(box, find_atom::value, node.asking_for(wanted));
    node.sys.run();
    node.bring();
    asked.value();
    CHECK(node.tree_of_newest() == ".tree-9");
  }
  SECTION("it is not to be had") {
    node.answer(error{errc::image_refused, "no such image"});
    CHECK(asked.reason().code == errc::image_refused);
    CHECK(node.engine.creations.empty());
    CHECK(node.store.value("abc", "created_ms").empty());
  }
  SECTION("the sandbox is deleted meanwhile") {
    auto gone = node.sys.ask<caf::ok_atom>(box, delete_atom::value, request_context{});
    node.sys.run();
    node.bring();
    gone.value();
    asked.reason();
    CHECK(node.engine.creations.empty());
  }
}

TEST_CASE("a sandbox starts from the bytes that it has started from before",
          "[actors][sandbox][image]") {
  node_that_pulls node;
  node.options->images->put("tool-1", tool("sha256:1"));
  const auto first = node.make_sandbox();
  node.sys.ask<caf::ok_atom>(first, find_atom::value, node.asking_for("tool-1")).value();
  CHECK(node.supply.asked.empty());
  node.options->images->put("tool-1", tool("sha256:2")); // The name leads elsewhere by now.

  const auto again = node.make_sandbox();
  auto asked = node.sys.ask<caf::ok_atom>(again, find_atom::value, request_context{});
  node.sys.run();
  REQUIRE(node.supply.asked.size() == 1);
  CHECK(node.supply.asked.front().text == "registry.example/acme/tool@sha256:1");
  SECTION("they are brought by their digest") {
    auto old = tool("sha256:1");
    old.layers.tree = ".tree-old";
    node.options->images->put("tool-old", old);
    node.answer(std::string{"tool-old"});
    asked.value();
    CHECK(node.tree_of_newest() == ".tree-old");
  }
  SECTION("unless they are not to be had: then its name decides") {
    node.answer(error{errc::image_refused, "not here"});
    asked.value();
    CHECK(node.tree_of_newest() == ".tree-9");
    CHECK(node.store.value("abc", "image_source") == "registry.example/acme/tool@sha256:2");
  }
  SECTION("and while the registry does not give them, it waits") {
    node.answer(error{errc::image_pending, "on their way"});
    CHECK(asked.reason().code == errc::image_pending);
    CHECK(node.store.value("abc", "image_source") == "registry.example/acme/tool@sha256:1");
  }
}

TEST_CASE("a definition waits for its image, and remembers it", "[actors][sandbox][image]") {
  node_that_pulls node;
  const auto box = node.make_sandbox();
  define_sandbox with;
  with.image = wanted;
  with.image_names = {"tool-1"};
  auto asked = node.sys.ask<sandbox_description>(box, with);
  node.sys.run();
  REQUIRE(node.supply.asked.size() == 1);
  CHECK(node.supply.asked.front().names == with.image_names);
  SECTION("it comes") {
    node.bring();
    CHECK(asked.value().image == "tool-1");
    CHECK(node.store.value("abc", "image_source") == "registry.example/acme/tool@sha256:1");
    node.sys.ask<caf::ok_atom>(box, find_atom::value, request_context{}).value();
    CHECK(node.tree_of_newest() == ".tree-9");
  }
  SECTION("it is not to be had") {
    node.answer(error{errc::forbidden, "not allowed"});
    CHECK(asked.reason().code == errc::forbidden);
    CHECK(node.store.value("abc", "created_ms").empty());
  }
}
