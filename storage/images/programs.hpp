#pragma once

#include <map>
#include <string>

namespace insula::storage::images {

/// The versions of the language runtimes that an image has, by what its files say; nothing of the
/// image runs. "node" -> "22.11.0", "python" -> "3.11.2". "" : it is there, and nothing says which
/// one. `root` is its tree, or that of the machine.
std::map<std::string, std::string> programs_of(int root);

} // namespace insula::storage::images
