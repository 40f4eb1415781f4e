#pragma once

#include <string>
#include <vector>

namespace insula::actors {

/// An image as somebody asks for it.
struct image_wish {
  std::string text; ///< A name of the catalogue's, or the reference of an image in a registry.
  std::vector<std::string> names = {}; ///< Names that mean the same to a client of one API.
};

} // namespace insula::actors
