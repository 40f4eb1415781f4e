#include "storage/images/file_set.hpp"

#include "base/limits.hpp"
#include "storage/images/archive.hpp"
#include "storage/images/beneath.hpp"
#include "storage/images/member_headers.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace insula::storage::images {

namespace {

error failed(const std::string& what) {
  return {errc::io_failed, what + ": " + std::strerror(errno)};
}

class directory_files final : public file_set {
public:
  explicit directory_files(unique_fd top)
      : top_(std::move(top)) {}

  result<std::optional<file_range>> find(const std::string& name) const override {
    // Without waiting for the other end of a FIFO.
    auto file = open_beneath(top_.get(), name, O_RDONLY | O_NONBLOCK);
    struct stat info {};
    if (!file && errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != EXDEV)
      return failed(name);
    if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
      return std::optional<file_range>{};
    return std::optional{file_range{std::make_shared<const unique_fd>(std::move(file)), 0,
                                    static_cast<std::uint64_t>(info.st_size)}};
  }

private:
  unique_fd top_;
};

/// The members of a tar that stands in a file as it is, by their places.
class tar_files final : public file_set {
public:
  result<void> read(const file_range& whole);

  result<std::optional<file_range>> find(const std::string& name) const override {
    // Layers that are alike are links to each other in older archives.
    auto wanted = std::filesystem::path{name}.lexically_normal().string();
    constexpr int most_links = 8;
    for (int i = 0; i < most_links; ++i) {
      if (const auto at = files_.find(wanted); at != files_.end())
        return std::optional{at->second};
      const auto link = links_.find(wanted);
      if (link == links_.end())
        break;
      wanted = link->second;
    }
    return std::optional<file_range>{};
  }

private:
  std::map<std::string, file_range> files_;
  std::map<std::string, std::string> links_; ///< To a name from the top.
};

/// Gives libarchive the bytes of a tar in a file. What it skips is not read.
class tar_source {
public:
  tar_source(const file_range& from, archive* to)
      : headers(to)
      , from_(from) {
    ::archive_read_set_read_callback(to, give);
    ::archive_read_set_skip_callback(to, skip);
    ::archive_read_set_callback_data(to, this);
  }

  member_headers headers;
  std::optional<error> stopped; ///< Why it has refused to go on.

private:
  static la_ssize_t give(archive* to, void* self, const void** bytes) {
    auto& my = *static_cast<tar_source*>(self);
    if (!my.headers.may_read()) {
      my.stopped = my.headers.too_long();
      return ARCHIVE_FATAL;
    }
    const auto n = read_at(my.from_, my.at_, my.buffer_.data(), my.buffer_.size());
    if (n < 0) {
      ::archive_set_error(to, errno, "its bytes cannot be had");
      return ARCHIVE_FATAL;
    }
    my.at_ += static_cast<std::uint64_t>(n);
    my.headers.has_read(static_cast<std::size_t>(n));
    *bytes = my.buffer_.data();
    return n;
  }
  static la_int64_t skip(archive*, void* self, la_int64_t wanted) {
    auto& my = *static_cast<tar_source*>(self);
    const auto left = static_cast<la_int64_t>(my.from_.size - my.at_);
    const auto skipped = std::min(wanted, left);
    my.at_ += static_cast<std::uint64_t>(skipped);
    return skipped;
  }

  static constexpr std::size_t block = 64 << 10;
  const file_range& from_;
  std::uint64_t at_ = 0;
  std::vector<char> buffer_ = std::vector<char>(block);
};

result<void> tar_files::read(const file_range& whole) {
  const auto& file = whole.file;
  const read_archive tar;
  tar_source source{whole, tar.get()};
  ::archive_read_support_format_tar(tar.get());
  if (::archive_read_open1(tar.get()) != ARCHIVE_OK)
    return {{errc::invalid_request, "it is no directory and no tar"}};
  archive_entry* entry = nullptr;
  std::size_t members = 0;
  for (int got; (got = source.headers.next(&entry)) != ARCHIVE_EOF;) {
    if (source.stopped)
      return {*source.stopped};
    if (got != ARCHIVE_OK && got != ARCHIVE_WARN)
      return {{errc::invalid_request,
               "as a tar it is damaged: " + std::string{::archive_error_string(tar.get())}}};
    if (++members > limits::image_archive_members)
      return {{errc::payload_too_large, "it has more than " +
                                          std::to_string(limits::image_archive_members) +
                                          " members; is it a file system instead of an image?"}};
    const char* name = ::archive_entry_pathname(entry);
    if (name == nullptr)
      continue;
    const auto normal = std::filesystem::path{name}.lexically_normal();
    if (const char* target = ::archive_entry_hardlink(entry))
      links_[normal] = std::filesystem::path{target}.lexically_normal();
    else if (const char* points_to = ::archive_entry_symlink(entry))
      links_[normal] = (normal.parent_path() / points_to).lexically_normal();
    else if (::archive_entry_filetype(entry) == AE_IFREG)
      files_[normal] = {file, static_cast<std::uint64_t>(::archive_filter_bytes(tar.get(), -1)),
                        static_cast<std::uint64_t>(::archive_entry_size(entry))};
  }
  return {};
}

bool is_compressed(int file) {
  unsigned char head[6] = {};
  static_cast<void>(::pread(file, head, sizeof head, 0));
  const auto begins = [&head](std::initializer_list<unsigned char> with) {
    return std::equal(with.begin(), with.end(), head);
  };
  return begins({0x1f, 0x8b}) || begins({0x28, 0xb5, 0x2f, 0xfd}) || begins({'B', 'Z', 'h'}) ||
         begins({0xfd, '7', 'z', 'X', 'Z', 0});
}

/// One compressed file as a plain one, which goes when it is closed.
result<unique_fd> unpack(int packed, const std::string& scratch, std::uint64_t max_bytes,
                         const std::function<bool()>& cancelled) {
  unique_fd plain{::open(scratch.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)};
  if (!plain)
    return failed("a temporary file in " + scratch);
  const read_archive stream;
  ::archive_read_support_format_raw(stream.get());
  ::archive_read_support_filter_gzip(stream.get());
  ::archive_read_support_filter_zstd(stream.get());
  ::archive_read_support_filter_bzip2(stream.get());
  ::archive_read_support_filter_xz(stream.get());
  constexpr std::size_t block = 256 << 10;
  archive_entry* entry = nullptr;
  const auto damaged = [&stream] {
    const char* why = ::archive_error_string(stream.get());
    return error{errc::invalid_request,
                 std::string{"unpacking it: "} + (why != nullptr ? why : "it is damaged")};
  };
  if (::archive_read_open_fd(stream.get(), packed, block) != ARCHIVE_OK ||
      ::archive_read_next_header(stream.get(), &entry) != ARCHIVE_OK)
    return damaged();
  std::uint64_t total = 0;
  for (;;) {
    const void* bytes = nullptr;
    std::size_t count = 0;
    la_int64_t offset = 0;
    const int got = ::archive_read_data_block(stream.get(), &bytes, &count, &offset);
    if (got == ARCHIVE_EOF)
      return plain;
    if (got != ARCHIVE_OK)
      return damaged();
    if (cancelled && cancelled())
      return error{errc::deadline_exceeded, "interrupted"};
    total += count;
    if (total > max_bytes)
      return error{errc::payload_too_large,
                   "unpacked it has more than " + std::to_string(max_bytes) + " bytes"};
    if (!write_all(plain.get(), bytes, count))
      return failed("a temporary file in " + scratch);
  }
}

} // namespace

result<std::unique_ptr<file_set>> open_file_set(const std::string& path, const std::string& scratch,
                                                std::uint64_t max_bytes,
                                                const std::function<bool()>& cancelled) {
  unique_fd opened{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  struct stat info {};
  if (!opened || ::fstat(opened.get(), &info) != 0)
    return failed(path);
  if (S_ISDIR(info.st_mode))
    return std::unique_ptr<file_set>{std::make_unique<directory_files>(std::move(opened))};
  if (!S_ISREG(info.st_mode))
    return error{errc::invalid_request, path + ": expected a directory or a file"};
  if (is_compressed(opened.get())) {
    auto plain = unpack(opened.get(), scratch, max_bytes, cancelled);
    if (!plain)
      return error{plain.reason().code, path + ": " + plain.reason().message};
    opened = std::move(*plain);
    ::fstat(opened.get(), &info);
  }
  auto tar = std::make_unique<tar_files>();
  if (auto ok = tar->read({std::make_shared<const unique_fd>(std::move(opened)), 0,
                           static_cast<std::uint64_t>(info.st_size)});
      !ok)
    return error{ok.reason().code, path + ": " + ok.reason().message};
  return std::unique_ptr<file_set>{std::move(tar)};
}

result<std::string> read_small(const file_set& from, const std::string& name, std::uint64_t most) {
  const auto found = from.find(name);
  if (!found)
    return found.reason();
  if (!*found)
    return error{errc::invalid_request, "there is no file " + name + " in it"};
  const auto& range = **found;
  if (range.size > most)
    return error{errc::invalid_request, name + " has more than " + std::to_string(most) + " bytes"};
  std::string text(range.size, '\0');
  for (std::size_t at = 0; at < text.size();) {
    const auto n = read_at(range, at, text.data() + at, text.size() - at);
    if (n < 0)
      return failed(name);
    if (n == 0)
      return error{errc::invalid_request, name + " is cut off"};
    at += static_cast<std::size_t>(n);
  }
  return text;
}

std::ptrdiff_t read_at(const file_range& from, std::uint64_t at, void* to, std::size_t count) {
  if (at >= from.size)
    return 0;
  count = static_cast<std::size_t>(std::min<std::uint64_t>(count, from.size - at));
  for (;;) {
    const auto n = ::pread(from.file->get(), to, count, static_cast<off_t>(from.offset + at));
    if (n >= 0 || errno != EINTR)
      return n;
  }
}

} // namespace insula::storage::images
