// What routes of the Vercel API refuse before they ask anything.
#include "base/limits.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/support/catch.hpp"

using namespace insula;
using namespace insula::test;

TEST_CASE("Vercel: words of other routes are no names", "[http][vercel]") {
  house h;
  for (const auto* word : {"snapshots", "drives", "sessions"})
    for (const auto* method : {"GET", "PATCH", "DELETE"})
      for (const auto* query :
           {"", "?project=prj", "?projectId=prj", "?projectId=prj&resume=true"}) {
        if (std::string{word} == "sessions" && std::string{method} == "GET")
          continue; // There is such a route.
        CAPTURE(word, method, query);
        const auto got =
          ask(h.port(), method, std::string{"/api/v2/sandboxes/"} + word + query, "{}");
        CHECK(got.status == 404);
        CHECK(got.body.find(R"({"error":{"code":"not_found","message":")") == 0);
      }
  for (const auto* path : {"/v2/sandboxes/snapshots/snap_1", "/v2/sandboxes/snapshots/tree",
                           "/v2/sandboxes/drives/one", "/v2/sandboxes/box/fork"})
    for (const auto* method : {"GET", "POST", "DELETE"}) {
      CAPTURE(path, method);
      const auto got = ask(h.port(), method, path, "{}");
      CHECK(got.status == 404);
      CHECK(got.body.find(R"({"error":{"code":"not_found","message":")") == 0);
    }
  CHECK(ask(h.port(), "GET", "/v2/sandboxes/box").status == 400); // A name, and no project.
  CHECK(
    ask(h.port(), "POST", "/v3/sandboxes", R"({"projectId":"prj","name":"snapshots"})").status ==
    400);
  CHECK(h.heard().all().empty());
}

TEST_CASE("Vercel: a body that is too long is refused in the words of this API", "[http][vercel]") {
  house h;
  const std::string large(limits::routed_body_bytes + 1, ' ');
  for (const auto* path : {"/v3/sandboxes", "/v2/sandboxes", "/api/v3/sandboxes"}) {
    const auto got = ask(h.port(), "POST", path, large);
    CHECK(got.status == 413);
    CHECK(got.body == R"({"error":{"code":"payload_too_large","message":"The body may have )" +
                        std::to_string(limits::routed_body_bytes) + R"( bytes."}})");
  }
  const auto got =
    ask(h.port(), "PATCH", "/v2/sandboxes/box?projectId=prj", std::string((1u << 20) + 1, ' '));
  CHECK(got.status == 413);
  CHECK(got.body.find(R"("code":"payload_too_large")") != std::string::npos);
}
