#include "storage/snapshots/snapshot_reader.hpp"

#include "base/failpoint.hpp"
#include "base/holes.hpp"
#include "base/limits.hpp"
#include "base/stream_frames.hpp"
#include "base/tree_attributes.hpp"
#include "storage/images/digest.hpp"
#include "storage/snapshots/zstd_piece.hpp"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <optional>

namespace insula::storage::snapshots {

namespace {

struct free_it {
  void operator()(archive* each) const { ::archive_read_free(each); }
};

error damaged(const std::string& how) {
  return {errc::store_failed, "a snapshot is damaged: " + how};
}

std::string text_of(const char* text) {
  return text == nullptr ? std::string{} : text;
}

/// Pieces one after the other, as libarchive asks for them.
class piece_reader {
public:
  piece_reader(blob_store& blobs, const std::string& space, const manifest& from,
               const tree_channel& into)
      : blobs_(blobs)
      , space_(space)
      , from_(from)
      , into_(into) {}

  static la_ssize_t give(archive* to, void* self, const void** bytes) {
    auto& mine = *static_cast<piece_reader*>(self);
    const auto& pieces = mine.from_.pieces;
    if (mine.next_ == pieces.size())
      return 0;
    const auto which = mine.next_++;
    if (const auto no = mine.into_.unwanted()) {
      mine.failed_ = *no;
      ::archive_set_error(to, EIO, "nobody wants it");
      return ARCHIVE_FATAL;
    }
    if (which == 0 || !(pieces[which] == pieces[which - 1])) { // Of zeros there may be many.
      auto plain = mine.fetch(pieces[which]);
      if (!plain) {
        mine.failed_ = plain.reason();
        ::archive_set_error(to, EIO, "a piece cannot be had");
        return ARCHIVE_FATAL;
      }
      mine.plain_ = std::move(*plain);
    }
    *bytes = mine.plain_.data();
    return static_cast<la_ssize_t>(mine.plain_.size());
  }

  const std::optional<error>& failed() const { return failed_; }

private:
  result<std::string> fetch(const piece& which) {
    const auto name = which.name(space_);
    // What cannot be made smaller becomes a little larger.
    const auto frame = blobs_.get(name, limits::snapshot_piece_bytes + (64u << 10));
    if (!frame)
      return frame.reason().code == errc::not_found ? damaged(name + " is not there")
                                                    : frame.reason();
    auto plain = expanded(*frame, which.bytes);
    if (!plain || images::digest_of(*plain) != "sha256:" + which.digest)
      return damaged(name + " is not what it was");
    return plain;
  }

  blob_store& blobs_;
  const std::string& space_;
  const manifest& from_;
  const tree_channel& into_;
  std::size_t next_ = 0;
  std::string plain_;
  std::optional<error> failed_;
};

/// "./a/b/" is a/b; "./" is ".".
std::string name_in_tree(std::string path) {
  if (path.starts_with("./"))
    path.erase(0, 2);
  while (path.ends_with('/'))
    path.pop_back();
  return path.empty() ? "." : path;
}

result<void> send_attributes(archive_entry* entry, tree_channel& into) {
  attributes_text all{{static_cast<std::uint32_t>(::archive_entry_uid(entry)),
                       static_cast<std::uint32_t>(::archive_entry_gid(entry))}};
  ::archive_entry_xattr_reset(entry);
  const char* name = nullptr;
  const void* value = nullptr;
  std::size_t bytes = 0;
  while (::archive_entry_xattr_next(entry, &name, &value, &bytes) == ARCHIVE_OK) {
    const std::string_view called = name;
    if (bytes > max_attributes_bytes || called.size() > max_attributes_bytes)
      return damaged("it has an attribute that is too long");
    all.add(called, {static_cast<const char*>(value), bytes});
    if (!all.fits())
      return damaged("it has too many attributes");
  }
  entry_head head{};
  head.kind = entry_kind::attributes;
  head.target_bytes = static_cast<std::uint32_t>(all.str().size());
  if (auto sent = into.write(&head, sizeof head); !sent)
    return sent;
  return into.write(all.str().data(), all.str().size());
}

result<bool> send_entry(archive_entry* entry, tree_channel& into, bool whole) {
  entry_head head{};
  std::string target;
  if (const char* const first = ::archive_entry_hardlink(entry)) {
    head.kind = entry_kind::hard_link;
    target = name_in_tree(first);
  } else {
    switch (::archive_entry_filetype(entry)) {
      case AE_IFREG: head.kind = entry_kind::file; break;
      case AE_IFDIR: head.kind = entry_kind::directory; break;
      case AE_IFLNK:
        head.kind = entry_kind::symlink;
        target = text_of(::archive_entry_symlink(entry));
        break;
      case AE_IFIFO: head.kind = entry_kind::fifo; break;
      case AE_IFCHR: head.kind = entry_kind::absent; break;
      default: return damaged("it has a member of an unknown kind");
    }
  }
  const bool of_whole = head.kind == entry_kind::fifo || head.kind == entry_kind::absent;
  if (of_whole && (!whole || ::archive_entry_rdev(entry) != 0))
    return damaged("it has a member of an unknown kind");
  const auto name = name_in_tree(text_of(::archive_entry_pathname(entry)));
  if (name.size() > max_entry_name || target.size() > max_entry_name)
    return damaged("it has a name that is too long");
  head.mode = ::archive_entry_perm(entry) & 07777;
  if (head.kind == entry_kind::file)
    head.size = static_cast<std::uint64_t>(std::max<la_int64_t>(0, ::archive_entry_size(entry)));
  head.modified_s = ::archive_entry_mtime(entry);
  head.modified_ns =
    static_cast<std::uint32_t>(std::clamp<long>(::archive_entry_mtime_nsec(entry), 0, 999'999'999));
  head.name_bytes = static_cast<std::uint32_t>(name.size());
  head.target_bytes = static_cast<std::uint32_t>(target.size());
  if (whole && head.kind != entry_kind::hard_link && head.kind != entry_kind::absent)
    if (const auto sent = send_attributes(entry, into); !sent)
      return sent.reason();
  for (const auto& [bytes, count] : {std::pair<const void*, std::size_t>{&head, sizeof head},
                                     {name.data(), name.size()},
                                     {target.data(), target.size()}})
    if (const auto sent = into.write(bytes, count); !sent)
      return sent.reason();
  return head.kind == entry_kind::file;
}

result<void> send_content(archive* from, tree_channel& into) {
  const void* bytes = nullptr;
  std::size_t count = 0;
  la_int64_t offset = 0;
  while (true) {
    const int got = ::archive_read_data_block(from, &bytes, &count, &offset);
    if (got == ARCHIVE_EOF)
      break;
    if (got != ARCHIVE_OK && got != ARCHIVE_WARN)
      return damaged(text_of(::archive_error_string(from)));
    result<void> sent;
    const auto send = [&](std::uint64_t at, std::string_view some) {
      const piece_head head{at, static_cast<std::uint32_t>(some.size()), 0};
      sent = into.write(&head, sizeof head);
      if (sent)
        sent = into.write(some.data(), some.size());
      return static_cast<bool>(sent);
    };
    if (!without_holes(static_cast<std::uint64_t>(offset), {static_cast<const char*>(bytes), count},
                       max_frame_bytes, send))
      return sent;
  }
  const piece_head end{};
  return into.write(&end, sizeof end);
}

} // namespace

result<void> read_tree(blob_store& blobs, const std::string& space, const manifest& from,
                       tree_channel& into, bool whole) {
  piece_reader pieces{blobs, space, from, into};
  const std::unique_ptr<archive, free_it> reader{::archive_read_new()};
  if (!reader)
    throw std::bad_alloc{};
  auto* const tar = reader.get();
  const auto broken = [&] {
    return pieces.failed() ? *pieces.failed() : damaged(text_of(::archive_error_string(tar)));
  };
  ::archive_read_support_format_tar(tar);
  ::archive_read_set_options(tar, "hdrcharset=BINARY");
  if (::archive_read_open(tar, &pieces, nullptr, &piece_reader::give, nullptr) != ARCHIVE_OK)
    return broken();
  while (true) {
    archive_entry* entry = nullptr;
    const int got = ::archive_read_next_header(tar, &entry);
    if (got == ARCHIVE_EOF)
      break;
    if (got != ARCHIVE_OK && got != ARCHIVE_WARN)
      return broken();
    const auto has_content = send_entry(entry, into, whole);
    failpoint("snapshot.entry");
    if (!has_content)
      return has_content.reason();
    if (!*has_content)
      continue;
    if (auto sent = send_content(tar, into); !sent)
      return pieces.failed() ? result<void>{*pieces.failed()} : sent;
  }
  failpoint("snapshot.end");
  const entry_head end{};
  if (auto sent = into.write(&end, sizeof end); !sent)
    return sent;
  if (auto sent = into.flush(); !sent)
    return sent;
  // After the last entry come the times of every directory.
  return into.read_result(limits::tree_check_patience);
}

} // namespace insula::storage::snapshots
