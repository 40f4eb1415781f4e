#include "tests/actors/fixture.hpp"

#include <algorithm>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

/// A node with three images, of which new sandboxes start from the host's.
struct node_with_images : small_node {
  node_with_images() {
    options->images["bookworm"] = {
      {".tree-1", false}, {{"PATH", "/opt/bin"}, {"HOME", "/home/me"}}, "/bin/bash"};
    options->images["tiny"] = {{".tree-2", false}, {}, "/bin/sh"};
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
  const auto lost = node.options->images.extract("bookworm");
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
    node.options->images["bookworm"] = {{".tree-1", false}, {}, "/bin/bash"};
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
