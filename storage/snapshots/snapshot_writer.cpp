#include "storage/snapshots/snapshot_writer.hpp"

#include "base/limits.hpp"
#include "base/tree_attributes.hpp"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <cstring>
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

constexpr std::uint64_t tar_block = 512;

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
  /// What of it is not to be had here goes nowhere.
  result<void> skip_content() {
    skips_ = true;
    auto good = finish_entry();
    skips_ = false;
    return good;
  }
  result<void> close() { return judge(::archive_write_close(archive_.get()) == ARCHIVE_OK); }

private:
  static la_ssize_t take(archive*, void* self, const void* bytes, std::size_t count) {
    auto& mine = *static_cast<tar*>(self);
    if (mine.over_ || mine.failed_)
      return -1;
    if (mine.skips_)
      return static_cast<la_ssize_t>(count);
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
  bool skips_ = false;
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

error too_large() {
  return {errc::limit_reached, "the files are too large for a snapshot, holes included"};
}

result<void> begin_group(piece_writer& into, const group_head& said, std::uint64_t& left) {
  if (auto good = into.end_group(); !good)
    return good;
  if (said.known == 0)
    return into.begin_group(said.key);
  const auto bytes = into.add_known(group_kind::entries, said.key);
  if (!bytes)
    return bytes.reason();
  if (*bytes > left)
    return too_large();
  left -= *bytes;
  return {};
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
  tree_attributes has;               // Of the next entry,
  std::optional<group_head> content; // as this.
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
    if ((head.kind == entry_kind::group || head.kind == entry_kind::content) && whole) {
      group_head said{};
      if (target->size() != sizeof said)
        return no_tree();
      std::memcpy(&said, target->data(), sizeof said);
      if (head.kind == entry_kind::content) {
        content = said;
        continue;
      }
      if (auto good = begin_group(into, said, left); !good)
        return good;
      continue;
    }
    const auto entry = entry_of(head, *name, *target, whole);
    if (!entry)
      return entry.reason();
    give(std::exchange(has, {}), entry->get());
    const auto size = head.kind == entry_kind::file ? head.size : 0;
    const bool large = size >= large_file_bytes;
    const auto itself = std::exchange(content, std::nullopt);
    if (itself && !large)
      return no_tree();
    if (!whole && begins_group(*name))
      if (auto good = into.cut(); !good)
        return good;
    if (auto good = archive.begin(entry->get()); !good)
      return good;
    // Its header, with the time of its last change, is with its neighbours.
    if (large)
      if (auto good = into.cut(); !good)
        return good;
    if (size > left)
      return too_large();
    left -= size;
    if (itself && itself->known != 0) {
      const auto bytes = into.add_known(group_kind::content, itself->key);
      if (!bytes)
        return bytes.reason();
      if (auto good = archive.skip_content(); !good)
        return good;
      // With what fills its last block.
      if (*bytes != (size + tar_block - 1) / tar_block * tar_block)
        return no_tree();
      continue;
    }
    if (itself)
      into.begin_content(itself->key);
    if (auto good = write_content(from, archive, size); !good)
      return good;
    if (large)
      if (auto good = into.cut(); !good)
        return good;
    if (itself)
      into.end_content();
  }
  if (auto good = whole ? into.end_group() : result<void>{}; !good)
    return good;
  if (auto good = archive.close(); !good)
    return good;
  return into.cut();
}

} // namespace insula::storage::snapshots
