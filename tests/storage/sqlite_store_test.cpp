#include "base/unique_fd.hpp"
#include "storage/sqlite_store.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/older_store.hpp"
#include "tests/support/store_calls.hpp"
#include "tests/support/temp_dir.hpp"

#include <fcntl.h>
#include <fstream>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace insula;
using namespace insula::storage;
using namespace insula::test;

namespace {

std::unique_ptr<sqlite_store> open(const std::string& path) {
  auto opened = sqlite_store::open(path);
  if (!opened)
    FAIL(opened.reason().message);
  return std::move(*opened);
}

void with_sqlite(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &db) == SQLITE_OK);
  CHECK(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_close(db);
}

error why_not(const std::string& path) {
  const auto opened = sqlite_store::open(path);
  REQUIRE_FALSE(opened);
  return opened.reason();
}

} // namespace

TEST_CASE("a store written by a newer version is refused and left alone", "[storage][sqlite]") {
  const temp_dir dir;
  const auto path = (dir / "insula.db").string();
  REQUIRE(commit_now(*open(path), {"a", 1, {{"x", "1"}}}));
  with_sqlite(path, "PRAGMA user_version=4");
  const auto why = why_not(path);
  CHECK(why.code == errc::invalid_request);
  CHECK(why.message == path + " was written by a newer Insula (schema 4, this one knows 3); start "
                              "that version, or put a copy back that is older");
  with_sqlite(path, "PRAGMA user_version=3");
  CHECK(as_map(*open(path)->read("a")) == contents{{"x", "1"}});
}

TEST_CASE("a store of an earlier version is brought up to marks, and has all that it had",
          "[storage][sqlite][scan]") {
  const temp_dir dir;
  const auto path = (dir / "insula.db").string();
  const std::string odd{"\0\xff/\n", 4};
  write_older_store(path, {{"a", "@alarm/", "1"},
                           {"a", "created_ms", "5"},
                           {"a", odd, odd},
                           {"b", "@alarm/s/", "2"},
                           {"b", "x", ""},
                           {"_lease", "reserved_until", "1000"}});
  const auto version = [&] {
    std::int64_t found = 0;
    sqlite3* db = nullptr;
    REQUIRE(sqlite3_open(path.c_str(), &db) == SQLITE_OK);
    sqlite3_exec(
      db, "PRAGMA user_version",
      [](void* into, int, char** values, char**) {
        *static_cast<std::int64_t*>(into) = std::stoll(values[0]);
        return 0;
      },
      &found, nullptr);
    sqlite3_close(db);
    return found;
  };
  REQUIRE(version() == 1);
  for (int start = 0; start < 2; ++start) {
    const auto s = open(path);
    CHECK(as_map(*s->read("a")) == contents{{"@alarm/", "1"}, {"created_ms", "5"}, {odd, odd}});
    CHECK(as_map(*s->read("_lease")) == contents{{"reserved_until", "1000"}});
    CHECK(s->scan("@", {}, 10)->lines ==
          std::vector<owned_entry>{{"a", "@alarm/", "1"}, {"b", "@alarm/s/", "2"}});
    CHECK(commit_now(*s, {"a", 6, {}}).reason().code == errc::stale_epoch);
  }
  CHECK(version() == 3);
  const auto s = open(path);
  REQUIRE(commit_now(*s, {"b", 7, {{"@alarm/s/", std::nullopt}, {"@alarm/t/", "3"}}}));
  CHECK(s->scan("@", {}, 10)->lines ==
        std::vector<owned_entry>{{"a", "@alarm/", "1"}, {"b", "@alarm/t/", "3"}});
}

TEST_CASE("a list of 10,000 lines is counted and paged without a walk through the store",
          "[storage][sqlite][scan]") {
  const temp_dir dir;
  const auto path = (dir / "insula.db").string();
  const auto s = open(path);
  constexpr int many = 10'000;
  std::vector<std::future<result<void>>> written;
  for (int i = 0; i < many; ++i)
    written.push_back(commit_async(*s, {"o" + std::to_string(i),
                                        1,
                                        {{"@l/" + std::to_string(100'000 + i), "line"},
                                         {"@z/" + std::to_string(i), ""},
                                         {"x", "y"}}}));
  for (auto& each : written)
    REQUIRE(each.get());
  const auto steps_of = [&](const auto& ask) {
    const auto before = s->figures().steps.value();
    ask();
    return s->figures().steps.value() - before;
  };
  CHECK(*s->count("@l/") == many);
  CHECK(steps_of([&] { CHECK(*s->count("@l/1099") == 100); }) < 1'000);
  CHECK(steps_of([&] { CHECK(*s->count("@z/77") == 111); }) < 1'000);
  CHECK(steps_of([&] { CHECK(s->scan("@z/", {"@z/77", "o77"}, 5)->lines.size() == 5); }) < 200);
  CHECK(steps_of([&] { CHECK(s->scan("@l/1099", {}, 5)->lines.size() == 5); }) < 200);
  const auto before = s->figures().scanned.value();
  const auto page = s->scan("@l/", {"@l/107000", "o7000"}, 100);
  REQUIRE(page);
  CHECK(page->lines.front().key == "@l/107001");
  CHECK(page->lines.size() == 100);
  CHECK(s->figures().scanned.value() - before == 101);
}

TEST_CASE("another program's database is refused and left alone", "[storage][sqlite]") {
  const temp_dir dir;
  const auto path = (dir / "insula.db").string();
  with_sqlite(path, "CREATE TABLE theirs(x); INSERT INTO theirs VALUES(1)");
  const auto why = why_not(path);
  CHECK(why.code == errc::invalid_request);
  CHECK(why.message == path + " is a database, but not one of Insula");
  with_sqlite(path, "INSERT INTO theirs VALUES(2)");
}

TEST_CASE("a damaged file is reported when it is opened", "[storage][sqlite]") {
  const temp_dir dir;
  const auto path = (dir / "insula.db").string();
  {
    const auto s = open(path);
    for (int i = 0; i < 100; ++i)
      REQUIRE(commit_now(*s, {std::to_string(i), 1, {{"x", std::string(500, 'v')}}}));
  }
  const auto size = std::filesystem::file_size(path);
  const auto overwrite = [&](std::size_t at, std::size_t count) {
    std::fstream file{path, std::ios::binary | std::ios::in | std::ios::out};
    file.seekp(static_cast<std::streamoff>(at));
    file << std::string(count, 'z');
  };
  SECTION("at its head") {
    overwrite(0, 100);
    const auto why = why_not(path);
    CHECK(why.code == errc::io_failed);
    CHECK(why.message.starts_with(path + " is damaged: file is not a database; put a copy of it "
                                         "back, or move it away"));
  }
  SECTION("in its middle") {
    overwrite(4096 * 4, size - 4096 * 4);
    const auto why = why_not(path);
    CHECK(why.code == errc::io_failed);
    CHECK(why.message.find(path) != std::string::npos);
    CHECK(why.message.find("is damaged: ") != std::string::npos);
  }
  SECTION("cut short") {
    const auto left = GENERATE(0u, 1u, 50u, 4096u, 3u * 4096u + 17u);
    std::filesystem::resize_file(path, left);
    const auto why = why_not(path);
    CAPTURE(left, why.message);
    CHECK(why.code == errc::io_failed);
    CHECK(why.message.starts_with(path + " is damaged: "));
    CHECK(why.message.find("put a copy of it back") != std::string::npos);
    CHECK(std::filesystem::file_size(path) == left); // It was left alone.
  }
}

TEST_CASE("a store that cannot be made says why", "[storage][sqlite]") {
  const temp_dir dir;
  CHECK(why_not((dir / "none/insula.db").string()).message ==
        "making " + (dir / "none/insula.db").string() + ": No such file or directory");
  CHECK(why_not("insula.db").code == errc::invalid_request);
  CHECK(why_not(dir.path().string()).code == errc::io_failed);
}

TEST_CASE("what a store writes is for its owner's eyes", "[storage][sqlite]") {
  const temp_dir dir;
  const auto s = open((dir / "insula.db").string());
  REQUIRE(commit_now(*s, {"a", 1, {{"x", "1"}}}));
  for (const auto* name : {"insula.db", "insula.db-wal", "insula.db-shm"}) {
    struct stat found {};
    REQUIRE(::stat((dir / name).c_str(), &found) == 0);
    CHECK((found.st_mode & 0777) == 0600);
  }
}

TEST_CASE("a store opens below a descriptor whose path may not be walked", "[storage][sqlite]") {
  const temp_dir dir;
  const auto hidden = dir / "hidden";
  const auto state = hidden / "state";
  std::filesystem::create_directories(state);
  const unique_fd fd{::open(state.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  REQUIRE(fd);
  const auto path = "/proc/self/fd/" + std::to_string(fd.get()) + "/insula.db";
  const bool root = ::geteuid() == 0;
  if (root)
    REQUIRE(::chown(state.c_str(), 65'534, 65'534) == 0);
  std::filesystem::permissions(hidden, std::filesystem::perms::none);

  // In a process of its own, since a user once dropped is gone for good.
  const auto child = ::fork();
  if (child == 0) {
    if (root && (::setgid(65'534) != 0 || ::setuid(65'534) != 0))
      ::_exit(2);
    if (::access(state.c_str(), F_OK) == 0)
      ::_exit(3); // The path can be walked: this would prove nothing.
    for (const std::string value : {"1", "2"}) {
      auto s = sqlite_store::open(path);
      if (!s || !commit_now(**s, {"a", 1, {{"x", value}}}))
        ::_exit(4);
      if (auto kept = (*s)->read("a"); !kept || as_map(*kept) != contents{{"x", value}})
        ::_exit(5);
    }
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  std::filesystem::permissions(hidden, std::filesystem::perms::owner_all);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(std::filesystem::exists(state / "insula.db"));
}

TEST_CASE("closing a store writes and answers everything it accepted", "[storage][sqlite]") {
  const temp_dir dir;
  const auto path = (dir / "insula.db").string();
  auto s = open(path);
  std::vector<std::future<result<void>>> accepted;
  for (int i = 0; i < 1'000; ++i)
    accepted.push_back(commit_async(*s, {"a", 1, {{std::to_string(i), ""}}}));
  s.reset();
  for (auto& one : accepted) {
    REQUIRE(one.wait_for(std::chrono::seconds{0}) == std::future_status::ready);
    REQUIRE(one.get());
  }
  CHECK(open(path)->read("a")->size() == 1'000);
}

TEST_CASE("a store that is being closed takes nothing more", "[storage][sqlite]") {
  const temp_dir dir;
  auto s = open((dir / "insula.db").string());
  std::promise<void> closing;
  std::promise<errc> refused;
  auto* inside = s.get();
  std::function<void()> again = [&] {
    inside->commit({"a", 1, {{"x", ""}}}, [&](result<void> r) {
      if (r)
        again(); // Would go on for ever if closing did not end it.
      else
        refused.set_value(r.reason().code);
    });
  };
  again();
  s.reset();
  CHECK(refused.get_future().get() == errc::io_failed);
}

TEST_CASE("a long log is moved into the file while the store runs", "[storage][sqlite]") {
  const temp_dir dir;
  const auto s = open((dir / "insula.db").string());
  std::uintmax_t longest = 0;
  for (int i = 0; i < 64; ++i) {
    REQUIRE(commit_now(*s, {"a", 1, {{"x", std::string(store::max_value_bytes, 'v')}}}));
    longest = std::max(longest, std::filesystem::file_size(dir / "insula.db-wal"));
  }
  CHECK(longest < (16u << 20)); // 64 MiB were written.
}

TEST_CASE("a batch that fails in its middle leaves nothing and spares those it waits with",
          "[storage][sqlite]") {
  const temp_dir dir;
  const auto path = (dir / "insula.db").string();
  open(path).reset();
  with_sqlite(path, "CREATE TRIGGER no BEFORE INSERT ON entries WHEN new.key = CAST('no' AS BLOB) "
                    "BEGIN SELECT RAISE(ABORT, 'refused'); END");
  const auto s = open(path);
  busy_store busy{*s, {"busy", 1, {}}};
  auto before = commit_async(*s, {"a", 1, {{"x", "1"}}});
  auto bad = commit_async(*s, {"a", 2, {{"x", "2"}, {"y", "2"}, {"no", "2"}}});
  auto after = commit_async(*s, {"a", 1, {{"z", "1"}}});
  busy.release();
  CHECK(before.get());
  const auto refused = bad.get();
  REQUIRE_FALSE(refused);
  CHECK(refused.reason().code == errc::store_failed);
  CHECK(refused.reason().message == "writing: refused (1811)");
  CHECK(after.get());
  CHECK(as_map(*s->read("a")) == contents{{"x", "1"}, {"z", "1"}});
}

TEST_CASE("another process sees who has an entry with a value, while the store runs or not",
          "[storage][sqlite]") {
  const temp_dir dir;
  const auto path = (dir / "insula.db").string();
  using ids = std::vector<std::string>;
  CHECK(*owners_with(path, "image", "debian") == ids{}); // There is no store yet.
  CHECK_FALSE(std::filesystem::exists(path));
  {
    const auto store = open(path);
    REQUIRE(commit_now(*store, {"b", 1, {{"image", "debian"}}}));
    REQUIRE(commit_now(*store, {"a", 1, {{"image", "debian"}, {"x", "host"}}}));
    REQUIRE(commit_now(*store, {"c", 1, {{"image", "host"}}}));
    REQUIRE(commit_now(*store, {"_a", 1, {{"image", "debian"}}}));
    CHECK(*owners_with(path, "image", "debian") == ids{"a", "b"});
    CHECK(*owners_with(path, "image", "host") == ids{"c"});
    CHECK(*owners_with(path, "image", "none") == ids{});
    REQUIRE(commit_now(*store, {"a", 1, {{"image", std::nullopt}}}));
    CHECK(*owners_with(path, "image", "debian") == ids{"b"});
  }
  CHECK(*owners_with(path, "image", "debian") == ids{"b"});
  with_sqlite(path, "DROP TABLE entries");
  CHECK(owners_with(path, "image", "debian").reason().code == errc::io_failed);
}

TEST_CASE("commits are counted by the group, and what was refused with them", "[storage][sqlite]") {
  const temp_dir dir;
  const auto store = open((dir / "insula.db").string());
  const auto& counts = store->figures();
  REQUIRE(commit_now(*store, {"a", 2, {{"x", "1"}}}));
  const auto before = counts.commit.count();
  CHECK(before >= 1);
  CHECK(counts.waiting.value() == 0);
  std::vector<std::future<result<void>>> waiting;
  {
    busy_store busy{*store, {"b", 1, {{"x", "1"}}}};
    for (int i = 0; i < 3; ++i)
      waiting.push_back(commit_async(*store, {"a", 2, {{"x", std::to_string(i)}}}));
    waiting.push_back(commit_async(*store, {"a", 1, {{"x", "old"}}}));
    CHECK(counts.waiting.value() == 4);
  }
  int refused = 0;
  for (auto& each : waiting)
    refused += each.get() ? 0 : 1;
  CHECK(refused == 1);
  CHECK(counts.refused.value() == 1);
  CHECK(counts.waiting.value() == 0);
  CHECK(counts.commit.count() == before + 2); // Four waited together.
  CHECK(counts.group.sum() == static_cast<double>(before) + 5);
}
