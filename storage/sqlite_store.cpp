#include "storage/sqlite_store.hpp"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <iterator>
#include <mutex>
#include <span>
#include <sqlite3.h>
#include <thread>
#include <type_traits>
#include <unistd.h>

#include "base/unique_fd.hpp"

namespace insula::storage {

namespace {

/// Tells our files from other SQLite files: "insl".
constexpr std::int64_t application_id = 0x696e736c;

/// 1 had no index of marks. In 2 no record was in a list of its group.
constexpr std::int64_t first_with_marks = 2;
constexpr std::int64_t schema_version = 3;

constexpr auto tables = R"(
  CREATE TABLE owners(owner BLOB PRIMARY KEY, epoch INTEGER NOT NULL) STRICT, WITHOUT ROWID;
  CREATE TABLE entries(owner BLOB NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL,
                       PRIMARY KEY(owner, key)) STRICT, WITHOUT ROWID;
)";

/// Which entries are marked: '@' is 0x40. SQLite uses the index only for a statement that says the
/// same in the same words. They stand behind the range that is read: of two that begin a range
/// SQLite takes the first, and would walk there from the first mark of all.
#define INSULA_IS_MARKED "key >= x'40' AND key < x'41'"

constexpr auto marks = "CREATE INDEX marks ON entries(key, owner) WHERE " INSULA_IS_MARKED ";";

std::string set_version() {
  return "PRAGMA user_version=" + std::to_string(schema_version) + ";";
}

/// Pages in the log (4 MiB of it) after which they are moved to the file proper. SQLite's own
/// number; but done after the answers went out, not within a COMMIT that somebody waits for.
constexpr int checkpoint_pages = 1'000;

/// Somebody who looks at the file with the sqlite3 shell may hold a lock for this long.
constexpr int busy_patience_ms = 5'000;

/// The system's VFS, except that a path is taken as it stands. SQLite would resolve every link in
/// it, and what /proc/self/fd/<n> resolves to may be a path that we may not walk.
const char* system_vfs() {
  static const char* const name = [] {
    static sqlite3_vfs as_given = *sqlite3_vfs_find(nullptr);
    as_given.zName = "insula";
    as_given.pNext = nullptr;
    as_given.xFullPathname = [](sqlite3_vfs*, const char* path, int room, char* full) {
      if (std::strlen(path) >= static_cast<std::size_t>(room))
        return SQLITE_CANTOPEN;
      std::strcpy(full, path);
      return SQLITE_OK;
    };
    sqlite3_vfs_register(&as_given, 0);
    return as_given.zName;
  }();
  return name;
}

struct close_connection {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
using connection = std::unique_ptr<sqlite3, close_connection>;

struct finalize_statement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

/// What SQLite says about the last failure, as one of ours.
error failure_of(sqlite3* db, std::string_view doing, errc code = errc::store_failed) {
  if (db == nullptr)
    return {code, std::string{doing} + ": no memory"};
  const int extended = sqlite3_extended_errcode(db);
  const int primary = extended & 0xff;
  const int system = primary == SQLITE_IOERR ? sqlite3_system_errno(db) : 0;
  if (code == errc::store_failed &&
      (primary == SQLITE_FULL || system == ENOSPC || system == EDQUOT))
    code = errc::disk_full;
  return {code,
          std::string{doing} + ": " + sqlite3_errmsg(db) + " (" + std::to_string(extended) + ")"};
}

/// A statement, prepared when it is first run; after a bad moment of the disk, when it next is.
class statement {
public:
  statement(sqlite3* db, const char* sql)
      : db_(db)
      , sql_(sql) {}

  /// Binds the values, steps through the rows and leaves it ready for the next time. What looks at
  /// a row may say, with false, that it was the last one.
  template <class OnRow, class... Values>
  bool rows(OnRow on_row, const Values&... values) {
    if (!prepared())
      return false;
    [[maybe_unused]] int at = 0;
    bool good = (bind(++at, values) && ...);
    int step = SQLITE_DONE;
    bool on = true;
    while (good && on && (step = sqlite3_step(held_.get())) == SQLITE_ROW)
      on = wants_more(on_row);
    good = good && (!on || step == SQLITE_DONE);
    sqlite3_reset(held_.get()); // Repeats the code of a failed step, and keeps its message.
    sqlite3_clear_bindings(held_.get());
    return good;
  }

  template <class... Values>
  bool run(const Values&... values) {
    return rows([](statement&) {}, values...);
  }

  /// What SQLite has done for it since this was asked last.
  std::uint64_t steps() {
    return static_cast<std::uint64_t>(
      sqlite3_stmt_status(held_.get(), SQLITE_STMTSTATUS_VM_STEP, 1));
  }

  std::int64_t number(int column) { return sqlite3_column_int64(held_.get(), column); }

  std::string text(int column) {
    const auto* bytes = static_cast<const char*>(sqlite3_column_blob(held_.get(), column));
    const auto count = sqlite3_column_bytes(held_.get(), column);
    return bytes ? std::string(bytes, static_cast<std::size_t>(count)) : std::string{};
  }

private:
  template <class OnRow>
  bool wants_more(OnRow& on_row) {
    if constexpr (std::is_same_v<decltype(on_row(*this)), bool>)
      return on_row(*this);
    else
      return on_row(*this), true;
  }

  bool prepared() {
    if (held_)
      return true;
    sqlite3_stmt* made = nullptr;
    sqlite3_prepare_v3(db_, sql_, -1, SQLITE_PREPARE_PERSISTENT, &made, nullptr);
    held_.reset(made);
    return made != nullptr;
  }

  // A null pointer would bind NULL, not an empty value; a string_view may have one.
  bool bind(int at, std::string_view bytes) {
    return sqlite3_bind_blob64(held_.get(), at, bytes.empty() ? "" : bytes.data(), bytes.size(),
                               SQLITE_STATIC) == SQLITE_OK;
  }
  bool bind(int at, epoch number) {
    return sqlite3_bind_int64(held_.get(), at, static_cast<sqlite3_int64>(number)) == SQLITE_OK;
  }

  sqlite3* db_;
  const char* sql_;
  std::unique_ptr<sqlite3_stmt, finalize_statement> held_;
};

bool execute(sqlite3* db, const char* sql) {
  return sqlite3_exec(db, sql, nullptr, nullptr, nullptr) == SQLITE_OK;
}

/// The first column of the only row, or nothing when the disk or the file is bad.
std::optional<std::int64_t> number(sqlite3* db, const char* sql) {
  std::optional<std::int64_t> found;
  if (!statement{db, sql}.rows([&](statement& row) { found = row.number(0); }))
    return std::nullopt;
  return found;
}

/// The writing connection and what it does, used by one thread at a time.
class writer {
public:
  explicit writer(connection db)
      : db_(std::move(db)) {
    sqlite3_wal_hook(
      db_.get(),
      [](void* self, sqlite3*, const char*, int pages) {
        static_cast<writer*>(self)->log_pages_ = pages;
        return SQLITE_OK;
      },
      this);
  }

  /// One outcome for each batch, in order.
  std::vector<result<void>> write(std::span<const write_batch* const> group) {
    if (auto outcomes = transaction(group); outcomes || group.size() == 1)
      return outcomes ? std::move(*outcomes) : std::vector<result<void>>{why_};
    std::vector<result<void>> outcomes;
    for (std::size_t i = 0; i < group.size(); ++i)
      outcomes.push_back(std::move(write(group.subspan(i, 1)).front()));
    return outcomes;
  }

  /// Moves a long log into the file proper. A failure costs nothing: the log still has it all.
  void tidy() {
    if (log_pages_ >= checkpoint_pages)
      sqlite3_wal_checkpoint_v2(db_.get(), nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
    log_pages_ = 0;
  }

private:
  /// None: the transaction as a whole failed, nothing is kept and why_ says why.
  std::optional<std::vector<result<void>>> transaction(std::span<const write_batch* const> group) {
    if (!begin_.run())
      return failed("starting to write");
    std::vector<result<void>> outcomes;
    for (const auto* batch : group) {
      if (!savepoint_.run())
        return failed("writing");
      auto outcome = apply(*batch);
      // SQLite gives up the whole transaction for some failures (a full disk); then this fails too.
      if ((!outcome && !rollback_to_.run()) || !release_.run())
        return failed("writing");
      outcomes.push_back(std::move(outcome));
    }
    if (!commit_.run())
      return failed("syncing");
    return outcomes;
  }

  std::nullopt_t failed(std::string_view doing) {
    why_ = failure_of(db_.get(), doing);
    if (!sqlite3_get_autocommit(db_.get()))
      rollback_.run();
    return std::nullopt;
  }

  result<void> apply(const write_batch& batch) {
    epoch newest = 0;
    if (!newest_.rows([&](statement& row) { newest = static_cast<epoch>(row.number(0)); },
                      std::string_view{batch.owner}))
      return failure_of(db_.get(), "reading the epoch");
    if (batch.written_at < newest)
      return stale(batch, newest);
    bool good =
      batch.written_at == newest || raise_.run(std::string_view{batch.owner}, batch.written_at);
    for (const auto& prefix : batch.cleared)
      good = good && clear_.run(std::string_view{batch.owner}, std::string_view{prefix},
                                std::string_view{end_of(prefix)});
    for (const auto& [key, value] : batch.changes) {
      const std::string_view owner{batch.owner};
      good = good && (value ? put_.run(owner, std::string_view{key}, std::string_view{*value})
                            : remove_.run(owner, std::string_view{key}));
    }
    if (!good)
      return failure_of(db_.get(), "writing");
    return {};
  }

  connection db_;
  error why_{errc::store_failed, ""};
  int log_pages_ = 0;

  statement begin_{db_.get(), "BEGIN IMMEDIATE"};
  statement commit_{db_.get(), "COMMIT"};
  statement rollback_{db_.get(), "ROLLBACK"};
  statement savepoint_{db_.get(), "SAVEPOINT batch"};
  statement rollback_to_{db_.get(), "ROLLBACK TO batch"};
  statement release_{db_.get(), "RELEASE batch"};
  statement newest_{db_.get(), "SELECT epoch FROM owners WHERE owner = ?"};
  statement raise_{db_.get(), "INSERT OR REPLACE INTO owners VALUES(?, ?)"};
  statement put_{db_.get(), "INSERT OR REPLACE INTO entries VALUES(?, ?, ?)"};
  statement remove_{db_.get(), "DELETE FROM entries WHERE owner = ? AND key = ?"};
  statement clear_{db_.get(), "DELETE FROM entries WHERE owner = ? AND key >= ? AND key < ?"};
};

/// The reading connection; any thread, one at a time.
class reader {
public:
  explicit reader(connection db)
      : db_(std::move(db)) {}

  result<std::vector<entry>> entries_of(std::string_view owner, std::string_view prefix) {
    const std::lock_guard lock{mutex_};
    std::vector<entry> all;
    if (!entries_.rows(
          [&](statement& row) {
            all.push_back({row.text(0), row.text(1)});
          },
          owner, prefix, std::string_view{end_of(prefix)}))
      return failure_of(db_.get(), "reading");
    return all;
  }

  result<std::vector<owned_entry>> find(std::string_view prefix) {
    const std::lock_guard lock{mutex_};
    std::vector<owned_entry> all;
    if (!find_.rows(
          [&](statement& row) {
            all.push_back({row.text(0), row.text(1), row.text(2)});
          },
          prefix, std::string_view{end_of(prefix)}))
      return failure_of(db_.get(), "reading");
    return all;
  }

  result<mark_page> scan(std::string_view mark, const mark_position& after, std::size_t limit,
                         bool values, store_figures& counts) {
    const bool at_begin = after.key < mark;
    const std::string_view key = at_begin ? mark : after.key;
    const std::string_view owner = at_begin ? std::string_view{} : after.owner;
    const std::lock_guard lock{mutex_};
    mark_page page;
    std::size_t bytes = 0;
    const auto take = [&](statement& row) {
      counts.scanned.add();
      page.more = page.lines.size() == limit || bytes >= store::max_page_bytes;
      if (!page.more)
        bytes +=
          size_of(page.lines.emplace_back(owned_entry{row.text(1), row.text(0), row.text(2)}));
      return !page.more;
    };
    auto& all = values ? scan_ : scan_keys_;
    if (!all.rows(take, key, owner, std::string_view{end_of(mark)}, epoch{limit + 1}))
      return failure_of(db_.get(), "reading a list");
    counts.steps.add(all.steps());
    return page;
  }

  result<mark_page> read_each(const std::vector<mark_position>& places, metrics::counter& read) {
    const std::lock_guard lock{mutex_};
    mark_page page;
    std::size_t bytes = 0;
    for (const auto& [key, owner] : places) {
      page.more = bytes >= store::max_page_bytes;
      if (page.more)
        break;
      const auto take = [&, &key = key, &owner = owner](statement& row) {
        read.add();
        bytes += size_of(page.lines.emplace_back(owned_entry{owner, key, row.text(0)}));
      };
      if (!value_.rows(take, std::string_view{owner}, std::string_view{key}))
        return failure_of(db_.get(), "reading entries");
    }
    return page;
  }

  result<std::uint64_t> count(std::string_view mark, store_figures& counts) {
    const std::lock_guard lock{mutex_};
    std::int64_t lines = 0;
    if (!count_.rows([&](statement& row) { lines = row.number(0); }, mark,
                     std::string_view{end_of(mark)}))
      return failure_of(db_.get(), "counting a list");
    counts.steps.add(count_.steps());
    return static_cast<std::uint64_t>(lines);
  }

  result<std::vector<std::string>> owners() {
    const std::lock_guard lock{mutex_};
    std::vector<std::string> ids;
    if (!owners_.rows([&](statement& row) { ids.push_back(row.text(0)); }))
      return failure_of(db_.get(), "reading the owners");
    return ids;
  }

private:
  std::mutex mutex_;
  connection db_;
  statement entries_{db_.get(), "SELECT key, value FROM entries WHERE owner = ? AND key >= ? AND "
                                "key < ? ORDER BY key"};
  // One probe of `entries` per owner, where DISTINCT would walk through every key and value.
  statement owners_{db_.get(), "SELECT owner FROM owners WHERE substr(owner, 1, 1) <> x'5f' AND "
                               "EXISTS(SELECT 1 FROM entries WHERE entries.owner = owners.owner) "
                               "ORDER BY owner"};
  // CROSS JOIN: for SQLite that is the order in which to go, one probe of `entries` per owner.
  statement find_{db_.get(), "SELECT o.owner, e.key, e.value FROM owners o CROSS JOIN entries e "
                             "ON e.owner = o.owner AND e.key >= ? AND e.key < ? "
                             "WHERE substr(o.owner, 1, 1) <> x'5f' ORDER BY o.owner, e.key"};
  statement scan_{db_.get(),
                  "SELECT key, owner, value FROM entries INDEXED BY marks WHERE (key, owner) > "
                  "(?, ?) AND key < ? AND " INSULA_IS_MARKED " ORDER BY key, owner LIMIT ?"};
  statement scan_keys_{db_.get(),
                       "SELECT key, owner, x'' FROM entries INDEXED BY marks WHERE (key, owner) > "
                       "(?, ?) AND key < ? AND " INSULA_IS_MARKED " ORDER BY key, owner LIMIT ?"};
  statement value_{db_.get(), "SELECT value FROM entries WHERE owner = ? AND key = ?"};
  statement count_{db_.get(), "SELECT count(*) FROM entries INDEXED BY marks WHERE key >= ? AND "
                              "key < ? AND " INSULA_IS_MARKED};
};

constexpr auto what_to_do = "; put a copy of it back, or move it away together with the files of "
                            "that name and -wal and -shm: then all is forgotten that it had";

result<connection> connect(const std::string& path, const char* vfs) {
  sqlite3* opened = nullptr;
  const int code =
    sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, vfs);
  connection db{opened}; // Has to be closed also when opening failed.
  if (code != SQLITE_OK)
    return failure_of(db.get(), "opening " + path, errc::io_failed);
  sqlite3_extended_result_codes(db.get(), 1);
  sqlite3_busy_timeout(db.get(), busy_patience_ms);
  // Else each new value for a statement has it planned anew: it might be one that a partial index
  // fits.
  sqlite3_db_config(db.get(), SQLITE_DBCONFIG_ENABLE_QPSG, 1, nullptr);
  return db;
}

error cannot_make(const std::string& path) {
  return {errc::io_failed, "making " + path + ": " + std::strerror(errno)};
}

/// A new file gets its name only when it is whole and synced, so that half of one is never taken
/// for one without entries. Past the VFS of tests: nothing is there yet that could be lost.
result<void> make(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0)
    return {};
  const auto half = path + ".new";
  for (const auto* left : {".new", ".new-journal", "-wal", "-shm"})
    ::unlink((path + left).c_str()); // Of one that was killed here, or of a file that is gone.
  // SQLite would make it readable for all, and values hold what commands were given.
  if (const unique_fd made{::open(half.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600)};
      !made)
    return cannot_make(path);
  {
    const auto db = connect(half, system_vfs());
    if (!db)
      return db.reason();
    const std::string sql = "PRAGMA synchronous=FULL; BEGIN IMMEDIATE;" + std::string{tables} +
                            marks + "PRAGMA application_id=" + std::to_string(application_id) +
                            ";" + set_version() + "COMMIT";
    if (!execute(db->get(), sql.c_str()))
      return failure_of(db->get(), "making the tables in " + path, errc::io_failed);
  }
  if (::rename(half.c_str(), path.c_str()) != 0)
    return cannot_make(path);
  const auto slash = path.rfind('/');
  const unique_fd directory{
    ::open(path.substr(0, slash + 1).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!directory || ::fsync(directory.get()) != 0)
    return cannot_make(path);
  return {};
}

/// Is this file ours, of a version that we know, and whole? One of an earlier version is brought up
/// to this one.
result<void> prepare(sqlite3* db, const std::string& path, survives what) {
  const auto refused = [&](const std::string& why) {
    return error{errc::invalid_request, path + " " + why};
  };
  const auto damaged = [&](const std::string& why) {
    return error{errc::io_failed, path + " is damaged: " + why + what_to_do};
  };
  // What SQLite cannot read for its content is damaged; for another reason it may be well.
  const auto unreadable = [&](std::string_view doing) {
    const int code = sqlite3_extended_errcode(db) & 0xff;
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB)
      return damaged(sqlite3_errmsg(db));
    return failure_of(db, std::string{doing} + " " + path, errc::io_failed);
  };
  const auto objects = number(db, "SELECT count(*) FROM sqlite_schema");
  const auto kind = objects ? number(db, "PRAGMA application_id") : std::nullopt;
  const auto version = kind ? number(db, "PRAGMA user_version") : std::nullopt;
  if (!version)
    return unreadable("looking at");
  if (*objects == 0 && *kind == 0 && *version == 0)
    return damaged("it is empty");
  if (*kind != application_id)
    return refused("is a database, but not one of Insula");
  if (*version > schema_version)
    return refused("was written by a newer Insula (schema " + std::to_string(*version) +
                   ", this one knows " + std::to_string(schema_version) +
                   "); start that version, or put a copy back that is older");

  std::string damage;
  statement check{db, "PRAGMA quick_check(1)"};
  if (!check.rows([&](statement& row) { damage = row.text(0); }))
    return unreadable("checking");
  if (damage != "ok")
    return damaged(damage);

  std::string mode;
  statement to_wal{db, "PRAGMA journal_mode=WAL"};
  const std::string sync = what == survives::power_cut ? "FULL" : "NORMAL";
  if (!to_wal.rows([&](statement& row) { mode = row.text(0); }) ||
      !execute(db, ("PRAGMA synchronous=" + sync + "; PRAGMA wal_autocheckpoint=0;" +
                    "PRAGMA journal_size_limit=67108864")
                     .c_str()))
    return unreadable("opening");
  if (mode != "wal")
    return error{errc::io_failed, path + " is on a file system that cannot hold SQLite's WAL"};
  // Whole or not at all: until it is, the file is one of the version before.
  const std::string lacks = *version < first_with_marks ? marks : "";
  if (*version < schema_version &&
      !execute(db, ("BEGIN IMMEDIATE;" + lacks + set_version() + "COMMIT").c_str()))
    return unreadable("bringing up to this version");
  // What a crash left in the log may be there without ever having been synced: a disk that failed
  // to sync it once counts it as clean. Moved to the file proper it is, before anything rests on
  // it.
  if (sqlite3_wal_checkpoint_v2(db, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr) !=
      SQLITE_OK)
    return unreadable("taking over the log of");
  return {};
}

} // namespace

struct sqlite_store::impl {
  struct waiting_batch {
    write_batch batch;
    std::function<void(result<void>)> on_durable;
  };

  impl(connection to_write, connection to_read)
      : into(std::move(to_write))
      , from(std::move(to_read)) {}

  void work() {
    std::unique_lock lock{mutex};
    for (;;) {
      woken.wait(lock, [this] { return !waiting.empty() || closing; });
      if (waiting.empty())
        return;
      const auto group = std::exchange(waiting, {});
      lock.unlock();
      write(group);
      lock.lock();
    }
  }

  void write(const std::deque<waiting_batch>& group) {
    std::vector<const write_batch*> batches;
    std::size_t bytes = 0;
    for (const auto& [batch, on_durable] : group) {
      batches.push_back(&batch);
      bytes += size_of(batch);
    }
    const auto began = std::chrono::steady_clock::now();
    const auto outcomes = into.write(batches);
    counts.commit.observe(std::chrono::steady_clock::now() - began);
    counts.group.observe(group.size());
    counts.waiting.subtract(static_cast<std::int64_t>(group.size()));
    for (const auto& each : outcomes)
      counts.refused.add(each ? 0 : 1);
    {
      const std::lock_guard lock{mutex};
      taken -= group.size();
      taken_bytes -= bytes;
    }
    for (std::size_t i = 0; i < group.size(); ++i)
      group[i].on_durable(outcomes[i]);
    into.tidy();
  }

  writer into;
  reader from;
  std::mutex mutex;
  std::condition_variable woken;
  std::deque<waiting_batch> waiting;
  std::size_t taken = 0; ///< Waiting or being written.
  std::size_t taken_bytes = 0;
  bool closing = false;
  store_figures counts;
  std::thread thread;
};

result<std::unique_ptr<sqlite_store>> sqlite_store::open(const std::string& path,
                                                         const std::string& vfs, survives what) {
  if (!path.starts_with('/'))
    return error{errc::invalid_request, "a store needs an absolute path, not " + path};
  if (auto made = make(path); !made)
    return made.reason();
  const char* way = vfs.empty() ? system_vfs() : vfs.c_str();
  auto to_write = connect(path, way);
  if (!to_write)
    return to_write.reason();
  if (const auto ready = prepare(to_write->get(), path, what); !ready)
    return ready.reason();
  auto to_read = connect(path, way);
  if (!to_read)
    return to_read.reason();
  return std::unique_ptr<sqlite_store>{
    new sqlite_store{std::make_unique<impl>(std::move(*to_write), std::move(*to_read))}};
}

sqlite_store::sqlite_store(std::unique_ptr<impl> made)
    : impl_(std::move(made)) {
  impl_->thread = std::thread{[&inside = *impl_] { inside.work(); }};
}

sqlite_store::~sqlite_store() {
  {
    const std::lock_guard lock{impl_->mutex};
    impl_->closing = true;
  }
  impl_->woken.notify_one();
  impl_->thread.join();
}

void sqlite_store::commit(write_batch batch, std::function<void(result<void>)> on_durable) {
  if (auto why = malformed(batch))
    return on_durable(std::move(*why));
  const auto bytes = size_of(batch);
  std::unique_lock lock{impl_->mutex};
  std::optional<error> refused;
  if (impl_->closing)
    refused = error{errc::io_failed, "the store is being closed"};
  else if (impl_->taken >= max_waiting || impl_->taken_bytes + bytes > max_waiting_bytes)
    refused = error{errc::limit_reached, "too many writes are waiting"};
  if (refused) {
    lock.unlock();
    return on_durable(std::move(*refused));
  }
  impl_->waiting.push_back({std::move(batch), std::move(on_durable)});
  ++impl_->taken;
  impl_->counts.waiting.add();
  impl_->taken_bytes += bytes;
  lock.unlock();
  impl_->woken.notify_one();
}

const store_figures& sqlite_store::figures() const {
  return impl_->counts;
}

result<std::vector<entry>> sqlite_store::read(std::string_view owner, std::string_view prefix) {
  return impl_->from.entries_of(owner, prefix);
}

result<std::vector<owned_entry>> sqlite_store::find(std::string_view prefix) {
  return impl_->from.find(prefix);
}

result<mark_page> sqlite_store::scan(std::string_view mark, const mark_position& after,
                                     std::size_t limit) {
  if (auto why = malformed_scan(mark, limit))
    return std::move(*why);
  return impl_->from.scan(mark, after, limit, true, impl_->counts);
}

result<mark_page> sqlite_store::scan_keys(std::string_view mark, const mark_position& after,
                                          std::size_t limit) {
  if (auto why = malformed_scan(mark, limit))
    return std::move(*why);
  return impl_->from.scan(mark, after, limit, false, impl_->counts);
}

result<mark_page> sqlite_store::read_each(const std::vector<mark_position>& places) {
  if (auto why = malformed_places(places))
    return std::move(*why);
  return impl_->from.read_each(places, impl_->counts.scanned);
}

result<std::uint64_t> sqlite_store::count(std::string_view mark) {
  if (auto why = malformed_scan(mark))
    return std::move(*why);
  return impl_->from.count(mark, impl_->counts);
}

result<std::vector<std::string>> sqlite_store::owners() {
  return impl_->from.owners();
}

struct owner_finder::impl {
  std::string path;
  decltype(connect({}, nullptr)) db;
};

owner_finder::owner_finder(std::unique_ptr<impl> made)
    : impl_(std::move(made)) {}
owner_finder::owner_finder(owner_finder&&) noexcept = default;
owner_finder::~owner_finder() = default;

result<owner_finder> owner_finder::open(const std::string& path) {
  auto db = connect(path, nullptr);
  if (!db)
    return db.reason();
  owner_finder made{std::make_unique<impl>(impl{path, std::move(db)})};
  if (const auto first = made.find("", ""); !first) // The journal is opened by the first question.
    return first.reason();
  return made;
}

result<std::vector<std::string>> owner_finder::find(std::string_view key,
                                                    std::string_view value) const {
  auto* const db = impl_->db->get();
  std::vector<std::string> ids;
  statement look{db, "SELECT owner FROM entries WHERE key = ? AND value = ? AND "
                     "substr(owner, 1, 1) <> x'5f' ORDER BY owner"};
  if (!look.rows([&](statement& row) { ids.push_back(row.text(0)); }, key, value))
    return failure_of(db, "reading " + impl_->path, errc::io_failed);
  return ids;
}

result<std::vector<std::string>> owners_with(const std::string& path, std::string_view key,
                                             std::string_view value) {
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT)
    return std::vector<std::string>{};
  const auto finder = owner_finder::open(path);
  if (!finder)
    return finder.reason();
  return finder->find(key, value);
}

} // namespace insula::storage
