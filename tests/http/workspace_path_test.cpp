#include "http/bridge/workspace_path.hpp"
#include "tests/support/catch.hpp"

#include <random>

using insula::http::bridge::decode_file_path;
using insula::http::bridge::resolve_in_workspace;

TEST_CASE("a directory is resolved as text", "[http][path]") {
  const std::pair<const char*, const char*> inside[] = {
    {"", "/workspace"},
    {".", "/workspace"},
    {"src", "/workspace/src"},
    {"a//b/./c", "/workspace/a/b/c"},
    {"a/../b", "/workspace/b"},
    {"/workspace", "/workspace"},
    {"/workspace/", "/workspace"},
    {"/workspace/../workspace/x", "/workspace/x"},
    {"../workspace", "/workspace"},
    {"/../../workspace/x", "/workspace/x"},
    {"...", "/workspace/..."},
  };
  for (const auto& [text, resolved] : inside)
    CHECK(resolve_in_workspace(text) == std::string{resolved});
  for (const auto* outside :
       {"..", "/", "/tmp", "/workspacefoo", "/workspace/..", "a/../..", "/Workspace", "../x"})
    CHECK_FALSE(resolve_in_workspace(outside));
}

TEST_CASE("a URL's path is split first and then decoded", "[http][path]") {
  const auto file = [](const char* tail) { return resolve_in_workspace(decode_file_path(tail)); };
  const std::pair<const char*, const char*> inside[] = {
    {"workspace/a.txt", "/workspace/a.txt"},   {"/workspace/a", "/workspace/a"},
    {"//workspace//a", "/workspace/a"},        {"workspace/a%23b", "/workspace/a#b"},
    {"workspace/a+b", "/workspace/a+b"},       {"workspace/a%2Fb", "/workspace/a/b"},
    {"workspace/%zz", "/workspace/%zz"},       {"workspace/100%", "/workspace/100%"},
    {"workspace/%ff", "/workspace/%ff"},       {"workspace/%C3%A4", "/workspace/\xc3\xa4"},
    {"workspace/%2525", "/workspace/%25"},     {"workspace/x/%2e%2e/y", "/workspace/y"},
    {"workspace/%3F%3d%26", "/workspace/?=&"}, {"%77orkspace/a", "/workspace/a"},
    {"workspace/-rf", "/workspace/-rf"},
  };
  for (const auto& [tail, resolved] : inside)
    CHECK(file(tail) == std::string{resolved});
  for (const auto* outside :
       {"main.py", "..", "workspace/..", "workspace/%2e%2e/etc/passwd", "workspace/..%2F..%2Fetc",
        "%2Fetc%2Fpasswd", "workspace%2F..%2F..", "workspacefoo/a"})
    CHECK_FALSE(file(outside));
  CHECK(decode_file_path("workspace/a%00b") == std::string("/workspace/a\0b", 14));
}

TEST_CASE("no spelling of a path leads out of the workspace", "[http][path][property]") {
  const auto seed = GENERATE(take(2000, random(0u, 10'000'000u)));
  CAPTURE(seed);
  std::mt19937 rng{seed};
  const char* pieces[] = {"workspace", "..", ".",   "%2e%2e", "%2F", "/",
                          "//",        "a",  "%2e", "etc",    "%"};
  std::string tail;
  for (unsigned n = rng() % 12; n > 0; --n)
    tail += pieces[rng() % 11];
  const auto resolved = resolve_in_workspace(decode_file_path(tail));
  if (!resolved)
    return;
  CHECK((*resolved == "/workspace" || resolved->rfind("/workspace/", 0) == 0));
  CHECK((*resolved + "/").find("/../") == std::string::npos);
  CHECK((*resolved + "/").find("/./") == std::string::npos);
  CHECK(resolved->find("//") == std::string::npos);
}
