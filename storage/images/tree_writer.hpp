#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "storage/images/layer_reader.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace insula::storage::images {

/// Applies layers one over the other to a directory, so that it becomes the plain tree they stand
/// for. Nothing is written outside of it or through a symlink, whatever the layers say; the
/// directory is nobody else's meanwhile. Needs root: owners are set.
///
/// Kept are types, contents, permissions with setuid, owners (0 to 65535, as they are), times of
/// modification, hard links, and the extended attributes security.capability and user.*, except
/// user.overlay.*, which would speak to the overlay that a sandbox is.
/// Errors: invalid_request, naming the member: an absolute name or one with "..", a device, an
/// owner
///         out of range, a way through a symlink, a malformed whiteout; payload_too_large;
///         io_failed.
class tree_writer {
public:
  /// `root`: an empty directory.
  explicit tree_writer(unique_fd root);

  /// What follows belongs to the next layer: its whiteouts hide what was there before.
  void begin_layer();

  /// `data` gives the content of a file, piece by piece.
  result<void> apply(const layer_entry& entry, const std::function<result<data_block>()>& data);

  /// After the last layer: directories get their times.
  result<void> finish();

  int root() const { return root_.get(); }

private:
  struct place {
    int directory; ///< The parent; not owned.
    std::string name;
    std::string path; ///< From the root, in normal form.
  };

  result<place> find(const std::string& path, bool make_parents);
  result<void> enter(const std::string& directory, bool make);
  result<void> make_parents(const std::string& directory);
  result<void> whiteout(const std::string& path);
  result<void> make_directory(const place& at, const layer_entry& entry);
  result<void> make_file(const place& at, const layer_entry& entry,
                         const std::function<result<data_block>()>& data);
  result<void> make_link(const place& at, const layer_entry& entry);
  result<void> make_special(const place& at, const layer_entry& entry);
  result<void> finish_file(int file, const place& at, const layer_entry& entry);
  bool clear(const place& at);
  bool remove_lower(int directory, const std::string& name, const std::string& path);
  void remember(const std::string& path);

  unique_fd root_;
  bool first_layer_ = true;
  bool started_ = false;
  std::unordered_set<std::string> upper_; ///< What this layer has, with the directories above.
  std::unordered_map<std::string, timespec> directory_times_;
  std::string entered_; ///< The directory that `parent_` is.
  unique_fd parent_;
};

} // namespace insula::storage::images
