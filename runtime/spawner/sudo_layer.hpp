#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"

#include <string>

namespace insula::runtime::spawner {

/// A layer with one program, usr/local/bin/sudo, that goes over the image of each sandbox in which
/// users may become root. There, before all others in the usual PATH, no package has its files:
/// what is installed later beside it changes nothing. A sudo of a package's finds a rule of its own
/// in etc/sudoers.d; the image of the machine has that itself.
///
/// Threads: the spawner's.
class sudo_layer {
public:
  /// Makes it, once, in the directory `in`, which is not in use by anybody else and can be a layer.
  /// Errors: launch_failed, each time.
  result<void> make(const std::string& in);

  /// Over the image with this root, or, if `below_usr`, over its /usr with this root. -1: not over
  /// this one. A link or a file is in the place of one of the directories, and would be hidden.
  int over(int root, bool below_usr) const;

private:
  unique_fd top_, usr_;
};

} // namespace insula::runtime::spawner
