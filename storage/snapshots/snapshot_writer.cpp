#include "storage/snapshots/snapshot_writer.hpp"

#include "base/limits.hpp"
#include "base/tree_attributes.hpp"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace insula::storage::snapshots {

namespace {

struct free_it {
  void operator()(archive_entry* each) const { ::archive_entry_free(each); }
  void operator()(archive* each) const { ::archive_write_free(each); }
};

/// Of so many small files one begins a piece: always the same ones, so that a change of one file
/// changes the piece that it is in, and no other.
constexpr std::uint64_t files_per_piece = 256;

bool begins_piece(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325; // FNV-1a.
  for (const char each : name)
    hash = (hash ^ static_cast<unsigned char>(each)) * 0x100000001b3;
  return (hash ^ hash >> 32) % files_per_piece == 0;
}

error no_tree() {
  return {errc::io_failed, "the sandbox sent something that is no tree"};
}

bool is_member_name(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\0') != name.npos)
    return false;
  for (std::size_t at = 0; at <= name.size();) {
    const auto end = std::min(name.find('/', at), name.size());
    if (name.substr(at, end - at) == "..")
      return false;
    at = end + 1;
  }
  return true;
}

/// The archive on its way into pieces. What goes wrong there is remembered: libarchive has no words
/// for it.
class tar {
public:
  explicit tar(piece_writer& into)
      : into_(into)
      , archive_(::archive_write_new()) {
    if (!archive_)
      throw std::bad_alloc{};
    ::archive_write_set_format_pax(archive_.get());
    ::archive_write_set_options(archive_.get(), "hdrcharset=BINARY,xattrheader=LIBARCHIVE");
    ::archive_write_set_bytes_per_block(archive_.get(), 0); // Everything comes out at once.
    ::archive_write_open(archive_.get(), this, nullptr, &take, nullptr);
  }
  /// Freeing it would write the rest of a file that was begun.
  ~tar() { over_ = true; }
  tar(const tar&) = delete;
  tar& operator=(const tar&) = delete;

  result<void> begin(archive_entry* entry) {
    return judge(::archive_write_header(archive_.get(), entry) >= ARCHIVE_WARN);
  }
  result<void> add(std::string_view content) {
    const auto n = ::archive_write_data(archive_.get(), content.data(), content.size());
    return judge(n == static_cast<la_ssize_t>(content.size()));
  }
  /// With what fills its last block.
  result<void> finish_entry() {
    return judge(::archive_write_finish_entry(archive_.get()) == ARCHIVE_OK);
  }
  result<void> close() { return judge(::archive_write_close(archive_.get()) == ARCHIVE_OK); }

private:
  static la_ssize_t take(archive*, void* self, const void* bytes, std::size_t count) {
    auto& mine = *static_cast<tar*>(self);
    if (mine.over_ || mine.failed_)
      return -1;
    if (const auto added = mine.into_.add({static_cast<const char*>(bytes), count}); !added) {
      mine.failed_ = added.reason();
      return -1;
    }
    return static_cast<la_ssize_t>(count);
  }

  result<void> judge(bool good) {
    if (failed_)
      return *failed_;
    if (good)
      return {};
    const char* const why = ::archive_error_string(archive_.get());
    return error{errc::io_failed, why == nullptr ? "libarchive has failed" : why};
  }

  piece_writer& into_;
  std::optional<error> failed_;
  bool over_ = false;
  std::unique_ptr<archive, free_it> archive_; // Goes first: it calls take().
};

void give(const tree_attributes& has, archive_entry* entry) {
  ::archive_entry_set_uid(entry, has.owners.owner);
  ::archive_entry_set_gid(entry, has.owners.group);
  for (const auto& [name, value] : has.extended)
    ::archive_entry_xattr_add_entry(entry, name.c_str(), value.data(), value.size());
}

/// Errors: io_failed for what is no entry of a tree. `whole`: of a whole one.
result<std::unique_ptr<archive_entry, free_it>>
entry_of(const entry_head& head, const std::string& name, const std::string& target, bool whole) {
  std::unique_ptr<archive_entry, free_it> entry{::archive_entry_new()};
  if (!entry)
    throw std::bad_alloc{};
  const bool top = name == ".";
  std::string path = top ? "./" : "./" + name;
  switch (head.kind) {
    case entry_kind::file:
      if (top || head.size > max_entry_size)
        return no_tree();
      ::archive_entry_set_filetype(entry.get(), AE_IFREG);
      ::archive_entry_set_size(entry.get(), static_cast<la_int64_t>(head.size));
      break;
    case entry_kind::directory:
      ::archive_entry_set_filetype(entry.get(), AE_IFDIR);
      if (path.back() != '/')
        path += '/';
      break;
    case entry_kind::symlink:
      if (top || target.empty() || target.find('\0') != target.npos)
        return no_tree();
      ::archive_entry_set_filetype(entry.get(), AE_IFLNK);
      ::archive_entry_set_symlink(entry.get(), target.c_str());
      break;
    case entry_kind::hard_link:
      if (top || target == "." || !is_member_name(target))
        return no_tree();
      ::archive_entry_set_filetype(entry.get(), AE_IFREG);
      ::archive_entry_set_hardlink(entry.get(), ("./" + target).c_str());
      break;
    case entry_kind::fifo:
    case entry_kind::absent: // As overlayfs has it: a character device 0:0.
      if (top || !whole)
        return no_tree();
      ::archive_entry_set_filetype(entry.get(),
                                   head.kind == entry_kind::fifo ? AE_IFIFO : AE_IFCHR);
      ::archive_entry_set_rdevmajor(entry.get(), 0);
      ::archive_entry_set_rdevminor(entry.get(), 0);
      break;
    default: return no_tree();
  }
  if (!is_member_name(name))
    return no_tree();
  ::archive_entry_set_pathname(entry.get(), path.c_str());
  ::archive_entry_set_perm(entry.get(), head.mode & 07777);
  ::archive_entry_set_mtime(entry.get(), static_cast<time_t>(head.modified_s),
                            static_cast<long>(std::min(head.modified_ns, 999'999'999u)));
  return entry;
}

result<void> write_content(tree_channel& from, tar& into, std::uint64_t size) {
  while (size > 0) {
    const auto some = from.read_some(size, limits::snapshot_patience);
    if (!some)
      return some.reason();
    if (auto good = into.add(*some); !good)
      return good;
    size -= some->size();
  }
  return into.finish_entry();
}

} // namespace

result<void> write_tree(tree_channel& from, piece_writer& into, bool whole) {
  if (auto begun = from.read_result(limits::tree_check_patience); !begun)
    return begun;
  tar archive{into};
  std::uint64_t left = limits::snapshot_tree_bytes;
  tree_attributes has; // Of the next entry.
  while (true) {
    entry_head head{};
    if (auto good = from.read(&head, sizeof head, limits::snapshot_patience); !good)
      return good;
    if (head.name_bytes > max_entry_name || head.target_bytes > max_target_bytes(head.kind))
      return no_tree();
    const auto name = from.read_text(head.name_bytes, limits::snapshot_patience);
    if (!name)
      return name.reason();
    const auto target = from.read_text(head.target_bytes, limits::snapshot_patience);
    if (!target)
      return target.reason();
    if (head.kind == entry_kind::end)
      break;
    if (head.kind == entry_kind::attributes && whole) {
      if (!has.read(*target))
        return no_tree();
      continue;
    }
    const auto entry = entry_of(head, *name, *target, whole);
    if (!entry)
      return entry.reason();
    give(std::exchange(has, {}), entry->get());
    const bool large =
      head.kind == entry_kind::file && head.size >= limits::snapshot_large_file_bytes;
    if (begins_piece(*name))
      if (auto good = into.cut(); !good)
        return good;
    if (auto good = archive.begin(entry->get()); !good)
      return good;
    // Its header, with the time of its last change, is with its neighbours.
    if (large)
      if (auto good = into.cut(); !good)
        return good;
    const auto size = head.kind == entry_kind::file ? head.size : 0;
    if (size > left)
      return error{errc::limit_reached, "the files are too large for a snapshot, holes included"};
    left -= size;
    if (auto good = write_content(from, archive, size); !good)
      return good;
    if (large)
      if (auto good = into.cut(); !good)
        return good;
  }
  if (auto good = archive.close(); !good)
    return good;
  return into.cut();
}

} // namespace insula::storage::snapshots
