#include "base/base64.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/eventually.hpp"

#include <algorithm>
#include <string>

using namespace insula;
using namespace insula::test;

namespace {

snapshot_description snapshot(std::string id, std::string origin, std::string parent = {}) {
  snapshot_description is{std::move(id), std::move(origin), std::move(parent)};
  is.root = is.parent.empty() ? is.id : is.parent;
  is.image = "host";
  is.created_ms = is.last_used_ms = 1'700'000'000'000;
  return is;
}

} // namespace

TEST_CASE("a snapshot is told with all that is known of it", "[http][snapshots]") {
  house at;
  auto is = snapshot("snap", "abc");
  is.name = "before";
  is.labels = {{"a", "1"}};
  is.bytes = 4096;
  is.keep_ms = 1000;
  is.sandboxes = 2;
  at.plays().snapshots = {is, snapshot("child", "def", "snap")};
  CHECK(ask(at.port(), "GET", "/v1/snapshot/snap").body ==
        R"({"id":"snap","sandbox":"abc","root":"snap","state":"created","kind":"manual",)"
        R"("name":"before","labels":{"a":"1"},"image":"host","bytes":4096,)"
        R"("created_ms":1700000000000,"last_used_ms":1700000000000,)"
        R"("expires_ms":1700000001000,"sandboxes":2})");
  const auto tree = ask(at.port(), "GET", "/v1/snapshot/child/tree").body;
  CHECK(tree.find(R"({"snapshots":[{"id":"snap")") == 0);
  CHECK(tree.find(R"({"id":"child","sandbox":"def","parent":"snap","root":"snap")") != tree.npos);
  const auto page = ask(at.port(), "GET", "/v1/snapshot?limit=1").body;
  CHECK(page.find("child") == page.npos);
  CHECK(page.find(R"("cursor":"1"})") != page.npos);
  CHECK(ask(at.port(), "GET", "/v1/sandbox/def/snapshots").body.find(R"([{"id":"child")") !=
        std::string::npos);
  CHECK(ask(at.port(), "DELETE", "/v1/snapshot/child").status == 204);
  CHECK(ask(at.port(), "DELETE", "/v1/snapshot/child").status == 404);
}

TEST_CASE("a snapshot is taken as it is asked for", "[http][snapshots]") {
  house at;
  const auto taken = ask(at.port(), "POST", "/v1/sandbox/abc/snapshot",
                         R"({"name":"n","labels":{"a":"1"},"keep_seconds":60})");
  CHECK(taken.status == 200);
  CHECK(taken.body.find(R"("name":"n")") != std::string::npos);
  CHECK(taken.body.find(R"("expires_ms":61000)") != std::string::npos);
  const auto refused = [&](errc code) {
    at.plays().snapshot_error = error{code, "why"};
    return ask(at.port(), "POST", "/v1/sandbox/abc/snapshot").status;
  };
  CHECK(refused(errc::not_found) == 404);
  CHECK(refused(errc::forbidden) == 403);
  CHECK(refused(errc::limit_reached) == 429);
  CHECK(refused(errc::io_failed) == 502);
  CHECK(refused(errc::disk_full) == 507);
  CHECK(refused(errc::run_over) == 409);
}

TEST_CASE("changes of disks are told page by page", "[http][snapshots]") {
  house at;
  at.plays().changes = {{{change_kind::added, changed_file::file, 7, "/a b"},
                         {change_kind::deleted, changed_file::directory, 0, "/b\xff"}},
                        true};
  const auto page = ask(at.port(), "GET", "/v1/snapshot/snap/diff?from=older&limit=2").body;
  const std::string cursor = base64url("/b\xff");
  CHECK(page == R"({"from":"older","changes":[{"path":"/a b","change":"added","type":"file",)"
                R"("bytes":7},{"path":"/b)"
                "\xef\xbf\xbd"
                R"(","change":"deleted","type":"directory"}],)"
                R"("cursor":")" +
                  cursor + "\"}");
  CHECK(ask(at.port(), "GET", "/v1/snapshot/snap/diff?cursor=" + cursor).status == 200);
  CHECK(at.heard().has("compare snap with  after /b\xff"));
  CHECK(ask(at.port(), "GET", "/v1/snapshot/snap/diff?from=none").status == 404);
  CHECK(ask(at.port(), "GET", "/v1/snapshot/snap/diff?cursor=YWJj").status == 400);

  INFO("the cursor of a disk in use is that of a snapshot that was made for it");
  at.plays().snapshots = {snapshot("snap", "abc")};
  for (const auto* words : {"snap", "snap.abc", "."}) {
    const auto forged = base64url(std::string{words} + "/b");
    CHECK(ask(at.port(), "GET", "/v1/sandbox/abc/diff?cursor=" + forged).status == 400);
  }
  CHECK(at.plays().snapshots.size() == 1);
  const auto heard = at.heard().all(); // All has been answered.
  CHECK(std::find(heard.begin(), heard.end(), "delete snapshot snap") == heard.end());
}

TEST_CASE("siblings have what their source has, and its environment if that is asked for",
          "[http][snapshots]") {
  house at;
  at.plays().description.memory_limit_bytes = 1 << 20;
  const auto made = ask(at.port(), "POST", "/v1/sandbox/abc/fork",
                        R"({"ids":["def"],"env":{"MY":"own"},"copy_env":true})");
  CHECK(made.status == 200);
  CHECK(made.body == R"({"sandboxes":[{"id":"def"}]})");
  CHECK(at.heard().has("find def"));
  // Nobody needs that for forks any more.
  CHECK(eventually([&] { return ask(at.port(), "GET", "/v1/snapshot/snap").status == 404; }));
}

TEST_CASE("OpenSandbox's snapshots are those of the node", "[http][snapshots][opensandbox]") {
  house at;
  at.plays().description.exists = true;
  const auto taken = ask(at.port(), "POST", "/v1/sandboxes/abc/snapshots", R"({"name":"n"})");
  CHECK(taken.status == 202);
  CHECK(taken.fields.at("location") == "/v1/snapshots/snap");
  CHECK(taken.body.find(R"({"id":"snap","sandboxId":"abc","name":"n","status":{"state":"Ready")") ==
        0);
  CHECK(ask(at.port(), "GET", "/v1/snapshots/snap").body == taken.body);
  auto lost = snapshot("lost", "abc");
  lost.state = snapshot_state::failed;
  at.plays().snapshots.push_back(lost);
  const auto listed = [&](const std::string& query) {
    return ask(at.port(), "GET", "/v1/snapshots?" + query).body;
  };
  CHECK(listed("").find(R"("totalItems":2)") != std::string::npos);
  CHECK(listed("sandboxId=def").find(R"("totalItems":0)") != std::string::npos);
  CHECK(listed("name=n").find(R"("totalItems":1)") != std::string::npos);
  CHECK(listed("state=failed").find(R"([{"id":"lost")") != std::string::npos);
  CHECK(listed("pageSize=1&page=2").find(R"([{"id":"lost")") != std::string::npos);
  CHECK(ask(at.port(), "GET", "/v1/snapshots?page=0").status == 422);
  CHECK(ask(at.port(), "DELETE", "/v1/snapshots/snap").status == 204);
  const auto none = ask(at.port(), "GET", "/v1/snapshots/snap");
  CHECK(none.status == 404);
  CHECK(none.body.find("SNAPSHOT::NOT_FOUND") != std::string::npos);
  CHECK(ask(at.port(), "GET", "/v1/snapshots/Not-an-id").status == 404);
  CHECK(ask(at.port(), "POST", "/v1/sandboxes/abc/snapshots", R"({"name":1})").status == 422);
  CHECK(ask(at.port(), "POST", "/v1/sandboxes/abc/snapshots", R"({"mode":"all"})").status == 400);
  at.plays().snapshot_error = error{errc::run_over, "it is over"};
  CHECK(ask(at.port(), "POST", "/v1/sandboxes/abc/snapshots").status == 409);
}
