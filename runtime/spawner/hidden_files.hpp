#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"

#include <future>
#include <string>
#include <vector>

namespace insula::runtime::spawner {

/// What of the machine's /usr only its root, or a group of the machine's, may read: files that
/// others may not read, and directories that others may not list or enter. Root of a sandbox whose
/// image is the machine owns the files of root there, and would read them. So a small layer lies
/// above /usr, with a whiteout for each of them (overlayfs: "whiteouts and opaque directories").
///
/// Found when the spawner starts. What is made later, or loses its readers later, is not hidden.
class hidden_files {
public:
  /// Begins to look, on a thread of its own: /usr has some 100,000 files. `usr` stays open until
  /// make_layer() has returned.
  void look(int usr);

  /// Waits for that, and makes the layer in the directory `in`, which is not in use by anybody else
  /// and can be a layer. Errors: launch_failed.
  result<void> make_layer(const std::string& in);

  /// The layer; -1: nothing has to be hidden.
  int layer() const { return layer_ ? layer_.get() : -1; }

private:
  int usr_ = -1;
  std::future<result<std::vector<std::string>>> found_;
  unique_fd layer_;
};

/// The paths, as they are below the directory `top`. What is hidden with its directory is not
/// listed. Follows no link and looks into no other file system. Errors: launch_failed, when there
/// are more of them than limits::hidden_files.
result<std::vector<std::string>> find_hidden(int top);

} // namespace insula::runtime::spawner
