#include "http/sandboxes/plain_source.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <lzma.h>
#include <new>
#include <unistd.h>

namespace insula::http {

namespace {

constexpr std::size_t block_bytes = 64 * 1024;
constexpr std::uint64_t xz_memory = 80u << 20;

enum class packing : std::uint8_t { none, gzip, bzip2, xz, zstd };

/// By its first bytes, which stay unread.
packing packing_of(int file) {
  std::array<unsigned char, 6> head{};
  const auto at = ::lseek(file, 0, SEEK_CUR);
  if (::pread(file, head.data(), head.size(), at) < 0)
    return packing::none;
  const auto begins = [&head](std::initializer_list<unsigned char> with) {
    return std::equal(with.begin(), with.end(), head.begin());
  };
  if (begins({0x1f, 0x8b}))
    return packing::gzip;
  if (begins({'B', 'Z', 'h'}))
    return packing::bzip2;
  if (begins({0xfd, '7', 'z', 'X', 'Z', 0}))
    return packing::xz;
  return begins({0x28, 0xb5, 0x2f, 0xfd}) ? packing::zstd : packing::none;
}

} // namespace

/// Not libarchive's: that lets a file of a hundred bytes ask for a GiB.
class plain_source::xz {
public:
  xz() {
    if (::lzma_stream_decoder(&stream_, xz_memory, LZMA_CONCATENATED) != LZMA_OK)
      throw std::bad_alloc{};
  }
  ~xz() { ::lzma_end(&stream_); }
  xz(const xz&) = delete;
  xz& operator=(const xz&) = delete;

  /// `more` gives the next bytes of the file. False: damaged.
  template <class More>
  bool next(const More& more, std::string_view& plain) {
    stream_.next_out = out_.data();
    stream_.avail_out = out_.size();
    while (!ended_ && stream_.avail_out == out_.size()) {
      if (stream_.avail_in == 0 && !finishing_) {
        const auto bytes = more();
        stream_.next_in = reinterpret_cast<const std::uint8_t*>(bytes.data());
        stream_.avail_in = bytes.size();
        finishing_ = bytes.empty();
      }
      const auto got = ::lzma_code(&stream_, finishing_ ? LZMA_FINISH : LZMA_RUN);
      ended_ = got == LZMA_STREAM_END;
      if (got != LZMA_OK && !ended_)
        return false;
    }
    plain = {reinterpret_cast<const char*>(out_.data()), out_.size() - stream_.avail_out};
    return true;
  }

private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
  std::vector<std::uint8_t> out_ = std::vector<std::uint8_t>(block_bytes);
  bool finishing_ = false;
  bool ended_ = false;
};

plain_source::plain_source(int file)
    : file_(file)
    , buffer_(block_bytes) {
  const auto how = packing_of(file);
  compressed_ = how != packing::none;
  if (how == packing::xz)
    xz_ = std::make_unique<xz>();
  if (!compressed_ || xz_)
    return;
  filter_.reset(archive_read_new());
  if (!filter_)
    throw std::bad_alloc{};
  const int code = how == packing::gzip    ? ARCHIVE_FILTER_GZIP
                   : how == packing::bzip2 ? ARCHIVE_FILTER_BZIP2
                                           : ARCHIVE_FILTER_ZSTD;
  archive_entry* whole = nullptr;
  archive_read_support_format_raw(filter_.get());
  // By name: what libarchive would find out by itself may be packed many times over.
  damaged_ = archive_read_append_filter(filter_.get(), code) != ARCHIVE_OK ||
             archive_read_open_fd(filter_.get(), file, block_bytes) != ARCHIVE_OK ||
             archive_read_next_header(filter_.get(), &whole) != ARCHIVE_OK;
}

plain_source::~plain_source() = default;

std::string_view plain_source::next() {
  if (damaged_)
    return {};
  if (filter_)
    return next_of_filter();
  if (!xz_)
    return next_of_file();
  std::string_view plain;
  damaged_ = !xz_->next([this] { return next_of_file(); }, plain) || damaged_;
  return damaged_ ? std::string_view{} : plain;
}

std::string_view plain_source::next_of_file() {
  ssize_t n = 0;
  do
    n = ::read(file_, buffer_.data(), buffer_.size());
  while (n < 0 && errno == EINTR);
  damaged_ = n < 0;
  return {buffer_.data(), static_cast<std::size_t>(std::max<ssize_t>(0, n))};
}

std::string_view plain_source::next_of_filter() {
  const void* bytes = nullptr;
  std::size_t count = 0;
  la_int64_t offset = 0;
  int got = ARCHIVE_OK;
  while (got == ARCHIVE_OK && count == 0)
    got = archive_read_data_block(filter_.get(), &bytes, &count, &offset);
  damaged_ = got != ARCHIVE_OK && got != ARCHIVE_EOF;
  if (got != ARCHIVE_OK)
    return {};
  return {static_cast<const char*>(bytes), count};
}

} // namespace insula::http
