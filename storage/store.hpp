#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::storage {

/// The right to write for an owner: its growing number, 1 to 2^63 - 1. 0 is nobody's.
using epoch = std::uint64_t;

/// One change of one key. No value: the key is removed, whether it was there or not.
struct change {
  std::string key;                  ///< 1 to 1,024 bytes, any.
  std::optional<std::string> value; ///< At most 1 MiB, any bytes.
};

/// A few changes of one owner that become durable together or not at all. Applied in order: of two
/// changes of one key the later stands. Without any it only raises the epoch: a fence.
struct write_batch {
  std::string
    owner; ///< The object's id, 1 to 128 bytes without '/'. See owners() for a leading '_'.
  epoch
    written_at; ///< Refused with stale_epoch when the owner was already written with a larger one.
  std::vector<change> changes;
  /// Before the changes, every key that begins with one of these is removed. An empty one: every
  /// key.
  std::vector<std::string> cleared = {};
};

struct entry {
  std::string key; ///< Without the owner.
  std::string value;

  bool operator==(const entry&) const = default;
};

/// An entry, and whose it is.
struct owned_entry {
  std::string owner;
  std::string key;
  std::string value;

  bool operator==(const owned_entry&) const = default;
};

/// Where an entry is. Of a line of a list it is the place in that list as well; both empty: the
/// place ahead of the first line.
struct mark_position {
  std::string key;
  std::string owner;

  bool operator==(const mark_position&) const = default;
};

/// A page of a list.
struct mark_page {
  std::vector<owned_entry> lines;
  bool more = false; ///< Others follow the last one of this page.
};

/// What objects remember: a durable key-value store in which every key belongs to an owner.
/// To delete an owner, clear all of its keys in one batch; its epoch goes on being remembered.
///
/// Marks:   an entry whose key begins with '@' is marked. The store keeps all marked entries in one
///          more order, over all owners: by key, then by owner, both as bytes. That order is the
///          lists that scan() pages through. A mark is written, replaced and removed with its
///          entry, in the entry's own batch.
/// Threads: any. commit() may be called while others wait, and from inside on_durable; the store
///          groups what comes together into one sync. Not for two processes at a time.
/// Time:    everything but commit() looks at the disk and waits for it. commit() never waits for
///          the disk.
/// Answers: on_durable is called exactly once, never two at a time for accepted batches, and for
///          those in the order of commit(). It runs on the store's own thread, or inside commit()
///          where nothing has to wait for a disk: be quick there, do not throw, and hold no lock
///          while committing that it takes. A batch that is refused before it is accepted
///          (invalid_request, limit_reached, closing) is answered inside commit(), ahead of others.
/// Durable: on_durable(success) is called only once the batch would survive what the store is made
///          for: a power cut, unless the implementation was told that the end of the process is
///          enough.
/// Errors:  stale_epoch: nothing of the batch is kept.
///          invalid_request: something is over its size, or the owner or the epoch is malformed.
///          disk_full, store_failed: the disk refused. read() does not show the batch; but a disk
///          that fails while it syncs may have it all the same, so after a crash that comes before
///          the next success it may turn up: whole, never in part. The store goes on as far as the
///          disk lets it, and is well again when the disk is.
/// Ceiling: at most max_waiting batches and max_waiting_bytes wait; what would be more is refused
///          with limit_reached at once.
/// End:     the destructor writes and answers everything accepted; what is committed meanwhile,
/// from
///          inside an on_durable, is refused with io_failed. Not to be called from on_durable.
class store {
public:
  static constexpr std::size_t max_owner_bytes = 128; ///< As long as the longest sandbox id.
  static constexpr std::size_t max_key_bytes = 1024;
  static constexpr std::size_t max_value_bytes = 1u << 20;

  /// Keys and values of one batch. It is written in one go, and everybody behind it waits.
  static constexpr std::size_t max_batch_bytes = 16u << 20;

  static constexpr std::size_t max_waiting = 16'384;

  /// Lines of one page, and the bytes of its keys, owners and values: a page ends behind the line
  /// that reaches them, and has one line at least.
  static constexpr std::size_t max_page_lines = 1'000;
  static constexpr std::size_t max_page_bytes = 4u << 20;

  /// So that a disk that stands still costs a known amount of memory.
  static constexpr std::size_t max_waiting_bytes = 64u << 20;

  virtual ~store() = default;

  virtual void commit(write_batch batch, std::function<void(result<void>)> on_durable) = 0;

  /// Everything of `owner`, or what begins with `prefix`, ordered by key. Sees every batch that was
  /// acknowledged before the call.
  virtual result<std::vector<entry>> read(std::string_view owner, std::string_view prefix = {}) = 0;

  /// Of all owners that owners() names, the entries whose keys begin with `prefix`, ordered by
  /// owner and key. It looks at each owner that there ever was: for starts, not for requests.
  virtual result<std::vector<owned_entry>> find(std::string_view prefix) = 0;

  /// A page of the marked entries whose keys begin with `mark`: the `limit` lines that follow
  /// `after`, which itself is not among them and need not exist any more. Sees every batch that was
  /// acknowledged before the call; a line that is neither written nor removed between two pages is
  /// on exactly one of them. However long the list is, it reads one line beyond the page at most,
  /// and where the bytes end the page, as many as the implementation says.
  /// Errors: invalid_request (`mark` does not begin with '@', or `limit` is not 1 to
  ///         max_page_lines).
  /// Where one marked key is the beginning of another one, the order of these two is the
  /// implementation's.
  virtual result<mark_page> scan(std::string_view mark, const mark_position& after,
                                 std::size_t limit) = 0;

  /// The same page without values, which it does not read: they are empty, and end no page.
  virtual result<mark_page> scan_keys(std::string_view mark, const mark_position& after,
                                      std::size_t limit) = 0;

  /// The entries at these places, which need not be marked, in the places' order. A place without
  /// an entry is left out. Bytes end the answer as they end a page: `more` then says that the
  /// places behind that of its last line have not been looked at. Sees every batch that was
  /// acknowledged before the call. Errors: invalid_request (more than max_page_lines places).
  virtual result<mark_page> read_each(const std::vector<mark_position>& places) = 0;

  /// How many lines that list has. The implementation counts them without reading an entry.
  /// Errors: as of scan().
  virtual result<std::uint64_t> count(std::string_view mark) = 0;

  /// Every id that owns at least one key, ordered. Ids that begin with '_' are left out: no object
  /// has such an id, they are the records of storage/ itself.
  virtual result<std::vector<std::string>> owners() = 0;
};

/// What every store refuses without looking at the disk.
std::optional<error> malformed(const write_batch& batch);
std::optional<error> malformed_scan(std::string_view mark, std::size_t limit = 1);
std::optional<error> malformed_places(const std::vector<mark_position>& places);

/// Marked: a line of a list.
inline bool is_marked(std::string_view key) {
  return key.starts_with('@');
}

/// What a line counts towards max_page_bytes.
std::size_t size_of(const owned_entry& line);

/// What a batch counts towards max_batch_bytes and max_waiting_bytes.
std::size_t size_of(const write_batch& batch);

/// The first key behind all those that begin with `prefix`.
std::string end_of(std::string_view prefix);

/// What a store answers to an older epoch.
error stale(const write_batch& batch, epoch newest);

} // namespace insula::storage
