#include "http/bridge/api.hpp"
#include "http/oidc/api.hpp"
#include "http/opensandbox/api.hpp"
#include "http/opensandbox/execd.hpp"
#include "http/server.hpp"
#include "http/vercel/api.hpp"
#include "tests/support/catch.hpp"

#include <rapidjson/document.h>

#include <cstddef>
#include <regex>
#include <set>
#include <string>
#include <vector>

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
  CHECK_FALSE(paths.HasMember("/v1/openapi"));
  CHECK_FALSE(paths.HasMember("/v1/openapi.html"));
}

namespace {

/// `/v1/sandbox/:id/file/*` as `/v1/sandbox/{id}/file/{path}`.
std::string templated(const std::string& pattern) {
  auto path = std::regex_replace(pattern, std::regex{":([a-z]+)"}, "{$1}");
  return std::regex_replace(path, std::regex{"\\*$"}, "{path}");
}

std::string_view name_of(verb method) {
  constexpr std::string_view names[] = {"get", "put", "post", "patch", "delete", "other"};
  return names[static_cast<std::size_t>(method)];
}

/// "get /v1/sandbox/{id}/running"
std::set<std::string> operations_of(const rapidjson::Value& paths) {
  std::set<std::string> all;
  for (const auto& path : paths.GetObject())
    for (const auto& operation : path.value.GetObject())
      all.insert(std::string{operation.name.GetString()} + " " + path.name.GetString());
  return all;
}

/// Those of a table, each of its other names included. Left out: what refuses whatever has no row
/// of its own, and the pages.
std::set<std::string> operations_of(const std::vector<route>& table,
                                    const std::string& before = {}) {
  std::set<std::string> all;
  for (const auto& row : table) {
    const bool refuses = row.pattern.ends_with("/proxy") || row.pattern.ends_with("/proxy/*") ||
                         row.pattern.ends_with("/44772/*") ||
                         row.pattern.ends_with("/isolated/*") || row.pattern == "/*";
    const bool other_methods =
      row.pattern.find(":port") != std::string::npos && row.method != verb::get;
    if (refuses || other_methods || row.pattern == "/v1/openapi" ||
        row.pattern == "/v1/openapi.html")
      continue;
    all.insert(std::string{name_of(row.method)} + " " + templated(before + row.pattern));
  }
  return all;
}

} // namespace

TEST_CASE("every route of every API is in the document, and nothing else", "[http][openapi]") {
  rapidjson::Document document;
  document.Parse(openapi_document().c_str());
  const auto listed = operations_of(document["paths"]);
  auto expected = operations_of(bridge::make_api(nullptr)->routes());
  std::vector<route> first, second; // With /v1 and without.
  for (auto& row : opensandbox::make_api(nullptr)->routes())
    (row.pattern.starts_with("/v1/") ? first : second).push_back(std::move(row));
  for (auto& each : operations_of(first))
    expected.insert(each);
  std::vector<route> plain, below_api;
  for (auto& row : vercel::make_api(nullptr)->routes())
    (row.pattern.starts_with("/api/") ? below_api : plain).push_back(std::move(row));
  for (auto& each : operations_of(plain))
    expected.insert(each);
  for (auto& each : operations_of(oidc::make_api(nullptr)->routes()))
    expected.insert(each);
  CHECK(listed.size() > 95);
  CHECK(listed == expected);
  // The same routes have other addresses.
  CHECK(operations_of(first) == operations_of(second, "/v1"));
  expected = operations_of(below_api);
  expected.insert("get /api/insula-vercel.mjs"); // It has no other.
  CHECK(expected == operations_of(plain, "/api"));
  const auto alone =
    operations_of(opensandbox::execd_routes(nullptr, {{}, "abc"}), "/v1/sandboxes/:id/proxy/44772");
  CHECK(alone.size() > 30);
  for (const auto& each : alone) {
    CAPTURE(each);
    CHECK(listed.contains(each));
  }
}

TEST_CASE("what changes nothing for the bridge's clients stays in the document",
          "[http][openapi]") {
  rapidjson::Document document;
  document.Parse(openapi_document().c_str());
  const auto& global = document["security"];
  REQUIRE(global.Size() == 1);
  CHECK(global[0].HasMember("BearerAuth"));
  for (const auto& path : document["paths"].GetObject())
    for (const auto& operation : path.value.GetObject()) {
      const std::string group = operation.value["tags"][0].GetString();
      CAPTURE(path.name.GetString(), group);
      const bool of_opensandbox = group.starts_with("OpenSandbox") ||
                                  std::string{path.name.GetString()}.starts_with("/v1/sandboxes");
      const bool open =
        std::string{path.name.GetString()} == "/health" ||
        std::string{path.name.GetString()} == "/insula-vercel.mjs" ||
        std::string{operation.value["operationId"].GetString()} == "connectVercelTerminal" ||
        group == "OIDC";
      CHECK(operation.value.HasMember("security") == (of_opensandbox || open));
    }
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
