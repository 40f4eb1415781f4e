#pragma once

#include "tests/support/catch.hpp"

#include <cstdint>
#include <sqlite3.h>
#include <string>
#include <vector>

namespace insula::test {

/// A row as a store of the first schema has kept it.
struct older_row {
  std::string owner;
  std::string key;
  std::string value;
};

/// Makes a file as the store of the first schema has left it, which knew no marks. Every owner was
/// written last at `written_at`.
inline void write_older_store(const std::string& path, const std::vector<older_row>& rows,
                              std::int64_t written_at = 7) {
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &db) == SQLITE_OK);
  REQUIRE(
    sqlite3_exec(db,
                 "CREATE TABLE owners(owner BLOB PRIMARY KEY, epoch INTEGER NOT NULL) STRICT, "
                 "WITHOUT ROWID;"
                 "CREATE TABLE entries(owner BLOB NOT NULL, key BLOB NOT NULL, value BLOB NOT "
                 "NULL, PRIMARY KEY(owner, key)) STRICT, WITHOUT ROWID;"
                 "PRAGMA application_id=1768846188; PRAGMA user_version=1; BEGIN",
                 nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_stmt* owners = nullptr;
  sqlite3_stmt* entries = nullptr;
  REQUIRE(sqlite3_prepare_v2(db, "INSERT OR REPLACE INTO owners VALUES(?, ?)", -1, &owners,
                             nullptr) == SQLITE_OK);
  REQUIRE(sqlite3_prepare_v2(db, "INSERT INTO entries VALUES(?, ?, ?)", -1, &entries, nullptr) ==
          SQLITE_OK);
  const auto bind = [](sqlite3_stmt* to, int at, const std::string& bytes) {
    sqlite3_bind_blob64(to, at, bytes.data(), bytes.size(), SQLITE_STATIC);
  };
  for (const auto& each : rows) {
    bind(owners, 1, each.owner);
    sqlite3_bind_int64(owners, 2, written_at);
    bind(entries, 1, each.owner);
    bind(entries, 2, each.key);
    bind(entries, 3, each.value);
    for (auto* statement : {owners, entries}) {
      REQUIRE(sqlite3_step(statement) == SQLITE_DONE);
      sqlite3_reset(statement);
    }
  }
  sqlite3_finalize(owners);
  sqlite3_finalize(entries);
  REQUIRE(sqlite3_exec(db, "COMMIT", nullptr, nullptr, nullptr) == SQLITE_OK);
  REQUIRE(sqlite3_close(db) == SQLITE_OK);
}

} // namespace insula::test
