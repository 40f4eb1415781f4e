#pragma once

#include "actors/sandbox/sandbox.hpp"
#include "apps/config.hpp"
#include "storage/images/authorities.hpp"
#include "storage/images/image_record.hpp"

#include <map>
#include <string>
#include <string_view>

namespace insula {

/// PATH where an image says nothing.
inline constexpr std::string_view default_path =
  "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// An imported image, as sandboxes start from it. `tree`: its directory's name; `bundle`: as
/// trust() has it; `env`: goes over what the image says. Without its programs.
actors::sandbox_image image_from(const storage::images::image_record& record,
                                 const std::string& tree, const std::string& bundle,
                                 const std::map<std::string, std::string>& env);

/// Every image of a node by its name: that of the machine itself, which is made or brought up to
/// date here, and the imported ones; with the variables and the authorities that the configuration
/// has for all of them. Needs root. Errors: invalid_request when an image that it names is missing,
/// or its file has no certificates; io_failed.
result<std::map<std::string, actors::sandbox_image>>
find_images(const std::string& state_directory, const config& values,
            const storage::images::authorities& trusted);

/// Of sandbox.ca_file. Errors: those of read_authorities(), naming the key.
result<storage::images::authorities> trusted_authorities(const config& values);

} // namespace insula
