#include "storage/images/layer_reader.hpp"

#include "storage/images/archive.hpp"
#include "storage/images/digest.hpp"
#include "storage/images/member_headers.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

namespace insula::storage::images {

namespace {

constexpr std::size_t block_bytes = 256 << 10;

/// What a tar ends with, and before it the rest of the last file's block: some writers (umoci
/// insert) leave out all of it.
constexpr std::size_t tar_block = 512;
constexpr std::array<char, 3 * tar_block> tar_end{};

error refused(std::string why) {
  return {errc::invalid_request, std::move(why)};
}

const error interrupted{errc::deadline_exceeded, "interrupted"};

/// The filter that the blob's first bytes ask for; ARCHIVE_FILTER_NONE for a plain tar.
int packing_of(const file_range& blob) {
  std::array<unsigned char, 4> head{};
  static_cast<void>(read_at(blob, 0, head.data(), head.size()));
  if (head[0] == 0x1f && head[1] == 0x8b)
    return ARCHIVE_FILTER_GZIP;
  if (head == std::array<unsigned char, 4>{0x28, 0xb5, 0x2f, 0xfd})
    return ARCHIVE_FILTER_ZSTD;
  return ARCHIVE_FILTER_NONE;
}

entry_kind kind_of(archive_entry* entry) {
  if (::archive_entry_hardlink(entry) != nullptr)
    return entry_kind::hard_link;
  switch (::archive_entry_filetype(entry)) {
    case AE_IFREG: return entry_kind::file;
    case AE_IFDIR: return entry_kind::directory;
    case AE_IFLNK: return entry_kind::symlink;
    case AE_IFIFO: return entry_kind::fifo;
    case AE_IFCHR:
    case AE_IFBLK: return entry_kind::device;
    default: return entry_kind::unknown;
  }
}

std::string text(const char* may_be_none) {
  return may_be_none == nullptr ? std::string{} : std::string{may_be_none};
}

} // namespace

/// Two readers in a row: `unpacked` takes the blob apart and `tar` takes what comes out of it; the
/// digests are taken where the bytes pass.
struct layer_reader::impl {
  impl(file_range from, expectation expected, import_budget& all)
      : blob(std::move(from))
      , wanted(std::move(expected))
      , budget(all)
      , blob_digest(wanted.digest)
      , tar_digest(wanted.diff_id) {}

  result<void> open();
  std::ptrdiff_t next_of_blob(const void** bytes);
  std::ptrdiff_t next_of_tar(const void** bytes);
  std::ptrdiff_t end_of_tar(const void** bytes);
  result<void> read_rest();
  error failure(archive* of, const char* what);

  static la_ssize_t give_blob(archive*, void* self, const void** bytes) {
    return static_cast<impl*>(self)->next_of_blob(bytes);
  }
  static la_ssize_t give_tar(archive* to, void* self, const void** bytes) {
    auto n = static_cast<impl*>(self)->next_of_tar(bytes);
    if (n == 0)
      n = static_cast<impl*>(self)->end_of_tar(bytes);
    if (n < 0)
      ::archive_set_error(to, EIO, "its bytes cannot be had");
    return n;
  }

  file_range blob;
  expectation wanted;
  import_budget& budget;
  hasher blob_digest, tar_digest;
  std::uint64_t at = 0;        ///< In the blob.
  std::uint64_t tar_bytes = 0; ///< That have come out of it.
  std::uint64_t data_end = 0;  ///< Where the file that came last has to end, among those.
  bool ended = false;
  std::vector<char> buffer = std::vector<char>(block_bytes);
  read_archive unpacked, tar;
  member_headers headers{tar.get()};
  bool plain = true;
  bool opened = false;
  std::optional<error> stopped; ///< Why a callback has refused to go on.
};

std::ptrdiff_t layer_reader::impl::next_of_blob(const void** bytes) {
  if (budget.cancelled && budget.cancelled()) {
    stopped = interrupted;
    return ARCHIVE_FATAL;
  }
  const auto n = read_at(blob, at, buffer.data(), buffer.size());
  if (n < 0 || (n == 0 && at < blob.size)) {
    stopped = n < 0 ? error{errc::io_failed, std::string{"reading: "} + std::strerror(errno)}
                    : refused("it is cut off");
    return ARCHIVE_FATAL;
  }
  at += static_cast<std::uint64_t>(n);
  blob_digest.add(buffer.data(), static_cast<std::size_t>(n));
  if (n > 0 && budget.on_read)
    budget.on_read(static_cast<std::uint64_t>(n));
  *bytes = buffer.data();
  return n;
}

std::ptrdiff_t layer_reader::impl::next_of_tar(const void** bytes) {
  std::size_t count = 0;
  if (!headers.may_read()) {
    stopped = headers.too_long();
    return ARCHIVE_FATAL;
  }
  if (plain) {
    const auto n = next_of_blob(bytes);
    if (n <= 0)
      return n;
    count = static_cast<std::size_t>(n);
  } else {
    la_int64_t offset = 0;
    int got = ARCHIVE_OK;
    while (got == ARCHIVE_OK && count == 0)
      got = ::archive_read_data_block(unpacked.get(), bytes, &count, &offset);
    if (got == ARCHIVE_EOF)
      return 0;
    if (got != ARCHIVE_OK) {
      if (!stopped)
        stopped = failure(unpacked.get(), "unpacking it");
      return ARCHIVE_FATAL;
    }
  }
  if (count > budget.bytes) {
    stopped = error{errc::payload_too_large, "the image unpacks to more than --max-size allows"};
    return ARCHIVE_FATAL;
  }
  budget.bytes -= count;
  tar_bytes += count;
  headers.has_read(count);
  tar_digest.add(*bytes, count);
  return static_cast<std::ptrdiff_t>(count);
}

/// Once, after the last byte; it counts for no digest.
std::ptrdiff_t layer_reader::impl::end_of_tar(const void** bytes) {
  if (std::exchange(ended, true))
    return 0;
  *bytes = tar_end.data();
  return static_cast<std::ptrdiff_t>((tar_block - tar_bytes % tar_block) % tar_block +
                                     2 * tar_block);
}

error layer_reader::impl::failure(archive* of, const char* what) {
  if (stopped)
    return *stopped;
  const char* why = ::archive_error_string(of);
  return refused(std::string{what} + ": " + (why != nullptr ? why : "it is damaged"));
}

result<void> layer_reader::impl::open() {
  opened = true;
  const int packing = packing_of(blob);
  plain = packing == ARCHIVE_FILTER_NONE;
  if (!plain) {
    archive_entry* whole = nullptr;
    ::archive_read_support_format_raw(unpacked.get());
    // By name: what libarchive would find out by itself may be packed many times over.
    if (::archive_read_append_filter(unpacked.get(), packing) != ARCHIVE_OK ||
        ::archive_read_open(unpacked.get(), this, nullptr, give_blob, nullptr) != ARCHIVE_OK ||
        ::archive_read_next_header(unpacked.get(), &whole) != ARCHIVE_OK)
      return failure(unpacked.get(), "unpacking it");
  }
  ::archive_read_support_format_tar(tar.get());
  ::archive_read_support_format_empty(tar.get());
  if (::archive_read_open(tar.get(), this, nullptr, give_tar, nullptr) != ARCHIVE_OK)
    return failure(tar.get(), "reading its tar");
  return {};
}

/// The padding behind a tar, and whatever stands behind that in the blob, belong to the digests.
result<void> layer_reader::impl::read_rest() {
  const void* bytes = nullptr;
  std::ptrdiff_t n = 0;
  while ((n = next_of_tar(&bytes)) > 0) {
  }
  while (n == 0 && at < blob.size)
    n = next_of_blob(&bytes) < 0 ? -1 : 0;
  if (n < 0)
    return failure(unpacked.get(), "unpacking it");
  return {};
}

layer_reader::layer_reader(file_range blob, expectation wanted, import_budget& budget)
    : impl_(std::make_unique<impl>(std::move(blob), std::move(wanted), budget)) {}

layer_reader::~layer_reader() = default;

result<bool> layer_reader::next(layer_entry& into) {
  auto& me = *impl_;
  if (!me.opened)
    if (auto ok = me.open(); !ok)
      return ok.reason();
  archive_entry* entry = nullptr;
  const int got = me.headers.next(&entry);
  if (got == ARCHIVE_EOF)
    return false;
  // A warning is about a name in another character set; the name is as it was.
  if (got != ARCHIVE_OK && got != ARCHIVE_WARN)
    return me.failure(me.tar.get(), "reading its tar");
  into = {};
  into.kind = kind_of(entry);
  into.path = text(::archive_entry_pathname(entry));
  into.target = text(into.kind == entry_kind::hard_link ? ::archive_entry_hardlink(entry)
                                                        : ::archive_entry_symlink(entry));
  into.mode = ::archive_entry_perm(entry);
  into.uid = ::archive_entry_uid(entry);
  into.gid = ::archive_entry_gid(entry);
  into.size = static_cast<std::uint64_t>(std::max<la_int64_t>(0, ::archive_entry_size(entry)));
  into.modified = {::archive_entry_mtime(entry), ::archive_entry_mtime_nsec(entry)};
  // Holes are not in the tar.
  const bool whole = into.kind == entry_kind::file && ::archive_entry_sparse_count(entry) == 0;
  me.data_end =
    whole ? static_cast<std::uint64_t>(::archive_filter_bytes(me.tar.get(), -1)) + into.size : 0;
  ::archive_entry_xattr_reset(entry);
  const char* name = nullptr;
  const void* value = nullptr;
  std::size_t size = 0;
  while (::archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK)
    into.attributes.emplace_back(name, std::string{static_cast<const char*>(value), size});

  auto& left = me.budget;
  if (left.entries == 0 || left.names < into.path.size())
    return error{errc::payload_too_large, "the image has too many files"};
  // A file with holes: the bytes of others have been counted, or are about to be.
  if (into.size > left.bytes + 2 * block_bytes)
    return error{errc::payload_too_large, into.path + ": larger than --max-size allows"};
  --left.entries;
  left.names -= into.path.size();
  return true;
}

result<data_block> layer_reader::data() {
  auto& me = *impl_;
  data_block block;
  la_int64_t offset = 0;
  int got = ARCHIVE_OK;
  while (got == ARCHIVE_OK && block.count == 0) // The end of a hole is a block of nothing.
    got = ::archive_read_data_block(me.tar.get(), &block.bytes, &block.count, &offset);
  if (got == ARCHIVE_EOF && me.ended && me.data_end > me.tar_bytes)
    return refused("its tar is cut off");
  if (got == ARCHIVE_EOF)
    return data_block{};
  if (got != ARCHIVE_OK)
    return me.failure(me.tar.get(), "reading its tar");
  block.offset = static_cast<std::uint64_t>(offset);
  return block;
}

result<void> layer_reader::finish() {
  auto& me = *impl_;
  if (auto ok = me.read_rest(); !ok)
    return ok;
  if (const auto is = me.blob_digest.digest(); !me.wanted.digest.empty() && is != me.wanted.digest)
    return {refused("its digest is " + is + ", not " + me.wanted.digest)};
  if (const auto is = me.tar_digest.digest(); is != me.wanted.diff_id)
    return {refused("its digest unpacked is " + is + ", not " + me.wanted.diff_id)};
  return {};
}

} // namespace insula::storage::images
