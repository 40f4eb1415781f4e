#include "tests/support/catch.hpp"

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>

namespace {

namespace fs = std::filesystem;

/// Who may include whom: the dependency rule, all of it.
const std::map<std::string, std::set<std::string>> may_include = {
  {"base", {"base"}},
  {"runtime", {"runtime", "base"}},
  {"storage", {"storage", "base"}},
  {"actors/protocol", {"actors/protocol", "base"}},
  {"actors", {"actors", "actors/protocol", "runtime", "storage", "base"}},
  {"http", {"http", "actors/protocol", "base"}},
  // A client of the API, and what it writes: it knows nothing of how the server is made.
  {"benchmarks/load", {"benchmarks/load", "benchmarks", "base", "http", "storage", "apps"}},
};

/// The same inside http/, room by room: an API's room includes no other API's. The files beside the
/// rooms put everything together, and may include everything.
const std::map<std::string, std::set<std::string>> rooms_of_http = {
  {"text", {}},
  {"json", {"text"}},
  {"transport", {"text", "json"}},
  {"api", {"text", "json", "transport"}},
  {"proxy", {"text", "json", "transport", "api"}},
  {"sandboxes", {"text", "json", "transport", "api", "proxy"}},
  {"bridge", {"text", "json", "transport", "api", "sandboxes"}},
  {"opensandbox", {"text", "json", "transport", "api", "sandboxes"}},
  {"vercel", {"text", "json", "transport", "api", "sandboxes"}},
  {"oidc", {"text", "json", "transport", "api"}},
  {"console", {"text", "json", "transport", "api", "sandboxes"}},
  {"preview", {"text", "json", "transport", "api", "proxy", "sandboxes"}},
  {"cluster", {"text", "json", "transport", "api", "proxy"}},
};

/// And inside storage/, where the files beside the rooms are what rooms share.
const std::map<std::string, std::set<std::string>> rooms_of_storage = {
  {"images", {}},        {"registry", {"images"}},
  {"blobs", {"images"}}, {"snapshots", {"images", "blobs"}},
  {"etcd", {}},
};

/// Of a layer, the only headers that another one may include.
const std::map<std::pair<std::string, std::string>, std::set<std::string>> only = {
  {{"benchmarks/load", "benchmarks"}, {"benchmarks/this_machine.hpp"}},
  {{"benchmarks/load", "http"}, {"http/text/utf8.hpp"}},
  {{"benchmarks/load", "storage"}, {"storage/images/json.hpp"}},
  {{"benchmarks/load", "apps"}, {"apps/yaml_document.hpp"}},
};

/// Libraries that stay behind one folder's door, by the beginning of their headers' names.
const std::map<std::string, std::set<std::string>> kept_behind = {
  {"restinio/", {"http"}},
  {"rapidjson/", {"http", "storage", "benchmarks/load"}},
  {"archive", {"http", "storage"}},
  {"caf/", {"http", "actors", "actors/protocol"}},
  {"sqlite3", {"storage"}},
  {"yaml-cpp/", {}},
  {"curl/", {"storage"}},
  {"CLI/", {"benchmarks/load"}}, // And apps/, which may include everything.
};

std::string layer_of(const std::string& path) {
  for (std::string inner : {"actors/protocol", "benchmarks/load"})
    if (path.starts_with(inner + "/"))
      return inner;
  return path.substr(0, path.find('/'));
}

/// Empty: the file is in no room of that layer.
std::string room_of(const std::string& layer, const std::string& path) {
  const auto begin = layer + "/";
  const auto end = path.find('/', begin.size());
  return path.starts_with(begin) && end != std::string::npos
           ? path.substr(begin.size(), end - begin.size())
           : std::string{};
}

} // namespace

TEST_CASE("a folder includes only what the layers allow", "[layers]") {
  const fs::path root{INSULA_SOURCE_DIR};
  const std::regex ours{R"re(^\s*#include "([^"]+)")re"};
  const std::regex theirs{R"re(^\s*#include <([^>]+)>)re"};
  int seen = 0;
  for (const auto& [layer, allowed] : may_include)
    for (const auto& file : fs::recursive_directory_iterator{root / layer}) {
      if (file.path().extension() != ".hpp" && file.path().extension() != ".cpp")
        continue;
      const auto name = fs::relative(file.path(), root).string();
      if (layer_of(name) != layer)
        continue;
      ++seen;
      std::ifstream text{file.path()};
      for (std::string line; std::getline(text, line);) {
        std::smatch found;
        CAPTURE(name, line);
        if (std::regex_search(line, found, ours)) {
          const auto header = found[1].str();
          CHECK(allowed.count(layer_of(header)) == 1);
          if (const auto some = only.find({layer, layer_of(header)}); some != only.end())
            CHECK(some->second.count(header) == 1);
        }
        if (std::regex_search(line, found, theirs))
          for (const auto& [library, layers] : kept_behind)
            if (found[1].str().starts_with(library))
              CHECK(layers.count(layer) == 1);
      }
    }
  CHECK(seen > 50);
}

TEST_CASE("a room includes only what its table allows", "[layers]") {
  const auto& [layer, rooms, shared] =
    GENERATE(table<std::string, std::map<std::string, std::set<std::string>>, bool>(
      {{"http", rooms_of_http, false}, {"storage", rooms_of_storage, true}}));
  const fs::path root{INSULA_SOURCE_DIR};
  const std::regex ours{"^\\s*#include \"(" + layer + "/[^\"]+)\""};
  int seen = 0;
  for (const auto& file : fs::recursive_directory_iterator{root / layer}) {
    if (file.path().extension() != ".hpp" && file.path().extension() != ".cpp")
      continue;
    const auto name = fs::relative(file.path(), root).string();
    const auto room = room_of(layer, name);
    if (room.empty())
      continue;
    ++seen;
    CAPTURE(name);
    const auto allowed = rooms.find(room);
    REQUIRE(allowed != rooms.end());
    std::ifstream text{file.path()};
    for (std::string line; std::getline(text, line);) {
      std::smatch found;
      if (!std::regex_search(line, found, ours))
        continue;
      const auto other = room_of(layer, found[1].str());
      CAPTURE(line);
      CHECK((other == room || allowed->second.count(other) == 1 || (shared && other.empty())));
    }
  }
  CHECK(seen > 50);
}
