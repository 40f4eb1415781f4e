// The lists of a project's sandboxes, by pages, at a node of a cluster that owns none of them.
#include "tests/e2e/small_cluster.hpp"

#include <algorithm>
#include <atomic>
#include <future>

using namespace insula::test;

namespace {

constexpr auto* json_body = "Content-Type: application/json\r\n";

http_answer create(const node& at, const std::string& project, const std::string& name) {
  return at.ask("POST", "/v3/sandboxes",
                R"({"projectId":")" + project + R"(","name":")" + name +
                  R"(","timeout":600000,"resources":{"vcpus":1},"tags":{"kind":")" +
                  name.substr(0, 4) + R"("}})",
                json_body);
}

http_answer remove(const node& at, const std::string& project, const std::string& name) {
  return at.ask("DELETE", "/v2/sandboxes/" + name + "?projectId=" + project);
}

using names = std::vector<std::string>;

/// All of a list, by its pages.
names walk(const node& at, const std::string& query, std::size_t limit) {
  names all;
  std::string cursor;
  do {
    const auto got = at.ask("GET", "/v2/sandboxes?project=prj&limit=" + std::to_string(limit) +
                                     query + (cursor.empty() ? "" : "&cursor=" + cursor));
    INFO(got.body);
    REQUIRE(got.status == 200);
    rapidjson::Document page;
    page.Parse(got.body.c_str());
    const auto& found = page["sandboxes"];
    REQUIRE(found.Size() <= limit);
    for (const auto& each : found.GetArray())
      all.emplace_back(each["name"].GetString());
    const auto& next = page["pagination"]["next"];
    cursor = next.IsNull() ? "" : next.GetString();
  } while (!cursor.empty());
  return all;
}

names only_those_that(names all, const std::string& begins) {
  std::erase_if(all, [&](const auto& each) { return !each.starts_with(begins); });
  return all;
}

names reversed(names all) {
  std::reverse(all.begin(), all.end());
  return all;
}

} // namespace

TEST_CASE("a project's list is paged while sandboxes come and go, at a node that owns none of them",
          "[cluster]") {
  small_cluster nodes{3};
  REQUIRE(nodes[0].ask("POST", "/v1/cluster/drain/n3").status == 202);
  for (const std::size_t i : {0u, 1u, 2u})
    REQUIRE(eventually([&] {
      return nodes[i].ask("GET", "/v1/cluster").body.find("\"draining\"") != std::string::npos;
    }));
  // In no order of their names.
  const names made{"stay-4", "stay-1", "stay-40", "stay-0", "stay-3", "stay-2"};
  for (std::size_t i = 0; i < made.size(); ++i) {
    const auto got = create(nodes[i % 2], "prj", made[i]);
    INFO(got.body);
    REQUIRE(got.status == 200);
  }
  REQUIRE(create(nodes[0], "other", "stay-foreign").status == 200);
  const auto by_name = [&] {
    auto all = made;
    std::sort(all.begin(), all.end());
    return all;
  }();
  {
    // The first one stops, so its state is the newest.
    rapidjson::Document body;
    body.Parse(nodes[2].ask("GET", "/v2/sandboxes/stay-4?projectId=prj").body.c_str());
    const std::string session = body["session"]["id"].GetString();
    REQUIRE(nodes[2].ask("POST", "/v2/sandboxes/sessions/" + session + "/stop").status == 200);
  }
  auto by_state = made;
  std::rotate(by_state.begin(), by_state.begin() + 1, by_state.end());

  std::atomic<bool> over{false};
  std::atomic<int> come_and_gone{0};
  std::atomic<int> refused{0};
  auto others = std::async(std::launch::async, [&] {
    for (int i = 0; !over; ++i) {
      const auto name = "come-" + std::to_string(i);
      refused += create(nodes[static_cast<std::size_t>(i % 2)], "prj", name).status == 200 ? 0 : 1;
      if (i < 2)
        continue;
      const auto gone = "come-" + std::to_string(i - 2);
      refused += remove(nodes[static_cast<std::size_t>(i % 2)], "prj", gone).status == 200 ? 0 : 1;
      ++come_and_gone;
    }
  });
  struct stopping {
    std::atomic<bool>& over;
    ~stopping() { over = true; }
  };
  {
    const stopping at_end{over};
    for (std::size_t round = 0; round < 3 || come_and_gone < 10; ++round) {
      const auto stay = [&](const std::string& query) {
        return only_those_that(walk(nodes[2], query, 1 + round % 4), "stay-");
      };
      CHECK(stay("&sortOrder=asc") == made);
      CHECK(stay("") == reversed(made));
      CHECK(stay("&sortBy=name&sortOrder=asc") == by_name);
      CHECK(stay("&sortBy=name") == reversed(by_name));
      CHECK(stay("&sortBy=statusUpdatedAt&sortOrder=asc") == by_state);
      CHECK(stay("&sortBy=statusUpdatedAt") == reversed(by_state));
      CHECK(stay("&tags=kind%3Astay") == reversed(made));
      CHECK(walk(nodes[2], "&sortBy=name&namePrefix=stay-4", 1) == names{"stay-40", "stay-4"});
      CHECK(walk(nodes[2], "&status=stopped", 1) == names{"stay-4"});
    }
  }
  others.get();
  CHECK(refused == 0);
  // A list that stands still is the same at every node.
  const auto at_end = walk(nodes[2], "", 50);
  CHECK(at_end.size() == made.size() + 2);
  CHECK(walk(nodes[0], "", 3) == at_end);
  CHECK(walk(nodes[1], "", 2) == at_end);
  rapidjson::Document seen;
  seen.Parse(nodes[2].ask("GET", "/v1/cluster").body.c_str());
  for (const auto& each : seen["sandboxes"].GetArray())
    CHECK(std::string{each["node"].GetString()} != "n3");
  for (const auto& each : at_end)
    CHECK(remove(nodes[2], "prj", each).status == 200);
  CHECK(walk(nodes[2], "", 50).empty());
  CHECK(remove(nodes[2], "other", "stay-foreign").status == 200);
}
