#pragma once

#include "actors/sandbox/sandbox.hpp"
#include "apps/config.hpp"

#include <map>
#include <string>
#include <string_view>

namespace insula {

/// PATH where an image says nothing.
inline constexpr std::string_view default_path =
  "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Every image of a node by its name: that of the machine itself, which is made or brought up to
/// date here, and the imported ones; with the variables and the authorities that the configuration
/// has for all of them. Needs root. Errors: invalid_request when an image that it names is missing,
/// or its file has no certificates; io_failed.
result<std::map<std::string, actors::sandbox_image>> find_images(const std::string& state_directory,
                                                                 const config& values);

} // namespace insula
