#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace insula::runtime {

/// A file or a link of a machine's /etc.
struct etc_part {
  std::string path;        ///< Below /etc: "fonts/fonts.conf".
  std::string text = {};   ///< Of a file.
  bool runs = false;       ///< A file that is a program.
  std::string target = {}; ///< Of a link. Empty: it is a file.
};

/// What programs of a machine find in its /etc and what says nothing about the machine:
///
///   - files as packages have brought them, that everybody may read. dpkg remembers their
///   checksums;
///     a file that somebody has changed is the machine's own.
///   - files that are made from those of packages: the linker's cache, certificates, the time zone,
///     and what alternatives can choose. Each has to look like what it is.
///   - links into /usr, and to what is here.
///
/// `machine`: where the machine's root directory is. Ordered by path. Empty: there are no
/// checksums. Nothing is read through a link. Takes some 20 ms.
std::vector<etc_part> shared_etc(const std::filesystem::path& machine);

} // namespace insula::runtime
