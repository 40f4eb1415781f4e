#pragma once

#include "storage/store.hpp"
#include "storage/store_figures.hpp"

#include <memory>
#include <string>

namespace insula::storage {

/// What a write that was acknowledged survives. `process_end`: that of this process, however it
/// comes; a power cut may take the newest writes, whole ones, and leaves what was before them.
enum class survives : std::uint8_t { power_cut, process_end };

/// A store in one SQLite file, in WAL mode; with a sync for each group of batches if they have to
/// survive a power cut.
///
/// A thread of its own writes: all batches that wait become one transaction and one sync, each
/// under its own savepoint. Where the disk refuses the transaction as a whole, its batches are
/// tried again one by one, so that a large one on a full disk does not take small ones with it.
/// Reading goes through a second connection and does not wait for writers.
/// Marked entries are those of an index of the file's, so SQLite itself keeps them in step. open()
/// makes that index in a file of an earlier version, in one transaction; such a file is then of
/// this version.
class sqlite_store final : public store {
public:
  /// Opens or makes the file (mode 0600) at an absolute path, which is used exactly as it stands:
  /// its parents need not be searchable when it begins with /proc/self/fd/<n>.
  /// `vfs`: SQLite's name for a way to the disk, where tests put a faulty one; empty: the system's.
  /// The file is there whole or not at all, so an empty one is a damaged one.
  /// Errors: invalid_request when the file is not ours or was written by a newer version; io_failed
  ///         when it cannot be opened or is damaged. They say what can be done about it.
  static result<std::unique_ptr<sqlite_store>>
  open(const std::string& path, const std::string& vfs = "", survives what = survives::power_cut);

  ~sqlite_store() override;
  void commit(write_batch batch, std::function<void(result<void>)> on_durable) override;
  result<std::vector<entry>> read(std::string_view owner, std::string_view prefix = {}) override;
  result<std::vector<owned_entry>> find(std::string_view prefix) override;
  result<mark_page> scan(std::string_view mark, const mark_position& after,
                         std::size_t limit) override;
  result<mark_page> scan_keys(std::string_view mark, const mark_position& after,
                              std::size_t limit) override;
  result<mark_page> read_each(const std::vector<mark_position>& places) override;
  result<std::uint64_t> count(std::string_view mark) override;
  result<std::vector<std::string>> owners() override;

  const store_figures& figures() const; ///< For as long as the store lives.

private:
  struct impl;
  explicit sqlite_store(std::unique_ptr<impl> made);

  std::unique_ptr<impl> impl_;
};

/// Finds objects by what they have, in the file of a store that may be another process's, also
/// while that runs. All files are open from the beginning: the path need not lead there later.
///
/// Threads: one at a time; each call waits for the disk.
class owner_finder {
public:
  /// Errors: io_failed.
  static result<owner_finder> open(const std::string& path);
  owner_finder(owner_finder&&) noexcept;
  ~owner_finder();

  /// The ids of objects whose entry `key` is `value`, ordered. Errors: io_failed.
  result<std::vector<std::string>> find(std::string_view key, std::string_view value) const;

private:
  struct impl;
  explicit owner_finder(std::unique_ptr<impl> made);
  std::unique_ptr<impl> impl_;
};

/// The ids of objects whose entry `key` is `value`, ordered, of the store in that file; for another
/// process than the one whose store it is, also while that runs. No file: no objects.
/// Errors: io_failed.
result<std::vector<std::string>> owners_with(const std::string& path, std::string_view key,
                                             std::string_view value);

} // namespace insula::storage
