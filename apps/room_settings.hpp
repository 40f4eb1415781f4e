#pragma once

#include "apps/image_room.hpp"
#include "base/error.hpp"
#include "base/unique_fd.hpp"

#include <cstddef>

namespace insula {

/// More than a configuration and a file of certificates may have.
inline constexpr std::size_t most_room_settings_bytes = 8u << 20;

/// The settings of an image room as a file in memory that nobody can change, for the program that
/// is started with it; it is of the same build. Errors: io_failed; payload_too_large.
result<unique_fd> keep_room_settings(const image_room::settings& how);

/// What such a file says. Errors: io_failed; payload_too_large; invalid_request, when it is another
/// file, or not whole.
result<image_room::settings> read_room_settings(int file);

} // namespace insula
