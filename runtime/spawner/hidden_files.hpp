#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"

#include <atomic>
#include <future>
#include <optional>
#include <string>
#include <vector>

namespace insula::runtime::spawner {

/// What of the machine's /usr only its root, or a group of the machine's, may read: files that
/// others may not read, and directories that others may not list or enter. Root of a sandbox whose
/// image is the machine owns the files of root there, and would read them. So a small layer lies
/// above /usr, with a whiteout for each of them (overlayfs: "whiteouts and opaque directories").
///
/// Found when the spawner starts. What is made later, or loses its readers later, is not hidden.
///
/// Threads: one of its own, which looks; all calls come from the spawner's.
class hidden_files {
public:
  ~hidden_files() { stop_ = true; }

  /// Begins to look. /usr has some 100,000 files, so that takes most of a second, and minutes if a
  /// disk is slow and nothing of it is in memory. `usr` stays open for as long as this is there.
  void look(int usr);

  /// Has that been done?
  bool ready() const;

  /// Makes the layer, once, in the directory `in`, which is not in use by anybody else and can be a
  /// layer. Waits for nothing. Errors: launch_failed, each time, and as long as it is not ready().
  result<void> make_layer(const std::string& in);

  /// The layer; -1: nothing has to be hidden.
  int layer() const { return layer_ ? layer_.get() : -1; }

private:
  result<void> make_of(const std::vector<std::string>& found, const std::string& in);

  int usr_ = -1;
  std::atomic<bool> stop_ = false;
  std::future<result<std::vector<std::string>>> found_; ///< Its end waits for the thread's.
  std::optional<error> failed_;
  unique_fd layer_;
};

/// The paths, as they are below the directory `top`. What is hidden with its directory is not
/// listed. Follows no link and looks into no other file system. Errors: launch_failed, when there
/// are more of them than limits::hidden_files, or once `stop` is set.
result<std::vector<std::string>> find_hidden(int top, const std::atomic<bool>& stop);

} // namespace insula::runtime::spawner
