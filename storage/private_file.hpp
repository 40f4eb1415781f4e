#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <string>
#include <string_view>

/// Files with keys in them, which their owner alone can read. All of it waits for the disk: for
/// starts and for commands.
namespace insula::storage {

/// What is in the file. Errors: not_found; invalid_request, naming the file and saying what to do:
/// others than its owner can read or write it, another user than this process' own or root owns it,
/// it is no regular file, or it has more than `most` bytes; io_failed. No error has anything of
/// what is in it.
result<std::string> read_private_file(const std::string& path, std::size_t most);

/// Makes the file, with mode 0600, and returns once it is on the disk. At no time is there a part
/// of it under its name. False: there is something of this name, which stays as it is; that is so
/// for all but one of several that make it at once. Errors: io_failed, naming the file.
result<bool> make_private_file(const std::string& path, std::string_view content);

/// Puts another file in the place of the one that is there, which has to be one. It has mode 0600
/// and the owner of the one before. A reader finds the old one or the new one. Errors: not_found;
/// io_failed, naming the file.
result<void> replace_private_file(const std::string& path, std::string_view content);

} // namespace insula::storage
