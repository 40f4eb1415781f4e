// The disk that a node writes its records on: full, read-only, damaged, of another version.
#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/small_disk.hpp"

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sqlite3.h>
#include <unistd.h>

using namespace insula::test;

namespace {

namespace fs = std::filesystem;

/// A small disk, as other processes can reach it.
std::string outside_path(const small_disk& disk) {
  auto path = disk.path();
  return path.replace(path.find("self"), 4, std::to_string(::getpid()));
}

/// Puts a node's records on it.
std::function<void(const std::string&)> records_on(const small_disk& disk) {
  return [&disk](const std::string& state) {
    fs::create_directory_symlink(outside_path(disk), state + "/records");
  };
}

/// Leaves no room on it.
void fill(const small_disk& disk) {
  const insula::unique_fd file{
    ::open((disk.path() + "/ballast").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
  REQUIRE(file);
  const std::string page(4096, 'b');
  while (::write(file.get(), page.data(), page.size()) > 0)
    ;
}

/// What a node that does not start says.
std::string why_not(node& of) {
  try {
    of.start();
  } catch (const std::exception& why) {
    return why.what();
  }
  FAIL("it has started");
  return {};
}

int ended(node& of) {
  return of.stop(SIGINT);
}

} // namespace

TEST_CASE(
  "on a full disk nothing new is begun, what runs goes on, and all is well when there is room",
  "[storage][disk]") {
  const small_disk disk{2u << 20};
  node it{"", records_on(disk)};
  REQUIRE(it.sh("a", "echo mine > file").exit_code == 0);
  REQUIRE(it.sh("c", "true").exit_code == 0);
  fill(disk);
  for (int i = 0; i < 3; ++i) {
    const auto refused = it.ask("GET", "/v1/sandbox/b/running");
    CHECK(refused.status == 507);
    CHECK(refused.body ==
          R"({"error":"the node's disk is full, so nothing was done; it goes on by )"
          R"(itself when there is room again","code":"insufficient_storage"})");
  }
  CHECK(it.ask("POST", "/v1/sandbox/b/exec", exec_body({"true"})).status == 507);
  CHECK(it.ask("PUT", "/v1/sandbox/b/file/workspace/x", "x").status == 507);
  CHECK(it.sh("a", "cat file").out == "mine\n"); // What runs does not need the disk.
  CHECK(it.remove("c") == 507);                  // It has ended; its record is still there.
  CHECK(it.ask("GET", "/health").status == 200);

  fs::remove(disk.path() + "/ballast");
  CHECK(it.sh("b", "echo fine").out == "fine\n");
  CHECK(it.remove("c") == 204);
  CHECK(it.sh("a", "cat file").out == "mine\n");
  CHECK(ended(it) == 0);
  it.start();
  CHECK(it.sh("a", "echo fine").out == "fine\n");
  CHECK(ended(it) == 0);
}

TEST_CASE("a node that was killed on a full disk starts again, and has all that it acknowledged",
          "[storage][disk][crash]") {
  const small_disk disk{2u << 20};
  node it{"", records_on(disk)};
  REQUIRE(it.sh("a", "true").exit_code == 0);
  fill(disk);
  CHECK(it.ask("GET", "/v1/sandbox/b/running").status == 507);
  it.crash_both();
  fs::remove(disk.path() + "/ballast");
  it.start();
  CHECK(ended(it) == 0);
  // SQLite would follow the links to where a small disk is mounted, which is nowhere.
  const auto copy = it.scratch() + "/copy";
  fs::copy_file(disk.path() + "/insula.db", copy);
  const auto has = [&](const std::string& id) {
    sqlite3* file = nullptr;
    REQUIRE(sqlite3_open_v2(copy.c_str(), &file, SQLITE_OPEN_READWRITE, nullptr) == SQLITE_OK);
    const std::unique_ptr<sqlite3, decltype(&sqlite3_close)> closing{file, sqlite3_close};
    bool found = false;
    const auto look = [](void* to, int, char**, char**) {
      *static_cast<bool*>(to) = true;
      return 0;
    };
    const auto sql =
      "SELECT 1 FROM entries WHERE key = CAST('created_ms' AS BLOB) AND owner = CAST('" + id +
      "' AS BLOB)";
    REQUIRE(sqlite3_exec(file, sql.c_str(), look, &found, nullptr) == SQLITE_OK);
    return found;
  };
  CHECK(has("a"));
  CHECK_FALSE(has("b"));
  it.start();
  CHECK(it.sh("b", "echo fine").out == "fine\n");
  CHECK(ended(it) == 0);
}

TEST_CASE(
  "a store that is damaged or of a newer version keeps a node from starting, which says what "
  "to do",
  "[storage][damage]") {
  const auto name = GENERATE(as<std::string>{}, "insula.db", "node.db");
  node it;
  REQUIRE(it.sh("a", "true").exit_code == 0);
  REQUIRE(ended(it) == 0);
  const auto path = it.state() + "/records/" + name;
  const auto before = it.scratch() + "/copy";
  fs::copy_file(path, before);
  SECTION("cut short") {
    const auto left = GENERATE(0u, 5000u);
    fs::resize_file(path, left);
    const auto why = why_not(it);
    CAPTURE(why);
    CHECK(why.find("/records/" + name + " is damaged: ") != std::string::npos);
    CHECK(why.find("put a copy of it back, or move it away") != std::string::npos);
    CHECK(why.find("/proc/self") == std::string::npos); // It is named as its operator knows it.
    CHECK(fs::file_size(path) == left);
    SECTION("and is put back") {
      fs::copy_file(before, path, fs::copy_options::overwrite_existing);
    }
    SECTION("and is moved away") {
      fs::rename(path, it.scratch() + "/away");
    }
  }
  SECTION("of a newer version") {
    sqlite3* file = nullptr;
    REQUIRE(sqlite3_open(path.c_str(), &file) == SQLITE_OK);
    REQUIRE(sqlite3_exec(file, "PRAGMA user_version=99", nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(file);
    const auto why = why_not(it);
    CAPTURE(why);
    CHECK(why.find("/records/" + name +
                   " was written by a newer Insula (schema 99, this one knows 3"
                   "); start that version, or put a copy back that is older") != std::string::npos);
    fs::copy_file(before, path, fs::copy_options::overwrite_existing);
  }
  it.start();
  CHECK(it.sh("a", "echo fine").out == "fine\n");
}

TEST_CASE("a read-only disk keeps a node from starting, which says so", "[storage][disk]") {
  const small_disk disk{2u << 20};
  node it{"", records_on(disk)};
  REQUIRE(it.sh("a", "true").exit_code == 0);
  REQUIRE(ended(it) == 0);
  disk.make_read_only(true);
  const auto why = why_not(it);
  CAPTURE(why);
  CHECK(why.find("state/records: Read-only file system") != std::string::npos);
  disk.make_read_only(false);
  it.start();
  CHECK(it.sh("a", "echo fine").out == "fine\n");
  CHECK(ended(it) == 0);
}
