#pragma once

#include "base/tree_frames.hpp"
#include "http/sandboxes/plain_source.hpp"
#include "http/sandboxes/tar_encoder.hpp"

#include <openssl/evp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

namespace insula::http {

/// What an archive may unpack to, since a few compressed bytes can stand for very many.
struct unpack_ceilings {
  std::uint64_t plain_bytes; ///< Of the whole archive.
  std::uint64_t entries;
};

/// Turns a tar archive (plain, or compressed as plain_source knows it) into the entries
/// of a tree to be written (base/tree_frames.hpp). Leading slashes are taken off names, as GNU tar
/// does; a member with `..` in its name is left out, and failure() tells of it. Blocks of zeros
/// become holes. Files that tar_encoder has marked as one become one again, if they are still
/// alike.
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
  void watch(archive_entry* entry, const std::string& name, const entry_head& head);
  void settle(std::string& into);
  void forget(const std::string& name);
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
  /// A file with several names, as it has come under the first of them.
  struct numbered_file {
    std::string name;
    std::uint64_t size = 0;
    std::string digest;
  };
  struct free_digest {
    void operator()(EVP_MD_CTX* what) const { EVP_MD_CTX_free(what); }
  };
  /// What a file of that name costs.
  static std::size_t remembered(const std::string& name) {
    return 2 * (name.size() + sizeof(numbered_file));
  }
  std::unordered_map<std::uint32_t, numbered_file> files_;
  std::unordered_map<std::string, std::uint32_t> numbers_; ///< By these names.
  std::size_t remembered_bytes_ = 0;                       ///< In both.
  std::uint32_t number_ = 0;                               ///< Of the file that is read; 0: none.
  numbered_file now_;                                      ///< That one.
  entry_head now_head_{};
  std::uint64_t hashed_ = 0; ///< Of its content.
  std::unique_ptr<EVP_MD_CTX, free_digest> digest_;
  bool in_content_ = false;
  bool unwanted_ = false; ///< The content belongs to nothing that is passed on.
  bool over_ = false;     ///< Nothing more can be read,
  bool ended_ = false;    ///< and that has been said.
};

} // namespace insula::http
