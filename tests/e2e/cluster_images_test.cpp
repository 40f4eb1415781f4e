// Images of several nodes: where sandboxes go by them, and when they go.
#include "tests/e2e/docker_registry.hpp"
#include "tests/e2e/small_cluster.hpp"

using namespace insula::test;

TEST_CASE("a sandbox goes to a node that has its image, which stays as long as it is needed",
          "[cluster]") {
  const docker_registry registry;
  registry.push(debian, "acme/debian:12");
  const auto reference = registry.host() + "/acme/debian:12";
  small_cluster nodes{3, "images: {pull: missing, allow: ['**']}\n"};
  REQUIRE(nodes[1].ask("POST", "/v1/images/pull", "{\"reference\":\"" + reference + "\"}").status <
          300);
  REQUIRE(eventually([&] {
    return nodes[1].ask("GET", "/v1/images").body.find("\"debian-12\"") != std::string::npos;
  }));
  const auto create = [&](const node& at) {
    const auto made = at.ask("POST", "/v1/sandboxes",
                             R"({"image":{"uri":")" + reference +
                               R"("},"entrypoint":["tail","-f","/dev/null"],"resourceLimits":{}})",
                             "Content-Type: application/json\r\n");
    INFO(made.body);
    REQUIRE(made.status == 202);
    rapidjson::Document body;
    body.Parse(made.body.c_str());
    return std::string{body["id"].GetString()};
  };
  const std::string named = "Insula-Image: " + reference + "\r\n";
  // What a node says of its sandboxes it says together with its images.
  std::set<std::string> ids{"first"};
  CHECK(nodes[1].sh("first", "echo on").out == "on\n");
  for (const std::size_t asked : {0u, 2u}) {
    REQUIRE(eventually([&] {
      rapidjson::Document seen;
      seen.Parse(nodes[asked].ask("GET", "/v1/cluster").body.c_str());
      return seen["nodes"][1]["sandboxes"].GetInt() > 0;
    }));
    std::string id = asked == 0 ? "askedfirst" : "askedthird";
    ids.insert(id);
    const auto read =
      exec_stream{nodes[asked].port(), id, exec_body({"cat", "/opt/kit/only"}), named}.rest();
    CHECK(read.out == "fresh\n");
    CHECK(nodes.owner_number(id) == 1);
    for (int i = 0; i < 3; ++i) {
      id = create(nodes[asked]);
      ids.insert(id);
      CHECK(nodes.owner_number(id) == 1);
    }
  }

  INFO("it is not removed while a record of any node names it");
  const auto remove = [&] { return nodes[1].ask("DELETE", "/v1/images/debian-12"); };
  auto refused = remove();
  CHECK(refused.status == 409);
  for (const auto& id : ids)
    CHECK(nodes[0].remove(id) == 204);
  http_answer gone;
  CHECK(eventually([&] {
    gone = remove();
    return gone.status == 204;
  }));
  INFO(gone.status << ' ' << gone.body);
}
