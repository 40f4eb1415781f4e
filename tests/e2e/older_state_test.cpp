// A state directory of an earlier version: all that it has is there, and it is in the list.
#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/metrics_text.hpp"
#include "tests/support/older_store.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sqlite3.h>

using namespace insula::test;
namespace fs = std::filesystem;

namespace {

constexpr auto* red = "jpwj4cxhfdbxoknz3hiwwy7ag4";
constexpr auto* blue = "rn6pdlfoagr7u7cchnic53ciee";
constexpr auto* patched = "torbqe3e5nv7j4bhsyyzz62vii";

/// What tests/older_state/ has, as the files of that server.
void write_older_state(const std::string& state) {
  fs::create_directories(state + "/records");
  for (const std::string name : {"insula", "node"}) {
    std::ifstream file{INSULA_OLDER_STATE "/" + name + ".sql"};
    const std::string sql{std::istreambuf_iterator<char>{file}, {}};
    REQUIRE_FALSE(sql.empty());
    sqlite3* db = nullptr;
    REQUIRE(sqlite3_open((state + "/records/" + name + ".db").c_str(), &db) == SQLITE_OK);
    REQUIRE(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
    REQUIRE(sqlite3_close(db) == SQLITE_OK);
  }
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string ids_of(const std::string& list) {
  std::string ids;
  for (std::size_t at = 0; (at = list.find(R"({"id":")", at)) != std::string::npos; ++at)
    ids += list.substr(at + 7, list.find('"', at + 7) - at - 7) + " ";
  return ids;
}

} // namespace

TEST_CASE("a node goes on with what a server of an earlier version has left", "[list][older]") {
  node it{{}, write_older_state};
  const auto in_order =
    "olduse " + std::string{patched} + " " + std::string{blue} + " " + std::string{red} + " ";
  for (int start = 0; start < 2; ++start) {
    CAPTURE(start);
    const auto list = it.ask("GET", "/v1/sandboxes").body;
    CHECK(ids_of(list) == in_order);
    CHECK(has(list, R"("totalItems":4,)"));
    CHECK(ids_of(it.ask("GET", "/v1/sandboxes?state=Paused").body) == std::string{blue} + " ");
    CHECK(ids_of(it.ask("GET", "/v1/sandboxes?metadata=team%3Dred%26n%3D1").body) ==
          std::string{red} + " ");
    const auto one = it.ask("GET", "/v1/sandboxes/" + std::string{red}).body;
    CHECK(has(one, R"("metadata":{"n":"1","team":"red"})"));
    CHECK(has(one, R"("createdAt":"2026-11-26T19:23:39.712Z")"));
    CHECK(has(it.ask("GET", "/v1/sandboxes/" + std::string{blue}).body, R"("expiresAt":")"));
    REQUIRE(it.stop(SIGTERM) == 0);
    it.start();
  }
  SECTION("they run, with what they were made with") {
    CHECK(it.sh(red, "echo $NAME").out == "kept\n");
    CHECK(it.ask("POST", "/v1/sandboxes/" + std::string{blue} + "/resume").status == 202);
    CHECK(it.sh(blue, "echo on").out == "on\n");
    const std::string session = "/v1/sandbox/olduse/session/session-1795721020989";
    CHECK(it.ask("DELETE", session).status == 204);
    CHECK(it.ask("DELETE", session).status == 502); // There is no such session any more.
  }
  SECTION("their metadata can be changed, and the list has that") {
    const auto of_patched = "/v1/sandboxes/" + std::string{patched};
    const auto now = it.ask("PATCH", of_patched + "/metadata", R"({"patched":null,"more":"x"})",
                            "Content-Type: application/json\r\n");
    CHECK(now.status == 200);
    CHECK(has(now.body, R"("metadata":{"more":"x"})"));
    CHECK(ids_of(it.ask("GET", "/v1/sandboxes?metadata=more%3Dx").body) ==
          std::string{patched} + " ");
    CHECK(ids_of(it.ask("GET", "/v1/sandboxes?metadata=patched%3Dyes").body).empty());
    REQUIRE(it.stop(SIGTERM) == 0);
    it.start();
    const auto later = it.ask("GET", of_patched).body;
    CHECK(has(later, R"("metadata":{"more":"x"})"));
    CHECK(has(later, R"("image":{"uri":"host"})"));
  }
  SECTION("a request that has run does not run again") {
    const std::string body = R"({"argv": ["sh", "-c", "echo first; exit 3"]})";
    const auto again = [&](const std::string& what) {
      return it.ask("POST", "/v1/sandbox/olduse/exec", what,
                    "Idempotency-Key: once-and-no-more\r\n");
    };
    CHECK(has(again(body).body, "result_gone"));
    CHECK(has(again(R"({"argv":["sh","-c","echo second"]})").body, "idempotency_conflict"));
  }
  SECTION("one that is deleted is not in the list any more") {
    CHECK(it.ask("DELETE", "/v1/sandboxes/" + std::string{blue}).status == 204);
    CHECK(it.remove("olduse") == 204);
    CHECK(ids_of(it.ask("GET", "/v1/sandboxes").body) ==
          std::string{patched} + " " + std::string{red} + " ");
  }
}

TEST_CASE("a list of ten thousand sandboxes reads one page's worth", "[list][older]") {
  constexpr int many = 10'000;
  node it{{}, [](const std::string& state) {
            fs::create_directories(state + "/records");
            std::vector<older_row> rows;
            for (int i = 0; i < many; ++i) {
              std::string id = "older";
              for (int rest = i, at = 0; at < 4; ++at, rest /= 26)
                id += static_cast<char>('a' + rest % 26);
              rows.push_back({id, "about", R"({"image":"host","entrypoint":["x"],"metadata":{}})"});
              rows.push_back({id, "created_ms", std::to_string(1'700'000'000'000 + i)});
              rows.push_back({id, "image", "host"});
              rows.push_back({id, "started_ms", "1700000000001"});
            }
            rows.push_back({"_lease", "reserved_until", "1000"});
            write_older_store(state + "/records/insula.db", rows);
          }};
  const auto lines_read = [&] {
    return metrics_page{it.ask("GET", "/metrics").body}.value("insula_store_lines_read_total");
  };
  const auto before = lines_read();
  const auto list = it.ask("GET", "/v1/sandboxes?pageSize=50").body;
  CHECK(has(list, R"("pagination":{"page":1,"pageSize":50,"totalItems":10000,"totalPages":200,)"));
  CHECK(has(list, R"("createdAt":"2023-11-14T22:13:29.999Z")")); // The newest.
  CHECK(lines_read() - before == 51);
  // Deep down in the list, by steps.
  const auto deep = it.ask("GET", "/v1/sandboxes?pageSize=200&page=50").body;
  CHECK(has(deep, R"("createdAt":"2023-11-14T22:13:20.000Z")")); // The oldest.
  CHECK(has(deep, R"("hasNextPage":false)"));
}
