#include "http/sandboxes/tar_decoder.hpp"

#include "base/holes.hpp"
#include "base/stream_frames.hpp"
#include "base/tar_size.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <new>

namespace insula::http {

namespace {

/// What a member may have before its content: names, extended headers, maps of holes.
constexpr std::uint64_t header_bytes = 1 << 20;

/// After so much of an archive, or so many of its members, a step ends.
constexpr std::uint64_t step_bytes = 2 << 20;
constexpr std::size_t step_entries = 4096;

/// For the names of files that have several, which are remembered to the end of an archive.
/// Further ones stay files of their own under each name.
constexpr std::size_t most_remembered = 4u << 20;

std::string_view without_slashes(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('/'), name.size()));
  return name;
}

/// The name below the tree's top, without empty components and dots. None: it has a `..`.
std::optional<std::string> normalized(std::string_view name) {
  std::string clean;
  for (std::size_t at = 0; at <= name.size();) {
    const auto end = std::min(name.find('/', at), name.size());
    const auto part = name.substr(at, end - at);
    at = end + 1;
    if (part == "..")
      return std::nullopt;
    if (part.empty() || part == ".")
      continue;
    if (!clean.empty())
      clean += '/';
    clean += part;
  }
  return clean.empty() ? "." : clean;
}

template <class Struct>
void append(std::string& to, const Struct& what) {
  to.append(reinterpret_cast<const char*>(&what), sizeof what);
}

std::string_view text_of(const char* text) {
  return text == nullptr ? std::string_view{} : std::string_view{text};
}

entry_kind kind_of(archive_entry* entry) {
  if (archive_entry_hardlink(entry) != nullptr)
    return entry_kind::hard_link;
  switch (archive_entry_filetype(entry)) {
    case AE_IFREG: return entry_kind::file;
    case AE_IFDIR: return entry_kind::directory;
    case AE_IFLNK: return entry_kind::symlink;
    case AE_IFIFO: return entry_kind::fifo;
    default: return entry_kind::special;
  }
}

} // namespace

tar_decoder::tar_decoder(int file, unpack_ceilings ceilings)
    : ceilings_(ceilings)
    , source_(file)
    , archive_(archive_read_new()) {
  if (!archive_)
    throw std::bad_alloc{};
  archive_read_support_format_tar(archive_.get());
  archive_read_set_options(archive_.get(), "hdrcharset=BINARY");
  header_left_ = header_bytes;
  if (archive_read_open(archive_.get(), this, nullptr, &give, nullptr) != ARCHIVE_OK)
    stop("This does not look like a tar archive");
}

/// Every plain byte passes here, those that nobody wants too.
la_ssize_t tar_decoder::give(archive* to, void* self, const void** bytes) {
  auto& me = *static_cast<tar_decoder*>(self);
  const auto next = me.source_.next();
  me.plain_bytes_ += next.size();
  if (me.plain_bytes_ > me.ceilings_.plain_bytes)
    me.stopped_ = "The archive unpacks to more than a sandbox has room for";
  // Maps of holes are read as a whole, and each byte of one costs many of memory.
  else if (!me.in_content_ && next.size() > me.header_left_)
    me.stopped_ = "A member's header is larger than a MiB";
  if (!me.stopped_.empty() || me.source_.damaged()) {
    archive_set_error(to, EIO, "its bytes cannot be had");
    return ARCHIVE_FATAL;
  }
  if (!me.in_content_)
    me.header_left_ -= next.size();
  *bytes = next.data();
  return static_cast<la_ssize_t>(next.size());
}

std::string tar_decoder::next() {
  std::string batch;
  const auto before = plain_bytes_;
  for (std::size_t entries = 0; !over_ && entries < step_entries &&
                                batch.size() < max_frame_bytes &&
                                plain_bytes_ - before < step_bytes;)
    if (in_content_) {
      read_content(batch);
    } else {
      read_entry(batch);
      ++entries;
    }
  if (over_) {
    if (in_content_ && !unwanted_)
      append(batch, piece_head{no_content, 0, 0});
    append(batch, entry_head{});
    ended_ = true;
  }
  return batch;
}

void tar_decoder::read_entry(std::string& into) {
  archive_entry* entry = nullptr;
  header_left_ = header_bytes;
  const int got = archive_read_next_header(archive_.get(), &entry);
  if (got == ARCHIVE_EOF) {
    over_ = true;
    return;
  }
  if (got != ARCHIVE_OK && got != ARCHIVE_WARN)
    return stop(entries_ > 0 ? "Unexpected EOF or damage in archive"
                             : "This does not look like a tar archive");
  if (++entries_ > ceilings_.entries)
    return stop("The archive has more members than a sandbox has room for");
  // Whatever it is, its content is taken out in steps, so that the next header is a header only.
  in_content_ = true;
  unwanted_ = true;
  const auto stored = text_of(archive_entry_pathname(entry));
  const auto name = normalized(without_slashes(stored));
  const auto kind = kind_of(entry);
  std::string target;
  if (kind == entry_kind::symlink)
    target = text_of(archive_entry_symlink(entry));
  if (stored.empty())
    return complain("A member has no name that can be read");
  if (!name)
    return complain(std::string{stored} + ": Member name contains '..'");
  if (*name == "." && kind != entry_kind::directory)
    return complain(std::string{stored} + ": Cannot open: Is a directory");
  if (kind == entry_kind::hard_link) {
    const auto other = normalized(without_slashes(text_of(archive_entry_hardlink(entry))));
    if (!other)
      return complain(std::string{stored} + ": Link target contains '..'");
    target = *other;
  }
  if (name->size() > max_entry_name || target.size() > max_entry_name)
    return complain(std::string{stored.substr(0, 100)} + "...: File name too long");
  entry_head head{};
  head.kind = kind;
  head.mode = archive_entry_perm(entry) & 07777;
  head.size = kind == entry_kind::file
                ? static_cast<std::uint64_t>(std::max<la_int64_t>(0, archive_entry_size(entry)))
                : 0;
  head.modified_s = archive_entry_mtime(entry);
  head.modified_ns =
    static_cast<std::uint32_t>(std::clamp<long>(archive_entry_mtime_nsec(entry), 0, 999'999'999));
  head.name_bytes = static_cast<std::uint32_t>(name->size());
  head.target_bytes = static_cast<std::uint32_t>(target.size());
  append(into, head);
  into += *name;
  into += target;
  unwanted_ = kind != entry_kind::file;
  forget(*name);
  number_ = 0;
  if (kind == entry_kind::file)
    watch(entry, *name, head);
}

/// Another member has that name now.
void tar_decoder::forget(const std::string& name) {
  if (const auto known = numbers_.find(name); known != numbers_.end()) {
    remembered_bytes_ -= remembered(name);
    files_.erase(known->second);
    numbers_.erase(known);
  }
}

/// If it is marked as one that has several names.
void tar_decoder::watch(archive_entry* entry, const std::string& name, const entry_head& head) {
  if (archive_entry_xattr_reset(entry) == 0)
    return;
  const char* key = nullptr;
  const void* value = nullptr;
  std::size_t size = 0;
  while (archive_entry_xattr_next(entry, &key, &value, &size) == ARCHIVE_OK)
    if (key != nullptr && key == file_number_attribute) {
      const auto* const text = static_cast<const char*>(value);
      if (std::from_chars(text, text + size, number_).ptr != text + size)
        number_ = 0;
    }
  if (number_ == 0)
    return;
  if (!digest_)
    digest_.reset(EVP_MD_CTX_new());
  if (!digest_ || EVP_DigestInit_ex(digest_.get(), EVP_sha256(), nullptr) != 1) {
    number_ = 0;
    return;
  }
  now_ = {name, head.size, {}};
  now_head_ = head;
  hashed_ = 0;
}

/// The file has come whole. It may be one that has come under another name.
void tar_decoder::settle(std::string& into) {
  if (number_ == 0 || hashed_ != now_.size)
    return;
  now_.digest.resize(EVP_MAX_MD_SIZE);
  unsigned size = 0;
  if (EVP_DigestFinal_ex(digest_.get(), reinterpret_cast<unsigned char*>(now_.digest.data()),
                         &size) != 1)
    return;
  now_.digest.resize(size);
  if (const auto known = files_.find(number_); known != files_.end()) {
    const auto& first = known->second;
    if (first.size != now_.size || first.digest != now_.digest)
      return;
    auto head = now_head_;
    head.kind = entry_kind::same;
    head.size = 0;
    head.target_bytes = static_cast<std::uint32_t>(first.name.size());
    append(into, head);
    into += now_.name;
    into += first.name;
    return;
  }
  if (remembered_bytes_ + remembered(now_.name) > most_remembered)
    return;
  remembered_bytes_ += remembered(now_.name);
  numbers_.emplace(now_.name, number_);
  files_.emplace(number_, now_);
}

void tar_decoder::read_content(std::string& into) {
  const void* bytes = nullptr;
  std::size_t count = 0;
  la_int64_t offset = 0;
  const int got = archive_read_data_block(archive_.get(), &bytes, &count, &offset);
  if (got == ARCHIVE_EOF) {
    if (!unwanted_) {
      append(into, piece_head{});
      settle(into);
    }
    in_content_ = false;
    return;
  }
  if (got != ARCHIVE_OK && got != ARCHIVE_WARN)
    return stop("Unexpected EOF in archive");
  if (unwanted_)
    return;
  if (number_ != 0 && static_cast<std::uint64_t>(offset) == hashed_ &&
      EVP_DigestUpdate(digest_.get(), bytes, count) == 1)
    hashed_ += count;
  without_holes(static_cast<std::uint64_t>(offset), {static_cast<const char*>(bytes), count},
                max_frame_bytes, [&](std::uint64_t at, std::string_view some) {
                  append(into, piece_head{at, static_cast<std::uint32_t>(some.size()), 0});
                  into += some;
                  return true;
                });
}

/// One member is left out.
void tar_decoder::complain(std::string_view line) {
  if (failure_.size() + line.size() < max_tree_text)
    failure_ += "tar: " + std::string{line} + "\n";
}

/// Nothing more can be read.
void tar_decoder::stop(std::string_view line) {
  complain(stopped_.empty() ? line : stopped_);
  over_ = true;
}

} // namespace insula::http
