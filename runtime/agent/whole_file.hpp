#pragma once

#include "base/stream_frames.hpp"

#include <string>
#include <string_view>
#include <sys/stat.h>

namespace insula::runtime::agent {

/// All of a file of the sandbox that is at most 4 MiB long, or nothing if it is not there, as when
/// `is` stays as it was. False, with errno: it is no file, or longer.
bool read_whole_file(const char* path, std::string& into, struct stat& is);

/// A whole new file, with the mode and the owner of `is`. The step that failed, with errno.
file_step write_whole_file(const char* path, std::string_view text, const struct stat& is);

} // namespace insula::runtime::agent
