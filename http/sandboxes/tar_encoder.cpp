#include "http/sandboxes/tar_encoder.hpp"

#include "base/tar_size.hpp"

#include <algorithm>
#include <cstring>
#include <locale.h>
#include <new>
#include <sys/mman.h>

namespace insula::http {

namespace {

constexpr int user_id = 1000;
constexpr const char* user_name = "sandbox";

/// A moment has as many digits in a plain header as a size.
constexpr auto latest_moment = static_cast<std::int64_t>(max_entry_size);

error no_tree() {
  return {errc::io_failed, "the sandbox sent something that is no tree"};
}

bool is_member_name(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\0') != std::string_view::npos)
    return false;
  for (std::size_t at = 0; at <= name.size();) {
    const auto end = std::min(name.find('/', at), name.size());
    if (name.substr(at, end - at) == "..")
      return false;
    at = end + 1;
  }
  return true;
}

/// Zeros to pass holes with, which libarchive counts without looking: so much that 8 GiB of them
/// cost next to nothing. No page of it is ever touched.
std::string_view zeros() {
  constexpr std::size_t size = 256u << 20, least = 64u << 10;
  static const std::string_view all = [] {
    void* const place =
      ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    static constexpr char few[least] = {};
    return place == MAP_FAILED ? std::string_view{few, least}
                               : std::string_view{static_cast<const char*>(place), size};
  }();
  return all;
}

/// Names are taken as UTF-8 while this lives, in this thread; libarchive asks the locale. Those
/// that are not are written as the bytes they are.
class utf8_names {
public:
  utf8_names()
      : before_(::uselocale(utf8())) {}
  ~utf8_names() { ::uselocale(before_); }
  utf8_names(const utf8_names&) = delete;
  utf8_names& operator=(const utf8_names&) = delete;

private:
  static locale_t utf8() {
    static const locale_t one = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    return one; // Null changes nothing.
  }

  const locale_t before_;
};

} // namespace

tar_encoder::tar_encoder(bool compact)
    : compact_(compact)
    , archive_(archive_write_new()) {
  if (!archive_)
    throw std::bad_alloc{};
  archive_write_set_format_pax_restricted(archive_.get());
  archive_write_set_options(archive_.get(), "xattrheader=SCHILY");
  archive_write_open(archive_.get(), this, nullptr, &take_bytes, nullptr);
}

/// Freeing an archive finishes it, and to finish a file of which little has come would mean to
/// write the rest of it as zeros. (archive_write_fail() would prevent that too, and lose memory.)
tar_encoder::~tar_encoder() {
  abandoned_ = true;
}

la_ssize_t tar_encoder::take_bytes(archive*, void* self, const void* bytes, std::size_t count) {
  auto& encoder = *static_cast<tar_encoder*>(self);
  if (encoder.abandoned_)
    return -1;
  encoder.out_.append(static_cast<const char*>(bytes), count);
  return static_cast<la_ssize_t>(count);
}

result<void> tar_encoder::feed(std::string_view bytes) {
  while (!bytes.empty() && !done_) {
    if (content_left_ > 0) {
      const auto taken = pass_content(bytes);
      if (taken == 0)
        return error{errc::io_failed, archive_error_string(archive_.get())};
      bytes.remove_prefix(taken);
      continue;
    }
    // A head and its strings, which may come in pieces.
    std::size_t wanted = sizeof head_;
    if (pending_.size() >= sizeof head_)
      wanted += head_.name_bytes + head_.target_bytes;
    const auto taken = std::min(bytes.size(), wanted - pending_.size());
    pending_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (pending_.size() < sizeof head_)
      continue;
    std::memcpy(&head_, pending_.data(), sizeof head_);
    if (head_.name_bytes > max_entry_name || head_.target_bytes > max_entry_name)
      return no_tree();
    if (pending_.size() < sizeof head_ + head_.name_bytes + head_.target_bytes)
      continue;
    const std::string_view strings = std::string_view{pending_}.substr(sizeof head_);
    if (auto ok =
          begin_entry(strings.substr(0, head_.name_bytes), strings.substr(head_.name_bytes));
        !ok)
      return ok;
    pending_.clear();
  }
  return {};
}

std::size_t tar_encoder::pass_content(std::string_view bytes) {
  auto count = std::min<std::uint64_t>(bytes.size(), content_left_);
  if (mapped_) {
    const auto& part = extents_[next_extent_];
    if (at_ < part.offset && !pass_hole(part.offset))
      return 0;
    count = std::min(count, part.offset + part.bytes - at_);
  }
  const auto written =
    archive_write_data(archive_.get(), bytes.data(), static_cast<std::size_t>(count));
  if (written <= 0)
    return 0;
  content_left_ -= static_cast<std::uint64_t>(written);
  if (mapped_) {
    at_ += static_cast<std::uint64_t>(written);
    const auto& part = extents_[next_extent_];
    if (at_ == part.offset + part.bytes)
      ++next_extent_;
    if (content_left_ == 0 && !end_mapped())
      return 0;
  }
  return static_cast<std::size_t>(written);
}

bool tar_encoder::pass_hole(std::uint64_t end) {
  while (at_ < end) {
    const auto some = std::min<std::uint64_t>(end - at_, zeros().size());
    const auto passed =
      archive_write_data(archive_.get(), zeros().data(), static_cast<std::size_t>(some));
    if (passed <= 0)
      return false;
    at_ += static_cast<std::uint64_t>(passed);
  }
  return true;
}

result<void> tar_encoder::take_map(std::string_view bytes) {
  if (!compact_ || mapped_ || bytes.size() % sizeof(extent) != 0)
    return no_tree();
  extents_.resize(bytes.size() / sizeof(extent));
  if (!bytes.empty())
    std::memcpy(extents_.data(), bytes.data(), bytes.size());
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < extents_.size(); ++i) {
    const auto& each = extents_[i];
    if (each.bytes == 0 || each.offset > max_entry_size || each.bytes > max_entry_size ||
        (i > 0 && (each.offset <= end || extents_[i - 1].bytes % extent_block != 0)))
      return no_tree();
    end = each.offset + each.bytes;
  }
  mapped_ = true;
  return {};
}

result<void> tar_encoder::begin_entry(std::string_view name, std::string_view target) {
  if (head_.kind == entry_kind::map)
    return take_map(target);
  if (mapped_ && head_.kind != entry_kind::file)
    return no_tree();
  if (head_.kind == entry_kind::end) {
    done_ = true;
    if (archive_write_close(archive_.get()) != ARCHIVE_OK)
      return error{errc::io_failed, archive_error_string(archive_.get())};
    return {};
  }
  const std::unique_ptr<archive_entry, archive_deleter> entry{archive_entry_new()};
  if (!entry)
    throw std::bad_alloc{};
  std::string path = name == "." ? "./" : "./" + std::string{name};
  switch (head_.kind) {
    case entry_kind::file:
      archive_entry_set_filetype(entry.get(), AE_IFREG);
      if (head_.size > max_entry_size)
        return no_tree();
      archive_entry_set_size(entry.get(), static_cast<la_int64_t>(head_.size));
      if (mapped_ && !tar_size::takes_map(name))
        return no_tree();
      if (mapped_ && !extents_.empty() &&
          extents_.back().offset + extents_.back().bytes > head_.size)
        return no_tree();
      if (head_.number != 0 && !compact_) {
        const auto number = std::to_string(head_.number);
        archive_entry_xattr_add_entry(entry.get(), file_number_attribute.data(), number.data(),
                                      number.size());
      }
      break;
    case entry_kind::hard_link:
      if (!compact_ || target == "." || !is_member_name(target))
        return no_tree();
      archive_entry_set_filetype(entry.get(), AE_IFREG);
      archive_entry_set_hardlink(entry.get(), ("./" + std::string{target}).c_str());
      break;
    case entry_kind::directory:
      archive_entry_set_filetype(entry.get(), AE_IFDIR);
      if (path.back() != '/')
        path += '/';
      break;
    case entry_kind::symlink:
      archive_entry_set_filetype(entry.get(), AE_IFLNK);
      if (target.empty() || target.find('\0') != std::string_view::npos)
        return no_tree();
      archive_entry_set_symlink(entry.get(), std::string{target}.c_str());
      break;
    default: return no_tree();
  }
  if (!is_member_name(name) || (name == "." && head_.kind != entry_kind::directory))
    return no_tree();
  archive_entry_set_pathname(entry.get(), path.c_str());
  archive_entry_set_perm(entry.get(), head_.mode & 07777);
  // Older and later moments do not fit the plain header.
  archive_entry_set_mtime(
    entry.get(), static_cast<time_t>(std::clamp<std::int64_t>(head_.modified_s, 0, latest_moment)),
    0);
  archive_entry_set_uid(entry.get(), user_id);
  archive_entry_set_gid(entry.get(), user_id);
  archive_entry_set_uname(entry.get(), user_name);
  archive_entry_set_gname(entry.get(), user_name);
  if (mapped_)
    add_map(entry.get());
  const utf8_names reading;
  if (archive_write_header(archive_.get(), entry.get()) < ARCHIVE_WARN)
    return error{errc::io_failed, archive_error_string(archive_.get())};
  content_left_ = head_.kind == entry_kind::file ? head_.size : 0;
  if (!mapped_)
    return {};
  content_left_ = 0;
  for (const auto& each : extents_)
    content_left_ += each.bytes;
  next_extent_ = 0;
  at_ = 0;
  return content_left_ > 0 || end_mapped() ? result<void>{} : no_tree();
}

/// A file that is one hole has an empty part at its end.
void tar_encoder::add_map(archive_entry* to) const {
  for (const auto& each : extents_)
    archive_entry_sparse_add_entry(to, static_cast<la_int64_t>(each.offset),
                                   static_cast<la_int64_t>(each.bytes));
  if (extents_.empty())
    archive_entry_sparse_add_entry(to, static_cast<la_int64_t>(head_.size), 0);
}

bool tar_encoder::end_mapped() {
  mapped_ = false;
  return pass_hole(head_.size);
}

} // namespace insula::http
