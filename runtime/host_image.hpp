#pragma once

#include "base/error.hpp"
#include "runtime/engine.hpp"

#include <string>

namespace insula::runtime {

struct host_image {
  image_layers layers;
  std::string root; ///< Of the skeleton, as a path.
  /// What it was made from, as numbers that change with it: inodes and times of the machine's
  /// programs, libraries and links.
  std::string identity;
};

/// The image that needs nothing installed: a small skeleton with what the machine's packages have
/// brought to /etc (host_etc.hpp), the list of these packages for apt, and the machine's /usr.
/// Nothing else of the machine is visible inside; home directories, keys and configuration stay out
/// because they were never put in. For development and single machines: it changes when the machine
/// is upgraded.
///
/// Makes the skeleton below `directory`, if what is there does not fit any more; the one before
/// stays for the sandboxes that stand on it. Needs root: owners are set. Errors: io_failed.
result<host_image> prepare_host_image(const std::string& directory);

/// Removes the skeletons before the present one. For a server that has just started and finds no
/// sandbox of an earlier one.
void remove_old_host_images(const std::string& directory);

} // namespace insula::runtime
