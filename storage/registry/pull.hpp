#pragma once

#include "base/error.hpp"
#include "base/limits.hpp"
#include "storage/registry/client.hpp"
#include "storage/registry/reference.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace insula::storage::registry {

/// Which of the images that one name has: "linux/arm64/v8".
struct platform {
  std::string os = "linux";
  std::string architecture; ///< In the words of images: "amd64".
  std::string variant;      ///< Empty: any; one without goes first.

  std::string str() const;
  bool operator==(const platform&) const = default;
};

/// OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT. Errors: invalid_request.
result<platform> parse_platform(std::string_view text);
/// That of this machine.
platform machine_platform();

struct pull_progress {
  std::uint64_t bytes = 0; ///< Of the blobs, those included that were there before.
  std::uint64_t total_bytes = 0;
  std::size_t done = 0; ///< Layers that are whole.
  std::size_t layers = 0;
};

struct pull_options {
  platform which = machine_platform();
  std::uint64_t max_bytes = limits::image_bytes; ///< Of all blobs, packed.
  unsigned at_once = 3;                          ///< Layers.
  /// Is the image with this manifest here already? Then no layer is fetched. May be empty.
  std::function<bool(const std::string& digest)> is_here;
  /// Often, from any thread, never two at a time; be quick. May be empty.
  std::function<void(const pull_progress&)> on_progress;
};

struct pulled {
  std::string digest;    ///< Of the manifest.
  bool was_here = false; ///< options.is_here has said so, and nothing was fetched.
};

/// Fetches an image into `directory` as an OCI layout with that one image, which an importer reads,
/// and the indexes that have led to it.
/// What an earlier call has left there is gone on with, after it has been read again. Whatever ends
/// this one early leaves no index.json, and so no layout. `client` is one for `image`, and
/// `cancelled` what its options say as well.
///
/// Memory: the documents, and 1 MiB for each layer at once, whatever the image's size.
/// Errors: those of registry_client; payload_too_large; invalid_request, naming what is wrong with
///         the image; disk_full; each with the image's reference in front.
result<pulled> pull(registry_client& client, const image_reference& image,
                    const std::string& directory, const pull_options& options,
                    const std::function<bool()>& cancelled);

/// For somebody who does not believe the one who has pulled: does the digest that was asked for
/// lead to this manifest, by documents of the layout that have their digests? Errors:
/// invalid_request; io_failed.
result<void> check_way(const std::string& directory, const std::string& asked,
                       const std::string& manifest);

} // namespace insula::storage::registry
