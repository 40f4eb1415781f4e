#pragma once

#include <string>
#include <vector>

namespace insula::actors {

/// What a sandbox is to begin with, as somebody asks for it: an image, or the snapshot of a disk.
struct image_wish {
  std::string text; ///< A name of the catalogue's, or the reference of an image in a registry.
  std::vector<std::string> names = {}; ///< Names that mean the same to a client of one API.
  std::string snapshot = {};           ///< By its id. Empty: none; else there is no text.
  /// A sandbox whose node it is to have, if that one has a node: a drive of its own. Empty: none.
  std::string beside = {};
};

} // namespace insula::actors
