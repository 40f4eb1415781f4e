#pragma once

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/unique_fd.hpp"
#include "storage/images/image_record.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace insula::storage::images {

/// How far an import is.
struct import_progress {
  std::uint64_t bytes = 0; ///< Of the packed layers.
  std::uint64_t total_bytes = 0;
  std::uint64_t entries = 0;
  std::size_t layer = 0; ///< From 1.
  std::size_t layers = 0;
};

struct import_options {
  std::string name;
  std::string tag;                               ///< Which image of several. Empty: there is one.
  bool replace = false;                          ///< An image of that name may be there.
  std::string reference;                         ///< For its record.
  std::string digest;                            ///< Which it has to have. Empty: any.
  bool by_node = false;                          ///< For its record.
  std::uint64_t max_bytes = limits::image_bytes; ///< Of all layers unpacked.
  std::function<void(const import_progress&)> on_progress; ///< Often; be quick.
  std::function<bool()> cancelled; ///< Often. True: the import ends with deadline_exceeded.
};

/// The images of a node: `<state>/images/.tree-<stamp>/root`, a plain tree with owners from 0, and
/// `image.json` beside it; `<state>/images/<name>` is a symlink to it, and another name may be one
/// as well. An image is there whole or not at all, and never changes: replacing leads its name to
/// another tree. A tree that no name leads to any more is kept as long as a server runs on the
/// state directory: its sandboxes start from what it found when it started. The machine's own
/// image, "host", is a directory instead.
///
/// Needs root for everything that writes. For several processes at a time; those that write refuse
/// to be two. All calls wait for the disk.
class image_store {
public:
  explicit image_store(std::string state_directory);

  /// Imports a directory or file. See open_image_source(), layer_reader and tree_writer for what is
  /// taken and what is refused. Whatever ends it early leaves nothing that counts, and the next
  /// writer here removes it.
  /// Errors: invalid_request, also when the name is taken or malformed; payload_too_large;
  /// io_failed;
  ///         limit_reached when another one writes; deadline_exceeded when it was cancelled.
  result<image_record> import_image(const std::string& source, const import_options& how);

  /// Gives an image that is here, and has the digest, one more name, which costs nothing: the tree
  /// stays as long as one of its names does. Of `how`, `name` and `replace` count.
  /// Errors: as import_image(); not_found.
  result<image_record> name_again(const std::string& digest, const import_options& how);

  /// May an import have this name, as things are? Errors: invalid_request.
  result<void> check_name(const import_options& how) const;

  /// Ordered by name. What cannot be read is left out.
  result<std::vector<image_record>> list() const;

  /// Errors: not_found, saying how it can be had; invalid_request when its record is damaged.
  result<image_record> find(const std::string& name) const;

  /// Errors: not_found; limit_reached when another one writes; io_failed.
  result<void> remove(const std::string& name);

  /// A sandbox starts from it now. Best effort.
  void mark_used(const std::string& name) const;

  /// For the machine's own image: writes `record` to where `find` looks.
  result<void> write_record(const image_record& record);

  /// Removes what is not needed any more. For a server that has just started: its sandboxes will
  /// stand on `roots`, which may have lost their names since it found them, and on nothing else.
  void sweep(std::set<std::string> roots);

private:
  result<unique_fd> lock() const;
  std::string root_in(const std::string& place) const;
  /// What imports have left halfway, and trees that no name leads to unless they are `needed`.
  void remove_leftovers(bool also_trees, std::set<std::string> needed = {}) const;
  bool in_use() const;
  result<void> check_name(int here, const import_options& how) const;
  /// Leads the name to the tree, in one step: a crash leaves the old one or the new one.
  result<void> lead(int here, const std::string& name, const std::string& tree) const;
  result<image_record> build(const std::string& source, const import_options& how,
                             const std::string& place, const unique_fd& directory) const;

  std::string state_;
  std::string directory_;
};

} // namespace insula::storage::images
