#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace insula::actors {

/// A name, a reference or a digest of an image, short enough for nodes to tell each other twice a
/// second which images they have. Two texts may have one sign: a node that is preferred for a sign
/// has to look for the image all the same.
using image_sign = std::uint32_t;

/// Sorted, each once.
using image_signs = std::vector<image_sign>;
using shared_image_signs = std::shared_ptr<const image_signs>;

/// What a node tells of its images is no longer: three signs each of more images than a node has.
inline constexpr std::size_t most_image_signs = 384;

/// FNV-1a, the same on all nodes of all versions.
constexpr image_sign sign_of(std::string_view text) {
  image_sign sign = 2'166'136'261u;
  for (const char each : text)
    sign = (sign ^ static_cast<unsigned char>(each)) * 16'777'619u;
  return sign;
}

} // namespace insula::actors
