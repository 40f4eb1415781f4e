#include "storage/snapshots/zstd_piece.hpp"

#include <archive.h>
#include <archive_entry.h>

#include <memory>

namespace insula::storage::snapshots {

namespace {

struct free_it {
  void operator()(archive_entry* each) const { ::archive_entry_free(each); }
};
struct free_writer {
  void operator()(archive* each) const { ::archive_write_free(each); }
};
struct free_reader {
  void operator()(archive* each) const { ::archive_read_free(each); }
};

la_ssize_t append(archive*, void* to, const void* bytes, std::size_t count) {
  static_cast<std::string*>(to)->append(static_cast<const char*>(bytes), count);
  return static_cast<la_ssize_t>(count);
}

error damaged() {
  return {errc::store_failed, "a piece of a snapshot is damaged"};
}

} // namespace

result<std::string> compressed(std::string_view plain) {
  std::string frame; // Lives longer than who writes to it.
  const std::unique_ptr<archive, free_writer> writer{::archive_write_new()};
  const std::unique_ptr<archive_entry, free_it> entry{::archive_entry_new()};
  ::archive_entry_set_filetype(entry.get(), AE_IFREG);
  ::archive_entry_set_pathname(entry.get(), "piece");
  ::archive_entry_set_size(entry.get(), static_cast<la_int64_t>(plain.size()));
  auto* const to = writer.get();
  const bool good =
    ::archive_write_set_format_raw(to) == ARCHIVE_OK &&
    ::archive_write_add_filter_zstd(to) == ARCHIVE_OK &&
    ::archive_write_set_bytes_in_last_block(to, 1) == ARCHIVE_OK &&
    ::archive_write_open(to, &frame, nullptr, &append, nullptr) == ARCHIVE_OK &&
    ::archive_write_header(to, entry.get()) == ARCHIVE_OK &&
    ::archive_write_data(to, plain.data(), plain.size()) == static_cast<la_ssize_t>(plain.size()) &&
    ::archive_write_close(to) == ARCHIVE_OK;
  if (!good)
    return error{errc::io_failed, std::string{"zstd: "} + ::archive_error_string(to)};
  return frame;
}

result<std::string> expanded(std::string_view frame, std::size_t bytes) {
  const std::unique_ptr<archive, free_reader> reader{::archive_read_new()};
  auto* const from = reader.get();
  archive_entry* entry = nullptr;
  if (::archive_read_support_filter_zstd(from) != ARCHIVE_OK ||
      ::archive_read_support_format_raw(from) != ARCHIVE_OK ||
      ::archive_read_open_memory(from, frame.data(), frame.size()) != ARCHIVE_OK ||
      ::archive_read_next_header(from, &entry) != ARCHIVE_OK)
    return damaged();
  std::string plain(bytes + 1, '\0'); // One more than there may be.
  std::size_t have = 0;
  while (have < plain.size()) {
    const auto n = ::archive_read_data(from, plain.data() + have, plain.size() - have);
    if (n < 0)
      return damaged();
    if (n == 0)
      break;
    have += static_cast<std::size_t>(n);
  }
  if (have != bytes)
    return damaged();
  plain.resize(bytes);
  return plain;
}

} // namespace insula::storage::snapshots
