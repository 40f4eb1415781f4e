#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The JSON documents of images, as plain structs. What a document has besides is ignored; what it
/// has wrong is invalid_request, in words. Sizes are the caller's business; depth is bounded here.
/// Source: the OCI image specification 1.1 (index, manifest, config), and manifest.json as `docker
/// save` writes it.
namespace insula::storage::images {

struct descriptor {
  std::string media_type;
  std::string digest; ///< A well-formed one.
  std::uint64_t size = 0;
  std::string os, architecture, variant; ///< Empty: not said.
  std::string name; ///< org.opencontainers.image.ref.name, a tag. Empty: not said.
};

struct oci_index {
  std::vector<descriptor> manifests;
};

struct oci_manifest {
  descriptor config;
  std::vector<descriptor> layers;
};

/// What programs of an image are run with.
struct image_settings {
  std::vector<std::string> env; ///< "NAME=value", well-formed, without NUL.
  std::string user;
  std::string working_directory;
  std::vector<std::string> entrypoint;
  std::vector<std::string> command;

  bool operator==(const image_settings&) const = default;
};

struct oci_config {
  std::string os, architecture;
  image_settings settings;
  std::vector<std::string> diff_ids; ///< Of the layers, unpacked; well-formed digests.
};

struct docker_image {
  std::string config; ///< Names of members of the archive.
  std::vector<std::string> layers;
  std::vector<std::string> tags;
};

bool is_index(std::string_view media_type);

result<oci_index> read_index(std::string_view json);
result<oci_manifest> read_manifest(std::string_view json);
result<oci_config> read_config(std::string_view json);
result<std::vector<docker_image>> read_docker_images(std::string_view json);

} // namespace insula::storage::images
