#pragma once

#include "http/sandboxes/tar_encoder.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct archive;

namespace insula::http {

/// A file as it was before it was compressed, if it was: with gzip, bzip2, xz or zstd, and once.
/// What it takes of memory has a ceiling, whatever the file asks for: 80 MiB for xz (its largest
/// preset wants 65), 128 MiB for zstd, less for the others.
///
/// Reading takes time: not for an HTTP thread.
class plain_source {
public:
  /// Reads from `file`, which it does not own, from where that stands.
  explicit plain_source(int file);
  ~plain_source();
  plain_source(const plain_source&) = delete;
  plain_source& operator=(const plain_source&) = delete;

  /// The next bytes, some tens of KiB, good until the next call. Empty: there are no more, or
  /// damaged() says that they cannot be had.
  std::string_view next();
  bool damaged() const { return damaged_; }

  /// Whether it has a decompressor in memory.
  bool compressed() const { return compressed_; }

private:
  class xz;

  std::string_view next_of_file();
  std::string_view next_of_filter();

  const int file_;
  bool compressed_ = false;
  bool damaged_ = false;
  std::vector<char> buffer_;
  std::unique_ptr<xz> xz_;
  std::unique_ptr<archive, archive_deleter> filter_; ///< For the others.
};

} // namespace insula::http
