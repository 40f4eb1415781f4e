#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace insula::http {

/// An image of a node.
struct node_image {
  std::string name;
  std::string reference;        ///< In its registry. Empty: it is from none.
  std::string digest;           ///< Of its manifest.
  std::string base;             ///< In words, such as "Debian GNU/Linux 12 (bookworm)".
  std::uint64_t size_bytes = 0; ///< 0: not known.
  std::int64_t created_ms = 0;  ///< When it came here; Unix time.
  std::int64_t used_ms = 0;     ///< When a sandbox last started from it. 0: not known.
  bool is_default = false;      ///< New sandboxes start from it.
  std::map<std::string, std::string> programs = {}; ///< "node" -> "22.11.0". "": nothing says it.
};

/// A name for what an image runs.
struct node_runtime {
  std::string name;  ///< "node24"
  std::string image; ///< The name of an image, or the reference of one that is not here yet.
  std::string
    version; ///< Of what the image really has. Empty: the image is not here, or says none.
};

/// One that is on its way.
struct image_on_its_way {
  std::string reference;
  std::uint64_t bytes = 0, total_bytes = 0; ///< 0: not known yet.
};

/// The images of this node.
///
/// Threads: any. Nothing here waits.
class node_images {
public:
  using answer = std::function<void(const result<std::string>&)>;

  virtual ~node_images() = default;
  virtual std::vector<node_image> list() const = 0;
  virtual std::vector<image_on_its_way> on_their_way() const = 0;
  virtual std::vector<node_runtime> runtimes() const = 0;
  /// Fetches what the configuration allows, whatever it says of images that sandboxes name. `then`
  /// gets the image's name, once, and may be called before this returns; however long the pull
  /// takes. Errors: image_refused, forbidden, image_pending: too many are being fetched; disk_full.
  virtual void pull(const std::string& reference, answer then) = 0;
  /// Errors: not_found; limit_reached: it is in use, or another image is being unpacked;
  /// invalid_request; io_failed.
  virtual void remove(const std::string& name, answer then) = 0;
};

} // namespace insula::http
