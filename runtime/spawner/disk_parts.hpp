#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// What both kinds of disks (disk.hpp) are made of.
namespace insula::runtime::spawner {

inline constexpr std::string_view snapshot_prefix = "snap-";

/// Errors: launch_failed, with errno.
error failed_disk(const std::string& what);

std::string name_of_slot(std::uint32_t slot);

/// The directories below a sandbox's own: upper and work of the root overlay, upper and work of the
/// one on /usr. False: errno says why.
bool make_overlay_directories(int directory);

/// Where nobody else waits for children, answers the exit status. `out`: a descriptor; -1: nobody
/// reads what it says. Below 0: it has not run, or was killed.
int run_program(const char* const* argv, int out = -1);

/// Names below `top`, in their order, that begin so.
std::vector<std::string> names_with(int top, std::string_view prefix);
std::vector<std::string> without_prefix(std::vector<std::string> names, std::string_view prefix);

/// Errors: disk_full or io_failed, with errno.
error copy_failed(const std::string& what = "taking a snapshot of a disk");

} // namespace insula::runtime::spawner
