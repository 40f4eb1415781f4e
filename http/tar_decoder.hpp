#pragma once

#include "base/tree_frames.hpp"
#include "http/plain_source.hpp"
#include "http/tar_encoder.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace insula::http {

/// What an archive may unpack to, since a few compressed bytes can stand for very many.
struct unpack_ceilings {
  std::uint64_t plain_bytes; ///< Of the whole archive.
  std::uint64_t entries;
};

/// Turns a tar archive (plain, or compressed as plain_source knows it) into the entries
/// of a tree to be written (base/tree_frames.hpp). Leading slashes are taken off names, as GNU tar
/// does; a member with `..` in its name is left out, and failure() tells of it.
///
/// Reading and decompressing take time: not for an HTTP thread.
class tar_decoder {
public:
  /// Reads from `file`, which it does not own, from where that stands.
  tar_decoder(int file, unpack_ceilings ceilings);

  /// The next part of the entry stream, at most a little over two frames, and perhaps nothing yet:
  /// a step reads no more than some MiB. Not after ended().
  std::string next();

  /// The `end` has been in what next() gave last.
  bool ended() const { return ended_; }

  /// What went wrong, in GNU tar's words, a line each. Empty: all is well so far.
  const std::string& failure() const { return failure_; }

  /// Whether it has a decompressor in memory.
  bool compressed() const { return source_.compressed(); }

private:
  static la_ssize_t give(archive*, void* self, const void** bytes);
  void read_entry(std::string& into);
  void read_content(std::string& into);
  void complain(std::string_view line);
  void stop(std::string_view line);

  const unpack_ceilings ceilings_;
  plain_source source_;
  std::unique_ptr<archive, archive_deleter> archive_;
  std::string failure_;
  std::uint64_t plain_bytes_ = 0;
  std::uint64_t header_left_ = 0; ///< What the next header may take.
  std::string stopped_;           ///< Why `give` has refused to go on.
  std::uint64_t entries_ = 0;
  bool in_content_ = false;
  bool unwanted_ = false; ///< The content belongs to nothing that is passed on.
  bool over_ = false;     ///< Nothing more can be read,
  bool ended_ = false;    ///< and that has been said.
};

} // namespace insula::http
