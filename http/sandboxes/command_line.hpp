#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace insula::http {

/// One element of argv as bash reads it back: as it stands if every character is harmless, else in
/// `$'…'`. The harmless ones are a public contract, and the underscore is not among them.
std::string quote(std::string_view element);

/// The line that bash is given for `argv`. A script that is too long for an argument, as in
/// `bash -c SCRIPT` or `timeout 9 bash -c SCRIPT`, reaches its shell through descriptor 9.
std::string command_line(const std::vector<std::string>& argv);

/// The same for shells that do not know `$'…'`. Empty if it is no other text.
std::string posix_command_line(const std::vector<std::string>& argv);

} // namespace insula::http
