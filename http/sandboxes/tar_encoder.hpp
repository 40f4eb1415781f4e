#pragma once

#include "base/error.hpp"
#include "base/tree_frames.hpp"

#include <archive.h>
#include <archive_entry.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::http {

struct archive_deleter {
  void operator()(archive* what) const { archive_free(what); }
  void operator()(archive_entry* what) const { archive_entry_free(what); }
};

/// Turns the entries of a tree (base/tree_frames.hpp) into a tar archive, bit by bit. Names become
/// "./name"; owner and group are those of the sandbox's user. Pax headers appear only where a name
/// or a target is too long for the plain ones, and where a file has several names. Such files are
/// whole under each of them, since clients take no links, with a number in an attribute that says
/// which are the same (file_number_attribute); other programs pass over it.
///
/// A compact one has links in their place, and where files have holes the maps that GNU tar knows.
///
/// The entries come from a sandbox, so nothing in them is trusted.
class tar_encoder {
public:
  explicit tar_encoder(bool compact = false);
  ~tar_encoder();
  tar_encoder(const tar_encoder&) = delete;
  tar_encoder& operator=(const tar_encoder&) = delete;

  /// Errors: io_failed for what is no tree, or cannot be said in tar. Nothing may follow one.
  result<void> feed(std::string_view bytes);

  /// What has been made of it since the last call.
  std::string take() { return std::exchange(out_, {}); }

  /// The last entry has been seen, and the archive's end is in what take() gives.
  bool done() const { return done_; }

private:
  static la_ssize_t take_bytes(archive*, void* self, const void* bytes, std::size_t count);

  std::size_t pass_content(std::string_view bytes);
  bool pass_hole(std::uint64_t end);
  bool end_mapped();
  void add_map(archive_entry* to) const;
  result<void> begin_entry(std::string_view name, std::string_view target);
  result<void> take_map(std::string_view bytes);

  std::string out_;
  std::string pending_; ///< The beginning of an entry that has not come as a whole.
  entry_head head_{};
  const bool compact_;
  std::uint64_t content_left_ = 0; ///< Of what is still to come.
  bool mapped_ = false;            ///< The file that comes, or is under way, has a map.
  std::vector<extent> extents_;    ///< That map.
  std::size_t next_extent_ = 0;    ///< The one that content belongs to.
  std::uint64_t at_ = 0;           ///< How far in the mapped file it has come.
  bool done_ = false;
  bool abandoned_ = false;                            ///< Nobody wants the rest.
  std::unique_ptr<archive, archive_deleter> archive_; // Goes first: it writes to out_.
};

} // namespace insula::http
