#pragma once

#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/files_below.hpp"
#include "tests/support/temp_dir.hpp"

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

/// Snapshots of disks, as a client asks for them.
namespace insula::test {

/// What stands behind the first member of that name in a JSON text of this API; empty: there is
/// none.
inline std::string member(const std::string& json, const std::string& name) {
  const auto key = '"' + name + "\":\"";
  const auto at = json.find(key);
  if (at == std::string::npos)
    return {};
  const auto from = at + key.size();
  return json.substr(from, json.find('"', from) - from);
}

/// In a configuration: where copies of snapshots go.
inline std::string copies_in(const temp_dir& place, const std::string& more = "interval: 0") {
  return "snapshots: {directory: " + (place / "there").string() + ", " + more + "}\n";
}

/// Copies that are there: their manifests, below a name that the node has chosen.
inline std::size_t count_manifests(const temp_dir& place) {
  std::size_t count = 0;
  for (const auto& space : std::filesystem::directory_iterator{place / "there"})
    count += files_below(space.path() / "manifests");
  return count;
}

/// The image of its disks has gone, as with another machine that has its records. It was ended.
inline void lose_disks(const node& it) {
  REQUIRE(eventually([&] { return it.traces() == std::vector<std::string>{}; }));
  std::filesystem::remove(it.state() + "/disk.btrfs");
}

/// The snapshot has a copy there.
inline bool is_shared(const node& it, const std::string& snapshot) {
  const auto found = it.ask("GET", "/v1/snapshot/" + snapshot).body;
  return found.find(R"("shared":true)") != std::string::npos;
}

/// The id of the snapshot.
inline std::string take(const node& it, const std::string& box, const std::string& body = {},
                        const std::string& fields = {}) {
  const auto answer = it.ask("POST", "/v1/sandbox/" + box + "/snapshot", body, fields);
  INFO(answer.body);
  REQUIRE(answer.status == 200);
  return member(answer.body, "id");
}

/// A sandbox that begins with a snapshot.
inline std::string make_from(const node& it, const std::string& snapshot) {
  const auto answer = it.ask("POST", "/v1/sandbox", {}, "Insula-Snapshot: " + snapshot + "\r\n");
  INFO(answer.body);
  REQUIRE(answer.status == 200);
  return member(answer.body, "id");
}

/// What a script says that ends well.
inline std::string said(const node& it, const std::string& box, const std::string& script) {
  const auto end = it.sh(box, script);
  INFO(end.err);
  CHECK(end.exit_code == 0);
  return end.out;
}

} // namespace insula::test
