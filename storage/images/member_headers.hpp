#pragma once

#include "base/error.hpp"
#include "storage/images/archive.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace insula::storage::images {

/// Reads a tar's members with a ceiling on each header, limits::image_header_bytes: libarchive
/// reads as much as there is of a map of holes, and keeps it in many times its size. Whoever gives
/// it the tar's bytes asks and tells here.
class member_headers {
public:
  /// `tar` is kept by the caller, and outlives this.
  explicit member_headers(archive* tar)
      : tar_(tar) {}

  /// What archive_read_next_header() answers.
  int next(archive_entry** into);

  /// May another block be given? If not, it ends with too_long().
  bool may_read() const;
  void has_read(std::size_t bytes) { bytes_ += bytes; }
  /// payload_too_large, with the name of the member before.
  error too_long() const;

private:
  archive* tar_;
  bool begun_ = false;
  bool in_header_ = false;
  std::uint64_t bytes_ = 0; ///< Since the header has begun.
  std::string last_;        ///< May be empty, as any name.
};

} // namespace insula::storage::images
