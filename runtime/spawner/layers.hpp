#pragma once

#include "base/unique_fd.hpp"

#include <string>

namespace insula::runtime::spawner {

/// What sandboxes start from. Both places are opened once and used by descriptor from then on, so
/// that no path which somebody says, and no link in an image, leads elsewhere.
///
/// Source: openat2(2), RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV.
class layers {
public:
  /// In the mount namespace in which the layers will be cloned. False: errno says why, and
  /// `failed_at` which place it was.
  bool open(const std::string& state_directory);
  const std::string& failed_at() const { return failed_at_; }

  /// The files of an image, `<state>/images/<tree>/root`, as an O_PATH descriptor. `tree` has been
  /// checked (is_tree_name). None: errno says why; ELOOP where a link is in the way.
  unique_fd root_of(const std::string& tree) const;

  /// `<state>/images/<tree>/over`: files that go over those of the image. None with ENOENT: there
  /// are none.
  unique_fd over_of(const std::string& tree) const;

  int images() const { return images_.get(); }
  int machines_usr() const { return usr_.get(); }

private:
  unique_fd open_in(const std::string& tree, const char* name) const;

  unique_fd images_, usr_;
  std::string failed_at_;
};

} // namespace insula::runtime::spawner
