#include "tests/support/faulty_vfs.hpp"

#include "base/unique_fd.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <sqlite3.h>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace insula::test {

namespace {

constexpr std::size_t sector_bytes = 512;

/// One change of a file that the disk does not have yet.
struct unsynced {
  std::size_t offset = 0;           ///< Of a write, or the new length.
  std::optional<std::string> bytes; ///< None: the file is cut to `offset`.
};

/// A file as the machine sees it: the system's file has what was synced, this what was written.
struct cached_file {
  std::string now;
  std::vector<unsynced> waiting;

  void write(std::size_t offset, std::string_view bytes) {
    now.resize(std::max(now.size(), offset + bytes.size()));
    now.replace(offset, bytes.size(), bytes);
    waiting.push_back({offset, std::string{bytes}});
  }
};

/// Cuts writes into what a disk writes in one go, and keeps each piece with the given chance.
std::vector<unsynced> pieces_kept(const std::vector<unsynced>& all, double chance,
                                  std::mt19937& rng) {
  std::bernoulli_distribution kept{chance};
  std::vector<unsynced> some;
  for (const auto& [offset, bytes] : all) {
    if (!bytes) {
      if (kept(rng))
        some.push_back({offset, std::nullopt});
      continue;
    }
    for (std::size_t at = 0; at < bytes->size();) {
      const auto room = sector_bytes - (offset + at) % sector_bytes;
      const auto piece = bytes->substr(at, room);
      if (kept(rng))
        some.push_back({offset + at, piece});
      at += piece.size();
    }
  }
  return some;
}

} // namespace

struct faulty_vfs::state {
  std::string name;
  sqlite3_vfs vfs{};
  sqlite3_vfs* real = sqlite3_vfs_find(nullptr);

  mutable std::mutex mutex;
  std::mt19937 rng;
  std::map<std::string, std::shared_ptr<cached_file>> files;
  fault planned = fault::none;
  int after = 0;
  int times = 0;
  int struck = 0;
  bool dead = false;

  enum class operation { read, write, sync };

  /// With the mutex held: does this operation fail, and how?
  fault strikes(operation what) {
    if (dead)
      return fault::power_loss;
    const bool meant = [&] {
      switch (planned) {
        case fault::none: return false;
        case fault::short_write:
        case fault::full:
        case fault::write_error: return what == operation::write;
        case fault::sync_error: return what == operation::sync;
        case fault::read_error: return what == operation::read;
        case fault::power_loss: return what != operation::read;
      }
      return false;
    }();
    if (!meant || after-- > 0 || times-- <= 0)
      return fault::none;
    ++struck;
    dead = planned == fault::power_loss;
    return planned;
  }
};

namespace {

using disk = faulty_vfs::state;
using operation = disk::operation;

/// SQLite allocates it; the system's own file follows it in memory.
struct open_file {
  sqlite3_file base;
  disk* on;
  std::shared_ptr<cached_file> cached;

  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

open_file& of(sqlite3_file* file) {
  return *reinterpret_cast<open_file*>(file);
}

int close_file(sqlite3_file* file) {
  auto& f = of(file);
  const int code = f.real()->pMethods->xClose(f.real());
  f.~open_file();
  return code;
}

int read_file(sqlite3_file* file, void* into, int count, sqlite3_int64 offset) {
  auto& f = of(file);
  const std::lock_guard lock{f.on->mutex};
  if (f.on->strikes(operation::read) != fault::none)
    return SQLITE_IOERR_READ;
  const auto wanted = static_cast<std::size_t>(count);
  const auto at = std::min(static_cast<std::size_t>(offset), f.cached->now.size());
  const auto there = f.cached->now.copy(static_cast<char*>(into), wanted, at);
  std::memset(static_cast<char*>(into) + there, 0, wanted - there);
  return there == wanted ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

int write_file(sqlite3_file* file, const void* from, int count, sqlite3_int64 offset) {
  auto& f = of(file);
  const std::lock_guard lock{f.on->mutex};
  const std::string_view bytes{static_cast<const char*>(from), static_cast<std::size_t>(count)};
  const auto at = static_cast<std::size_t>(offset);
  const auto how = f.on->strikes(operation::write);
  if (how == fault::none)
    f.cached->write(at, bytes);
  if (how == fault::short_write)
    f.cached->write(at, bytes.substr(0, bytes.size() / 2));
  if (how == fault::none)
    return SQLITE_OK;
  return how == fault::short_write || how == fault::full ? SQLITE_FULL : SQLITE_IOERR_WRITE;
}

int truncate_file(sqlite3_file* file, sqlite3_int64 size) {
  auto& f = of(file);
  const std::lock_guard lock{f.on->mutex};
  if (f.on->strikes(operation::write) != fault::none)
    return SQLITE_IOERR_TRUNCATE;
  f.cached->now.resize(static_cast<std::size_t>(size));
  f.cached->waiting.push_back({static_cast<std::size_t>(size), std::nullopt});
  return SQLITE_OK;
}

int sync_file(sqlite3_file* file, int) {
  auto& f = of(file);
  const std::lock_guard lock{f.on->mutex};
  const auto how = f.on->strikes(operation::sync);
  if (f.on->dead)
    return SQLITE_IOERR_FSYNC;
  auto to_disk = std::exchange(f.cached->waiting, {});
  if (how != fault::none)
    to_disk = pieces_kept(to_disk, 0.5, f.on->rng); // Forgotten, as Linux does: not tried again.
  for (const auto& [offset, bytes] : to_disk) {
    const auto at = static_cast<sqlite3_int64>(offset);
    const int code = bytes ? f.real()->pMethods->xWrite(f.real(), bytes->data(),
                                                        static_cast<int>(bytes->size()), at)
                           : f.real()->pMethods->xTruncate(f.real(), at);
    if (code != SQLITE_OK)
      return code;
  }
  return how == fault::none ? SQLITE_OK : SQLITE_IOERR_FSYNC;
}

int file_size(sqlite3_file* file, sqlite3_int64* size) {
  auto& f = of(file);
  const std::lock_guard lock{f.on->mutex};
  if (f.on->dead)
    return SQLITE_IOERR_FSTAT;
  *size = static_cast<sqlite3_int64>(f.cached->now.size());
  return SQLITE_OK;
}

bool dead(sqlite3_file* file) {
  const std::lock_guard lock{of(file).on->mutex};
  return of(file).on->dead;
}

// The rest is the system's, but for a machine that is off.
constexpr sqlite3_io_methods methods = {
  .iVersion = 2, // Without memory-mapped reading, which would go past us.
  .xClose = close_file,
  .xRead = read_file,
  .xWrite = write_file,
  .xTruncate = truncate_file,
  .xSync = sync_file,
  .xFileSize = file_size,
  .xLock =
    [](sqlite3_file* f, int level) {
      return dead(f) ? SQLITE_IOERR_LOCK : of(f).real()->pMethods->xLock(of(f).real(), level);
    },
  .xUnlock = [](sqlite3_file* f,
                int level) { return of(f).real()->pMethods->xUnlock(of(f).real(), level); },
  .xCheckReservedLock =
    [](sqlite3_file* f, int* held) {
      return of(f).real()->pMethods->xCheckReservedLock(of(f).real(), held);
    },
  // Hints about sizes and the like would reach into the system's file.
  .xFileControl = [](sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; },
  .xSectorSize = [](sqlite3_file*) { return static_cast<int>(sector_bytes); },
  .xDeviceCharacteristics = [](sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; },
  .xShmMap =
    [](sqlite3_file* f, int region, int bytes, int extend, void volatile** at) {
      return of(f).real()->pMethods->xShmMap(of(f).real(), region, bytes, extend, at);
    },
  .xShmLock =
    [](sqlite3_file* f, int offset, int n, int flags) {
      if (dead(f) && (flags & SQLITE_SHM_LOCK))
        return SQLITE_IOERR_SHMLOCK;
      return of(f).real()->pMethods->xShmLock(of(f).real(), offset, n, flags);
    },
  .xShmBarrier = [](sqlite3_file* f) { of(f).real()->pMethods->xShmBarrier(of(f).real()); },
  .xShmUnmap = [](sqlite3_file* f,
                  int remove) { return of(f).real()->pMethods->xShmUnmap(of(f).real(), remove); },
  .xFetch = nullptr,
  .xUnfetch = nullptr,
};

int open_file_of(sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags, int* given) {
  auto& on = *static_cast<disk*>(vfs->pAppData);
  if (path == nullptr) // A temporary file is not worth a disk.
    return on.real->xOpen(on.real, path, file, flags, given);
  const std::lock_guard lock{on.mutex};
  file->pMethods = nullptr;
  if (on.dead)
    return SQLITE_CANTOPEN;
  auto* f = new (file) open_file{{nullptr}, &on, nullptr};
  if (const int code = on.real->xOpen(on.real, path, f->real(), flags, given); code != SQLITE_OK) {
    f->~open_file();
    file->pMethods = nullptr;
    return code;
  }
  auto& cached = on.files[path];
  if (!cached) {
    std::ifstream synced{path, std::ios::binary};
    cached = std::make_shared<cached_file>();
    cached->now.assign(std::istreambuf_iterator<char>{synced}, {});
  }
  f->cached = cached;
  f->base.pMethods = &methods;
  return SQLITE_OK;
}

int delete_file(sqlite3_vfs* vfs, const char* path, int sync_directory) {
  auto& on = *static_cast<disk*>(vfs->pAppData);
  const std::lock_guard lock{on.mutex};
  if (on.dead)
    return SQLITE_IOERR_DELETE;
  on.files.erase(path);
  return on.real->xDelete(on.real, path, sync_directory);
}

int full_path(sqlite3_vfs*, const char* path, int room, char* full) {
  if (std::strlen(path) >= static_cast<std::size_t>(room))
    return SQLITE_CANTOPEN;
  std::strcpy(full, path);
  return SQLITE_OK;
}

} // namespace

faulty_vfs::faulty_vfs(unsigned seed)
    : state_(std::make_unique<state>()) {
  static std::atomic<int> made{0};
  auto& s = *state_;
  s.name = "faulty-" + std::to_string(++made);
  s.rng.seed(seed);
  s.vfs = *s.real; // Everything that is not about the content of files stays the system's.
  s.vfs.pNext = nullptr;
  s.vfs.zName = s.name.c_str();
  s.vfs.szOsFile = static_cast<int>(sizeof(open_file)) + s.real->szOsFile;
  s.vfs.pAppData = &s;
  s.vfs.xOpen = open_file_of;
  s.vfs.xDelete = delete_file;
  s.vfs.xAccess = [](sqlite3_vfs* vfs, const char* path, int flags, int* found) {
    auto& on = *static_cast<disk*>(vfs->pAppData);
    const std::lock_guard lock{on.mutex};
    const auto cached = on.files.find(path);
    if (cached == on.files.end() || flags != SQLITE_ACCESS_EXISTS)
      return on.real->xAccess(on.real, path, flags, found);
    *found = cached->second->now.empty() ? 0 : 1; // As the system's: an empty log is none.
    return SQLITE_OK;
  };
  s.vfs.xFullPathname = full_path;
  sqlite3_vfs_register(&s.vfs, 0);
}

faulty_vfs::~faulty_vfs() {
  sqlite3_vfs_unregister(&state_->vfs);
}

const std::string& faulty_vfs::name() const {
  return state_->name;
}

void faulty_vfs::fail(fault kind, int after, int times) {
  const std::lock_guard lock{state_->mutex};
  state_->planned = kind;
  state_->after = after;
  state_->times = times;
}

void faulty_vfs::heal() {
  fail(fault::none, 0, 0);
}

int faulty_vfs::struck() const {
  const std::lock_guard lock{state_->mutex};
  return state_->struck;
}

bool faulty_vfs::off() const {
  const std::lock_guard lock{state_->mutex};
  return state_->dead;
}

void faulty_vfs::kill() {
  const std::lock_guard lock{state_->mutex};
  state_->dead = true;
}

void faulty_vfs::power_cut() {
  const std::lock_guard lock{state_->mutex};
  state_->dead = true;
  const double chances[] = {0.0, 0.5, 0.95};
  for (const auto& [path, cached] : state_->files) {
    const unique_fd file{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
    for (const auto& [offset, bytes] :
         pieces_kept(cached->waiting, chances[state_->rng() % 3], state_->rng)) {
      const auto at = static_cast<off_t>(offset);
      [[maybe_unused]] const auto written =
        bytes ? ::pwrite(file.get(), bytes->data(), bytes->size(), at)
              : ::ftruncate(file.get(), at);
    }
  }
  state_->files.clear();
}

void faulty_vfs::boot() {
  heal();
  const std::lock_guard lock{state_->mutex};
  state_->dead = false;
}

} // namespace insula::test
