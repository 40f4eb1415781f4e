#include "http/bridge/api.hpp"
#include "http/openapi.hpp"
#include "tests/support/catch.hpp"

#include <rapidjson/document.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>

using namespace insula::http;

namespace {

/// Every "$ref" in the document.
void collect_references(const rapidjson::Value& value, std::set<std::string>& into) {
  if (value.IsObject()) {
    for (const auto& member : value.GetObject()) {
      if (std::string{member.name.GetString()} == "$ref")
        into.insert(member.value.GetString());
      collect_references(member.value, into);
    }
  } else if (value.IsArray()) {
    for (const auto& element : value.GetArray())
      collect_references(element, into);
  }
}

} // namespace

TEST_CASE("the document lists every route under its public name", "[http][openapi]") {
  rapidjson::Document document;
  document.Parse(openapi_document().c_str());
  REQUIRE_FALSE(document.HasParseError());
  CHECK(document["openapi"] == "3.1.0");
  CHECK(document["info"]["title"] == "Cloudflare Sandbox Service API");
  CHECK(document["info"]["version"] == "1.0.0");
  CHECK(document["components"]["securitySchemes"]["BearerAuth"]["scheme"] == "bearer");
  const auto& paths = document["paths"];
  CHECK(paths["/v1/sandbox"]["post"]["operationId"] == "createSandbox");
  CHECK(paths["/v1/sandbox/{id}"]["delete"]["operationId"] == "deleteSandbox");
  CHECK(paths["/v1/sandbox/{id}/running"]["get"]["operationId"] == "isSandboxRunning");
  CHECK(paths["/v1/sandbox/{id}/exec"]["post"]["operationId"] == "execCommand");
  CHECK(paths["/v1/sandbox/{id}/file/{path}"]["get"]["operationId"] == "readFile");
  CHECK(paths["/v1/sandbox/{id}/file/{path}"]["put"]["operationId"] == "writeFile");
  CHECK(paths["/v1/sandbox/{id}/session"]["post"]["operationId"] == "createSession");
  CHECK(paths["/v1/sandbox/{id}/session/{sid}"]["delete"]["operationId"] == "deleteSession");
  CHECK(paths["/v1/openapi.json"]["get"]["operationId"] == "getOpenApiSchema");
  CHECK(paths["/v1/pool/stats"]["get"]["operationId"] == "getPoolStats");
  CHECK(paths["/v1/pool/prime"]["post"]["operationId"] == "primePool");
  CHECK(paths["/v1/pool/shutdown-prewarmed"]["post"]["operationId"] == "shutdownPrewarmed");
  CHECK(paths["/health"]["get"]["operationId"] == "healthCheck");
  CHECK(paths["/health"]["get"]["security"].Empty());
  std::size_t operations = 0;
  for (const auto& path : paths.GetObject())
    operations += path.value.MemberCount();
  const auto rows = bridge::routes(nullptr);
  CHECK(static_cast<std::ptrdiff_t>(operations) ==
        std::count_if(rows.begin(), rows.end(),
                      [](const route& row) { return !row.document.id.empty(); }));
  CHECK_FALSE(paths.HasMember("/v1/openapi"));
  CHECK_FALSE(paths.HasMember("/v1/openapi.html"));
}

TEST_CASE("every reference in the document leads somewhere", "[http][openapi]") {
  rapidjson::Document document;
  document.Parse(openapi_document().c_str());
  std::set<std::string> references;
  collect_references(document, references);
  CHECK(references.size() > 5);
  for (const auto& reference : references) {
    const auto slash = reference.rfind('/');
    const auto kind = reference.substr(13, slash - 13); // After "#/components".
    CAPTURE(reference);
    CHECK(document["components"][kind.substr(kind.find('/') + 1).c_str()].HasMember(
      reference.substr(slash + 1).c_str()));
  }
}
