#pragma once

#include "base/error.hpp"
#include "storage/images/image_store.hpp"
#include "storage/registry/client.hpp"
#include "storage/registry/pull.hpp"
#include "storage/registry/reference.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace insula {

struct pull_order {
  storage::registry::image_reference image;
  storage::registry::platform which = storage::registry::machine_platform();
  storage::registry::client_options client; ///< Without `cancelled` and `authorities`.
  /// On this node. Empty: a free one is made, and none for an image that is here.
  std::string name;
  bool replace = false; ///< An image of that name may be there.
  bool by_node = false; ///< For its record.
  std::uint64_t max_bytes = limits::image_bytes;
  /// Another import may run for so long before this one gives up.
  std::chrono::milliseconds patience{0};
};

/// Both come often; be quick.
struct pull_watch {
  std::function<void(const storage::registry::pull_progress&)> on_fetch;
  std::function<void(const storage::images::import_progress&)> on_import;
  std::function<bool()> cancelled;
};

struct pulled_image {
  storage::images::image_record record;
  bool was_here = false; ///< Only its name is new.
};

/// Brings an image from a registry into the store of `state_directory`: what the registry says is
/// read by a process without rights (fetch_image.hpp), and what has come is verified by the
/// importer. Whatever ends it early leaves no image, and the next one of the same image goes on
/// where it was, if that may help. Once the image has come, this process can do little but unpack
/// it and end (import_calls.hpp).
///
/// Threads: none but the caller's may run. Needs root. Errors: those of fetch_image() and
/// image_store::import_image(); deadline_exceeded when it was cancelled.
result<pulled_image> pull_image(const std::string& state_directory, const pull_order& order,
                                const pull_watch& watch);

/// "docker.io/library/debian:12" makes "debian-12", and "latest" goes without saying. May be none.
std::string name_of_image(const storage::registry::image_reference& from);

/// `text` in letters that names of images have. May be none.
std::string image_name_from(const std::string& text);

} // namespace insula
