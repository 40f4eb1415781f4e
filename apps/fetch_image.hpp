#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "storage/registry/client.hpp"
#include "storage/registry/pull.hpp"

#include <cstdint>
#include <functional>
#include <set>
#include <string>

namespace insula {

/// Where one image is fetched to: `<state>/pulls/<digest of its name>`. What a pull has left there
/// is what the next one of the same image goes on with; a day later the next pull of any image
/// removes it.
///
/// Owner: one process at a time. Needs root.
class pull_place {
public:
  /// `what`: the image, and for which platform. Errors: limit_reached when it is being fetched;
  /// io_failed.
  static result<pull_place> take(const std::string& state_directory, const std::string& what);

  /// The directory that a fetcher has as its root, and there its own one, which becomes a layout.
  const std::string& path() const { return path_; }
  std::string layout() const { return path_ + "/layout"; }
  /// Until its last copy is closed, nobody else takes the place.
  int lock() const { return lock_.get(); }
  /// Has anything come that the next pull can go on with?
  bool is_empty() const;
  void remove();

private:
  pull_place(std::string path, unique_fd lock)
      : path_(std::move(path))
      , lock_(std::move(lock)) {}

  std::string path_;
  unique_fd lock_;
};

struct fetch_order {
  storage::registry::image_reference image;
  storage::registry::client_options client; ///< Without `cancelled` and `authorities`.
  storage::registry::platform which;
  std::uint64_t max_bytes = 0;
  std::set<std::string> here; ///< Digests of manifests whose images need not be fetched.
};

/// pull() in a process of its own, which speaks to the registry and has no right: a user that owns
/// nothing but the layout, that directory as its root, no capabilities, a ceiling for the size of
/// files and for its memory, and no system call that a server does not need. It ends with this
/// process. What it says is checked; what it has written is for an importer to verify.
///
/// Threads: none but the caller's may run. Errors: those of pull().
result<storage::registry::pulled>
fetch_image(const fetch_order& order, const pull_place& place,
            const std::function<void(const storage::registry::pull_progress&)>& on_progress,
            const std::function<bool()>& cancelled);

} // namespace insula
