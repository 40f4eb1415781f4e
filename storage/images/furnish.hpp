#pragma once

#include "base/error.hpp"

#include <string>

namespace insula::storage::images {

/// Who commands run as, and with what shell, in the image's own words.
struct image_account {
  std::string name;  ///< Of uid 1000.
  std::string home;  ///< A directory of the image.
  std::string shell; ///< "/bin/bash", else "/bin/sh"; empty: the image has neither.

  bool operator==(const image_account&) const = default;
};

/// Adds to a flattened tree what every sandbox needs, and nothing else:
///
///   /proc /sys          0555 root   made if missing; the sandbox's own are mounted there
///   /dev /run           0755 root   made if missing
///   /tmp                1777 root   made if missing; the mode is set in any case
///   /workspace          0755 1000   made if missing; the owner is set in any case
///   /etc                0755 root   made if missing
///   /etc/passwd         "sandbox", uid 1000, if there is no such uid; its shell is the image's
///   /etc/group          "sandbox", gid 1000, if there is no such gid
///   /etc/hosts          localhost, if missing or empty
///   /etc/resolv.conf    how names are asked for in a sandbox, in place of what is there
///   /etc/machine-id     leads to what each sandbox has of its own, in place of what is there
///   /home/sandbox       0755 1000   made if missing, unless uid 1000 has a home that is there
///   ~/.profile          finds programs that are installed without root, if missing
///   ~/.local/bin        0755 1000   made if missing, with a link to the image's corepack
///
/// Errors: invalid_request when one of them is there as something else (a symlink, say); io_failed.
result<image_account> furnish(int root);

/// PRETTY_NAME of the tree's os-release, in printable ASCII. Empty: it has none.
std::string pretty_name(int root);

} // namespace insula::storage::images
